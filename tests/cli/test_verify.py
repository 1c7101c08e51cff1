"""ldp-slicing verify."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldp_slicing import Plan, Slicer
from ldp_slicing.cli import app
from tests.card_attacks import ATTACKS
from tests.markers import encoded, gradient
from tests.release.helpers import PNG, plant, release

FILES = 25


@pytest.fixture
def target(tmp_path: Path) -> Path:
    source = plant(tmp_path / "in", {f"{i}.png": encoded(gradient(4 + i, 4), "PNG") for i in range(FILES)})
    release(source, tmp_path / "out")
    return tmp_path / "out"


def test_a_correct_folder(target: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(target)])
    assert (result.exit_code, result.stdout) == (0, "25 releases, 25 files: OK\n")


def test_a_fast_check_says_what_it_leaves_out(target: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(target), "--fast"])
    held = "--fast compared checksums only, not what files hold and not the card"
    said = f"25 releases, 25 files: checksums match; {held}"
    assert (result.exit_code, " ".join(result.stdout.split())) == (0, said)
    (target / "card.json").unlink()
    assert CliRunner().invoke(app, ["verify", str(target), "--fast"]).exit_code == 0
    (target / "0.png").write_bytes(b"")
    result = CliRunner().invoke(app, ["verify", str(target), "--fast", "--json"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert (report["compared"], [one["file"] for one in report["problems"]]) == ("checksums", ["0.png"])


def test_changed_files_are_listed(target: Path) -> None:
    for path in target.glob("*.png"):
        path.write_bytes(b"")
    result = CliRunner().invoke(app, ["verify", str(target)])
    assert result.exit_code == 1
    assert "wrong: 0.png has changed since its release" in result.stderr
    assert "5 more; --json" in result.stderr
    assert "25 releases, 25 files: 25 problems" in result.stdout
    result = CliRunner().invoke(app, ["verify", str(target), "--json"])
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["problems"]) == FILES


def test_a_missing_file_is_one_problem(target: Path) -> None:
    (target / "0.png").unlink()
    result = CliRunner().invoke(app, ["verify", str(target)])
    assert (result.exit_code, result.stderr.strip()) == (1, "wrong: 0.png is missing")
    assert result.stdout == "24 releases, 24 of 25 files: 1 problem\n"
    plant(target, {"00.png": PNG})
    (target / "card.json").unlink()
    said = " ".join(CliRunner().invoke(app, ["verify", str(target)]).stderr.split())
    assert "card.json is missing: the run may have been interrupted, and its owner can run it again" in said


def test_a_folder_of_single_releases_is_refused_with_the_name_of_one(tmp_path: Path) -> None:
    plant(tmp_path, {"in/0.png": PNG, "in/1.png": PNG})
    for name in ("0", "1"):
        options = (
            str(tmp_path / f"in/{name}.png"),
            str(tmp_path / f"alone/{name}.release.png"),
            "--epsilon",
            "5",
            "--spend",
        )
        assert CliRunner().invoke(app, ["privatize", *options]).exit_code == 0
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "alone")])
    assert result.exit_code == 2
    assert re.search(
        r"released on their own: name the file, such as [01]\.release\.png", " ".join(result.stderr.split())
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("in", "has no manifest"),
        ("nowhere", "neither a folder"),
        ("in/0.png", "has no 0.png.card.json"),
        ("out/0.png", "is one of a set"),
    ],
)
def test_other_paths_are_refused(name: str, why: str, target: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(target.parent / name)])
    assert result.exit_code == 2
    assert why in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            '"status"',
            '"note": "a whole source", "status"',
            "line 1 is not a valid manifest line: there is an unknown key",
        ),
        ('"status"', '"output": "1.png", "status"', "the key 'output' occurs twice"),
        (", ", ",", "not written as this software writes it"),
        ('{"manifest": 2', '{"manifest": 7', "it has version 7, and this software reads version 2"),
    ],
)
def test_a_changed_manifest_is_wrong(old: str, new: str, why: str, target: Path) -> None:
    manifest = target / "manifest.jsonl"
    manifest.write_text(manifest.read_text().replace(old, new))
    result = CliRunner().invoke(app, ["verify", str(target)])
    assert result.exit_code == 1
    assert "wrong: manifest.jsonl is damaged: " in " ".join(result.stderr.split())
    assert why in " ".join(result.stderr.split())


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_changed_card_is_wrong(attack: str, target: Path) -> None:
    change, why = ATTACKS[attack]
    (target / "card.json").write_text(change(Slicer(Plan.paper(20.0)).card(width=640, height=480).to_json()))
    result = CliRunner().invoke(app, ["verify", str(target), "--json"])
    problems = [one for one in json.loads(result.stdout)["problems"] if one["file"] == "card.json"]
    assert (result.exit_code, len(problems)) == (1, 1)
    assert problems[0]["problem"].startswith("is not a valid card: ")
    assert why in problems[0]["problem"]


@pytest.mark.parametrize("name", ["card.json", "manifest.jsonl"])
@pytest.mark.parametrize("command", ["verify", "audit"])
def test_pipes_and_devices_are_refused_at_once(command: str, name: str, target: Path) -> None:
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        (target / name).unlink()
        make(target / name)
        assert CliRunner().invoke(app, [command, str(target)]).exit_code in (1, 2)


def test_one_file_with_its_card(tmp_path: Path) -> None:
    release(plant(tmp_path, {"a.png": PNG}) / "a.png", tmp_path / "b.png")
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "b.png")])
    assert (result.exit_code, result.stdout.split(":")[0]) == (0, "1 release, 1 file")
    assert "no manifest" in result.stdout
    shown = json.loads(CliRunner().invoke(app, ["verify", str(tmp_path / "b.png"), "--json"]).stdout)
    assert (shown["manifest"], shown["problems"]) == (False, [])
    assert "how often a source was released" in shown["not_checked"]
    refused = CliRunner().invoke(app, ["verify", str(tmp_path / "b.png"), "--fast"])
    assert (refused.exit_code, "leave out --fast" in " ".join(refused.stderr.split())) == (2, True)
    (tmp_path / "b.png").write_bytes((tmp_path / "b.png").read_bytes() + b"more")
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "b.png")])
    assert (result.exit_code, "4 bytes after the end" in result.stderr) == (1, True)


@pytest.mark.parametrize("command", ["verify", "audit"])
def test_the_card_of_one_file_is_a_regular_file(command: str, tmp_path: Path) -> None:
    release(plant(tmp_path, {"a.png": PNG}) / "a.png", tmp_path / "b.png")
    card = tmp_path / "b.png.card.json"
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        card.unlink()
        make(card)
        assert CliRunner().invoke(app, [command, str(tmp_path / "b.png")]).exit_code in (1, 2)
