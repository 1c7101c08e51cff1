"""From keystream to masks: the reference sampler. Pure arrays.

Keystream layout, version 1. Pixels are numbered row by row and taken in blocks of 64. A block's keystream is a sequence of
lanes; a lane is 64 little-endian 16-bit numbers, one per pixel. Group by group: one lane with the draws, then, for a wide slice,
one or two lanes of uniform bits (the first covers bits 0 to 15 of the word, the second bits 16 to 23). The last block is drawn
whole. The 48 bits that decide a tie come from elsewhere, addressed by pixel * groups + group, so nothing depends on how many
ties there were before.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.tables import Tables

BLOCK_PIXELS = 64
TIE = np.uint32(1 << 31)

Blocks = Callable[
    [memoryview], bytes
]  # from 16-byte big-endian counters to the keystream's 16 bytes at each; a tie takes the first six


def draw(
    lanes: NDArray[np.uint16], tables: Tables, first_pixel: int, blocks: Blocks, masks: NDArray[np.uint8], offset: int
) -> None:
    """Write the masks of consecutive pixels to ``masks[:, offset:]`` (uint8 [planes, pixels]).

    lanes: uint16 [blocks * lanes, 64]; first_pixel: the number of the first pixel; blocks: keystream at given counters.
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
        masks[plane, offset : offset + len(words)] = words >> np.uint32(8 * plane)  # its lowest byte


def _settle(
    draws: NDArray[np.uint16], pixels: NDArray[np.intp], group: int, tables: Tables, blocks: Blocks
) -> NDArray[np.uint32]:
    """The masks of draws whose first 8 bits equal their column's: the other 48 decide."""
    counters = np.empty((len(pixels), 2), ">u8")
    counters[:, 0], counters[:, 1] = 1, pixels * tables.groups + group  # 2^64 + index
    more = np.frombuffer(blocks(counters.data.cast("B")), "<u8")[::2] & np.uint64((1 << 48) - 1)
    column = draws >> 8
    side = (more >= tables.rest[group, column]).astype(np.intp)
    settled: NDArray[np.uint32] = tables.outcome_words[group, side, column]
    return settled
