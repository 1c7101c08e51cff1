"""How a run ends: skipped and failed files, exit statuses, --json and --report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ldp_slicing.card import Card
from ldp_slicing.cli import app
from ldp_slicing.cli.exit_status import TABLE, ExitStatus
from ldp_slicing.errors import Reason
from ldp_slicing.ledger import default_ledger
from tests.docs.documents import ROOT
from tests.formats.parquet_files import table
from tests.markers import encoded, gradient
from tests.release.helpers import PNG, outputs, plant, small_images, snapshot, verified

REPOSITORY = {"README.md": b"# Cats", ".gitattributes": b"*.png filter=lfs", "data/LICENSE": b"MIT", "empty": b""}


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def privatize(*arguments: object) -> tuple[int, str, str]:
    return run("privatize", *arguments, "--epsilon", 5)


def as_json(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(privatize(*arguments, "--json")[1])
    assert (found["version"], found["command"]) == (1, "privatize")
    return found


def test_files_of_other_formats_are_skipped(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {**REPOSITORY, "data/a.png": PNG})
    status, out, err = privatize(source, tmp_path / "out")
    assert (status, out.startswith("1 of 1 file released")) == (ExitStatus.OK, True)
    assert "skipped: 4 files of other formats: .gitattributes, README.md, data/LICENSE, empty\n" in err
    assert list(outputs(tmp_path / "out")) == ["data/a.png"]
    assert verified(tmp_path / "out") == []
    assert privatize(source, tmp_path / "out", "--strict")[0] == ExitStatus.SKIPPED
    found = as_json(source, tmp_path / "out")
    assert (found["skipped"], found["exit_status"]) == (sorted(REPOSITORY), 0)
    assert privatize(source, tmp_path / "out", "--strict", "--exclude", "{*.md,.git*,LICENSE,empty}")[0] == 0


@pytest.mark.parametrize("name", ["cut.png", "photo.dng", "photos.zip", "data.tar.gz", "scan.pdf", "begins like one"])
def test_what_may_hold_images_fails_and_is_not_skipped(name: str, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {**REPOSITORY, "a.png": PNG, name: PNG[:50]})
    status, _, err = privatize(source, tmp_path / "out")
    assert (status, f"not released: {name}: " in err) == (ExitStatus.FAILED, True)
    (problem,) = as_json(source, tmp_path / "out", "--strict")["problems"]
    assert (problem["source"], problem["reason"]) == (name, Reason.UNREADABLE)


def test_each_statement_begins_a_line(tmp_path: Path) -> None:
    grey = encoded(gradient()[..., 0], "PNG")
    source = plant(tmp_path / "in", {"colour.png": encoded(gradient(), "PNG"), "grey.png": grey})
    for options in (["--dry-run"], []):
        _, out, _ = privatize(source, tmp_path / "out", *options)
        assert out.count("\n1 release of ") == 2


def test_reasons(tmp_path: Path) -> None:
    images = small_images(3)
    source = plant(tmp_path / "in", {"a.png": images["00000.png"]})
    assert privatize(source, tmp_path / "out")[0] == 0
    plant(source, {"b.png": images["00001.png"], "cut.png": PNG[:50], "card.json/c.png": images["00002.png"]})
    (source / "link.png").symlink_to("a.png")
    found = as_json(source, tmp_path / "more")
    assert {one["source"]: one["reason"] for one in found["problems"]} == {
        "a.png": Reason.RELEASED_BEFORE,
        "cut.png": Reason.UNREADABLE,
        "card.json/c.png": Reason.NAME,
        "link.png": Reason.NOT_A_FILE,
    }
    (tmp_path / "more/b.png").unlink()
    plant(source, {"b.png": PNG})
    found = as_json(source, tmp_path / "more")
    assert {one["source"]: one["reason"] for one in found["problems"]}["b.png"] == Reason.LOST


@pytest.mark.parametrize(
    ("source", "target", "options", "reason"),
    [
        ("nowhere", "out", [], Reason.SOURCE),
        ("texts", "out", [], Reason.NO_FILES),
        ("in", "in/out", [], Reason.OVERLAP),
        ("in", "texts", [], Reason.TARGET),
        ("in", "out", ["--include", "[a"], Reason.PATTERN),
        ("in", "out", ["--slices", "Y9"], Reason.SETTINGS),
        ("in", "out", ["--key", "nowhere"], Reason.KEY),
        ("in", "out", ["--ledger", "in/a.png"], Reason.LEDGER),
    ],
)
def test_refusals_have_reasons_too(
    source: str, target: str, options: list[str], reason: Reason, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plant(tmp_path, {"in/a.png": PNG, "texts/a.txt": b"text"})
    status, out, err = privatize(source, target, *options, "--json", "--report", "report.json")
    assert status == ExitStatus.REFUSED
    assert json.loads(out)["refused"]["reason"] == reason
    assert json.loads(out)["refused"]["message"] in " ".join(err.split())
    assert json.loads(Path("report.json").read_text()) == json.loads(out)


def test_a_report_is_replaced_by_that_of_the_next_run(tmp_path: Path) -> None:
    source, report = plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "report.json"
    assert privatize(source, tmp_path / "in/out", "--report", report)[0] == 2
    assert "refused" in json.loads(report.read_text())
    assert privatize(source, tmp_path / "out", "--report", report)[0] == 0
    assert json.loads(report.read_text())["released"] == 1


@pytest.mark.parametrize("place", ["out/report.json", "in/a.png", "in", "nowhere/report.json", "/proc/r.json"])
def test_a_report_overwrites_nothing_and_does_not_lie_in_the_target(place: str, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG})
    before = snapshot(tmp_path)
    status, _, err = privatize(source, tmp_path / "out", "--report", tmp_path / place)
    assert (status, "refused" in err) == (ExitStatus.REFUSED, True)
    assert snapshot(tmp_path) == before
    assert not default_ledger().exists()


@pytest.mark.parametrize("place", ["out", "other"])
def test_a_report_does_not_replace_a_link_among_releases(place: str, tmp_path: Path) -> None:
    """It names sources, and would take the place of the link instead of following it."""
    source = plant(tmp_path / "in", {"a.png": PNG})
    for target in ("out", "other"):
        assert privatize(source, tmp_path / target, "--names", "random", "--spend")[0] == 0
    link = tmp_path / place / "report.json"
    link.symlink_to(tmp_path / "elsewhere.json")
    status, _, err = privatize(source, tmp_path / "out", "--names", "random", "--report", link)
    assert (status, "is handed on" in err) == (ExitStatus.REFUSED, True)
    assert link.is_symlink()
    assert not (tmp_path / "elsewhere.json").exists()


def test_the_guide_and_the_help_show_the_exit_statuses() -> None:
    assert TABLE in (ROOT / "docs/guide/privatize.md").read_text()
    for command in ("privatize", "verify", "audit"):
        text = " ".join(run(command, "--help")[1].replace("│", " ").split())
        assert "exit status" in text
        assert "refused to start" in text


def test_the_guide_lists_the_reasons() -> None:
    text = (ROOT / "docs/guide/privatize.md").read_text()
    assert [one for one in Reason if f"| `{one}` |" not in text] == []


def test_a_folder_of_releases_is_released_again_with_a_notice_before_anything_is_spent(tmp_path: Path) -> None:
    first, second = plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "out"
    assert "already releases" not in privatize(first, second)[2]
    status, _, err = privatize(second, tmp_path / "again")
    assert (status, err.count("notice: the sources include or lie beside a card, card.json: images ")) == (0, 1)
    (notice,) = (one for one in as_json(second, tmp_path / "again")["notices"] if "already releases" in one["notice"])
    assert notice["sources"] == ["."]


@pytest.mark.parametrize(
    ("released", "again", "card"),
    [
        ("a.png", "b.png", "a.png.card.json"),
        ("a.png", "folder/", "a.png.card.json"),
        ("releases/", "b.png", "card.json"),
    ],
)
def test_a_released_file_is_released_again_with_the_same_notice(
    released: str, again: str, card: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(plant(tmp_path, {"in/a.png": PNG}))
    assert "already releases" not in privatize("in/a.png", released)[2]
    path = f"{released}a.png" if released.endswith("/") else released
    status, _, err = privatize(path, again)
    assert (status, err.count(f"notice: the sources include or lie beside a card, {card}: ")) == (0, 1)


def test_notices_count_images_or_files_as_they_mean(tmp_path: Path) -> None:
    images = [*small_images(6).values()]
    grey = [encoded(np.repeat(gradient(9, 7)[..., :1] + np.uint8(i), 3, axis=2), "PNG") for i in range(3)]
    source = plant(
        tmp_path / "in",
        {"a.parquet": table([*images[:4], *grey[:2]]), "b.parquet": table([images[4]]), "c.png": grey[2]},
    )
    status, _, err = privatize(source, tmp_path / "out", "--keep", "label", "--workers", 1)
    said = [line for line in err.split("notice: ") if line and "ledger" not in line and "may be a shrunk" not in line]
    assert status == 0
    assert said[0].startswith("a.parquet: left out: text")  # as soon as it is known
    assert said[1].startswith("a.parquet: 4/the-secret-marker4.jpg: all three channels are equal")
    assert said[2].startswith("3 of 8 images (a.parquet, ...): all three channels are equal, so the budget")
    assert said[3].startswith("2 of 3 files (a.parquet, ...): left out: text (--keep NAME keeps them)")
    assert len(said) == 4
    found = as_json(source, tmp_path / "out", "--keep", "label")["notices"]
    by_text = {one["notice"].partition(":")[0]: (one["sources"], one["images"]) for one in found}
    assert len(by_text) == len(found)  # the text is there once, however many files have it
    assert by_text["left out"] == (["a.parquet", "b.parquet"], 0)
    (channels,) = (about for text, about in by_text.items() if "channels" in text)
    assert channels == (["a.parquet", "c.png"], 3)


def test_several_plans_are_stated_in_brief_and_nothing_is_left_out(tmp_path: Path) -> None:
    """Every level of every plan has its epsilon and its limit, and every risk is said once, of which images."""
    grey = encoded(gradient(12, 10)[..., 0], "PNG")
    source = plant(tmp_path / "in", {"a.png": encoded(gradient(8, 8), "PNG"), "b.png": grey})
    ran = CliRunner().invoke(app, ["privatize", str(source), str(tmp_path / "out"), "-e", "2"])
    card = Card.read(tmp_path / "out" / "card.json")
    said = ran.stdout.partition("states the promise:\n\n")[2].splitlines()
    assert len(card.statements) == 2
    assert len(said) == 2 * 2 + 1 + len({one.risk.sentence for one in card.statements})
    for heading, levels, statement in zip(said[:4:2], said[1:4:2], card.statements, strict=True):
        assert heading == statement.heading
        assert all(f"{level.unit}: {level.epsilon:g} ({level.limit})" in levels for level in statement.levels[1:])
        kind = "colour" if statement.plan.is_colour else "8-bit grey"
        assert any(line.startswith(kind) and line.endswith(statement.risk.sentence) for line in said[5:])
