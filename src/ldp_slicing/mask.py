"""Masks: the reference sampler, which turns keystream into masks.

Keystream layout, version 1. Pixels are numbered row by row and drawn in blocks of 64. The last block is always
complete. The keystream of a block is a sequence of lanes. A lane is 64 little-endian 16-bit values, one per pixel.
Each group has one lane of draws. The group of a wide slice has one or two lanes of uniform bits after it: the first
covers bits 0 to 15 of the word, the second bits 16 to 23. The 48 bits that decide a tie come from a second counter
range at 2^64 + pixel * groups + group, so they do not depend on earlier ties.

Proofs: docs/proofs.md, 3 and 10. Tests: tests/test_tables.py and tests/test_vectors.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.tables import Tables

BLOCK_PIXELS = 64
TIE = np.uint32(1 << 31)

# Maps 16-byte big-endian counters to 16 bytes of keystream each. A tie uses the first six.
Blocks = Callable[[memoryview], bytes]


def draw(
    lanes: NDArray[np.uint16], tables: Tables, first_pixel: int, blocks: Blocks, masks: NDArray[np.uint8], offset: int
) -> None:
    """Write the masks of consecutive pixels to ``masks[:, offset:]``.

    lanes: uint16 [blocks * lanes, 64]. masks: uint8 [planes, pixels]; plane 0 is the lowest byte of the word.
    first_pixel: the number of the first pixel. blocks: returns the keystream at given counters.
    """
    lanes = lanes.reshape(-1, tables.lanes, BLOCK_PIXELS)
    words = np.zeros(lanes.shape[0] * BLOCK_PIXELS, np.uint32)
    lane = 0
    for group in range(tables.groups):
        draws = lanes[:, lane].ravel()
        chosen = tables.cells[group].take(draws)
        (ties,) = np.nonzero(chosen >= TIE)
        if ties.size:
            chosen[ties] = _settle(draws[ties], ties + first_pixel, group, tables, blocks)
        lane += 1
        if tables.uniform[group]:
            uniform = np.zeros_like(words)
            for shift in range(0, 16 * tables.uniform_lanes, 16):
                uniform |= lanes[:, lane].ravel().astype(np.uint32) << np.uint32(shift)
                lane += 1
            chosen &= uniform
        words ^= chosen
    for plane in range(tables.planes):
        masks[plane, offset : offset + len(words)] = words >> np.uint32(8 * plane)  # the cast keeps the lowest byte


def _settle(
    draws: NDArray[np.uint16], pixels: NDArray[np.intp], group: int, tables: Tables, blocks: Blocks
) -> NDArray[np.uint32]:
    """Return the masks of tied draws, which 48 more bits decide: uint32 [ties]."""
    counters = np.empty((len(pixels), 2), ">u8")
    counters[:, 0], counters[:, 1] = 1, pixels * tables.groups + group  # 2^64 + index
    more = np.frombuffer(blocks(counters.data.cast("B")), "<u8")[::2] & np.uint64((1 << 48) - 1)
    column = draws >> 8
    side = (more >= tables.rest[group, column]).astype(np.intp)
    settled: NDArray[np.uint32] = tables.outcome_words[group, side, column]
    return settled


def join_planes(planes: NDArray[np.uint8], channels: int) -> NDArray[np.unsignedinteger]:
    """Turn mask bytes uint8 [planes, pixels], lowest byte first, into [channels, pixels].

    The channels are uint8 Y, Cb, Cr, or one grey channel of uint8 or uint16.
    """
    if len(planes) == channels:
        return planes[::-1]
    deep: NDArray[np.uint16] = planes[0] | planes[1].astype(np.uint16) << np.uint16(8)
    return deep
