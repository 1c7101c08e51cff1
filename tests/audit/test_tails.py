from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from ldp_slicing.audit.tails import lower_bound, tail_above, tail_below, two_sided, upper_bound


def exact_tail(count: int, trials: int, probability: float) -> Fraction:
    p = Fraction(probability)
    return sum((math.comb(trials, i) * p**i * (1 - p) ** (trials - i) for i in range(count, trials + 1)), Fraction(0))


@pytest.mark.parametrize("probability", [1e-12, 1e-3, 0.1, 0.43, 0.5, 0.9, 1 - 1e-9])
@pytest.mark.parametrize("trials", [1, 2, 7, 40])
def test_tails_are_the_exact_ones_rounded_up(trials: int, probability: float) -> None:
    counts = np.arange(-1, trials + 2)
    above = tail_above(counts, trials, probability)
    for count, tail in zip(counts.tolist(), above.tolist(), strict=True):
        exact = min(Fraction(1), exact_tail(max(0, count), trials, probability))
        assert exact <= Fraction(tail) <= exact * (1 + Fraction(1, 10**9)) + Fraction(1, 10**14)
    for count, tail in zip(counts.tolist(), tail_below(counts, trials, probability).tolist(), strict=True):
        exact = (
            1 - min(Fraction(1), exact_tail(max(0, count + 1), trials, probability)) if count < trials else Fraction(1)
        )
        assert exact <= Fraction(tail) <= exact * (1 + Fraction(1, 10**9)) + Fraction(1, 10**14)


def test_large_counts_against_scipy() -> None:
    rng = np.random.default_rng(0)
    trials = rng.integers(1, 50_000_000, 5000)
    probability = 10 ** rng.uniform(-9, -0.31, 5000)
    spread = np.sqrt(trials * probability * (1 - probability))
    counts = np.clip(np.round(trials * probability + rng.normal(size=5000) * 4 * spread), 0, trials)
    ours, theirs = tail_above(counts, trials, probability), stats.binom.sf(counts - 1, trials, probability)
    assert np.all(ours >= theirs * (1 - 1e-9))
    assert np.allclose(ours, theirs, rtol=1e-4, atol=0)
    both = 2 * np.minimum(theirs, stats.binom.cdf(counts, trials, probability))
    assert np.allclose(two_sided(counts, trials, probability), np.minimum(1, both), rtol=1e-4, atol=0)


def test_degenerate_probabilities() -> None:
    assert tail_above([0, 1, 5], 5, 0.0).tolist() == [1, 0, 0]
    assert tail_above([0, 1, 5, 6], 5, 1.0).tolist() == [1, 1, 1, 0]
    assert tail_below([0, 1], 10, 1e-30).tolist() == pytest.approx([1, 1])
    assert tail_above([1, 2], 10, 1e-30).tolist() == pytest.approx([1e-29, 4.5e-59])
    assert two_sided(5, 5, 1.0).tolist() == [1]
    assert two_sided(4, 5, 1.0).tolist() == [0]


@pytest.mark.parametrize("error_rate", [0.05, 1e-6, 1e-12])
def test_clopper_pearson_against_scipy_and_outwards(error_rate: float) -> None:
    counts, trials = np.array([0, 1, 5, 50, 43_000, 999_999, 5]), np.array([10, 10, 10, 100, 1_000_000, 1_000_000, 5])
    high, low = upper_bound(counts, trials, error_rate), lower_bound(counts, trials, error_rate)
    with np.errstate(invalid="ignore"):
        wanted_high = np.where(counts == trials, 1.0, stats.beta.ppf(1 - error_rate, counts + 1, trials - counts))
        wanted_low = np.where(counts == 0, 0.0, stats.beta.ppf(error_rate, counts, trials - counts + 1))
    assert np.allclose(high, wanted_high, rtol=1e-5)
    assert np.allclose(low, wanted_low, rtol=1e-5, atol=1e-10)
    inside = high < 1
    assert np.all(stats.binom.cdf(counts, trials, high)[inside] <= error_rate * (1 + 1e-9))
    assert np.all(stats.binom.sf(counts - 1, trials, low)[low > 0] <= error_rate * (1 + 1e-9))


def test_bounds_without_trials() -> None:
    assert upper_bound(0, 0, 0.05).tolist() == [1]
    assert lower_bound(0, 0, 0.05).tolist() == [0]


def test_the_bound_is_right_where_the_first_guess_is_too_low() -> None:
    assert upper_bound(0, 1, 0.999).tolist() == pytest.approx([0.001])
