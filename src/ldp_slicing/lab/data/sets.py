"""Data sets in their published layouts, read from a folder that the user names. Nothing is downloaded and no code in them is run."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import DataError
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune


@dataclass(frozen=True)
class Split:
    """uint8 [N, H, W, 3] (or [N, H, W, 1]) images and int64 [N] labels.

    groups: int64 [N], equal for images that show the same patient or person; None where every image is its own.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    groups: NDArray[np.int64] | None = None

    def part(self, which: NDArray[np.int64] | slice) -> Split:
        return Split(self.images[which], self.labels[which], None if self.groups is None else self.groups[which])


@dataclass(frozen=True)
class ReleaseInfo:
    """What a card says of releases; ``spent``: the eps per released pixel of the source that was released most."""

    plan: Plan
    prune: Prune
    spent: float


@dataclass(frozen=True)
class ImageSet:
    """``release_info``: how these images were released already; None where they are sources."""

    name: str
    classes: int
    train: Split
    test: Split
    release_info: ReleaseInfo | None = None

    @property
    def holds(self) -> str:
        return "sources" if self.release_info is None else "releases"

    @property
    def is_grey(self) -> bool:
        return int(self.train.images.shape[3]) == 1

    @cached_property
    def times(self) -> Counter[str]:
        """How often each picture is there: each time it is released, its eps adds up."""
        return Counter(image_digest(image) for split in (self.train, self.test) for image in split.images)

    @cached_property
    def digest(self) -> str:
        """Tells sets apart whatever they are called: of all images, labels and groups."""
        found = hashlib.sha256()
        for array in (
            getattr(split, kind) for split in (self.train, self.test) for kind in ("images", "labels", "groups")
        ):
            if array is not None:
                found.update(f"{array.dtype.str}{array.shape}".encode())
                found.update(np.ascontiguousarray(array).data)
            found.update(b";")
        return found.hexdigest()[:32]


def image_digest(image: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(image).data).hexdigest()


def hold_out(split: Split, count: int, seed: int) -> tuple[Split, Split]:
    """The split without ``count`` images drawn at random, and those."""
    if count == 0:
        return split, split.part(slice(0))
    kept, held = draw_held_out(split, count, seed)
    return split.part(kept), split.part(held)


def draw_held_out(split: Split, count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which images are kept, and which ``count`` are held out.

    Of a split with groups, whole groups are drawn, as many as come nearest to ``count`` images: who knows a patient from training has not
    learnt to tell what ails others.
    """
    if not 0 <= count < len(split.labels):
        raise DataError(f"{count} images cannot be held out of {len(split.labels)}")
    rng = np.random.default_rng(seed)
    if split.groups is None:
        order = rng.permutation(len(split.labels))
        return np.sort(order[count:]), np.sort(order[:count])
    _, group, sizes = np.unique(split.groups, return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        raise DataError(f"all {len(split.labels)} images are of one group, of which none can be held out")
    drawn = rng.permutation(len(sizes))
    reached = np.cumsum(sizes[drawn])[:-1]  # without the last: some group is left to train on
    held = np.isin(group, drawn[: 1 + int(np.abs(reached - count).argmin())])
    return np.flatnonzero(~held), np.flatnonzero(held)


def require_folder(path: Path, what: str) -> Path:
    if not path.is_dir():
        raise DataError(f"{path} is not there: put {what} into {path.parent}, or name another folder with --data")
    return path


def require_file(path: Path, what: str) -> Path:
    if not path.is_file():
        raise DataError(f"{path} is not there: it should be {what}")
    return path
