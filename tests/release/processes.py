"""Runs in processes of their own: how tests start, interrupt and watch them."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
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


class Run(subprocess.Popen[str]):
    """A process that can be interrupted. Its output goes to files: into a full pipe that nobody reads it would hang."""

    def __init__(self, *arguments: str, **options: Any) -> None:
        self._files = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115 - closed with the process
        super().__init__(
            arguments,
            stdout=self._files[0],
            stderr=self._files[1],
            text=True,
            preexec_fn=accept_interrupts,
            **options,
        )

    def output(self) -> tuple[str, str]:
        """Wait for the end, and return what was written to standard output and standard error."""
        self.wait()
        for file in self._files:
            file.seek(0)
        out, err = (file.read() for file in self._files)
        return out, err

    def __exit__(self, *problem: Any) -> None:
        super().__exit__(*problem)
        for file in self._files:
            file.close()


def wait_for(done: int, target: Path, run: Run) -> None:
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
