"""What readers give and writers take."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import ImageError
from ldp_slicing.images import Decoded
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.storage import Draft

Array = NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Entry:
    """One source: uint8 H x W x 3, uint8 H x W or uint16 H x W, of ``bits`` bits a word.

    ``name`` tells it from the others in its file; ``file`` is the SHA-256 of the bytes it was decoded from; ``frame`` its number among the
    frames of its file, from 1, or 0 for a still; ``kept`` what travels with the release because its owner named it.
    """

    name: str
    pixels: Array
    bits: int
    file: bytes | None
    notices: tuple[str, ...] = ()
    frame: int = 0
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Damaged:
    """An entry that cannot be released; the others of its file can."""

    name: str
    problem: str


@dataclass(frozen=True)
class Options:
    """What readers and writers need to know of a recipe."""

    keep: tuple[str, ...] = ()
    compression: int = 0


class Plain:
    """Memory for a release: fill ``pixels``."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.unsignedinteger]) -> None:
        self.pixels: Array = np.empty(shape, dtype)


class Reader(Protocol):
    def __call__(self, file: BinaryIO, options: Options) -> Iterator[Entry | Damaged]: ...


class Writer(Protocol):
    """``canvas`` is the class of memory it likes releases in; ``add`` gets one that was filled, the name that the entry goes by, and 32
    hexadecimal digits that are its own; it gives back the name of the member that it made, if members have names.
    """

    canvas: type[Any]

    def __init__(self, draft: Draft, options: Options) -> None: ...
    def add(self, entry: Entry, name: str, identity: str, canvas: Any) -> str | None: ...  # noqa: ANN401
    def close(self) -> None: ...
    def abort(self) -> None: ...


@dataclass(frozen=True)
class Seen:
    """Found in a file when it is checked: a release, with its member's name, size and word; something kept; or what should not be there."""

    member: str | None
    width: int = 0
    height: int = 0
    bits: int = 0
    frames: int = 1
    problem: str | None = None
    kept: str | None = None


def check_keep(keep: Collection[str], there: Collection[str]) -> None:
    """A file that has such things, but none that is to be kept, is refused before anything is spent: most likely a name is misspelt."""
    if keep and there and not set(keep) & set(there):
        raise ImageError(f"has no {' or '.join(keep)} to keep; it has {', '.join(sorted(there))}")


def left_out(entry: Entry, names: Collection[str]) -> Entry:
    """The entry with a notice of what its file holds and its release does not."""
    if not names:
        return entry
    return replace(
        entry, notices=(*entry.notices, f"left out: {', '.join(sorted(names))} (--keep NAME keeps such things)")
    )


def entry_of(name: str, decoded: Decoded, file: bytes | None, kept: dict[str, Any] | None = None) -> Entry:
    pixels = decoded.pixels
    bits = COLOUR_BITS if pixels.ndim == 3 else 8 * pixels.dtype.itemsize
    return Entry(name, pixels, bits, file, (*decoded.notices, *advice(pixels)), kept=kept or {})


def advice(pixels: Array) -> tuple[str, ...]:
    """For the owner of a picture that has colours only by its form."""
    grey = pixels.ndim == 3 and all(
        _is_grey(part) for part in (pixels[:: 1 + len(pixels) // 8], pixels)
    )  # most are seen in a few rows
    return (
        "its three channels are equal, and what Cb and Cr get of the budget is lost: make such pictures grey first",
    ) * grey


def _is_grey(pixels: Array) -> bool:
    return bool((pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 1] == pixels[..., 2]).all())
