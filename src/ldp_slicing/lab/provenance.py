"""Which software runs, on which machine: what rows record about their origin."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import torch

from ldp_slicing.lab.rows import Provenance, Row
from ldp_slicing.version import __version__


@cache  # the code that runs is the code that was there at the start
def commit() -> str:
    """The commit of this checkout, followed by ", changed" if the package was edited since.

    LDP_SLICING_COMMIT names the commit of a copy without its history.
    """
    if told := os.environ.get("LDP_SLICING_COMMIT"):
        return told

    def git(*words: str) -> str:
        try:
            ran = subprocess.run(  # noqa: S603
                ["git", *words],  # noqa: S607
                cwd=Path(__file__).parents[1],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:  # git is not installed
            return ""
        return ran.stdout.strip()

    found = git("rev-parse", "HEAD") or "unknown"
    return f"{found}, changed" if git("status", "--porcelain", "--untracked-files=no", ".") else found


def hardware(device: torch.device) -> str:
    """The name of the GPU or of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"(?m)^model name\s*: (.+)$", cpuinfo.read_text()) if cpuinfo.is_file() else []
    return f"CPU ({names[0] if names else platform.processor() or platform.machine()})"


def provenance(device: torch.device) -> Provenance:
    """Call it before training begins: the package may change while it trains."""
    return Provenance(f"ldp-slicing {__version__}", commit(), torch.__version__, hardware(device))


def stamped(row: Row, made_by: Provenance, seconds: float) -> Row:
    """The row with its origin, the time now and its duration. A row that another experiment measured has its own."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    duration = seconds if row.seconds is None else row.seconds
    return replace(row, provenance=row.provenance or replace(made_by, time=now), seconds=duration)
