"""The interface of a format: what a reader yields, what a writer takes, and what a check finds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.arrays import has_equal_channels, word_bits_of
from ldp_slicing.errors import ImageError, Reason
from ldp_slicing.images import Decoded
from ldp_slicing.plan import Plan
from ldp_slicing.png import MAX_PIXELS
from ldp_slicing.storage import TemporaryFile
from ldp_slicing.value_range import ValueRange
from ldp_slicing.view import Shrinking

Pixels = NDArray[np.unsignedinteger]
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Original:
    """A grey source before its values were mapped to a range.

    pixels: uint8, uint16 or uint32 of ``bits`` bits, or floats.
    mapping: how they were mapped, by ``value_range.RangeMap``. It is part of the view.
    """

    pixels: NDArray[Any]
    bits: int
    mapping: str


@dataclass(frozen=True)
class Entry:
    """One decoded source.

    name: identifies it within its file; empty if the file holds nothing else.
    pixels: uint8 [H, W, 3] for colour, uint8 [H, W] or uint16 [H, W] for grey.
    bits: the bits per word, 24 for colour and 1 to 16 for grey.
    file: SHA-256 of the bytes that it was decoded from.
    notices: what the owner should know about how it was read.
    frame: its number among the frames of its file, from 1; 0 if it is not a frame.
    kept: the data that travels with the release because the owner asked for it, and what the writer needs to know.
    kept_names: the names of that data, which the card mentions.
    shrinking: how its release is shrunk; None if it keeps its size. Readers do not know it, writers do.
    original: the source before its values were mapped to a range; None if ``pixels`` are the source.
    file_notices: what the owner should know about its file as a whole. One of the entries of a file has them.
    """

    name: str
    pixels: Pixels
    bits: int
    file: bytes | None
    notices: tuple[str, ...] = ()
    frame: int = 0
    kept: dict[str, Any] = field(default_factory=dict)
    kept_names: tuple[str, ...] = ()
    shrinking: Shrinking | None = None
    original: Original | None = None
    file_notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Damaged:
    """A source that cannot be released, and why. The other sources of its file can."""

    name: str
    problem: str


@dataclass(frozen=True)
class Options:
    """The settings of a run that concern readers and writers.

    keep: names of data to keep.
    value_range: the range that the values of DICOM files are mapped to.
    not_burned_in: the owner's word that no text is burned into the pixels of DICOM files.
    pseudonym: 16 bytes for a kind of name and a name, the same within a run; None where nothing needs them.
    shrinks: whether releases may be smaller than their sources, so that distances between pixels change.
    """

    keep: tuple[str, ...] = ()
    value_range: ValueRange | None = None
    not_burned_in: bool = False
    pseudonym: Callable[[str, str], bytes] | None = None
    shrinks: bool = False


class Reader(Protocol):
    """Yield the sources of an open file, one at a time. Raise ImageError if the file cannot be released at all."""

    def __call__(self, file: BinaryIO, options: Options) -> Iterator[Entry | Damaged]: ...


class KeepableNames(Protocol):
    """Return the names that ``--keep`` can have for a file: the function ``keepable`` of a format that keeps data.

    None: only reading all of the file tells. It raises ImageError if the file cannot be released.
    """

    def __call__(self, open_file: Callable[[], BinaryIO]) -> Collection[str] | None: ...


class Writer(Protocol):
    """Write the releases of one file to a temporary file, one at a time.

    canvas: the class of the buffer that releases of a plan are made in, ``PixelBuffer`` or one like it.
    """

    canvas: type[Any]

    def __init__(self, file: TemporaryFile, options: Options) -> None: ...

    def add(self, entry: Entry, name: str, identity: str, canvas: Any) -> str | None:  # noqa: ANN401
        """Write the release in ``canvas``; return the name of the member that was written, if members have names.

        entry: the source; its pixels must not be written.
        name: the public name of the source.
        identity: 32 hexadecimal digits that are unique to the release.
        """

    def close(self) -> None:
        """Complete the file."""

    def abort(self) -> None:
        """Free resources. The caller discards the file."""


class PixelBuffer:
    """An uninitialised array ``pixels`` for a release. The plan is for writers whose files depend on it."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.unsignedinteger], plan: Plan) -> None:
        self.pixels: Pixels = np.empty(shape, dtype)


@dataclass(frozen=True)
class Content:
    """One thing that ``check`` finds in a file of releases.

    It is a release (size, bits per word and number of frames are set), or data kept beside releases (``kept`` is its
    name), or something that does not belong there (``problem`` says what).
    """

    member: str | None
    width: int = 0
    height: int = 0
    bits: int = 0
    frames: int = 1
    problem: str | None = None
    kept: str | None = None


@dataclass(frozen=True)
class Claims:
    """What the card says about the files of a set. Without a readable card it says nothing.

    plans: the plan for each word width, 24 for colour and 1 to 16 for grey.
    largest: the largest width and height of a release for each word width.
    ranges: the range whose values the words stand for, for each word width that has one.
    """

    plans: Mapping[int, Plan] = field(default_factory=dict)
    largest: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    ranges: Mapping[int, ValueRange] = field(default_factory=dict)

    def size_problem(self, width: int, height: int, bits: int) -> str | None:
        """Return why no release of the set has this size, or None.

        Call this before memory is allocated for what a header declares.
        """
        if width * height > MAX_PIXELS:
            return f"declares {width} x {height} pixels, more than any release has"
        if bits in self.largest and (width > self.largest[bits][0] or height > self.largest[bits][1]):
            most = " x ".join(map(str, self.largest[bits]))
            return f"declares {width} x {height} pixels; the card states at most {most}"
        return None


class Checker(Protocol):
    """Account for every byte of a file of releases, and yield what it holds: a format's function ``check``.

    A byte is accounted for if it is what the format's ``Writer`` writes for the content that was decoded, or if it is
    declared free content (names of members, data that was kept, UIDs that follow from identities). Where the writer is
    ours, ``check`` encodes again what it decoded and compares bytes. Where a library writes, ``check`` walks the file
    and refuses gaps, unknown metadata and tails. Whatever is left over is yielded as a ``Content`` with a problem.

    The file is not trusted. Memory stays bounded by the size of one release, which ``claims`` limits: ``check`` reads
    sizes from headers, calls ``claims.size_problem`` and only then allocates. It may raise anything on a damaged file.
    """

    def __call__(self, file: BinaryIO, claims: Claims) -> Iterator[Content]: ...


@dataclass(frozen=True)
class Member:
    """Where a release lies in its file.

    name: of the member; empty if the file holds one release.
    piece: what ``load`` reads at once. position: that of the release in it.
    """

    name: str
    piece: Hashable
    position: int = 0


@dataclass(frozen=True)
class Released:
    """A release as it was read: pixels as those of an ``Entry``, bits per word, and the data kept beside it by name."""

    pixels: Pixels
    bits: int
    kept: Mapping[str, Any] = field(default_factory=dict)


class Finder(Protocol):
    """Yield where the releases of a file lie: a format's function ``members``. Raise ImageError on a damaged file."""

    def __call__(self, file: BinaryIO) -> Iterator[Member]: ...


class Loader(Protocol):
    """Read one piece of a file, and give its releases by their positions: a format's function ``load``."""

    def __call__(self, file: BinaryIO, piece: Any) -> Sequence[Released]: ...  # noqa: ANN401


def make_entry(
    name: str,
    decoded: Decoded,
    file: bytes | None,
    kept: Mapping[str, Any] = NOTHING,
    kept_names: Iterable[str] = (),
) -> Entry:
    """Return the entry of a decoded image, with advice to its owner where there is any."""
    pixels = decoded.pixels
    notices = decoded.notices
    if pixels.ndim == 3 and has_equal_channels(pixels):
        notices += (
            "all three channels are equal, so the budget of Cb and Cr is wasted: convert such images to grey first",
        )
    return Entry(name, pixels, word_bits_of(pixels), file, notices, kept=dict(kept), kept_names=tuple(kept_names))


def check_keep(keep: Collection[str], present: Collection[str]) -> None:
    """Raise ImageError if a file holds nothing that is to be kept. ``present``: what it holds besides its images.

    Most likely a name is misspelt. The file is refused before any budget is spent.
    """
    if keep and not set(keep) & set(present):
        held = ", ".join(sorted(present)) or "nothing besides its images"
        raise ImageError(f"has no {' or '.join(keep)} to keep; it has {held}", Reason.KEEP)


def note_left_out(entry: Entry, names: Collection[str]) -> Entry:
    """Return the entry with a notice of what is in its file and not in its release."""
    if not names:
        return entry
    notice = f"left out: {', '.join(sorted(names))} (--keep NAME keeps them)"
    return replace(entry, file_notices=(*entry.file_notices, notice))
