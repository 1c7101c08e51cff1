"""Standard output and standard error that cannot be written. Each command is a process, because its streams are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ldp_slicing.ledger import Ledger
from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import verify
from tests.release.helpers import PNG, plant, release

FULL = Path("/dev/full")  # every write to it fails as on a full disk
SAID = "write error: standard output: No space left on device; the output is incomplete\n"
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")


def run(folder: Path, *words: str, redirect: str) -> subprocess.CompletedProcess[str]:
    """Run a command in ``folder``, with the redirections of a shell."""
    places = {"LDP_SLICING_LEDGER": str(folder / "l.sqlite")}
    command = ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, "-m", "ldp_slicing", *words]
    return subprocess.run(command, cwd=folder, env=os.environ | places, capture_output=True, text=True, check=False)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    release(plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "out")
    Ledger(tmp_path / "l.sqlite").close()
    return tmp_path


@pytest.mark.parametrize(
    "command",
    ["plan -e20", "plan -e20 --json", "--help", "verify --help", "--version", "verify out", "names out", "ledger"],
)
def test_a_full_disk_is_reported_in_one_line(work: Path, command: str) -> None:
    ran = run(work, *command.split(), redirect=">/dev/full")
    assert (ran.returncode, ran.stderr) == (74, SAID)


@pytest.mark.parametrize("command", ["plan", "verify nothing", "nonsense"])
def test_a_full_disk_for_messages_is_reported_by_the_exit_status(work: Path, command: str) -> None:
    ran = run(work, *command.split(), redirect="2>/dev/full")
    assert (ran.returncode, ran.stdout) == (74, "")


@pytest.mark.parametrize("command", ["plan -e20", "verify out"])
def test_messages_that_nobody_needs_cannot_fail(work: Path, command: str) -> None:
    assert run(work, *command.split(), redirect="2>/dev/full").returncode == 0


@pytest.mark.parametrize("command", ["plan -e20", "verify out", "names out"])
def test_closed_streams_are_not_written_to(work: Path, command: str) -> None:
    ran = run(work, *command.split(), redirect=">&- 2>&- <&-")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("redirect", "status"),
    [(">/dev/full 2>&1", 74), ("2>/dev/full", 74), (">/dev/full", 74), (">&- 2>&- <&-", 0), ("| true", 0)],
)
def test_a_run_is_completed_whatever_happens_to_its_log(tmp_path: Path, redirect: str, status: int) -> None:
    """Its card, its manifest and its report are written, and its key is destroyed."""
    plant(tmp_path / "in", {"a.png": PNG, "b.png": b"damaged"})
    words = ("privatize", "in", "out", "-e20", "--exclude", "b.png", "--report", "report.json")
    assert run(tmp_path, *words, redirect=redirect).returncode == status
    report = verify(LocalStorage(tmp_path / "out"))
    assert (report.releases, report.problems, report.complete) == (1, [], True)
    assert (tmp_path / "report.json").exists()
    assert not (tmp_path / "out.owner" / "key").exists()


@pytest.mark.parametrize(
    "words",
    ["show in/a.png --out in/a.png/sheet.png", "audit --out in/a.png/report.json", "audit out --out in/report/a.json"],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(work: Path, words: str) -> None:
    ran = run(work, *words.split(), redirect="</dev/null")
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"refused: {words.split()[-1]} cannot be written: ")
    assert len(ran.stderr.splitlines()) == 1


def test_an_error_of_the_operating_system_is_one_line(work: Path) -> None:
    ran = run(work, "ledger", "rebuild", "out.owner", "--ledger", "in/a.png/ledger", redirect="</dev/null")
    assert (ran.returncode, ran.stderr) == (74, "aborted: in/a.png/ledger.rebuilding: Not a directory\n")
