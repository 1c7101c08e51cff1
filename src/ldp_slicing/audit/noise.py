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
from ldp_slicing.audit.parts import SIDE, PartTests, add_parts, judge_parts, tile_sums
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
    """Disjoint pairs of places, ``distance`` apart along an axis: 0 is down, 1 is to the right.

    A place is a pixel or, with ``steps``, two pixels side by side: their words' XOR is then compared, which shows masks
    that are repeated.
    """

    what: str
    axis: int
    distance: int
    steps: bool = False

    @property
    def masks(self) -> int:
        """How many masks are in a pair."""
        return 4 if self.steps else 2

    def pairs(self, words: Words, known: Words) -> tuple[Words, Words, Words]:
        """The words of each pair, and the bits that are certain in both. What is left at the end is left out."""
        if self.steps:
            (left, right), known = _halves(words, 1, 1), np.bitwise_and(*_halves(known, 1, 1))
            words = left ^ right
        one, other = _halves(words, self.axis, self.distance)
        return one, other, np.bitwise_and(*_halves(known, self.axis, self.distance))


def _halves(words: Words, axis: int, distance: int) -> tuple[Words, Words]:
    """Disjoint pairs of elements of [H, W] that are so far apart along an axis: two arrays of half its length."""
    blocks = words.shape[axis] // (2 * distance)
    whole = np.moveaxis(words, axis, 0)[: 2 * distance * blocks]
    parts = whole.reshape(blocks, 2, distance, whole.shape[1])
    one, other = (np.moveaxis(parts[:, i].reshape(blocks * distance, whole.shape[1]), 0, axis) for i in (0, 1))
    return one, other


FAMILIES = (
    Family("pixels side by side", 1, 1),
    Family("pixels one above the other", 0, 1),
    Family("pixels two apart in a row", 1, 2),
)
REPEATS = (
    Family("steps to the next pixel one above the other, as if rows shared a mask", 0, 1, steps=True),
    *(
        Family(f"steps to the next pixel {pixels} pixels apart, as if a mask was repeated", 1, pixels // 2, steps=True)
        for pixels in (8, 16, 32, 64, 128, 256, 512)
    ),
)


@dataclass(frozen=True)
class PairTest:
    """Counts the pairs of a family that agree.

    ``bits``: what is compared. ``distance``: how far apart their values may be; 0 for equality. ``probability``: no
    pair of a release agrees with a larger one.
    """

    family: Family
    what: str
    bits: int
    distance: int
    shift: int
    probability: float

    def agree(self, one: Words, other: Words, known: Words) -> NDArray[np.bool_]:
        """Where pairs of words agree. ``known``: the bits that are certain in both words of a pair."""
        bits = np.uint32(self.bits)
        certain: NDArray[np.bool_] = known & bits == bits
        if self.distance:
            low, high = (((words & bits) >> np.uint32(self.shift)).astype(np.int32) for words in (one, other))
            certain &= np.abs(low - high) <= self.distance
        else:
            certain &= (one ^ other) & bits == 0
        return certain


@dataclass(frozen=True)
class NoiseCounts:
    """What the pixels of one release, or of several, show.

    ``agreeing`` and ``pairs``: int64 [tests], the pairs that agree, and all. ``clamped`` and ``impossible``: pixels, of
    ``pixels``. ``parts``: what the tiles of each release show on their own.
    """

    pixels: int
    pairs: Counts
    agreeing: Counts
    clamped: int
    impossible: int
    parts: PartTests


@lru_cache(maxsize=8)
def pair_tests(plan: Plan) -> tuple[PairTest, ...]:
    """The tests for releases of a plan: whole words, slices and single bits that are equal, channels that are close.

    Steps are compared as whole words, and in Cb and Cr alone, which are smoother than Y.
    """
    singles = [1 << bit for bit in range(plan.word_bits - 1, -1, -1) if plan.kept_bits >> bit & 1]
    named = {plan.kept_bits: "words"}
    named |= {part.bits: plan.slice_name(part) for part in plan.slices if part.bits not in named}
    named |= {bit: plan.bit_name(bit.bit_length() - 1) for bit in singles if bit not in named}
    chroma = {plan.kept_bits & 0xFFFF: "Cb and Cr"} if plan.is_colour and plan.kept_bits & 0xFFFF else {}

    def equal(family: Family, bits: int, name: str) -> PairTest:
        chances = (group.restricted(bits).zero_xor_probability(family.masks) for group in groups)
        return PairTest(family, f"{name} equal", bits, 0, 0, min(1.0, _ROUNDING * math.prod(chances)))

    groups = read_groups(plan.tables)
    tests = [equal(family, bits, name) for family in FAMILIES for bits, name in named.items()]
    tests += [
        equal(family, bits, name) for family in REPEATS for bits, name in ({plan.kept_bits: "words"} | chroma).items()
    ]
    channels = ((16, "Y"), (8, "Cb"), (0, "Cr")) if plan.is_colour else ((max(0, plan.word_bits - 8), "values"),)
    for shift, name in channels:
        bits = plan.kept_bits & 0xFF << shift
        if bits.bit_count() > 1:
            tests += [
                PairTest(
                    family,
                    f"{name} within {distance << (0 if plan.is_colour else shift)}",
                    bits,
                    distance,
                    shift,
                    worst,
                )
                for distance, worst in _closeness(plan, shift, bits)
                for family in FAMILIES
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
    local = [number for number, test in enumerate(tests) if test.family == FAMILIES[0] and width > 1]
    # A power of two: no pair is in two strips, and a strip is a part of a row of tiles, or has whole ones.
    rows = 1 << max(2, STRIP_PIXELS // width).bit_length() - 1
    pairs, agreeing = np.zeros(len(tests), np.int64), np.zeros(len(tests), np.int64)
    tiles = np.zeros((len(local) + 1, -(-height // SIDE), -(-(width // 2) // (SIDE // 2))), np.int64)  # the last: pairs
    clamped = impossible = 0
    for top in range(0, height, rows):
        strip = pixels[top : top + rows]
        flat = strip.reshape(-1, *pixels.shape[2:])
        clamped += int(np.count_nonzero(is_clamped(flat)))
        impossible += int(np.count_nonzero(values.impossible(flat)))
        words, known = (array.reshape(strip.shape[:2]) for array in values.words(flat))
        found = {family: family.pairs(words, known) for family in (*FAMILIES, *REPEATS)}
        here = slice(top // SIDE, -(-(top + len(strip)) // SIDE))
        for number, test in enumerate(tests):
            agree = test.agree(*found[test.family])
            pairs[number] += agree.size
            agreeing[number] += np.count_nonzero(agree)
            if number in local:
                tiles[local.index(number), here] += tile_sums(agree)
        if local:
            tiles[-1, here] += tile_sums(np.ones((len(strip), width // 2), np.bool_))
    chosen = [tests[number] for number in local]
    parts = judge_parts(tiles[:-1], tiles[-1], [test.probability for test in chosen], [test.what for test in chosen])
    return NoiseCounts(height * width, pairs, agreeing, clamped, impossible, parts)


def add_up(counts: list[NoiseCounts]) -> NoiseCounts:
    """The counts of several releases together."""
    return NoiseCounts(
        sum(one.pixels for one in counts),
        np.sum([one.pairs for one in counts], axis=0, dtype=np.int64),
        np.sum([one.agreeing for one in counts], axis=0, dtype=np.int64),
        sum(one.clamped for one in counts),
        sum(one.impossible for one in counts),
        add_parts(one.parts for one in counts),
    )


def agreement_p_values(agreeing: Counts, pairs: Counts, plan: Plan) -> NDArray[np.float64]:
    """The p-value of each test for each release. agreeing and pairs: [releases, tests].

    A count that is not above its expectation gets 1, which is not below its tail.
    """
    probabilities = np.array([test.probability for test in pair_tests(plan)])
    p_values = np.ones(agreeing.shape)
    above = agreeing > pairs * probabilities
    if above.any():
        chances = np.broadcast_to(probabilities, agreeing.shape)
        p_values[above] = tail_above(agreeing[above], pairs[above], chances[above])
    return p_values


def clamped_p_value(clamped: int, pixels: int, plan: Plan) -> float:
    """The p-value of a number of clamped pixels: twice the tail beyond it, of the word that is clamped most or least.

    The mean share over all words lies between the two, so a number has at most one of these tails to look at.
    """
    return min(too_many_clamped(clamped, pixels, plan), too_few_clamped(clamped, pixels, plan))


def too_many_clamped(clamped: int, pixels: int, plan: Plan) -> float:
    """Twice the upper tail. Too many pixels are clamped where an image is over- or underexposed."""
    values = rebuilt(plan)
    if not plan.is_colour or clamped <= pixels * values.mean_clamped_share:
        return 1.0
    return min(1.0, 2 * float(tail_above(clamped, pixels, values.clamped_shares[1])[0]))


def too_few_clamped(clamped: int, pixels: int, plan: Plan) -> float:
    """Twice the lower tail. Too few pixels are clamped where there is less noise than the plan's."""
    values = rebuilt(plan)
    if not plan.is_colour or clamped >= pixels * values.mean_clamped_share:
        return 1.0
    return min(1.0, 2 * float(tail_below(clamped, pixels, values.clamped_shares[0])[0]))
