"""The colours that a plan can release, and the rank of a pixel among them.

A plan that keeps few bits has few colours, so that a pixel takes fewer bits in a file. The palette follows from the
plan alone: it reveals nothing about a source, not even which colours its release has.

Only colour plans have a palette. PNG can express grey of fewer than 8 bits only for evenly spaced values from 0 to 255,
which no plan releases, and a reader could not tell a palette of grey values from colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import ImageError
from ldp_slicing.plan import Plan
from ldp_slicing.view import to_rgb

MOST_COLOURS = 256
_MOST_BITS = 16  # a plan that keeps more has more colours than a palette can hold
_HASH_BITS = 16
_NO_COLOUR = MOST_COLOURS  # in the table of hashes
_AT_ONCE = 1 << 14  # pixels: the working memory fits in the processor's cache


@dataclass(frozen=True, eq=False)
class Palette:
    """All colours that a plan can release, uint8 [n, 3], sorted. The index of a colour is its rank.

    ``bits``: bits per pixel of an index, 1, 2, 4 or 8.
    """

    colours: NDArray[np.uint8]
    bits: int
    _multiplier: np.uint32
    _ranks: NDArray[np.uint16]  # by hash

    def rank(self, pixels: NDArray[np.uint8], ranks: NDArray[np.uint8]) -> None:
        """Write the rank of each pixel. Raise ImageError at a pixel that the plan cannot release.

        pixels: uint8 [3 n + 1], the pixels in a row and one byte more. ranks: uint8 [n].

        The hash of a colour is the upper 16 bits of its product with the multiplier. A foreign colour is found unless
        its hash is that of a colour in the palette.
        """
        words: NDArray[np.uint32] = np.ndarray((len(ranks),), "<u4", pixels, strides=(3,))
        for first in range(0, len(ranks), _AT_ONCE):
            # The multiplier is a multiple of 256, so that the fourth byte, which is the next pixel's, has no effect.
            hashes = words[first : first + _AT_ONCE] * self._multiplier
            hashes >>= 32 - _HASH_BITS
            found = np.take(self._ranks, hashes, mode="clip")
            if found.max() == _NO_COLOUR:
                raise ImageError("has a colour that its plan cannot release")
            ranks[first : first + _AT_ONCE] = found


@lru_cache(maxsize=64)
def palette_of(plan: Plan) -> Palette | None:
    """Return the palette of a colour plan with at most 256 colours, or None.

    >>> palette_of(Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7")).bits
    4
    """
    if not plan.is_colour or plan.kept_bits.bit_count() > _MOST_BITS:
        return None
    words = np.array([plan.dropped_value], np.uint32)
    for bit in range(plan.word_bits):
        if plan.kept_bits >> bit & 1:
            words = np.concatenate([words, words | np.uint32(1 << bit)])
    channels = np.stack([words >> 16, words >> 8, words]).astype(np.uint8)
    colours: NDArray[np.uint8] = np.unique(to_rgb(channels).T, axis=0)
    return make_palette(colours) if len(colours) <= MOST_COLOURS else None


def make_palette(colours: NDArray[np.uint8]) -> Palette:
    """Return the palette of these colours, uint8 [n, 3]."""
    words = np.ndarray((len(colours),), "<u4", np.append(colours, np.uint8(0)), strides=(3,)) & np.uint32(0xFFFFFF)
    for candidate in count(0x9E3779, 2):
        multiplier = np.uint32((candidate << 8) & 0xFFFFFFFF)
        hashes = words * multiplier >> np.uint32(32 - _HASH_BITS)
        if len(np.unique(hashes)) == len(words):
            break
    ranks = np.full(1 << _HASH_BITS, _NO_COLOUR, np.uint16)
    ranks[hashes] = np.arange(len(words))
    bits = next(bits for bits in (1, 2, 4, 8) if len(words) <= 1 << bits)
    return Palette(colours, bits, multiplier, ranks)
