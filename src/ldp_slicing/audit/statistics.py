"""Tests of masks against the distribution that the plan promises: counts against exact binomial tails.

If the promise is kept, a p-value is at most x with probability at most x. With the limit (error rate) / (number of
tests), the probability of any false failure is at most the error rate, however the tests depend on each other. Proofs:
docs/proofs.md, 14. Tests: tests/audit/test_statistics.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.audit.exact import Group, epsilon_of, read_groups, worst_ratio
from ldp_slicing.audit.pixel_words import Words
from ldp_slicing.audit.tails import lower_bound, two_sided, upper_bound
from ldp_slicing.plan import Plan

LAGS = (1, 2, 63, 64, 65)
LONGEST_RUN = 4096
LISTED = 100  # distinct runs that occur more than once
_CHUNK = 1 << 16

Counts = NDArray[np.float64]
Number = TypeVar("Number", Fraction, NDArray[np.float64])


@dataclass(frozen=True)
class BinomialTests:
    """Tests of one kind: named counts that are binomial if the promise is kept."""

    kind: str
    names: list[str]
    counts: Counts
    trials: int
    probabilities: Counts

    @property
    def p_values(self) -> Counts:
        return two_sided(self.counts, self.trials, self.probabilities)

    def failures(self, limit: float) -> tuple[str, ...]:
        """The tests with a p-value below ``limit``, the smallest first."""
        p_values, expected = self.p_values, self.trials * self.probabilities
        return tuple(
            f"{self.names[i]}: {self.counts[i]:,.0f} of {self.trials:,}, expected {expected[i]:,.1f} "
            f"(p = {p_values[i]:.1e})"
            for i in np.argsort(p_values, kind="stable")
            if p_values[i] < limit
        )


class MaskDistribution:
    """The promised distribution of a plan's masks: exact probabilities, as floats.

    ``joint_flips[i, j]`` is the probability that bits i and j are flipped in one pixel; on the diagonal, that bit i is.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.groups = read_groups(plan.tables)
        self.bits = [b for b in range(plan.word_bits) if plan.kept_bits >> b & 1]
        self.names = [plan.bit_name(b) for b in self.bits]
        group_of = {b: group for group in self.groups for b in self.bits if group.bits >> b & 1}
        single = {b: _flip_probability(group_of[b], 1 << b) for b in self.bits}
        self.joint_flips: Counts = np.array(
            [
                [
                    _flip_probability(group_of[a], 1 << a | 1 << b)
                    if group_of[a] is group_of[b]
                    else single[a] * single[b]
                    for b in self.bits
                ]
                for a in self.bits
            ]
        )

    @property
    def flips(self) -> Counts:
        """The probability that each bit is flipped."""
        flips: Counts = np.diagonal(self.joint_flips)
        return flips

    @property
    def largest_probability(self) -> float:
        """The probability of the likeliest mask."""
        return math.prod(float(group.largest_probability) for group in self.groups)

    def slice_epsilon(self, bits: int) -> float:
        return epsilon_of(worst_ratio(self.groups, bits))


def _flip_probability(group: Group, bits: int) -> float:
    """The probability that all of these bits are flipped."""
    if group.uniform:
        return math.ldexp(group.weights.get(group.bits, 0), -64 - bits.bit_count())
    return float(sum((probability for mask, probability in group.masks.items() if mask & bits == bits), Fraction(0)))


def mask_tests(expected: MaskDistribution, masks: Words, lags: Iterable[int] = LAGS) -> Iterator[BinomialTests]:
    """All tests of one sequence of masks: uint32, one per pixel of one or more images, flattened."""
    joint = joint_counts(masks, masks, expected.bits)
    upper = np.triu_indices(len(expected.bits), 1)
    pairs = [f"{expected.names[j]} and {expected.names[i]} of one pixel" for i, j in zip(*upper, strict=True)]
    singles = [f"flip rate of {name}" for name in expected.names]
    yield BinomialTests("flip rates", singles, np.diagonal(joint), len(masks), expected.flips)
    yield BinomialTests("bits of one pixel", pairs, joint[upper], len(masks), expected.joint_flips[upper])
    for group in expected.groups:
        if not group.uniform:
            yield _group_tests(group, masks)
    for lag in lags:
        first, second = pairs_apart(masks, lag)
        yield _independence_tests(expected, "neighbouring pixels", f"pixels {lag} apart", first, second)


def release_pair_tests(expected: MaskDistribution, one: Words, two: Words) -> BinomialTests:
    """Tests whether any bit of one release's masks depends on any bit of the other's at the same pixel."""
    return _independence_tests(expected, "two releases", "two releases", one, two)


def _independence_tests(expected: MaskDistribution, kind: str, what: str, one: Words, two: Words) -> BinomialTests:
    names = [f"{a} and {b} of {what}" for a in expected.names for b in expected.names]
    counts = joint_counts(one, two, expected.bits).ravel()
    return BinomialTests(kind, names, counts, len(one), np.outer(expected.flips, expected.flips).ravel())


def joint_counts(one: Words, two: Words, bits: list[int]) -> Counts:
    """[i, j]: how often bit i of ``one`` and bit j of ``two`` are set together."""
    total = np.zeros((len(bits), len(bits)))
    for start in range(0, len(one), _CHUNK):
        rows, columns = ([words[start : start + _CHUNK] & np.uint32(1 << b) != 0 for b in bits] for words in (one, two))
        total += [[np.count_nonzero(row & column) for column in columns] for row in rows]
    return total


def pairs_apart(masks: Words, lag: int) -> tuple[Words, Words]:
    """Disjoint pairs of pixels ``lag`` apart. Overlapping pairs would not be independent trials."""
    pairs = masks[: len(masks) // (2 * lag) * 2 * lag].reshape(-1, 2, lag)
    return pairs[:, 0].ravel(), pairs[:, 1].ravel()


def _group_tests(group: Group, masks: Words) -> BinomialTests:
    """How often each mask of a narrow group was drawn."""
    values, counts = np.unique(masks & np.uint32(group.bits), return_counts=True)
    drawn = dict(zip(values.tolist(), counts.tolist(), strict=True))
    names = [f"mask 0x{mask:06x} of the bits 0x{group.bits:06x}" for mask in group.masks]
    observed = np.array([drawn.get(mask, 0) for mask in group.masks], np.float64)
    probabilities = np.array([float(p) for p in group.masks.values()])
    return BinomialTests("masks of a group", names, observed, len(masks), probabilities)


@dataclass(frozen=True)
class Interval:
    """The measured eps of one slice. ``realised``: the promised one.

    ``low`` is above the true eps with at most the stated error rate, under the conditions of docs/proofs.md, 14.3: they
    hold for one bit, and whenever the promise is kept. ``high`` is below it with at most that rate if all changes of
    the slice, of all its values, are equally likely, as promised.
    """

    name: str
    low: float
    high: float
    realised: float


def implied_ratio(changed: Number, changed_other: Number, half: Number) -> Number:
    """The least e^eps of a slice of 2 x ``half`` values: docs/proofs.md, 14.3.

    ``changed`` is the probability that a value with one highest bit is released changed, ``changed_other`` that of a
    value with the other highest bit. The result falls in both, so upper bounds on them give a lower bound on e^eps.
    """
    return ((half - 1) * (1 - changed) + half * (1 - changed_other)) / changed


def measured_epsilons(expected: MaskDistribution, masks: Words, words: Words, error_rate: float) -> list[Interval]:
    """Bounds on each slice's eps, from how often the slice is changed.

    All lower bounds hold together, and so do all upper ones, each except with probability ``error_rate``. The pixels
    are split by the slice's highest bit in the source, so noise that depends on that bit counts too.
    """
    slices = expected.plan.slices
    counts, trials = np.zeros((len(slices), 2)), np.zeros((len(slices), 2))
    for i, part in enumerate(slices):
        changed = masks & np.uint32(part.bits) != 0
        high = words >> np.uint32(part.bits.bit_length() - 1) & np.uint32(1) != 0
        for side, chosen in enumerate((~high, high)):
            counts[i, side], trials[i, side] = np.count_nonzero(changed & chosen), np.count_nonzero(chosen)
    each = error_rate / counts.size
    half = np.array([2.0 ** (part.bits.bit_count() - 1) for part in slices])[:, None]
    bounds = (bound(counts.ravel(), trials.ravel(), each).reshape(-1, 2) for bound in (upper_bound, lower_bound))
    with np.errstate(divide="ignore"):
        lows, highs = (np.log(implied_ratio(bound, bound[:, ::-1], half)).max(axis=1) for bound in bounds)
    return [
        Interval(
            expected.plan.slice_name(part),
            max(0.0, float(low)),
            max(0.0, float(high)),
            expected.slice_epsilon(part.bits),
        )
        for part, low, high in zip(slices, lows, highs, strict=True)
    ]


def run_length(expected: MaskDistribution, pixels: int, error_rate: float) -> int | None:
    """The shortest power of two for which no run of that many masks should occur twice among ``pixels``.

    Returns None if it exceeds LONGEST_RUN. Two runs are equal with probability at most P(likeliest mask)^length:
    docs/proofs.md, 14.4.
    """
    length = 1
    while pixels**2 / 2 * expected.largest_probability**length > error_rate:
        length *= 2
        if length > LONGEST_RUN:
            return None
    return length


def repeated_runs(masks: Words, length: int) -> list[tuple[int, int]]:
    """Pairs of places at which equal runs of ``length`` (a power of two) masks begin."""
    digest = masks.astype(np.uint64) + np.uint64(1)
    span = 1
    while span < length:  # the digest of twice as many masks: that of the first half, mixed, plus that of the second
        mixed = (digest[:-span] ^ digest[:-span] >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
        digest = (mixed ^ mixed >> np.uint64(32)) + digest[span:]
        span *= 2
    ordered = np.sort(digest)
    several = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])[:LISTED]
    if not several.size:
        return []
    (places,) = np.nonzero(np.isin(digest, several))
    places = places[np.argsort(digest[places], kind="stable")]
    pairs = [(int(a), int(b)) for a, b in itertools.pairwise(places) if digest[a] == digest[b]]
    return [(a, b) for a, b in pairs if np.array_equal(masks[a : a + length], masks[b : b + length])]
