from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from ldp_slicing import Plan
from ldp_slicing.cli import app
from ldp_slicing.keys import read_key_file
from ldp_slicing.ledger import Intent, Ledger, RunPolicy
from tests.formats.videos import video
from tests.markers import encoded, gradient
from tests.release.helpers import plant


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def filled(path: Path) -> Ledger:
    ledger = Ledger(path)
    for number in range(3):
        policy = RunPolicy(bytes([number]), is_owners=False, spend=True)
        intents = [Intent(b"name", bytes([i] * 32), None, Plan.paper(20.0), "haar", 1) for i in range(number + 1)]
        approvals = ledger.approve(intents, policy)
        ledger.finish([approval.entry for approval in approvals if number < 2])
    return ledger


def test_totals_and_most_spent_sources_are_printed(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.sqlite")
    status, out, _ = run("ledger", "--ledger", tmp_path / "l.sqlite", "--most", 2)
    assert status == 0
    assert "6 releases of 3 sources, 3 unconfirmed (interrupted run)" in out
    assert [line.split("│")[1].strip() for line in out.splitlines() if "│" in line] == [
        name for name, _ in ledger.most_spent(2)
    ]
    assert " 60 " in out
    assert " 240 " in out


def test_json_exports_every_release(tmp_path: Path) -> None:
    filled(tmp_path / "l.sqlite")
    status, out, _ = run("ledger", "--ledger", tmp_path / "l.sqlite", "--json")
    content = json.loads(out)
    assert status == 0
    assert (content["sources"], content["total"]["releases"], len(content["releases"])) == (3, 6, 6)
    assert content["most_spent"][0]["releases"] == 3
    assert {row["state"] for row in content["releases"]} == {"done", "intent"}
    assert content["plans"]["1"]["prune"] == "haar"


def test_what_was_spent_on_one_image(tmp_path: Path) -> None:
    first, second = (encoded(gradient(9, width), "PNG") for width in (7, 8))
    source, ledger = plant(tmp_path / "in", {"a.png": first}), tmp_path / "l.sqlite"
    for name in ("one", "two"):
        assert run("privatize", source, tmp_path / name, "-e", 5, "--ledger", ledger, "--spend")[0] == 0
    plant(tmp_path, {"elsewhere.png": first, "other.png": second, "text.png": b"text"})
    status, out, _ = run("ledger", tmp_path / "elsewhere.png", "--ledger", ledger)
    assert (
        status,
        "elsewhere.png: 2 releases, epsilon 10 per released pixel, 40 per source pixel, last on 20" in out,
    ) == (0, True)
    assert "other.png: not in " in run("ledger", tmp_path / "other.png", "--ledger", ledger)[1]
    told = json.loads(run("ledger", tmp_path / "elsewhere.png", "--ledger", ledger, "--json")[1])
    assert (told["releases"], told["unfinished"]) == (2, 0)
    status, out, err = run("ledger", tmp_path / "text.png", "--ledger", ledger)
    assert (status, out, "text.png: not an image" in err) == (2, "", True)


def test_what_was_spent_on_a_video_and_that_shards_are_refused(tmp_path: Path) -> None:
    ledger, frames = tmp_path / "l.sqlite", [gradient(16, 16) + np.uint8(number) for number in range(3)]
    source = plant(tmp_path / "in", {"a.mkv": video(frames), "b.png": encoded(gradient(5), "PNG")})
    assert run("privatize", source, tmp_path / "out", "-e", 5, "--ledger", ledger)[0] == 0
    status, out, _ = run("ledger", source / "a.mkv", "--ledger", ledger)
    assert (status, "a.mkv: 3 releases, epsilon 15 per released pixel" in out) == (0, True)
    told = [one["releases"] for one in json.loads(run("ledger", "--ledger", ledger, "--json")[1])["most_spent"]]
    assert told == [3, 1]  # a film is shown once, not frame by frame
    others = {
        "other.mkv": video([255 - frames[0]]),
        "again.mkv": video(frames[::-1], rate=25),
        "no.mkv": b"no film",
        "s.tar": b"a shard",
    }
    plant(tmp_path, others)
    assert "other.mkv: not in " in run("ledger", tmp_path / "other.mkv", "--ledger", ledger)[1]
    assert (
        "again.mkv: 3 releases, " in run("ledger", tmp_path / "again.mkv", "--ledger", ledger)[1]
    )  # the same frames in another file
    for name, said in (
        ("s.tar", "s.tar: holds many sources"),
        ("none.mkv", "none.mkv does not exist"),
        ("no.mkv", "no.mkv: "),
    ):
        status, out, err = run("ledger", tmp_path / name, "--ledger", ledger)
        assert (status, out, said in err) == (2, "", True)


def test_an_empty_ledger_and_a_missing_one(tmp_path: Path) -> None:
    Ledger(tmp_path / "empty.sqlite")
    assert "0 releases of 0 sources" in run("ledger", "--ledger", tmp_path / "empty.sqlite")[1]
    assert json.loads(run("ledger", "--ledger", tmp_path / "empty.sqlite", "--json")[1])["releases"] == []
    status, out, err = run("ledger", "--ledger", tmp_path / "none.sqlite")
    assert (status, out) == (2, "")
    assert "there is no ledger" in err


def test_a_key_is_created_and_never_printed(tmp_path: Path) -> None:
    path = tmp_path / "my.key"
    status, out, err = run("key", "new", path)
    assert status == 0
    assert read_key_file(path).hex() not in out + err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    status, out, err = run("key", "new", path)
    assert (status, out) == (2, "")
    assert "never overwritten" in err
    assert path.read_bytes() == before


def test_ledgers_are_merged(tmp_path: Path) -> None:
    both = encoded(gradient(8), "PNG")
    for name in ("a", "b"):
        number = ord(name)
        image = encoded(gradient(9, number % 50), "PNG")
        source = plant(tmp_path / f"in {name}", {f"{name}.png": image, "both.png": both})
        assert run("privatize", source, tmp_path / f"out {name}", "-e", 5, "--ledger", tmp_path / name)[0] == 0
    assert "merged ledger" not in run("ledger", "--ledger", tmp_path / "a")[1]
    status, out, _ = run("ledger", "merge", tmp_path / "b", "--ledger", tmp_path / "a")
    assert (status, "2 releases added, 4 in all" in out) == (0, True)
    listed = run("ledger", "--ledger", tmp_path / "a")[1]
    assert "4 releases of 4 sources" in listed
    assert "A source that is also in a merged ledger may be listed and counted separately" in listed
    assert json.loads(run("ledger", "--ledger", tmp_path / "a", "--json")[1])["has_merged"] is True
    assert "2 releases, epsilon 10 " in run("ledger", tmp_path / "in a/both.png", "--ledger", tmp_path / "a")[1]
    again = run("privatize", tmp_path / "in b", tmp_path / "again", "-e", 5, "--ledger", tmp_path / "a")
    assert (again[0], "b.png: was released before, once" in again[2]) == (1, True)
    assert run("ledger", "merge", tmp_path / "c", "--ledger", tmp_path / "a")[0] == 2


def test_help_names_the_commands(tmp_path: Path) -> None:
    _, out, _ = run("ledger", "--help")
    assert all(f" {name} " in out for name in ("show", "void", "merge", "rebuild"))
    (tmp_path / "void").write_bytes(encoded(gradient(5), "PNG"))
    filled(tmp_path / "l.sqlite")
    assert "not in" in run("ledger", "show", tmp_path / "void", "--ledger", tmp_path / "l.sqlite")[1]
