"""Tests whether a part of a release lacks noise: an unprotected face hardly shows in the counts of a large image.

An image is divided into square tiles, of SIDE pixels and of 2, 4, 8, ... times as many, and neighbours side by side are
counted in each tile. Proofs: docs/proofs.md, 14.5 and 14.7. Tests: tests/audit/test_parts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.audit.tails import tail_above

Counts = NDArray[np.int64]

SIDE = 32  # of the smallest tiles, in pixels: a power of two
_UNREMARKABLE = 3  # standard deviations above the mean up to which no tail is computed: it cannot be near a limit


@dataclass(frozen=True)
class PartTests:
    """How many tests of tiles there were, the smallest p-value of them, and what it says in words."""

    tests: int = 0
    smallest: float = 1.0
    worst: str = ""


def tile_sums(agreeing: NDArray[np.bool_]) -> Counts:
    """Count in each tile of SIDE pixels the pairs side by side that agree, [rows, columns / 2]."""
    down = np.add.reduceat(agreeing, range(0, agreeing.shape[0], SIDE), axis=0, dtype=np.int64)
    sums: Counts = np.add.reduceat(down, range(0, agreeing.shape[1], SIDE // 2), axis=1)
    return sums


def judge_parts(agreeing: Counts, pairs: Counts, probabilities: Sequence[float], names: Sequence[str]) -> PartTests:
    """Test the tiles of one release. agreeing: [tests, tiles down, tiles across]; pairs: those of each tile."""
    found, side = list[PartTests](), SIDE
    chances = np.array(probabilities)[:, None, None]
    while pairs.size > 1 and len(names):  # one tile alone is the whole release
        expected = pairs * chances
        odd = np.nonzero(agreeing > expected + _UNREMARKABLE * np.sqrt(expected * (1 - chances)))
        smallest, worst = 1.0, ""
        if odd[0].size:
            p_values = tail_above(agreeing[odd], pairs[odd[1:]], chances[odd[0], 0, 0])
            least = int(p_values.argmin())
            number, row, column = (int(place[least]) for place in odd)
            smallest = float(p_values[least])
            worst = (
                f"{names[number]} in {agreeing[number, row, column]:,} of {pairs[row, column]:,} pairs of pixels side "
                f"by side, in the {side} x {side} pixels at column {column * side}, row {row * side}"
            )
        found.append(PartTests(agreeing.size, smallest, worst))
        agreeing, pairs, side = _merged(agreeing), _merged(pairs), 2 * side
    return add_parts(found)


def _merged(counts: Counts) -> Counts:
    """Add up tiles two by two along the last two axes."""
    for axis in (-1, -2):
        counts = np.add.reduceat(counts, range(0, counts.shape[axis], 2), axis=axis)
    return counts


def add_parts(several: Iterable[PartTests]) -> PartTests:
    """All tests together."""
    parts = list(several)
    worst = min(parts, key=lambda one: one.smallest, default=PartTests())
    return PartTests(sum(one.tests for one in parts), worst.smallest, worst.worst)
