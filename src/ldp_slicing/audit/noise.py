"""Tests whether releases have the noise of their plan. The sources are not known.

Two pixels have independent masks. So for any sources, their released words are equal, or close to each other, with at
most a probability that follows from the plan. In natural images, neighbours exceed it. The tests count disjoint pairs,
in several families of them: an image of which every second column or every second field of a chessboard is unprotected
has no two unprotected pixels side by side.

Proofs: docs/proofs.md, 14.5 and 14.7. Tests: tests/audit/test_noise.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.audit.exact import read_groups
from ldp_slicing.audit.pixel_words import Pixels, Words
from ldp_slicing.audit.rebuilt import channel_kernel, is_clamped, rebuilt
from ldp_slicing.audit.tails import tail_above, tail_below
from ldp_slicing.plan import Plan

Counts = NDArray[np.int64]

STRIP_PIXELS = 1 << 18
_DISTANCES = (1, 3, 7, 15, 31, 63)  # of values of 8 bits
_ROUNDING = 1 + 1e-9  # more than double precision loses in the probabilities
_NO_POWER = 1 - 1e-6  # a probability above which a test is left out


@dataclass(frozen=True)
class Family:
    """Disjoint pairs of pixels, ``distance`` apart along an axis: 0 is down, 1 is to the right."""

    what: str
    axis: int
    distance: int

    def pairs(self, words: Words) -> tuple[Words, Words]:
        """The pairs of words, [H, W]. What is left at the end of an axis is left out."""
        blocks = words.shape[self.axis] // (2 * self.distance)
        whole = np.moveaxis(words, self.axis, 0)[: 2 * self.distance * blocks]
        parts = whole.reshape(blocks, 2, self.distance, whole.shape[1])
        return parts[:, 0], parts[:, 1]


FAMILIES = (
    Family("pixels side by side", 1, 1),
    Family("pixels one above the other", 0, 1),
    Family("pixels two apart in a row", 1, 2),
)


@dataclass(frozen=True)
class PairTest:
    """Counts the pairs of pixels that agree.

    ``bits``: what is compared. ``distance``: how far apart their values may be; 0 for equality. ``probability``: no two
    pixels of a release agree with a larger one.
    """

    what: str
    bits: int
    distance: int
    shift: int
    probability: float

    def count(self, left: Words, right: Words, known: Words) -> int:
        """The pairs of words that agree. ``known``: the bits that are certain in both words of a pair."""
        bits = np.uint32(self.bits)
        certain = known & bits == bits
        if not self.distance:
            return int(np.count_nonzero(certain & ((left ^ right) & bits == 0)))
        one, other = (((words & bits) >> np.uint32(self.shift)).astype(np.int32) for words in (left, right))
        return int(np.count_nonzero(certain & (np.abs(one - other) <= self.distance)))


@dataclass(frozen=True)
class NoiseCounts:
    """What the pixels of one release, or of several, show.

    ``agreeing``: int64 [families, tests], pairs that agree, of ``pairs``, int64 [families]. ``clamped`` and
    ``impossible``: pixels, of ``pixels``.
    """

    pixels: int
    pairs: Counts
    agreeing: Counts
    clamped: int
    impossible: int


@lru_cache(maxsize=8)
def pair_tests(plan: Plan) -> tuple[PairTest, ...]:
    """The tests for releases of a plan: whole words, slices and single bits that are equal, channels that are close."""
    singles = [1 << bit for bit in range(plan.word_bits - 1, -1, -1) if plan.kept_bits >> bit & 1]
    named = {plan.kept_bits: "words"}
    named |= {part.bits: plan.slice_name(part) for part in plan.slices if part.bits not in named}
    named |= {bit: plan.bit_name(bit.bit_length() - 1) for bit in singles if bit not in named}
    groups = read_groups(plan.tables)
    tests = [
        PairTest(
            f"{name} equal",
            bits,
            0,
            0,
            min(1.0, _ROUNDING * math.prod(group.restricted(bits).zero_xor_probability(2) for group in groups)),
        )
        for bits, name in named.items()
    ]
    channels = ((16, "Y"), (8, "Cb"), (0, "Cr")) if plan.is_colour else ((max(0, plan.word_bits - 8), "values"),)
    for shift, name in channels:
        bits = plan.kept_bits & 0xFF << shift
        if bits.bit_count() > 1:
            tests += [
                PairTest(f"{name} within {distance << (0 if plan.is_colour else shift)}", bits, distance, shift, worst)
                for distance, worst in _closeness(plan, shift, bits)
            ]
    return tuple(test for test in tests if test.probability < _NO_POWER)


def _closeness(plan: Plan, shift: int, bits: int) -> list[tuple[int, float]]:
    """The largest probability, over all pairs of sources, that two released values are within each distance."""
    kernel = channel_kernel(plan, shift)
    values = np.array([value for value in range(256) if value & ~(bits >> shift) == 0])
    apart = np.abs(values[:, None] - values)
    return [
        (distance, float((kernel @ (apart <= distance).astype(np.float64) @ kernel).max()) * _ROUNDING)
        for distance in _DISTANCES
        if (apart <= distance).sum() > len(values)  # otherwise close values are equal
    ]


def count_noise(pixels: Pixels, plan: Plan) -> NoiseCounts:
    """Count what the tests need in one release, [H, W, 3] or [H, W]. Memory does not grow with the image."""
    height, width = pixels.shape[:2]
    tests, values = pair_tests(plan), rebuilt(plan)
    rows = max(2, STRIP_PIXELS // width // 2 * 2)  # even, so that no pair is in two strips
    pairs, agreeing = np.zeros(len(FAMILIES), np.int64), np.zeros((len(FAMILIES), len(tests)), np.int64)
    clamped = impossible = 0
    for top in range(0, height, rows):
        strip = pixels[top : top + rows]
        flat = strip.reshape(-1, *pixels.shape[2:])
        clamped += int(np.count_nonzero(is_clamped(flat)))
        impossible += int(np.count_nonzero(values.impossible(flat)))
        words, known = (array.reshape(strip.shape[:2]) for array in values.words(flat))
        for i, family in enumerate(FAMILIES):
            one, other = family.pairs(words)
            certain = np.bitwise_and(*family.pairs(known))
            pairs[i] += one.size
            agreeing[i] += [test.count(one, other, certain) for test in tests]
    return NoiseCounts(height * width, pairs, agreeing, clamped, impossible)


def add_up(counts: list[NoiseCounts]) -> NoiseCounts:
    """The counts of several releases together."""
    return NoiseCounts(
        sum(one.pixels for one in counts),
        np.sum([one.pairs for one in counts], axis=0, dtype=np.int64),
        np.sum([one.agreeing for one in counts], axis=0, dtype=np.int64),
        sum(one.clamped for one in counts),
        sum(one.impossible for one in counts),
    )


def agreement_p_values(agreeing: Counts, pairs: Counts, plan: Plan) -> NDArray[np.float64]:
    """The p-value of each test for each release. agreeing: [releases, families, tests]; pairs: [releases, families].

    A count that is not above its expectation gets 1, which is not below its tail.
    """
    probabilities = np.array([test.probability for test in pair_tests(plan)])
    p_values = np.ones(agreeing.shape)
    above = agreeing > pairs[..., None] * probabilities
    trials, chances = (np.broadcast_to(array, agreeing.shape)[above] for array in (pairs[..., None], probabilities))
    if above.any():
        p_values[above] = tail_above(agreeing[above], trials, chances)
    return p_values


def clamped_p_value(clamped: int, pixels: int, plan: Plan) -> float:
    """The p-value of a number of clamped pixels: twice the tail beyond it, of the word that is clamped most or least.

    Too many are clamped where an image is over- or underexposed, too few where there is less noise than the plan's. The
    mean share over all words lies between the two, so a number has at most one of these tails to look at.
    """
    values = rebuilt(plan)
    if not plan.is_colour or clamped == pixels * values.mean_clamped_share:
        return 1.0
    least, most = values.clamped_shares
    tail = tail_above if clamped > pixels * values.mean_clamped_share else tail_below
    return min(1.0, 2 * float(tail(clamped, pixels, most if tail is tail_above else least)[0]))
