"""Voiding a run, the cap, run ids and notices of near copies, by the command line as an owner uses it."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from ldp_slicing import Card
from ldp_slicing.cli import app
from ldp_slicing.errors import CardError, LedgerError
from ldp_slicing.ledger import Ledger, RunPolicy, default_ledger
from tests.release.helpers import card_of, plant, release, small_images, verified

IMAGES = small_images(2)


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def released(source: Path, target: Path, *options: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["privatize", str(source), str(target), *map(str, options), "--json"])
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


def exported() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(CliRunner().invoke(app, ["ledger", "--json"]).stdout)
    return content


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "500")
    return plant(tmp_path / "in", IMAGES)


def test_a_run_is_voided_once_its_outputs_are_gone_and_both_sums_are_stated(source: Path, tmp_path: Path) -> None:
    first = released(source, tmp_path / "wrong", "-e", 20)["run"]
    assert re.fullmatch("[0-9a-f]{12}", first)
    status, said = run("ledger", "void", first, "--because", "too large an epsilon")
    assert (status, "00000.png is still in" in said) == (2, True)
    shutil.rmtree(tmp_path / "wrong")
    status, said = run("ledger", "void", first[:5], "--because", "too large an epsilon")
    assert (status, "2 releases voided" in said) == (0, True)
    assert "was voided already: too large an epsilon" in run("ledger", "void", first, "--because", "again")[1]

    assert released(source, tmp_path / "right", "-e", 5)["released"] == 2  # without --spend
    (statement,) = card_of(tmp_path / "right")["statements"]
    assert (statement["most_releases_of_one_source"], statement["without_voided"]["releases"]) == (2, 1)
    assert statement["most_spent_on_one_source"]["released_pixel"] == pytest.approx(25)
    assert statement["without_voided"]["released_pixel"] == pytest.approx(5)
    assert statement["without_voided"]["source_pixel"] == pytest.approx(20)
    assert verified(tmp_path / "right") == []
    card = Card.read(tmp_path / "right" / "card.json")
    assert "the owner says were destroyed before anybody received them" in str(card)
    status, said = run("ledger", source / "00000.png")
    assert "2 releases, epsilon 25 per released pixel, 100 per source pixel" in said
    assert "without 1 voided release: 1 release, epsilon 5 per released pixel, 20 per source pixel" in said
    status, said = run("ledger")
    assert "4 releases of 2 sources, 2 voided" in said
    assert "too large an epsilon" in said
    content = exported()
    assert content["total"]["not_voided"]["releases"] == 2
    assert sorted(row["state"] for row in content["releases"]) == ["done", "done", "voided", "voided"]
    assert {run["because"] for run in content["runs"]} == {None, "too large an epsilon"}
    status, said = run("privatize", source, tmp_path / "third", "-e", 5)
    assert "was released before, 2 times (1 voided)" in said
    assert "would add up to epsilon 30" in said


@pytest.mark.parametrize(
    "wrong",
    [
        {"releases": 3},
        {"releases": 0},
        {"released_pixel": 4.0},
        {"released_pixel": 26.0},
        {"source_pixel": 19.0},
        {"why": "because"},
    ],
)
def test_sums_without_voided_releases_are_checked(wrong: dict[str, Any], source: Path, tmp_path: Path) -> None:
    first = released(source, tmp_path / "wrong", "-e", 20)["run"]
    shutil.rmtree(tmp_path / "wrong")
    run("ledger", "void", first, "--because", "a test")
    released(source, tmp_path / "right", "-e", 5)
    content = card_of(tmp_path / "right")
    content["statements"][0]["without_voided"] |= wrong
    with pytest.raises(CardError):
        Card.from_json(json.dumps(content, indent=2) + "\n")


def test_what_cannot_be_voided(source: Path, key: Path, tmp_path: Path) -> None:
    owners = released(source, tmp_path / "by key", "-e", 5, "--key", key)["run"]
    shutil.rmtree(tmp_path / "by key")
    assert "is an owner's key" in run("ledger", "void", owners, "--because", "x")[1]
    assert "no run begins with 'zz'" in run("ledger", "void", "zz", "--because", "x")[1]
    other = plant(tmp_path / "other", {"a.png": small_images(3)["00002.png"], "b.png": b"damaged"})
    unfinished = released(other, tmp_path / "out", "-e", 5)["run"]
    assert "--because TEXT" in run("ledger", "void", unfinished, "--because", " ")[1]
    state = tmp_path / "out.owner"
    (tmp_path / "out.owner" / "key").write_bytes(b"as if it were not complete")
    status, said = run("ledger", "void", unfinished, "--because", "x")
    assert (status, "its key is in" in said, f"Delete {state}" in said) == (2, True, True)
    shutil.rmtree(state)
    status, said = run("ledger", "void", unfinished, "--because", "x")
    assert (status, "is still in" in said) == (2, True)
    shutil.rmtree(tmp_path / "out")
    assert run("ledger", "void", unfinished, "--because", "x")[0] == 0  # the advice was right


def test_the_same_command_releases_what_was_voided_again_but_not_if_it_was_only_moved(
    source: Path, tmp_path: Path
) -> None:
    name = released(source, tmp_path / "out", "-e", 5)["run"]
    (tmp_path / "out").rename(tmp_path / "moved")
    assert run("ledger", "void", name, "--because", "deleted")[0] == 0
    command = ("privatize", source, tmp_path / "moved", "-e", 5, "--state", tmp_path / "out.owner")
    for dry in ([], ["--dry-run"]):
        status, said = run(*command, *dry)
        assert (status, f"00000.png exists, and the run {name}, which released it, was voided" in said) == (2, True)
    shutil.rmtree(tmp_path / "moved")
    assert released(source, tmp_path / "out", "-e", 5)["released"] == 2  # without --spend
    (statement,) = card_of(tmp_path / "out")["statements"]
    assert (statement["most_releases_of_one_source"], statement["without_voided"]["releases"]) == (2, 1)
    assert verified(tmp_path / "out") == []


def test_a_key_that_was_kept_releases_nothing_after_its_run_was_voided(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(140))
    assert release(source, tmp_path / "out", after=1).stopped
    shutil.move(tmp_path / "out.owner", tmp_path / "kept")
    shutil.rmtree(tmp_path / "out")
    (name,) = (one["run"] for one in exported()["runs"])
    assert run("ledger", "void", name, "--because", "deleted")[0] == 0
    for dry in ([], ["--dry-run"]):
        status, said = run("privatize", source, tmp_path / "out", "-e", 5, "--state", tmp_path / "kept", *dry)
        assert (status, "this run was voided (deleted), and its key" in said) == (2, True)
    assert exported()["total"]["not_voided"]["releases"] == 0
    with closing(Ledger(default_ledger())) as ledger, pytest.raises(LedgerError, match="was voided"):
        ledger.approve([], RunPolicy(ledger.find_run(name).stream, is_owners=False))


def test_a_state_folder_of_another_run_tells_nothing_about_this_one(source: Path, tmp_path: Path) -> None:
    first = released(source, tmp_path / "out", "-e", 20)["run"]
    shutil.rmtree(tmp_path / "out.owner")
    plant(tmp_path / "other", {"x.png": small_images(3, 20, 20)["00002.png"]})
    assert released(tmp_path / "other", tmp_path / "elsewhere", "-e", 20, "--state", tmp_path / "out.owner")["complete"]
    status, said = run("ledger", "void", first, "--because", "nobody has them")
    assert (status, "is still in" in said) == (2, True)


def test_a_single_release_is_voided(source: Path, tmp_path: Path) -> None:
    name = released(source / "00000.png", tmp_path / "a.png", "-e", 5)["run"]
    assert "a.png is still in" in run("ledger", "void", name, "--because", "x")[1]
    (tmp_path / "a.png").unlink()
    assert run("ledger", "void", name, "--because", "x")[0] == 0


def test_the_cap_refuses_what_would_exceed_it(source: Path, tmp_path: Path) -> None:
    assert run("privatize", source, tmp_path / "one", "-e", 3, "--cap", 5)[0] == 0
    status, said = run("privatize", source, tmp_path / "two", "-e", 3, "--cap", 5, "--spend")
    assert status == 1
    assert "was released once, and would reach epsilon 6 per released pixel, above the cap of 5" in said
    assert run("privatize", source, tmp_path / "two", "-e", 2, "--cap", 5, "--spend")[0] == 0  # the advice
    assert exported()["most_spent"][0]["epsilon_released_pixel"] == pytest.approx(5)
    assert run("privatize", source, tmp_path / "two", "-e", 2, "--cap", 1)[0] == 0  # nothing more is released
    assert "above 0" in run("privatize", source, tmp_path / "four", "-e", 2, "--cap", -1)[1]


def test_copies_within_a_run_count_towards_the_cap(tmp_path: Path) -> None:
    same = plant(tmp_path / "in", {"a.png": IMAGES["00000.png"], "b.png": IMAGES["00000.png"]})
    status, said = run("privatize", same, tmp_path / "out", "-e", 3, "--cap", 5)
    assert (status, "b.png: was released once" in said) == (1, True)


def test_a_shrunk_or_re_encoded_copy_is_noticed_and_released(tmp_path: Path) -> None:
    portrait = Image.open(Path(__file__).parents[2] / "examples/astronaut.jpg").convert("RGB")
    first, copies = plant(tmp_path / "first", {}), plant(tmp_path / "copies", {})
    first.mkdir()
    copies.mkdir()
    portrait.resize((200, 200)).save(first / "a.png")
    portrait.resize((200, 200)).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(first / "mirrored.png")
    portrait.resize((100, 100)).save(copies / "small.jpg", quality=80)
    portrait.resize((120, 120)).save(copies / "tiny.jpg", quality=80)
    status, said = run("privatize", first, tmp_path / "out", "-e", 5)
    assert (status, "may be a shrunk" in said) == (0, False)
    status, said = run("privatize", copies, tmp_path / "out2", "-e", 5)
    assert (status, said.count("small.jpg: may be a shrunk or re-encoded copy of another image of this run or")) == (
        0,
        1,
    )
    assert "2 of 2 images (small.jpg, ...): may be a shrunk or re-encoded copy of another" in said
    assert said.count("and the ledger does not count this") == 1


def test_the_first_use_of_a_ledger_names_its_path(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run("privatize", source, tmp_path / "out", "-e", 5)[1]
    assert f"new ledger: {default_ledger()};" in said
    assert "new ledger" not in run("privatize", source, tmp_path / "out2", "-e", 5, "--spend")[1]
    assert str(default_ledger()) in run("ledger")[1]
    assert str(default_ledger()) in run("doctor")[1]
    monkeypatch.setenv("LDP_SLICING_LEDGER", str(tmp_path / "mine.sqlite"))
    assert f"new ledger: {tmp_path / 'mine.sqlite'};" in run("privatize", source, tmp_path / "out3", "-e", 5)[1]
    assert f"{tmp_path / 'mine.sqlite'}: 2 releases" in run("ledger")[1]


@pytest.mark.parametrize("home", [None, "/", "/nonexistent/home"])
def test_without_a_home_there_is_advice(
    home: str | None, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_DATA_HOME")
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", home)
    status, said = run("privatize", source, tmp_path / "out", "-e", 5)
    assert (status, "LDP_SLICING_LEDGER" in said, "--ledger FILE" in said) == (2, True, True)
    assert not (tmp_path / "out").exists()
    assert run("privatize", source, tmp_path / "out", "-e", 5, "--ledger", tmp_path / "l.sqlite")[0] == 0
    status, said = run("doctor")
    assert (status, "LDP_SLICING_LEDGER" in said, "FAILED: there is no place" in said) == (1, True, True)


def test_a_home_that_cannot_be_written_is_named_with_advice(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".local").write_text("a file, where a folder is needed")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    status, said = run("privatize", source, tmp_path / "out", "-e", 5)
    assert (status, "LDP_SLICING_LEDGER" in said) == (2, True)
