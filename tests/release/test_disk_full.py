"""Disks that are full or read-only."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldp_slicing.ledger import Ledger
from tests.release.helpers import plant, small_images, spent, tree
from tests.release.processes import Watch, command


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a small disk; test_pool.py fakes a full one")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("state", ["elsewhere", "on the full disk"])
def test_a_run_on_a_full_disk_is_resumed_when_there_is_space(
    state: str, workers: str, small_disk: Path, tmp_path: Path
) -> None:
    source = plant(tmp_path / "in", small_images(300, 80, 60))  # 14 kB each
    target, ledger = small_disk / "out", (tmp_path if state == "elsewhere" else small_disk) / "ledger.sqlite"
    options = ["--workers", workers, *(["--state", str(tmp_path / "state")] if state == "elsewhere" else [])]
    ran = subprocess.run(command(source, target, ledger, *options), capture_output=True, text=True, check=False)
    assert ran.returncode in (1, 2), ran.stderr
    watch = Watch(target, ledger)
    made = watch.look()
    assert made < 150
    if state == "elsewhere":
        assert ran.returncode == 1
        assert made > 30
        assert (
            spent(ledger).releases - spent(ledger).unfinished == made
        )  # temporary files lay in the target, where they may have been seen
        assert not json.loads(ran.stdout)["complete"]
    remount(small_disk, "size=64m")
    ran = subprocess.run(command(source, target, ledger, *options), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    watch.at_the_end(300)


def test_the_run_stops_at_the_first_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """The other files of the batch and of the run still wait."""
    source = plant(tmp_path / "in", small_images(300, 80, 60))
    asked = command(
        source, small_disk / "out", tmp_path / "ledger.sqlite", "--state", str(tmp_path / "state"), "--workers", "1"
    )
    ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    told = json.loads(ran.stdout)
    (problem,) = told["problems"]
    assert "No space left" in problem["problem"]
    assert (told["stopped"], told["complete"]) == (True, False)
    assert told["released"] + told["waiting"] + 1 == 300


def test_a_target_that_cannot_be_written(small_disk: Path, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(5))
    target, ledger = small_disk / "out", tmp_path / "ledger.sqlite"
    target.mkdir()

    def run() -> subprocess.CompletedProcess[str]:
        asked = command(source, target, ledger, "--state", str(tmp_path / "state"))
        return subprocess.run(asked, capture_output=True, text=True, check=False)

    remount(small_disk, "ro")
    ran = run()
    assert (ran.returncode, "out cannot be written to: Read-only file system" in ran.stderr) == (2, True)
    assert {path.name for path in tmp_path.iterdir()} == {"in", "disk"}  # no ledger, no state folder
    remount(small_disk, "rw")
    assert run().returncode == 0
    plant(source, small_images(9))
    remount(small_disk, "ro")
    ran = run()
    assert (ran.returncode, "aborted: card.json cannot be removed" in ran.stderr) == (1, True)
    remount(small_disk, "rw")
    (target / "card.json").unlink()
    remount(small_disk, "ro")
    ran = run()
    assert [one["reason"] for one in json.loads(ran.stdout)["problems"]] == ["write"] * 4
    assert spent(ledger).releases == 5
    remount(small_disk, "rw")
    ran = run()
    assert ran.returncode == 0, ran.stderr
    Watch(target, ledger).at_the_end(9)


def test_a_ledger_that_cannot_be_written_releases_nothing(small_disk: Path, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(5))
    ledger = small_disk / "ledger.sqlite"
    Ledger(ledger).close()
    remount(small_disk, "ro")
    ran = subprocess.run(command(source, tmp_path / "out", ledger), capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "the ledger" in ran.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_target_on_another_mount_of_the_same_device(workers: str, tmp_path: Path) -> None:
    """A bind mount has the same ``st_dev``, and yet nothing can be renamed into it from outside."""
    (real := tmp_path / "real").mkdir()
    (mounted := tmp_path / "mounted").mkdir()
    if subprocess.run(["mount", "--bind", str(real), str(mounted)], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    try:
        source, ledger = plant(tmp_path / "in", small_images(150)), tmp_path / "ledger.sqlite"
        options = ("--workers", workers)
        ran = subprocess.run(command(source, mounted, ledger, *options), capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr + ran.stdout
        Watch(mounted, ledger).at_the_end(150)
        assert tree(real) == tree(mounted)
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True)
