"""After a power cut at any point, the ledger still has every release that it approved."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldp_slicing.errors import LedgerError
from ldp_slicing.ledger import Ledger
from tests.power.disk import Disk, Operation, build_recorder, read_log

STATES_PER_CUT = 3
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="records with LD_PRELOAD")
WORKLOAD = """
import os, sys
from pathlib import Path
from ldp_slicing import Plan
from ldp_slicing.ledger import Intent, Ledger, RunPolicy

root = Path(sys.argv[1])
if sys.argv[2] == "without syncing":  # the control: a ledger that forgets to sync its intents
    original = Ledger._transaction
    Ledger._transaction = lambda self, *, flush=True: original(self, flush=False)
marks = os.open(root / "marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
plan, policy = Plan.paper(20.0), RunPolicy(b"run" * 5 + b"!", is_owners=False)
for opened in range(2):
    ledger = Ledger(root / "data" / "ledger.sqlite")
    for batch in range(8):
        names = [f"{opened}-{batch}-{i}".encode() for i in range(1 + 40 * (batch == 3))]
        digests = [name.rjust(32, b"x") for name in names]
        approvals = ledger.approve(
            [Intent(name, digest, None, plan, "haar", 1) for name, digest in zip(names, digests, strict=True)], policy
        )
        os.write(marks, b"".join(digests))  # from here on somebody may hold these releases
        ledger.finish([approval.entry for approval in approvals])
    ledger.close()
"""


def record(folder: Path, kind: str) -> tuple[str, list[Operation]]:
    """What a process that uses a new ledger asks of the disk."""
    (root := folder / "root").mkdir()
    added = {
        "LD_PRELOAD": str(build_recorder(folder)),
        "RECORD_LOG": str(folder / "log"),
        "RECORD_BELOW": str(root),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    subprocess.run([sys.executable, "-c", WORKLOAD, str(root), kind], env={**os.environ, **added}, check=True)
    return str(root), list(read_log(folder / "log"))


def cuts(operations: list[Operation], marks: str) -> Iterator[tuple[int, Disk, set[bytes]]]:
    """The disk after each operation, and the sources that were approved by then."""
    disk, approved = Disk(), set[bytes]()
    for number, operation in enumerate(operations):
        if operation.path == marks:
            approved |= {operation.data[i : i + 32] for i in range(0, len(operation.data), 32)}
        else:
            disk.replay(operation)
        yield number, disk, approved


def lost_releases(folder: Path, kind: str) -> int:
    """How many of the states that power cuts may leave lack a release that was approved."""
    root, operations = record(folder, kind)
    rng, lost, seen = random.Random(1), 0, 0
    for number, disk, approved in cuts(operations, f"{root}/marks"):
        for state in range(STATES_PER_CUT):
            target = folder / f"{number}-{state}"
            disk.after_cut(root, target, rng)
            seen += bool(approved)
            lost += not _knows(target / "data" / "ledger.sqlite", approved)
            shutil.rmtree(target)
    assert seen > 100  # states that had something to lose
    return lost


def _knows(path: Path, approved: set[bytes]) -> bool:
    """Whether the ledger that the cut left is not refused and has everything that was approved."""
    try:
        ledger = Ledger(path, must_exist=bool(approved))
    except LedgerError:
        return False
    with contextlib.closing(ledger):
        return all(ledger.spent(digest).releases for digest in approved)


def test_no_approved_release_is_lost_by_a_power_cut(tmp_path: Path) -> None:
    assert lost_releases(tmp_path, "as it is") == 0


def test_a_ledger_that_does_not_sync_its_intents_is_found(tmp_path: Path) -> None:
    assert lost_releases(tmp_path, "without syncing") > 0
