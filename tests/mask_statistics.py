"""Do masks look like what the tables say? Every question is a count against its exact expectation; one stated error rate for all.

Under the promised distribution the chance that ``complaints`` returns anything is at most ERROR_RATE, whatever the number of questions
(Bonferroni). Counts are tested by the exact binomial, whole distributions by chi-square with at least 50 expected in each cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ldp_slicing import Plan
from ldp_slicing.tables import ONE, Tables

ERROR_RATE = 1e-6
LAGS = (1, 2, 63, 64, 65)

Words = NDArray[np.uint32]


def masks_of(plan: Plan, release: NDArray[Any], view: NDArray[Any]) -> Words:
    """What was XORed, read off a YCbCr (or grey) release whose view is known."""
    mask = (release ^ view).astype(np.uint32)
    words = mask @ np.array([1 << 16, 1 << 8, 1], np.uint32) if plan.is_colour else mask
    return words.ravel() & np.uint32(plan.kept_bits)


def group_distribution(tables: Tables, group: int) -> dict[int, float]:
    """The probability of each mask of a group (narrow groups only: a wide one has too many masks)."""
    return {word: weight / ONE for word, weight in tables.weights(group).items()}


def expected_flips(plan: Plan) -> tuple[list[int], NDArray[np.float64]]:
    """The kept bits, and the exact probability that bits i and j are flipped together (i = j: that i is)."""
    tables = plan.tables
    bits = [b for b in range(plan.word_bits) if plan.kept_bits >> b & 1]
    group_of = {b: next(g for g, covered in enumerate(tables.group_bits) if covered >> b & 1) for b in bits}

    def together(i: int, j: int) -> float:
        group, both = group_of[i], 1 << i | 1 << j
        weights = group_distribution(tables, group)
        if tables.uniform[group]:
            return weights[tables.group_bits[group]] / 2 ** both.bit_count()
        return sum(p for word, p in weights.items() if word & both == both)

    single = {b: together(b, b) for b in bits}
    pairs = [[together(i, j) if group_of[i] == group_of[j] else single[i] * single[j] for j in bits] for i in bits]
    return bits, np.array(pairs)


def joint_counts(words: Words, bits: list[int]) -> NDArray[np.float64]:
    """How often bits i and j are set together."""
    total = np.zeros((len(bits), len(bits)))
    for start in range(0, len(words), 1 << 18):
        chunk = words[start : start + (1 << 18)]
        columns = np.stack([(chunk >> b & 1).astype(np.float32) for b in bits])
        total += columns @ columns.T  # at most 2^18 each: exact in float32
    return total


def p_value_of_count(count: float, trials: int, probability: float) -> float:
    """Two-sided and exact: pairs of well-kept bits are too rare for a normal approximation."""
    return float(2 * min(stats.binom.cdf(count, trials, probability), stats.binom.sf(count - 1, trials, probability)))


def pairs_apart(words: Words, lag: int) -> Words:
    """The bits set in both of two pixels ``lag`` apart, over disjoint pairs: overlapping ones would not be independent trials."""
    pairs = words[: len(words) // (2 * lag) * 2 * lag].reshape(-1, 2, lag)
    both: Words = (pairs[:, 0] & pairs[:, 1]).ravel()
    return both


def p_values(words: Words, plan: Plan, other: Words | None) -> Iterator[tuple[str, float]]:
    bits, pair_probability = expected_flips(plan)
    counts = joint_counts(words, bits)
    for i, a in enumerate(bits):
        yield f"flip rate of {plan.bit_name(a)}", p_value_of_count(counts[i, i], len(words), pair_probability[i, i])
        for j, b in enumerate(bits[:i]):
            name = f"{plan.bit_name(a)} and {plan.bit_name(b)} of one pixel"
            yield name, p_value_of_count(counts[i, j], len(words), pair_probability[i, j])
    partners = [(f"pixels {lag} apart", pairs_apart(words, lag)) for lag in LAGS]
    if other is not None:
        partners.append(("two releases", words & other))
    for name, both in partners:
        for i, b in enumerate(bits):
            count, p = float(np.count_nonzero(both & np.uint32(1 << b))), pair_probability[i, i] ** 2
            yield f"{plan.bit_name(b)} of {name}", p_value_of_count(count, len(both), p)
    for group, covered in enumerate(plan.tables.group_bits):
        if not plan.tables.uniform[group]:
            yield f"all masks of the bits 0x{covered:06x}", _chi_square(words & np.uint32(covered), group_distribution(plan.tables, group))


def _chi_square(words: Words, probability: dict[int, float]) -> float:
    """Observed masks against the table, rare masks taken together."""
    values, counts = np.unique(words, return_counts=True)
    seen = dict(zip(values.tolist(), counts.tolist(), strict=True))
    observed, expected, rare = [], [], [0.0, 0.0]
    for word, p in probability.items():
        if p * len(words) >= 50:
            observed.append(seen.get(word, 0))
            expected.append(p * len(words))
        else:
            rare[0] += seen.get(word, 0)
            rare[1] += p * len(words)
    if rare[1] >= 50:
        observed.append(rare[0])
        expected.append(rare[1])
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return float(stats.chi2.sf(statistic, len(observed) - 1))


def complaints(words: Words, plan: Plan, other: Words | None = None) -> list[str]:
    """The questions that these masks fail, at an error rate of ERROR_RATE for all of them together."""
    asked = list(p_values(words, plan, other))
    return [f"{name}: p = {p:.1e}" for name, p in asked if p < ERROR_RATE / len(asked)]
