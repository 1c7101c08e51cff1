from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta

from ldp_slicing import Plan, Slice, Slicer
from ldp_slicing.audit.pixel_words import Words, masks_of, recover_words, release_words, view_words
from ldp_slicing.audit.statistics import (
    MaskDistribution,
    implied_ratio,
    joint_counts,
    mask_tests,
    measured_epsilons,
    pairs_apart,
    release_pair_tests,
    repeated_runs,
    run_length,
)
from ldp_slicing.view import to_rgb
from tests.cases import PLANS, random_image


def released(plan: Plan, shape: tuple[int, int]) -> tuple[Words, Words]:
    """The masks of a release, and the words before them."""
    source = random_image(plan, shape)
    words = view_words(source, plan, "haar")
    return masks_of(plan, Slicer(plan, output="ycbcr")(source), words), words.ravel()


def test_all_words_are_recovered_from_unclamped_rgb() -> None:
    words = np.arange(1 << 24, dtype=np.uint32)
    channels = np.stack([words >> 16 & 255, words >> 8 & 255, words & 255]).astype(np.uint8)
    found, certain = recover_words(np.moveaxis(to_rgb(channels), 0, -1))
    assert certain.sum() > 3_800_000
    assert np.array_equal(found[certain], words[certain])
    grey, sure = recover_words(np.array([[1, 300]], np.uint16))
    assert grey.tolist() == [[1, 300]]
    assert sure.all()


@pytest.mark.parametrize("name", PLANS)
def test_the_distribution_has_the_change_probabilities_of_the_tables(name: str) -> None:
    plan = PLANS[name]
    expected = MaskDistribution(plan)
    for part in plan.slices:
        if part.bits.bit_count() == 1:
            flip = expected.flips[expected.bits.index(part.bits.bit_length() - 1)]
            assert flip == pytest.approx(float(plan.tables.change_probability(part.bits)), rel=1e-12)
        assert expected.slice_epsilon(part.bits) <= part.epsilon * (1 + 1e-6)
    assert np.array_equal(expected.joint_flips, expected.joint_flips.T)


def test_bits_of_one_slice_are_flipped_together() -> None:
    expected = MaskDistribution(PLANS["thick, across channels"])
    assert np.all(expected.joint_flips[~np.eye(4, dtype=bool)] > 1.5 * expected.flips[0] ** 2)
    apart = MaskDistribution(PLANS["top planes"])
    assert np.allclose(apart.joint_flips[0, 1], apart.flips[0] * apart.flips[1])


def test_counts() -> None:
    one, two = np.array([0b01, 0b11, 0b10, 0b00], np.uint32), np.array([0b11, 0b10, 0b10, 0b01], np.uint32)
    assert joint_counts(one, two, [0, 1]).tolist() == [[1, 2], [0, 2]]
    first, second = pairs_apart(np.arange(11, dtype=np.uint32), 2)
    assert (first.tolist(), second.tolist()) == ([0, 1, 4, 5], [2, 3, 6, 7])


def test_dependence_between_bits_of_two_releases_is_found() -> None:
    plan = Plan.paper(20.0)
    expected = MaskDistribution(plan)
    (one, _), (two, _) = released(plan, (300, 300)), released(plan, (300, 300))
    limit = 1e-9
    assert release_pair_tests(expected, one, two).failures(limit) == ()
    copied = two & np.uint32(~1 & 0xFFFFFF) | one >> np.uint32(8) & np.uint32(1)  # Cr0 of one is Cb0 of the other
    failures = release_pair_tests(expected, one, copied).failures(limit)
    assert failures[0].startswith("Cb0 and Cr0 of two releases")
    shifted = one.copy()
    shifted[1::2] = shifted[1::2] & np.uint32(~(1 << 18) & 0xFFFFFF) | (shifted[::2] & np.uint32(1 << 19)) >> np.uint32(
        1
    )
    failures = [line for tests in mask_tests(expected, shifted, [1]) for line in tests.failures(limit)]
    assert any("Y3 and Y2 of pixels 1 apart" in line for line in failures)


@pytest.mark.parametrize("name", ["paper 20", "thick, across channels", "wide: 11 bits as one", "grey 12"])
def test_the_measured_epsilons_enclose_the_real_ones(name: str) -> None:
    plan = PLANS[name]
    intervals = measured_epsilons(MaskDistribution(plan), *released(plan, (700, 701)), 1e-6)
    assert len(intervals) == len(plan.slices)
    for interval, part in zip(intervals, plan.slices, strict=True):
        assert interval.low <= interval.realised <= interval.high
        assert interval.high - interval.low < 0.35
        assert interval.realised == pytest.approx(part.epsilon, rel=1e-6)


def test_noise_that_depends_on_the_source_raises_the_measured_epsilon() -> None:
    plan = Plan.paper(20.0)
    masks, words = released(plan, (300, 300))
    masks &= ~(words & np.uint32(1 << 16))  # the lowest bit of Y is released unchanged where it is 1
    lowest = next(
        interval for interval in measured_epsilons(MaskDistribution(plan), masks, words, 1e-6) if interval.name == "Y0"
    )
    assert lowest.low > 5 > lowest.realised


def test_an_output_that_does_not_depend_on_the_source_has_epsilon_0() -> None:
    """A two-bit slice with the output law (.4, .4, .1, .1) whatever the source: changed with probability .6 or .9."""
    rng = np.random.default_rng(0)
    plan = Plan([Slice(0b11, 2.0)], 2)
    words = rng.integers(0, 4, 1 << 20).astype(np.uint32)
    released = rng.choice(4, words.size, p=[0.4, 0.4, 0.1, 0.1]).astype(np.uint32)
    (interval,) = measured_epsilons(MaskDistribution(plan), released ^ words, words, 1e-6)
    assert interval.low == 0
    assert math.log((1 - 0.6) * 3 / 0.9) > 0.28  # the bound (k - 1)(1 - u) / v would claim this


def test_the_implied_ratio_is_never_above_the_true_one() -> None:
    """Every mechanism M(z | x) on k values, in exact rationals, with the values of each half equally frequent."""
    rng = np.random.default_rng(3)
    reached = 0
    for trial in range(600):
        k, half = (2, 4, 8)[trial % 3], (1, 2, 4)[trial % 3]
        weights = rng.integers(1, 30, (k, k)).astype(object) ** int(rng.integers(1, 4))
        if trial % 5 == 0:
            weights[:] = weights[0]  # the output does not depend on the source
        mechanism = [[Fraction(int(weight), int(sum(row))) for weight in row] for row in weights]
        true = max(max(column) / min(column) for column in zip(*mechanism, strict=True))
        changed = [1 - mechanism[x][x] for x in range(k)]
        low, high = sum(changed[:half], Fraction(0)) / half, sum(changed[half:], Fraction(0)) / half
        implied = max(implied_ratio(low, high, Fraction(half)), implied_ratio(high, low, Fraction(half)))
        assert implied <= true
        assert implied >= (k - 1) * (1 - max(low, high)) / min(low, high)  # the weaker form with max(u, v)
        reached += implied == true
    assert reached >= 120  # the constant outputs at least, where both are 1


def test_a_constant_bit_has_measured_epsilon_0() -> None:
    plan = Plan.paper(20.0)
    masks, words = released(plan, (100, 100))
    always_one = masks & np.uint32(0x7FFFFF) | ~words & np.uint32(0x800000)
    assert measured_epsilons(MaskDistribution(plan), always_one, words, 1e-6)[0].low == 0


def test_a_slice_that_is_never_changed_has_no_upper_bound() -> None:
    plan = Plan.paper(20.0)
    masks, words = released(plan, (100, 100))
    highest = measured_epsilons(MaskDistribution(plan), masks & np.uint32(0x7FFFFF), words, 1e-6)[0]
    assert highest.high == np.inf
    assert highest.low > highest.realised


def test_repeated_runs_are_found_wherever_they_are() -> None:
    plan = Plan.paper(20.0)
    masks, _ = released(plan, (300, 301))
    length = run_length(MaskDistribution(plan), masks.size, 1e-9)
    assert length == 8
    assert repeated_runs(masks, length) == []
    masks[1003:1011] = masks[77_777:77_785]
    assert repeated_runs(masks, length) == [(1003, 77_777)]
    masks[40_000:40_100] = masks[39_850:39_950]
    assert len(repeated_runs(masks, length)) > 90


def test_run_length() -> None:
    expected = MaskDistribution(Plan.paper(20.0))
    for pixels in (10**4, 10**6, 10**9):
        length = run_length(expected, pixels, 1e-7)
        assert length is not None
        assert (
            pixels**2 / 2 * expected.largest_probability**length
            <= 1e-7
            < pixels**2 / 2 * expected.largest_probability ** (length // 2)
        )
    assert run_length(MaskDistribution(Plan.paper(5000.0)), 10**6, 1e-7) is None


def test_release_words_are_read_as_the_slicer_writes_them() -> None:
    plan = PLANS["grey 16"]
    assert release_words(np.array([[0x1234]], np.uint16), plan).tolist() == [[0x1234]]
    assert release_words(np.array([[[1, 2, 3]]], np.uint8), Plan.paper(1.0)).tolist() == [[0x010203]]


def test_the_bounds_of_all_slices_share_one_error_rate() -> None:
    """Each bound of SciPy's has the error rate over the number of bounds: two for each slice."""
    plan = Plan.paper(5.2)
    masks, words = released(plan, (300, 301))
    for part, interval in zip(plan.slices, measured_epsilons(MaskDistribution(plan), masks, words, 0.01), strict=True):
        upper, lower = [], []
        for side in (0, part.bits):
            changed = masks[words & np.uint32(part.bits) == side] & np.uint32(part.bits) != 0
            count, trials, each = int(changed.sum()), changed.size, 0.01 / (2 * len(plan.slices))
            upper.append(beta.isf(each, count + 1, trials - count))
            lower.append(beta.ppf(each, count, trials - count + 1))
        low, high = (max((1 - q) / p for p, q in (bound, bound[::-1])) for bound in (upper, lower))
        assert interval.low == pytest.approx(max(0, math.log(low)), abs=1e-6)
        assert interval.high == pytest.approx(max(0, math.log(high)), abs=1e-6)
