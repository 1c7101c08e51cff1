"""Read an owner's images, all in one shape and with their labels and groups, for `advise` to measure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.arrays import has_equal_channels
from ldp_slicing.errors import DataError, LdpSlicingError
from ldp_slicing.lab.advise.listing import SourceItem
from ldp_slicing.view import shrink
from ldp_slicing.wording import counted

AT_ONCE = 64  # images that are read side by side
SMALLEST = 12  # pixels of a side: the window of SSIM has 11


@dataclass(frozen=True)
class SourceSet:
    """Images of one shape, uint8 [N, H, W, C], with int64 [N] labels and groups.

    classes: the names of the labels; empty if there are none. groups: None if none were named.
    size: width and height of all image files; None if they differ. total: how many images there were to read.
    tried: how many of them were read or left out, and ``problems`` says why some were left out, by name.
    converted: whether they are colour images with equal channels, which are measured as grey.
    remarks: what the owner may not expect of images that differ. smallest: the name of the image that sets their size.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    groups: NDArray[np.int64] | None
    size: tuple[int, int] | None
    total: int
    tried: int
    converted: bool = False
    problems: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    smallest: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """Width and height of the images as they were read."""
        return int(self.images.shape[2]), int(self.images.shape[1])

    @property
    def is_grey(self) -> bool:
        return int(self.images.shape[3]) == 1

    @cached_property
    def units(self) -> NDArray[np.int64]:
        """int64 [N]: what is held out or trained on as a whole. Groups; without them, equal images are one unit."""
        if self.groups is not None:
            return self.groups
        seen = [hashlib.sha256(one.tobytes()).digest() for one in self.images]
        return np.unique(np.array(seen, "V32"), return_inverse=True)[1].astype(np.int64)

    @property
    def clusters(self) -> NDArray[np.int64] | None:
        """The units, for intervals; None if each is one image, so that all images are independent."""
        return None if len(np.unique(self.units)) == len(self.units) else self.units

    @property
    def digest(self) -> str:
        """Changes with every pixel, label and group. It is for the work folder only: it would confirm a guess."""
        digest = hashlib.sha256()
        for array in (self.images, self.labels, np.zeros(0) if self.groups is None else self.groups):
            digest.update(f"{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def read_sources(
    items: Sequence[SourceItem],
    *,
    largest: int,
    stop: Callable[[], bool] = lambda: False,
    limit: int | None = None,
    seed: int = 0,
) -> SourceSet:
    """Read images, group by group in a random order, until there are no more, ``limit`` were read, or ``stop`` says so.

    Images are shrunk as ``privatize --fit`` does it: all to one size, whose longest side is at most ``largest``. Images
    that cannot be read are left out.
    """
    chosen, problems = _in_random_order(items, seed)[:limit], dict[str, str]()

    def decode(i: int) -> NDArray[np.uint8] | None:
        try:
            return items[i].load()
        except LdpSlicingError as error:
            problems[items[i].name] = str(error)
            return None

    begun = {items[i].name: one for i in chosen[:AT_ONCE] if (one := decode(i)) is not None}
    if not begun:
        name, problem = next(iter(problems.items()))
        raise DataError(f"no image can be read; the first one is {name}: {problem}")
    first = list(begun.values())
    shapes = {one.shape[:2] for one in first}
    smallest = min(begun, key=lambda name: min(begun[name].shape[:2])) if len(shapes) > 1 else ""
    target, others = _common_size(shapes, largest, smallest), 0
    grey = all(one.ndim == 2 or has_equal_channels(one) for one in first)
    images, kept, sizes, tried = list[NDArray[np.uint8]](), list[SourceItem](), set[tuple[int, int]](), 0
    with ThreadPoolExecutor() as pool:
        while tried < len(chosen) and not (tried and stop()):
            part = chosen[tried : tried + AT_ONCE]
            for i, pixels in zip(part, pool.map(decode, part), strict=True):
                if pixels is not None:
                    try:
                        images.append(to_shape(pixels, target, grey))
                    except LdpSlicingError as error:
                        problems[items[i].name] = str(error)
                        continue
                    kept.append(items[i])
                    others += (
                        (not has_equal_channels(pixels) if pixels.ndim == 3 else False) if grey else pixels.ndim == 2
                    )
                    sizes.add((pixels.shape[1], pixels.shape[0]))
            tried += len(part)
    names = sorted({one.label for one in kept if one.label})
    number = {label: i for i, label in enumerate(names)}
    groups = None
    if kept and kept[0].group:
        groups = np.unique([one.group for one in kept], return_inverse=True)[1].astype(np.int64)
    labels = np.array([number.get(one.label, 0) for one in kept], np.int64)
    one_size = next(iter(sizes)) if len(sizes) == 1 else None
    converted = grey and any(one.ndim == 3 for one in first)
    counts = len(items), tried
    remarks = []
    if one_size is None:
        remarks.append(f"images differ in size: the centre of each is cut out and shrunk to {target[0]} x {target[1]}")
    if others:
        how, kind = ("in colour", "grey") if grey else ("grey", "colour")
        remarks.append(
            f"{counted(others, 'image')} {'is' if others == 1 else 'are'} {how}, but measured as {kind} images like "
            "the rest, so the results do not apply to them: measure and release them in a run of their own"
        )
    smallest = smallest if max(target) < largest else ""
    found = np.stack(images), labels, tuple(names), groups, one_size
    return SourceSet(*found, *counts, converted, problems, tuple(remarks), smallest)


def shrink_all(sources: SourceSet, side: int) -> SourceSet:
    """The same images with a longest side of at most ``side`` pixels."""
    width, height = sources.shape
    longest = max(width, height)
    if side >= longest:
        return sources
    target = max(1, width * side // longest), max(1, height * side // longest)
    small = [to_shape(one[..., 0] if sources.is_grey else one, target, sources.is_grey) for one in sources.images]
    return replace(sources, images=np.stack(small))


def _in_random_order(items: Sequence[SourceItem], seed: int) -> list[int]:
    """Positions of the items. Images of one group stay together, so that a beginning of the list has whole groups."""
    names = {one.group or one.name: 0 for one in items}
    place = dict(zip(names, np.random.default_rng(seed).permutation(len(names)).tolist(), strict=True))
    return sorted(range(len(items)), key=lambda i: (place[items[i].group or items[i].name], i))


def check_enough(sources: SourceSet) -> None:
    """Refuse sources from which nothing can be learned."""
    counts = Counter(sources.labels.tolist())
    if sources.classes and len(sources.classes) < 2:
        raise DataError(f"all images are of the class {sources.classes[0]!r}: there is nothing to learn; see --labels")
    if sources.classes and min(counts.values()) < 4:
        rare = sources.classes[min(counts, key=lambda kind: counts[kind])]
        more = "--images or --minutes reads more" if sources.tried < sources.total else "leave out small classes"
        raise DataError(
            f"{counted(min(counts.values()), 'image')} of the {len(sources.labels):,} that were read "
            f"{'is' if min(counts.values()) == 1 else 'are'} of the class {rare!r}: every class needs 4 or more; "
            f"{more}. If folders are people and not classes, use --labels none --groups folder"
        )
    several = {kind: len(np.unique(sources.units[sources.labels == kind])) for kind in counts}
    if min(several.values()) < 2:
        one = sources.classes[min(several, key=lambda kind: several[kind])] if sources.classes else ""
        of = f" of the class {one!r}" if one else ""
        if sources.groups is None:
            raise DataError(f"all images{of} are equal: there is nothing to learn")
        raise DataError(
            f"all images{of} are in one group: every class needs two or more groups, so that some can be held out. If "
            "classes are the groups, use --labels none"
            if one
            else "all images are of one group: there is nothing to link; see --groups"
        )
    if len(sources.labels) < 16:
        raise DataError(f"{len(sources.labels)} images are too few to measure anything: use 16 or more")


def _common_size(shapes: set[tuple[int, int]], largest: int, smallest: str) -> tuple[int, int]:
    """(width, height) of all images: their own if it is one and not too large, else a common part of it.

    smallest: the name of the smallest image, if they differ.
    """
    if len(shapes) == 1:
        ((height, width),) = shapes
    else:
        height = width = min(min(shape) for shape in shapes)
    longest = max(height, width)
    if longest > largest:
        height, width = max(1, height * largest // longest), max(1, width * largest // longest)
    if min(height, width) < SMALLEST:
        raise DataError(
            f"images of {width} x {height} pixels are too small to measure: both sides need {SMALLEST} pixels or more; "
            f"{f'leave out {smallest}, or ' if smallest else ''}see --sizes"
        )
    return width, height


def to_shape(pixels: NDArray[np.uint8], target: tuple[int, int], grey: bool) -> NDArray[np.uint8]:
    """uint8 [H, W] or [H, W, 3] to [h, w, 1] or [h, w, 3]: shrunk as ``--fit`` does it."""
    small = np.asarray(shrink(pixels, target), np.uint8) if pixels.shape[1::-1] != target else pixels
    if grey and small.ndim == 3:
        return np.asarray(Image.fromarray(small).convert("L"))[..., None]
    if not grey and small.ndim == 2:
        return np.repeat(small[..., None], 3, axis=2)
    return small.reshape(*small.shape[:2], -1)
