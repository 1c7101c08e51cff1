"""Image sets with labels, and how images are held out of them."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp_slicing.errors import DataError
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune, shrink


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

    @classmethod
    def from_arrays(
        cls,
        name: str,
        train: tuple[NDArray[np.uint8], ArrayLike],
        test: tuple[NDArray[np.uint8], ArrayLike],
        *,
        groups: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> ImageSet:
        """Return a set of images in memory: uint8 [N, H, W, 3], [N, H, W, 1] or [N, H, W], and N labels from 0.

        >>> zeros, labels = np.zeros((4, 8, 8, 3), np.uint8), [0, 1, 0, 1]
        >>> ImageSet.from_arrays("zeros", (zeros, labels), (zeros, labels)).classes
        2

        groups: of the images of both splits, equal for images of the same patient or person. The images are sources;
        for releases see ``folders.load_folder``.
        """
        first, second = (
            _split_of(f"{name}, {part}", *arrays, group)
            for part, arrays, group in zip(("train", "test"), (train, test), groups or (None, None), strict=True)
        )
        shapes = {part.images.shape[1:] for part in (first, second)}
        if len(shapes) > 1:
            raise DataError(f"{name}: all images must have one shape; got {sorted(shapes)}")
        return cls(name, 1 + max(int(part.labels.max()) for part in (first, second)), first, second)

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


def shrunk(images: ImageSet, side: int) -> ImageSet:
    """Sources whose longest side is ``side`` or less, as ``--max-side`` shrinks them. Releases keep their size."""
    if images.release_info is not None or max(images.train.images.shape[1:3]) <= side:
        return images
    train, test = (replace(part, images=shrink(part.images, side)) for part in (images.train, images.test))
    return replace(images, train=train, test=test)


def _split_of(what: str, images: NDArray[np.uint8], labels: ArrayLike, groups: ArrayLike | None) -> Split:
    numbers, images = np.asarray(labels), images[..., None] if images.ndim == 3 else images
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3) or not len(images):
        raise DataError(f"{what}: images must be uint8 [N, H, W, 3] or [N, H, W, 1]; got {images.dtype} {images.shape}")
    found = None if groups is None else np.asarray(groups)
    for one in (numbers, numbers if found is None else found):
        if one.shape != (len(images),) or one.dtype.kind not in "iu" or one.min() < 0:
            raise DataError(f"{what}: {len(images)} images need as many labels and groups, whole numbers from 0")
    return Split(images, numbers.astype(np.int64), None if found is None else found.astype(np.int64))


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
