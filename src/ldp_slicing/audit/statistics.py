"""Do masks look like what the tables say? Every question is a count against its exact expectation, by exact binomial tails.

A p-value is at most x with probability at most x when the promise is kept; with a limit of (error rate) / (number of questions) the
chance of any complaint is at most the error rate, whatever the questions have to do with each other. Tests: tests/audit/test_statistics.py.
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
from ldp_slicing.audit.report import ERROR_RATE
from ldp_slicing.audit.tails import lower_bound, two_sided, upper_bound
from ldp_slicing.plan import Plan

LAGS = (1, 2, 63, 64, 65)
LONGEST_RUN = 4096
LISTED = 100  # of the runs that occur more than once
_CHUNK = 1 << 16

Counts = NDArray[np.float64]
Number = TypeVar("Number", Fraction, NDArray[np.float64])


@dataclass(frozen=True)
class Questions:
    """Counts that are binomial under the promise, each with a name."""

    family: str
    names: list[str]
    counts: Counts
    trials: int
    probabilities: Counts

    @property
    def p_values(self) -> Counts:
        return two_sided(self.counts, self.trials, self.probabilities)

    def complaints(self, limit: float) -> tuple[str, ...]:
        """The questions that are answered with no, the clearest first."""
        p_values, expected = self.p_values, self.trials * self.probabilities
        return tuple(
            f"{self.names[i]}: {self.counts[i]:,.0f} of {self.trials:,}, expected {expected[i]:,.1f} (p = {p_values[i]:.1e})"
            for i in np.argsort(p_values, kind="stable")
            if p_values[i] < limit
        )


class Law:
    """How the masks of a plan must be distributed: the exact probabilities, as floats, by which counts are judged."""

    def __init__(self, plan: Plan, groups: tuple[Group, ...] | None = None) -> None:
        self.plan = plan
        self.groups = read_groups(plan.tables) if groups is None else groups
        self.bits = [b for b in range(plan.word_bits) if plan.kept_bits >> b & 1]
        self.names = [plan.bit_name(b) for b in self.bits]
        owner = [next(group for group in self.groups if group.bits >> b & 1) for b in self.bits]
        single = [_flipped(owner[i], 1 << b) for i, b in enumerate(self.bits)]
        self.together = np.array(
            [
                [
                    _flipped(owner[i], 1 << a | 1 << b) if owner[i] is owner[j] else single[i] * single[j]
                    for j, b in enumerate(self.bits)
                ]
                for i, a in enumerate(self.bits)
            ]
        )  # [i, j]: the probability that bits i and j are flipped in one pixel; on the diagonal, that i is

    @property
    def flips(self) -> Counts:
        flips: Counts = np.diagonal(self.together)
        return flips

    @property
    def likeliest_mask(self) -> float:
        return math.prod(float(group.largest) for group in self.groups)

    def slice_epsilon(self, bits: int) -> float:
        return epsilon_of(worst_ratio(self.groups, bits))


def _flipped(group: Group, bits: int) -> float:
    """The probability that all of these bits are flipped."""
    if group.uniform:
        return math.ldexp(group.weights.get(group.bits, 0), -64 - bits.bit_count())
    return float(sum((probability for mask, probability in group.masks.items() if mask & bits == bits), Fraction(0)))


def ask(law: Law, words: Words, lags: Iterable[int] = LAGS) -> Iterator[Questions]:
    """Everything that is asked of masks: uint32, one for each pixel of one or more images, in one row."""
    joint = joint_counts(words, words, law.bits)
    upper = np.triu_indices(len(law.bits), 1)
    pairs = [f"{law.names[j]} and {law.names[i]} of one pixel" for i, j in zip(*upper, strict=True)]
    yield Questions(
        "flip rates", [f"flip rate of {name}" for name in law.names], np.diagonal(joint), len(words), law.flips
    )
    yield Questions("bits of one pixel", pairs, joint[upper], len(words), law.together[upper])
    for group in law.groups:
        if not group.uniform:
            yield _all_masks(group, words)
    for lag in lags:
        yield _independent(law, "neighbouring pixels", f"pixels {lag} apart", *pairs_apart(words, lag))


def ask_two(law: Law, one: Words, two: Words) -> Questions:
    """What is asked of the masks of two releases: whether any bit of the one has to do with any bit of the other at the same pixel."""
    return _independent(law, "two releases", "two releases", one, two)


def _independent(law: Law, family: str, what: str, one: Words, two: Words) -> Questions:
    names = [f"{a} and {b} of {what}" for a in law.names for b in law.names]
    return Questions(
        family, names, joint_counts(one, two, law.bits).ravel(), len(one), np.outer(law.flips, law.flips).ravel()
    )


def joint_counts(one: Words, two: Words, bits: list[int]) -> Counts:
    """[i, j]: how often bit i of the one and bit j of the other are set together."""
    total = np.zeros((len(bits), len(bits)))
    for start in range(0, len(one), _CHUNK):
        rows, columns = ([words[start : start + _CHUNK] & np.uint32(1 << b) != 0 for b in bits] for words in (one, two))
        total += [[np.count_nonzero(row & column) for column in columns] for row in rows]
    return total


def pairs_apart(words: Words, lag: int) -> tuple[Words, Words]:
    """Disjoint pairs of pixels ``lag`` apart: overlapping ones would not be independent trials."""
    pairs = words[: len(words) // (2 * lag) * 2 * lag].reshape(-1, 2, lag)
    return pairs[:, 0].ravel(), pairs[:, 1].ravel()


def _all_masks(group: Group, words: Words) -> Questions:
    """How often each mask of a narrow group was drawn."""
    values, counts = np.unique(words & np.uint32(group.bits), return_counts=True)
    seen = dict(zip(values.tolist(), counts.tolist(), strict=True))
    names = [f"mask 0x{mask:06x} of the bits 0x{group.bits:06x}" for mask in group.masks]
    observed = np.array([seen.get(mask, 0) for mask in group.masks], np.float64)
    return Questions(
        "masks of a group", names, observed, len(words), np.array([float(p) for p in group.masks.values()])
    )


def complaints(words: Words, plan: Plan, other: Words | None = None, error_rate: float = ERROR_RATE) -> list[str]:
    """The questions that these masks fail, at one error rate for all of them together."""
    law = Law(plan)
    asked = [*ask(law, words), *([] if other is None else [ask_two(law, words, other)])]
    limit = error_rate / sum(len(questions.names) for questions in asked)
    return [line for questions in asked for line in questions.complaints(limit)]


@dataclass(frozen=True)
class Interval:
    """The eps of one slice as measured: below ``low`` or above ``high`` with at most the stated error rate."""

    name: str
    low: float
    high: float
    limit: float


def implied_ratio(changed: Number, changed_other: Number, half: Number) -> Number:
    """The least e^eps of a slice of 2 x ``half`` values: docs/proofs.md, 14.3.

    ``changed`` is the probability that a value is released changed if its highest bit has one value, ``changed_other`` if
    it has the other one. The result falls in both, so upper bounds on them give a lower bound on e^eps.
    """
    return ((half - 1) * (1 - changed) + half * (1 - changed_other)) / changed


def measured_epsilons(law: Law, masks: Words, words: Words, error_rate: float) -> list[Interval]:
    """Bounds on each slice's eps, from how often the slice is changed. All lower bounds hold together, and so do all upper
    ones, except with probability ``error_rate``.

    The pixels are split by the slice's highest bit in the source, so noise that depends on that bit counts too.
    """
    slices = law.plan.slices
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
        Interval(law.plan.slice_name(part), max(0.0, float(low)), max(0.0, float(high)), law.slice_epsilon(part.bits))
        for part, low, high in zip(slices, lows, highs, strict=True)
    ]


def run_length(law: Law, pixels: int, error_rate: float) -> int | None:
    """The shortest power of two for which no run of so many masks occurs twice among ``pixels``, but for ``error_rate``; None if too long.

    Two runs are equal with at most P(likeliest mask)^length, overlapping or not: pixel by pixel, the later one must repeat an earlier draw.
    """
    length = 1
    while pixels**2 / 2 * law.likeliest_mask**length > error_rate:
        length *= 2
        if length > LONGEST_RUN:
            return None
    return length


def repeated_runs(masks: Words, length: int) -> list[tuple[int, int]]:
    """Places at which a run of ``length`` (a power of two) masks begins that occurs elsewhere too, with that other place."""
    digest = masks.astype(np.uint64) + np.uint64(1)
    span = 1
    while span < length:  # of twice as many masks: those of the first half, mixed, and of the second
        mixed = (digest[:-span] ^ digest[:-span] >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
        digest = (mixed ^ mixed >> np.uint64(32)) + digest[span:]
        span *= 2
    ordered = np.sort(digest)
    several = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])[:LISTED]
    pairs: list[tuple[int, int]] = []
    if several.size:
        (places,) = np.nonzero(np.isin(digest, several))
        places = places[np.argsort(digest[places], kind="stable")]
        pairs = [(int(a), int(b)) for a, b in itertools.pairwise(places) if digest[a] == digest[b]]
    return [(a, b) for a, b in pairs if np.array_equal(masks[a : a + length], masks[b : b + length])]
