"""ldp-slicing verify."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldp_slicing.cli import app
from tests.markers import encoded, gradient
from tests.release.helpers import plant, release

FILES = 25


@pytest.fixture
def target(tmp_path: Path) -> Path:
    source = plant(tmp_path / "in", {f"{i}.png": encoded(gradient(4 + i, 4), "PNG") for i in range(FILES)})
    release(source, tmp_path / "out")
    return tmp_path / "out"


def test_a_correct_folder(target: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(target)])
    assert (result.exit_code, result.stdout) == (0, "25 releases, 25 files: OK\n")


def test_changed_files_are_listed(target: Path) -> None:
    for path in target.glob("*.png"):
        path.write_bytes(b"")
    result = CliRunner().invoke(app, ["verify", str(target)])
    assert result.exit_code == 1
    assert "wrong: 0.png has changed since its release" in result.stderr
    assert "6 more; --json" in result.stderr
    assert "25 releases, 25 files: 26 problems" in result.stdout
    result = CliRunner().invoke(app, ["verify", str(target), "--json"])
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["problems"]) == FILES + 1  # and the card


@pytest.mark.parametrize(
    ("name", "why"), [("in", "has no manifest"), ("nowhere", "not a folder"), ("in/0.png", "use `ldp-slicing audit`")]
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
        ('{"manifest": 2', '{"manifest": 7', "version 7 is unknown"),
    ],
)
def test_a_changed_manifest_is_wrong(old: str, new: str, why: str, target: Path) -> None:
    manifest = target / "manifest.jsonl"
    manifest.write_text(manifest.read_text().replace(old, new))
    result = CliRunner().invoke(app, ["verify", str(target)])
    assert result.exit_code == 1
    assert "wrong: manifest.jsonl is damaged: " in " ".join(result.stderr.split())
    assert why in " ".join(result.stderr.split())
