"""verify and audit of sets that are intact: with the litter of file managers, and of runs that did not finish."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.cli.exit_status import ExitStatus
from tests.release.helpers import card_of, plant, release, small_images

LITTER = {"Thumbs.db": bytes(1234), "a/.DS_Store": b"", "a/desktop.ini": b"[x]", "a/._00000.png": b"\0\5\x16\7"}


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def littered(tmp_path: Path) -> Path:
    release(plant(tmp_path / "in/a", small_images(3, 64, 64)).parent, tmp_path / "out")
    return plant(tmp_path / "out", LITTER)


def test_verify_names_litter_and_its_size(littered: Path) -> None:
    for options in ([], ["--fast"]):
        status, out, err = run("verify", littered, *options)
        assert (status, "3 releases, 3 files: " in out) == (ExitStatus.OK, True)
        assert "not a release: Thumbs.db (1,234 bytes) was left by a file manager, and may hold a source" in err
        assert all(f"not a release: {name} (" in err for name in LITTER)
    found = json.loads(run("verify", littered, "--json")[1])
    assert {one["file"]: one["bytes"] for one in found["litter"]} == {name: len(data) for name, data in LITTER.items()}
    status, _, err = run("verify", littered, "--strict")
    assert (status, err.count("wrong: ")) == (ExitStatus.FAILED, len(LITTER))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a/._00000.png", b"\x89PNG\r\n\x1a\n"),  # not what macOS writes
        ("a/._Anna Smith.png", b"\0\5\x16\7"),  # beside nothing
        ("Anna Smith/.DS_Store", b""),  # the name of the folder tells
    ],
)
def test_not_everything_is_litter(name: str, data: bytes, tmp_path: Path) -> None:
    release(plant(tmp_path / "in/a", small_images(3, 64, 64)).parent, tmp_path / "out")
    plant(tmp_path / "out", {name: data})
    assert run("verify", tmp_path / "out")[0] == ExitStatus.FAILED


def test_audit_names_litter_and_its_size(littered: Path) -> None:
    status, out, _ = run("audit", littered)
    assert status in (ExitStatus.OK, ExitStatus.UNDECIDED)
    assert "Thumbs.db (1,234 bytes)" in out
    status, out, _ = run("audit", littered, "--strict")
    assert status == ExitStatus.FAILED
    assert "Thumbs.db: was left by a file manager" in out


def test_any_other_file_is_still_wrong(littered: Path) -> None:
    plant(littered, {"thumbs.db.png": b"", "notes.txt": b""})
    status, _, err = run("verify", littered)
    assert (status, err.count("is not in the manifest")) == (ExitStatus.FAILED, 2)


def test_a_run_that_did_not_finish_is_intact_but_not_complete(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(130))
    assert not release(source, tmp_path / "out", after=1).complete
    assert card_of(tmp_path / "out")["complete"] is False
    status, out, _ = run("verify", tmp_path / "out")
    assert (status, "intact, not complete" in out) == (ExitStatus.INCOMPLETE, True)
    assert json.loads(run("verify", tmp_path / "out", "--json")[1])["complete"] is False
    assert "the run is not complete" in run("audit", tmp_path / "out")[1]
    assert release(source, tmp_path / "out").complete
    assert card_of(tmp_path / "out")["complete"] is True
    status, out, _ = run("verify", tmp_path / "out")
    assert (status, out.endswith("OK\n")) == (ExitStatus.OK, True)
