"""Processes that train together. Each would make a data set of its own: one of them releases, and the others take what it has made."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import NamedTuple

from torch import distributed

from ldp_slicing.errors import ReleaseError

SAY_AFTER = 60.0  # seconds
LOOK_EVERY = 0.1


class Place(NamedTuple):
    rank: int
    ranks: int


def place() -> Place:
    """Where this process stands among those of its group, or of the one that ``torchrun`` has announced."""
    if distributed.is_available() and distributed.is_initialized():
        return Place(distributed.get_rank(), distributed.get_world_size())
    try:
        return Place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    except (KeyError, ValueError):
        return Place(0, 1)


def refuse_each_its_own(here: Place) -> None:
    if here.ranks > 1:
        raise ReleaseError(
            f"{here.ranks} processes train together, and each would release every source for itself: that adds up to {here.ranks} x eps. "
            "Name a folder that all of them see with store=: the first releases, the others wait and open it"
        )


def wait_for_first(folder: Path, here: Place) -> None:
    """Until the first rank has released into the folder. Whoever started them ends them all when one of them fails."""
    began, told = time.monotonic(), False
    while not (folder / "index.json").is_file():
        if not told and time.monotonic() - began > SAY_AFTER:
            warnings.warn(f"rank {here.rank} waits for rank 0 to release into {folder}, which both must see", stacklevel=4)
            told = True
        time.sleep(LOOK_EVERY)
