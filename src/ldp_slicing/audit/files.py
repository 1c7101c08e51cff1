"""Reading releases from files: their pixels, and everything else that a file holds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.audit.pixel_words import Pixels, Words, recover_words
from ldp_slicing.errors import AuditError, ImageError
from ldp_slicing.manifest import CARD_NAME, MANIFEST_NAME
from ldp_slicing.png import read_release_png
from ldp_slicing.storage import LocalStorage

PAIRS = 2048  # pairs of neighbouring pixels kept of each release


@dataclass(frozen=True, eq=False)
class ReleaseFile:
    """One release. ``left`` and ``right``: words of neighbouring pixels. ``certain``: where both words are certain."""

    path: PurePath
    size: tuple[int, int]  # width, height
    word_bits: int  # 24, 16 or 8: those of the file
    digest: bytes  # of shape, dtype and pixels
    certain_pixels: int
    left: Words
    right: Words
    certain: NDArray[np.bool_]


@dataclass
class ReleaseSet:
    """The files of one set of releases: a folder with its card, or one PNG with its own."""

    name: str
    card_path: Path
    folder: Path | None = None  # None for a single release
    releases: list[ReleaseFile] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)  # files that are not releases
    metadata: list[str] = field(default_factory=list)  # releases that hold more than pixels


def read_set(target: Path) -> ReleaseSet:
    """Read a folder of releases, or one release. Pixels are not kept: each release takes a few kilobytes of memory."""
    if target.is_dir():
        found = ReleaseSet(str(target), target / CARD_NAME, target)
        for item in sorted(LocalStorage(target).files(), key=lambda item: item.path):
            if item.problem:
                found.unexpected.append(f"{item.path}: {item.problem}")
            elif item.path not in (CARD_NAME, MANIFEST_NAME):
                _add_release(found, target, PurePath(item.path))
        return found
    if not target.is_file():
        raise AuditError(f"{target} is neither a folder of releases nor a release")
    found = ReleaseSet(str(target), target.with_name(f"{target.name}.card.json"))
    _add_release(found, target.parent, PurePath(target.name))
    return found


def _add_release(found: ReleaseSet, folder: Path, path: PurePath) -> None:
    try:
        data = (folder / path).read_bytes()
        pixels, extras = read_release_png(data)
    except OSError as error:
        raise AuditError(f"{folder / path} cannot be read: {error.strerror}") from None
    except ImageError as error:
        found.unexpected.append(f"{path}: {error}")
        return
    found.metadata += [f"{path}: {extra}" for extra in extras]
    found.releases.append(summarise(path, pixels))


def summarise(path: PurePath, pixels: Pixels) -> ReleaseFile:
    """Keep of a release, [H, W, 3] or [H, W], what the tests need: a digest, and words of neighbouring pixels."""
    height, width = pixels.shape[:2]
    is_colour = pixels.ndim == 3
    digest = hashlib.sha256(f"{pixels.shape} {pixels.dtype}".encode() + pixels.tobytes()).digest()
    unclamped = ((pixels > 0) & (pixels < 255)).all(axis=-1) if is_colour else np.ones_like(pixels)
    across = width // 2
    count = min(PAIRS, height * across)
    chosen = np.arange(count) * (height * across) // max(1, count)
    rows, columns = (chosen // across, 2 * (chosen % across)) if across else (chosen, chosen)
    (left, left_certain), (right, right_certain) = (recover_words(pixels[rows, columns + step]) for step in (0, 1))
    word_bits = 24 if is_colour else 8 * pixels.dtype.itemsize
    certain = left_certain & right_certain
    return ReleaseFile(path, (width, height), word_bits, digest, int(np.count_nonzero(unclamped)), left, right, certain)
