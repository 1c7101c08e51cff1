"""Many small files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from ldp_slicing.release import records
from ldp_slicing.release.opening import open_state
from tests.release.helpers import BESIDE, plant, release, small_images, spent, tree, verified
from tests.release.processes import Run, command, wait_for


def test_ten_thousand_small_files_with_a_kill_in_between(tmp_path: Path) -> None:
    source = plant(
        tmp_path / "in",
        {f"{i // 500:02}/{name}": data for i, (name, data) in enumerate(small_images(10_000, 5, 4).items())},
    )
    target, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    with Run(*command(source, target, ledger, "--workers", "2")) as run:
        wait_for(2000, target, run)
        run.kill()
    with Run(*command(source, target, ledger, "--workers", "2")) as run:
        out, err = run.output()
    assert (run.returncode, err) == (0, "")
    assert json.loads(out)["kept"] > 1000
    assert len(tree(target)) == 10_000 + len(BESIDE)
    total = spent(ledger)
    assert (total.releases, total.unfinished) == (10_000, 0)
    assert verified(target) == []


def test_memory_does_not_grow_with_the_number_of_images(tmp_path: Path) -> None:
    """One process from beginning to end; benchmarks/RESULTS.md has 100,000 images."""
    peaks = []
    for count in (300, 6000):
        files = small_images(count, 3, 3)
        source = plant(tmp_path / f"in{count}", files)
        arguments = command(source, tmp_path / f"out{count}", tmp_path / f"{count}.sqlite", "--workers", "1")
        run = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        assert run.returncode == 0
        peaks.append(usage.ru_maxrss / 1024)  # MiB
    assert peaks[1] - peaks[0] < 8, peaks  # SQLite fills its caches, which are of fixed size


def test_a_release_is_looked_up_by_its_name_among_many(tmp_path: Path) -> None:
    """A run asks for the name of each file in its target when it ends: the answer must not need a look at every one."""
    source = plant(tmp_path / "in", small_images(400, 3, 3))
    release(source, tmp_path / "out")
    state, steps = open_state(str(tmp_path / "out"), None), list[int]()
    state._database.set_progress_handler(lambda: steps.append(1), 100)  # every 100 steps of SQLite's machine
    assert all(records.is_released(state, f"{number:05}.png") for number in (0, 200, 399))
    assert not records.is_released(state, "other.png")
    state.close()
    assert len(steps) < 10
