"""A coarse fingerprint of an image, by which the ledger notices shrunk and re-encoded copies of what was released.

The image is reduced to 16 x 16 grey cells, in exact integers. The signs of its low frequencies (a cosine transform in
integers, without the mean) change little when an image is shrunk or encoded again. They are divided into parts, called
marks. The ledger keeps a keyed digest of each mark; two images resemble each other if enough of their marks are equal.

A match is a notice, never a refusal: different images can resemble each other, and a copy can go unnoticed.
`benchmarks/near_copies.py` measures how often; docs/guide/ledger-and-keys.md has the numbers.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

CELLS = 16
FREQUENCIES = 12  # those with 0 < u + v < FREQUENCIES
MARKS = 6
ENOUGH_MARKS = 3  # that must be equal for a resemblance
_SAMPLES = 256  # of a longer axis, at least: more would only cost time
_LEAST_CONTRAST = 64  # of 65,536: flatter images have no fingerprint
_GREY = np.array([1.0, 2.0, 1.0])
_COSINES = np.array(
    [
        [round(4096 * math.cos(math.pi * (2 * x + 1) * u / (2 * CELLS))) for x in range(CELLS)]
        for u in range(FREQUENCIES)
    ]
)
_ORDER = sorted(
    ((u, v) for u in range(FREQUENCIES) for v in range(FREQUENCIES) if 0 < u + v < FREQUENCIES),
    key=lambda one: (sum(one), one),
)


def marks_of(pixels: NDArray[np.unsignedinteger], bits: int) -> tuple[bytes, ...]:
    """Return the marks of an image: uint8 H x W x 3, uint8 H x W or uint16 H x W, ``bits`` bits per channel.

    An image without contrast has none.
    """
    cells = cells_of(pixels, bits)
    if int(cells.max()) - int(cells.min()) < _LEAST_CONTRAST:
        return ()
    transformed = _COSINES @ cells @ _COSINES.T
    signs = np.array([transformed[u, v] > 0 for u, v in _ORDER])
    return tuple(bytes([part]) + np.packbits(signs[part::MARKS]).tobytes() for part in range(MARKS))


def cells_of(pixels: NDArray[np.unsignedinteger], bits: int) -> NDArray[np.int64]:
    """Return the means of 16 x 16 cells that divide the image evenly, as grey values of 16 bits."""
    height, width = pixels.shape[:2]
    sampled = pixels[:: max(1, height // _SAMPLES), :: max(1, width // _SAMPLES)]
    height, width = sampled.shape[:2]
    # Floats hold these integers exactly: the largest sum is far below 2**53.
    rows = _shares(height) @ sampled.reshape(height, -1).astype(np.float64)
    grey = rows.reshape(CELLS, width, 3) @ _GREY if sampled.ndim == 3 else rows * 4
    sums = (grey @ _shares(width).T).astype(np.int64)
    # 16 x 16 shares of 1/16 each way, so a cell has height x width shares, of four times the grey value.
    cells: NDArray[np.int64] = (sums << (16 - bits)) // (4 * height * width)
    return cells


@lru_cache(maxsize=64)
def _shares(length: int) -> NDArray[np.float64]:
    """Return how many sixteenths of each of ``length`` lines belong to each of 16 equal parts."""
    lines, parts = CELLS * np.arange(length), length * np.arange(CELLS)  # where each starts, in sixteenths of a line
    low, high = np.maximum.outer(parts, lines), np.minimum.outer(parts + length, lines + CELLS)
    shares: NDArray[np.float64] = np.maximum(high - low, 0).astype(np.float64)
    return shares
