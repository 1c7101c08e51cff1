"""Several processes: training processes that share releases, and a counter shared with DataLoader workers."""

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
from ldp_slicing.torch.store import INDEX_NAME, partial_folder

WARN_AFTER_SECONDS = 60.0
POLL_SECONDS = 0.1


def process_count() -> int:
    """Return the number of processes that train together, from the process group or the variable WORLD_SIZE."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    announced = os.environ.get("WORLD_SIZE", "")
    return int(announced) if announced.isascii() and announced.isdigit() else 1


def check_single_process() -> None:
    """Raise ReleaseError if several processes train together: each would release the same sources for itself."""
    if (count := process_count()) > 1:
        raise ReleaseError(
            f"{count} processes train together; if each releases the same sources, that costs {count} x eps. "
            "Name a folder with store=: the same for all of them, so that one process releases and the others open it; "
            "or, if their sources differ, one for each"
        )


def wait_for_store(folder: Path) -> None:
    """Wait until another process has written the release folder; raise ReleaseError if it fails."""
    began, has_warned = time.monotonic(), False
    partial = partial_folder(folder)
    while partial.exists():
        if not has_warned and time.monotonic() - began > WARN_AFTER_SECONDS:
            warnings.warn(
                f"waiting for another process that releases to {folder}; if there is none, remove {partial}",
                stacklevel=4,
            )
            has_warned = True
        time.sleep(POLL_SECONDS)
    if not (folder / INDEX_NAME).is_file():
        raise ReleaseError(f"another process failed to release to {folder}: see its error message")


class SharedCounter:
    """An integer that a process and its worker processes count together. A copied or unpickled counter is independent.

    >>> counter = SharedCounter()
    >>> counter.add(2), counter.value
    (2, 2)
    """

    def __init__(self, value: int = 0) -> None:
        try:
            self._shared: Any = multiprocessing.get_context("spawn").Value("q", value)  # forked processes share it, too
        except OSError:  # there is no shared memory
            self._shared = None
        self._own = value

    @property
    def value(self) -> int:
        return self._own if self._shared is None else int(self._shared.value)

    def add(self, more: int) -> int:
        """Add ``more`` and return the new value."""
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
