"""A copy of what packages are built from. Building in the repository itself would replace its kernel."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
WANTED = ("src", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")


def copy_repository(target: Path) -> Path:
    """Copy the tracked files of the package."""
    tracked = subprocess.run(["git", "ls-files", "-z", *WANTED], cwd=REPOSITORY, capture_output=True, check=False)
    names = [name for name in tracked.stdout.decode().split("\0") if name] if tracked.returncode == 0 else []
    if not names:
        pytest.fail("this test needs the repository it is part of")
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes((REPOSITORY / name).read_bytes())
    return target
