"""The command line as a user has it: a process of its own, without a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LDP_SLICING = (sys.executable, "-m", "ldp_slicing")


@dataclass(frozen=True)
class Finished:
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


def ldp_slicing(*arguments: object, env: Mapping[str, str] | None = None) -> Finished:
    """Run a command to its end."""
    done = subprocess.run([*LDP_SLICING, *map(str, arguments)], capture_output=True, text=True, check=False, env=env)
    assert "Traceback" not in done.stderr, done.stderr
    return Finished(done.returncode, done.stdout, done.stderr)


def check(releases: Path) -> None:
    """Verify the releases and audit them. An audit of few pixels may be undecided; it never fails."""
    verified = ldp_slicing("verify", releases)
    assert (verified.status, "OK" in verified.out) == (0, True), verified
    audited = ldp_slicing("audit", releases, "--json")
    assert audited.status in (0, 3), audited
    assert all(one["passed"] for one in audited.json["checks"]), audited.out


def cron(home: Path) -> dict[str, str]:
    """Return the environment that cron gives to a job, with a new home. Python still needs to find this package."""
    home.mkdir()
    needed = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {"HOME": str(home), "LOGNAME": "owner", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin", **needed}
