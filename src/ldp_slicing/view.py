"""The view: the deterministic, public stage before the noise, and the conversion back to RGB.

All functions work on integer arrays, and every backend returns the same bytes.

Proofs: docs/proofs.md, 6 and 7. Tests: tests/test_view.py.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import LdpSlicingError

Prune = Literal["haar", "haar2", "haar4", "haar8", "dct"] | None
BLOCK = {None: 1, "haar": 2, "haar2": 2, "haar4": 2, "haar8": 2, "dct": 8}  # side of the block whose mean is removed
GAIN = {"haar2": 2, "haar4": 4, "haar8": 8}  # the factor that amplifies the remaining detail into higher bits


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
