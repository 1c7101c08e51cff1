"""The view: the deterministic, public stage before the noise, and the conversion back to RGB.

Its steps are, in this order: shrinking (optional), conversion to YCbCr, pruning (optional). A range of DICOM values is
mapped before, when the file is read, see ``value_range``. All functions work on integer arrays, and every backend
returns the same bytes.

Proofs: docs/proofs.md, 6 and 7. Tests: tests/test_view.py.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import ImageError, LdpSlicingError, Reason

Prune = Literal["haar", "haar2", "haar4", "haar8", "dct"] | None
BLOCK = {None: 1, "haar": 2, "haar2": 2, "haar4": 2, "haar8": 2, "dct": 8}  # side of the block whose mean is removed
GAIN = {"haar2": 2, "haar4": 4, "haar8": 8}  # the factor that amplifies the remaining detail into higher bits


@dataclass(frozen=True)
class Padded:
    """The size of every release, as (width, height) is; smaller sources are surrounded by black instead of refused.

    The padding is black (0 in every channel) and public: it hides nothing, not even where it ends, since averaging the
    noise shows that. It gets noise like any other pixel and counts as released.
    """

    width: int
    height: int


Size = int | tuple[int, int] | Padded | None  # of releases: the longest side, or width and height; None: the source's


@dataclass(frozen=True)
class Shrinking:
    """How sources of one size are shrunk: the rectangle of the source that is kept, and the size of the release.

    top, left, height, width: the rectangle, in pixels of the source.

    Where the rectangle is smaller than the release, it is padded: it lies in the middle and keeps its pixels.
    """

    top: int
    left: int
    height: int
    width: int
    released_height: int
    released_width: int

    @property
    def is_padded(self) -> bool:
        return self.height < self.released_height or self.width < self.released_width

    @property
    def padding(self) -> tuple[int, int]:
        """How many rows of padding are above the rectangle, and how many columns are left of it."""
        return (self.released_height - self.height) // 2, (self.released_width - self.width) // 2

    def encode(self) -> bytes:
        """Return all six numbers, of eight bytes each: keys and identities depend on them."""
        return b"".join(number.to_bytes(8, "big") for number in astuple(self))


def check_size(size: Size) -> None:
    """Raise LdpSlicingError unless ``size`` is None, a longest side, (width, height) or Padded(width, height)."""
    if isinstance(size, Padded):
        size = size.width, size.height
    sides = size if isinstance(size, tuple) and len(size) == 2 else (size,)
    if size is not None and not all(type(side) is int and side >= 1 for side in sides):
        raise LdpSlicingError(
            "size must be the longest side of a release in pixels, such as 224, or its width and height, such as "
            f"(224, 224); got {size!r}"
        )


def shrinking_of(size: Size, height: int, width: int) -> Shrinking | None:
    """Return how a source of ``height`` x ``width`` pixels is shrunk, or None if all of it is released in its size.

    >>> shrinking_of(224, 3000, 4000)
    Shrinking(top=0, left=0, height=3000, width=4000, released_height=168, released_width=224)
    >>> shrinking_of((224, 224), 3000, 4000)
    Shrinking(top=0, left=500, height=3000, width=3000, released_height=224, released_width=224)

    >>> shrinking_of(Padded(224, 224), 100, 4000)
    Shrinking(top=0, left=1888, height=100, width=224, released_height=224, released_width=224)

    Nothing is enlarged. With a longest side, smaller sources keep their size. With (width, height), the largest
    centred rectangle of that aspect is kept, and sources that are less wide or less high are refused with an
    ImageError. With Padded(width, height) those are padded to that width or height first.
    """
    check_size(size)
    if size is None:
        return None
    how = _to_longest_side(size, height, width) if isinstance(size, int) else _to_fit(size, height, width)
    return None if how == Shrinking(0, 0, height, width, height, width) else how


def _to_longest_side(side: int, height: int, width: int) -> Shrinking:
    longest = max(height, width, side)  # for smaller sources it is `side`, so that both sides stay
    return Shrinking(0, 0, height, width, max(1, height * side // longest), max(1, width * side // longest))


def _to_fit(size: tuple[int, int] | Padded, height: int, width: int) -> Shrinking:
    fit_width, fit_height = (size.width, size.height) if isinstance(size, Padded) else size
    is_smaller = width < fit_width or height < fit_height
    if is_smaller and not isinstance(size, Padded):
        raise ImageError(
            f"the image has {width} x {height} pixels, but releases of {fit_width} x {fit_height} were requested, and "
            "nothing is enlarged: ask for a smaller size, for a longest side (--max-side), or for padding (--pad)",
            Reason.TOO_SMALL,
        )
    if is_smaller:  # once padded, it has the width or the height of the release, so nothing is left to shrink
        kept_height, kept_width = min(height, fit_height), min(width, fit_width)
    else:
        kept_height = min(height, width * fit_height // fit_width)
        kept_width = min(width, height * fit_width // fit_height)
    top, left = (height - kept_height) // 2, (width - kept_width) // 2
    return Shrinking(top, left, kept_height, kept_width, fit_height, fit_width)


def shrink(image: NDArray[np.unsignedinteger], size: Size) -> NDArray[np.unsignedinteger]:
    """Shrink uint8 or uint16 [H, W], [H, W, C] or [N, H, W, C] to ``size``: same number of axes, same dtype.

    >>> shrink(np.array([[0, 1, 10], [2, 4, 20]], np.uint8), 2)
    array([[ 1, 10]], dtype=uint8)

    See ``shrink_rows`` for the values. An image that keeps its size is returned as it is.
    """
    images = image[None, ..., None] if image.ndim == 2 else image[None] if image.ndim == 3 else image
    how = shrinking_of(size, *images.shape[1:3])
    if how is None:
        return image
    small = shrink_rows(images, how, 0, how.released_height)
    return small if image.ndim == 4 else small[0, ..., 0] if image.ndim == 2 else small[0]


def shrink_rows(
    images: NDArray[np.unsignedinteger], how: Shrinking, first: int, end: int
) -> NDArray[np.unsignedinteger]:
    """Return the rows ``first`` to ``end`` - 1 of shrunk images: uint8 or uint16 [N, H, W, C], to [N, rows, w, C].

    Let the kept rectangle have H x W pixels, and the release h x w. Released row i takes the rows floor(i H / h) to
    floor((i + 1) H / h) - 1 of the rectangle, and columns likewise. A released value is the mean of its source
    values, rounded half up. Every pixel of the rectangle belongs to exactly one released pixel. Padding is 0.

    Beside the result, memory holds one row of sums per image.
    """
    kept = images[:, how.top : how.top + how.height, how.left : how.left + how.width]
    small = np.zeros((len(images), end - first, how.released_width, images.shape[3]), images.dtype.newbyteorder("="))
    if how.is_padded:
        above, left = how.padding
        top, bottom = max(first, above), min(end, above + how.height)
        if top < bottom:
            small[:, top - first : bottom - first, left : left + how.width] = kept[:, top - above : bottom - above]
        return small
    rows, columns = (
        np.arange(parts + 1) * length // parts
        for length, parts in ((how.height, how.released_height), (how.width, how.released_width))
    )
    widths = np.diff(columns)[:, None]
    largest_area = -(-how.height // how.released_height) * int(widths.max())
    fits = largest_area * (2 * np.iinfo(images.dtype).max + 1) < 1 << 32  # twice a sum, and its area
    wide = np.uint32 if fits else np.uint64
    for i in range(first, end):
        sums = np.add.reduceat(np.add.reduce(kept[:, rows[i] : rows[i + 1]], axis=1, dtype=wide), columns[:-1], axis=1)
        areas = ((rows[i + 1] - rows[i]) * widths).astype(wide)
        small[:, i - first] = (2 * sums + areas) // (2 * areas)
    return small


def sizing(size: Size) -> str:
    """Return a size for people to read, and for the card."""
    if isinstance(size, Padded):
        return f"{size.width} x {size.height}, smaller sources padded with black"
    if isinstance(size, tuple):
        return f"{size[0]} x {size[1]}"
    return "that of the source" if size is None else f"at most {size} x {size}"


def block_of(prune: Prune) -> int:
    """Return the side of the block whose mean is removed."""
    if prune not in BLOCK:
        raise LdpSlicingError(f"prune must be one of {', '.join(map(repr, BLOCK))}; got {prune!r}")
    return BLOCK[prune]


def gain_of(prune: Prune) -> int:
    """Return the factor by which the remaining detail is amplified."""
    return GAIN.get(prune or "", 1)


def pruning(prune: Prune) -> str:
    """Return the name of a pruning for people to read."""
    return f"{prune} (low Haar band removed, detail x {gain_of(prune)})" if prune in GAIN else prune or "none"


def to_ycbcr(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert uint8 [3, ...] R, G, B to Y, Cb, Cr.

    This is full-range BT.601 as in JFIF, in 16-bit fixed point with the rounding of the JPEG library.
    """
    r, g, b = rgb.astype(np.int32)
    out = np.empty_like(rgb)
    out[0] = (19595 * r + 38470 * g + 7471 * b + 32768) >> 16
    out[1] = (-11059 * r - 21709 * g + 32768 * b + ((128 << 16) + 32767)) >> 16
    out[2] = (32768 * r - 27439 * g - 5329 * b + ((128 << 16) + 32767)) >> 16
    return out


def to_rgb(ycbcr: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert uint8 [3, ...] Y, Cb, Cr to R, G, B, clamped to 0..255."""
    y, cb, cr = ycbcr.astype(np.int32)
    cb -= 128
    cr -= 128
    out = np.empty_like(ycbcr)
    out[0] = np.clip(y + ((91881 * cr + 32768) >> 16), 0, 255)
    out[1] = np.clip(y + ((-22554 * cb - 46802 * cr + 32768) >> 16), 0, 255)
    out[2] = np.clip(y + ((116130 * cb + 32768) >> 16), 0, 255)
    return out


def prune_low(channel: NDArray[np.unsignedinteger], prune: Prune, bits: int) -> NDArray[np.unsignedinteger]:
    """Remove the mean of each block of a channel: uint8 or uint16 [H, W] of ``bits`` bits, to the same shape and dtype.

    A block of 2 x 2 is the 1-level Haar transform with LL = 0; a block of 8 x 8 is the DCT without DC. The result is
    centred on the middle of the range, multiplied by the gain and clamped. Edge pixels are repeated to fill a block.
    """
    block = block_of(prune)
    if block == 1:
        return channel
    height, width = channel.shape
    # int16 is enough for 8-bit channels: 64 * 255 + 64 * 128 + 32 < 2^15, and with a gain 8 * 3 * 255 + 4 * 128 + 2.
    wide = np.int16 if bits <= 8 else np.int32
    x: NDArray[np.signedinteger] = np.pad(channel, ((0, -height % block), (0, -width % block)), "edge").astype(wide)
    rows = np.add.reduce(x.reshape(-1, block, x.shape[1]), axis=1, dtype=x.dtype)
    sums = sum(rows[:, j::block] for j in range(block))
    for j in range(block):
        rows[:, j::block] = sums  # repeat each sum at every column of its block
    area = block * block
    x *= area
    x.reshape(-1, block, x.shape[1])[:] -= rows[:, None]
    x *= gain_of(prune)
    x += (area << (bits - 1)) + area // 2
    x >>= area.bit_length() - 1
    np.clip(x, 0, (1 << bits) - 1, out=x)
    return x.astype(channel.dtype)[:height, :width]
