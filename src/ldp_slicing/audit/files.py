"""Reading a set of releases: what each file holds, and what it should not hold."""

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

PAIRS = 2048  # of neighbouring pixels that are kept of each release
BESIDE = frozenset({CARD_NAME, MANIFEST_NAME})  # what lies beside releases in their folder


@dataclass(frozen=True, eq=False)
class ReleaseFile:
    """One release. ``left`` and ``right``: words of neighbouring pixels; ``sure``: where both of them are certain."""

    path: PurePath
    size: tuple[int, int]  # width, height
    word_bits: int  # 24, 16 or 8: those of the file
    digest: bytes
    certain: int  # pixels whose word is certain
    left: Words
    right: Words
    sure: NDArray[np.bool_]


@dataclass
class ReleaseSet:
    """The files of one release: a folder with its card, or one PNG with its own."""

    name: str
    card_path: Path
    folder: Path | None = None  # of a set; one release has none
    releases: list[ReleaseFile] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)  # files that are no releases
    metadata: list[str] = field(default_factory=list)  # releases that hold more than pixels


def read_set(target: Path) -> ReleaseSet:
    """Everything in a folder, or one release. Pixels are read and let go: memory grows by some kilobytes for each release."""
    if target.is_dir():
        found = ReleaseSet(str(target), target / CARD_NAME, target)
        for item in sorted(LocalStorage(target).files(), key=lambda item: item.path):
            if item.problem:
                found.odd.append(f"{item.path}: {item.problem}")
            elif item.path not in BESIDE:
                _add(found, target, PurePath(item.path))
        return found
    if not target.is_file():
        raise AuditError(f"{target} is neither a folder of releases nor a release")
    found = ReleaseSet(str(target), target.with_name(f"{target.name}.card.json"))
    _add(found, target.parent, PurePath(target.name))
    return found


def _add(found: ReleaseSet, folder: Path, path: PurePath) -> None:
    try:
        data = (folder / path).read_bytes()
        pixels, more = read_release_png(data)
    except OSError as error:
        raise AuditError(f"{folder / path} cannot be read: {error.strerror}") from None
    except ImageError as error:
        found.odd.append(f"{path}: {error}")
        return
    found.metadata += [f"{path}: {problem}" for problem in more]
    found.releases.append(describe(path, pixels))


def describe(path: PurePath, pixels: Pixels) -> ReleaseFile:
    height, width = pixels.shape[:2]
    colour = pixels.ndim == 3
    digest = hashlib.sha256(f"{pixels.shape} {pixels.dtype}".encode() + pixels.tobytes()).digest()
    certain = int(np.count_nonzero(((pixels > 0) & (pixels < 255)).all(axis=-1))) if colour else height * width
    across = width // 2
    chosen = np.arange(min(PAIRS, height * across)) * (height * across) // max(1, min(PAIRS, height * across))
    rows, columns = (chosen // across, 2 * (chosen % across)) if across else (chosen, chosen)
    (left, left_sure), (right, right_sure) = (recover_words(pixels[rows, columns + step]) for step in (0, 1))
    return ReleaseFile(
        path,
        (width, height),
        24 if colour else 8 * pixels.dtype.itemsize,
        digest,
        certain,
        left,
        right,
        left_sure & right_sure,
    )
