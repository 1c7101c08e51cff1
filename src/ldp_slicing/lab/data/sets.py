"""Image sets with labels, and how images are held out of them."""

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

    groups: int64 [N], equal for images of the same patient or person; None if every image is its own group.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    groups: NDArray[np.int64] | None = None

    def part(self, which: NDArray[np.int64] | slice) -> Split:
        return Split(self.images[which], self.labels[which], None if self.groups is None else self.groups[which])


@dataclass(frozen=True)
class ReleaseInfo:
    """What the card of a set of releases says. spent: the largest eps per released pixel that any source has spent."""

    plan: Plan
    prune: Prune
    spent: float


@dataclass(frozen=True)
class ImageSet:
    """A training and a test split. release_info: how its images were released; None if they are sources."""

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
        """How often each image occurs, by its digest. Each occurrence is released, and their eps adds up."""
        return Counter(image_digest(image) for split in (self.train, self.test) for image in split.images)

    @cached_property
    def digest(self) -> str:
        """A digest of all images, labels and groups. It distinguishes sets of the same name."""
        digest = hashlib.sha256()
        for split in (self.train, self.test):
            for array in (split.images, split.labels, split.groups):
                if array is not None:
                    digest.update(f"{array.dtype.str}{array.shape}".encode())
                    digest.update(np.ascontiguousarray(array).data)
                digest.update(b";")
        return digest.hexdigest()[:32]


def image_digest(image: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(image).data).hexdigest()


def hold_out(split: Split, count: int, seed: int) -> tuple[Split, Split]:
    """The split without ``count`` random images, and those images."""
    if count == 0:
        return split, split.part(slice(0))
    kept, held_out = draw_held_out(split, count, seed)
    return split.part(kept), split.part(held_out)


def draw_held_out(split: Split, count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The indices of the images that are kept, and of the ``count`` images that are held out.

    A split with groups is cut between groups, as near to ``count`` as possible: else a network could pass validation by
    recognising the patients.
    """
    if not 0 <= count < len(split.labels):
        raise DataError(f"cannot hold out {count} of {len(split.labels)} images")
    rng = np.random.default_rng(seed)
    if split.groups is None:
        order = rng.permutation(len(split.labels))
        return np.sort(order[count:]), np.sort(order[:count])
    _, group, sizes = np.unique(split.groups, return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        raise DataError(f"cannot hold out a group: all {len(split.labels)} images are of one group")
    drawn = rng.permutation(len(sizes))
    reached = np.cumsum(sizes[drawn])[:-1]  # without the last: some group is left to train on
    held_out = np.isin(group, drawn[: 1 + int(np.abs(reached - count).argmin())])
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def require_folder(path: Path, content: str) -> Path:
    if not path.is_dir():
        raise DataError(f"{path} does not exist: put {content} into {path.parent}, or name another folder with --data")
    return path


def require_file(path: Path, content: str) -> Path:
    if not path.is_file():
        raise DataError(f"{path} does not exist: it should be {content}")
    return path
