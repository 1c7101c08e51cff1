"""Runs in processes of their own: how tests start, interrupt and watch them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.release.helpers import outputs, spent, tree, verified


def accept_interrupts() -> None:
    """Let a child be interrupted even if the tests ignore SIGINT, as under ``nohup``: children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def command(source: Path, target: Path, ledger: Path, *options: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "ldp_slicing",
        "privatize",
        str(source),
        str(target),
        *([] if {"--epsilon", "-e"} & {*options} else ["--epsilon", "20"]),
        "--ledger",
        str(ledger),
        "--json",
        *options,
    ]


class Watch:
    """Keeps the first content seen under every name: any later content must be the same."""

    def __init__(self, target: Path, ledger: Path) -> None:
        self.target, self.ledger = target, ledger
        self.seen: dict[str, bytes] = {}

    def look(self) -> int:
        """Check that all files are whole, none has a second version, and all are in the ledger."""
        now = outputs(self.target) if self.target.exists() else {}
        now = {name: data for name, data in now.items() if not name.startswith(".ldp-slicing-partial/")}
        for name, data in now.items():
            assert self.seen.setdefault(name, data) == data, f"{name} has two different releases"
            assert data.endswith(b"IEND\xaeB`\x82") or name.endswith(".tar"), f"{name} is not whole"
        if now:
            assert spent(self.ledger).releases >= len(now)
        return len(now)

    def at_the_end(self, files: int, releases: int | None = None) -> None:
        self.look()
        assert len(outputs(self.target)) == files
        assert verified(self.target) == []
        total = spent(self.ledger)
        assert (total.releases, total.unfinished) == (releases or files, 0)
        assert not [
            name
            for name in tree(self.target.parent)
            if "temporary" in name or "partial" in name or name.endswith("owner/key")
        ]


def running(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a process that can be interrupted, with its output in pipes."""
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=accept_interrupts,
        **options,
    )


def wait_for(done: int, target: Path, run: subprocess.Popen[str]) -> None:
    while run.poll() is None and sum(1 for name in target.rglob("*.png")) < done:
        time.sleep(0.005)


def children(process: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == process:
                found.append(int(entry.name))
    return found
