"""Processes that work together: training as one group, or loading for one of it."""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any

from torch import distributed

from ldp_slicing.errors import ReleaseError

SAY_AFTER = 60.0  # seconds
LOOK_EVERY = 0.1


def processes() -> int:
    """How many train together: those of this process's group, or those that whoever started it has announced."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    announced = os.environ.get("WORLD_SIZE", "")
    return int(announced) if announced.isascii() and announced.isdigit() else 1


def refuse_each_its_own() -> None:
    if (count := processes()) > 1:
        raise ReleaseError(
            f"{count} processes train together, and if each releases the same sources for itself, that adds up to {count} x eps. Name a "
            "folder with store=: one for all of them, to which the first to come releases; or, if their sources differ, one for each"
        )


def wait_until_made(folder: Path, partial: Path) -> None:
    """While another process of the group releases."""
    began, told = time.monotonic(), False
    while partial.exists():
        if not told and time.monotonic() - began > SAY_AFTER:
            warnings.warn(
                f"waits for another process that releases to {folder}; if there is none, remove {partial}", stacklevel=4
            )
            told = True
        time.sleep(LOOK_EVERY)
    if not (folder / "index.json").is_file():
        raise ReleaseError(f"another process was to release to {folder}, and has failed: see what it says")


class Count:
    """A number that this process and those that load for it count together. A copy, or one from a file, counts on by itself."""

    def __init__(self, value: int = 0) -> None:
        try:
            self._shared: Any = multiprocessing.get_context("spawn").Value("q", value)  # forked ones know it as well
        except OSError:  # no shared memory here
            self._shared = None
        self._own = value

    @property
    def value(self) -> int:
        return self._own if self._shared is None else int(self._shared.value)

    def add(self, more: int) -> int:
        """What it is then."""
        if self._shared is None:
            self._own += more
            return self._own
        with self._shared.get_lock():
            self._shared.value += more
            return int(self._shared.value)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ if get_spawning_popen() is not None else {"value": self.value}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "value" in state:
            self.__init__(state["value"])  # type: ignore[misc]
        else:
            self.__dict__.update(state)
