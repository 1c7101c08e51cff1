from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from ldp_slicing import Plan, Slice, Slicer
from ldp_slicing.audit import noise
from ldp_slicing.audit.faults import sample_image
from ldp_slicing.audit.noise import (
    FAMILIES,
    REPEATS,
    add_up,
    agreement_p_values,
    clamped_p_value,
    count_noise,
    pair_tests,
)
from ldp_slicing.audit.pixel_words import view_words
from ldp_slicing.audit.rebuilt import rebuilt
from ldp_slicing.view import Prune, to_rgb
from tests.cases import PLANS, random_image


def test_the_tests_of_the_papers_plan() -> None:
    plan = Plan.paper(20.0)
    named = {test.what: test for test in pair_tests(plan) if test.family == FAMILIES[0]}
    assert len(named) == 1 + 24 + 3 * 6
    assert len(pair_tests(plan)) == len(FAMILIES) * len(named) + 2 * len(REPEATS)
    flip = float(plan.tables.change_probability(0x800000))
    assert named["Y7 equal"].probability == pytest.approx(1 - 2 * flip * (1 - flip))
    assert math.prod(
        test.probability for what, test in named.items() if what.endswith("equal") and what != "words equal"
    ) == pytest.approx(named["words equal"].probability)


def test_a_thick_slice_is_tested_as_one_and_bit_by_bit() -> None:
    plan = Plan([Slice(0xC08080, 5.2), Slice(0x200000, 1.0)])
    named = {test.what for test in pair_tests(plan) if test.family == FAMILIES[0]}
    equal = {"words equal", "Y7+Y6+Cb7+Cr7 equal", "Y7 equal", "Y6 equal", "Y5 equal", "Cb7 equal", "Cr7 equal"}
    assert equal <= named
    assert {what.split(" ")[0] for what in named - equal} == {"Y"}


@pytest.mark.parametrize("name", list(PLANS))
def test_flat_sources_do_not_pass_the_bounds(name: str) -> None:
    """The worst case of equality: two equal words. The counts of releases stay at most at their bounds."""
    plan = PLANS[name]
    top = 255 if plan.is_colour else (1 << plan.word_bits) - 1
    for level in (top // 2, top // 3):
        flat = np.full((128, 128, 3) if plan.is_colour else (128, 128), level, plan.dtype)
        counts = count_noise(Slicer(plan, prune=None)(flat), plan)
        p_values = agreement_p_values(counts.agreeing[None], counts.pairs[None], plan)
        assert p_values.min() > 1e-7


def test_the_bound_on_closeness_is_reached_by_its_worst_pair() -> None:
    plan = Plan.grey(8.0)
    (test,) = (test for test in pair_tests(plan) if test.what == "values within 31" and test.family == FAMILIES[0])
    best = 0.0
    for one in (0, 96, 127, 128, 200):
        source = np.full((512, 512), one, np.uint8)
        counts = count_noise(Slicer(plan, prune=None)(source), plan)
        number = pair_tests(plan).index(test)
        best = max(best, counts.agreeing[number] / counts.pairs[number])
    assert best <= test.probability + 0.01
    assert best == pytest.approx(test.probability, abs=0.02)


def test_strips_and_odd_widths_count_every_pair_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan.paper(5.0)
    pixels = Slicer(plan)(random_image(plan, (33, 21)))
    whole = count_noise(pixels, plan)
    monkeypatch.setattr(noise, "STRIP_PIXELS", 50)
    parts = count_noise(pixels, plan)
    assert np.array_equal(whole.agreeing, parts.agreeing)
    assert parts.pixels == whole.pixels == 33 * 21
    assert parts.pairs.tolist() == whole.pairs.tolist()
    by_family = dict(zip((test.family for test in pair_tests(plan)), whole.pairs.tolist(), strict=True))
    assert [by_family[family] for family in (*FAMILIES, *REPEATS)] == [330, 336, 330, 160, 132, 0, 0, 0, 0, 0, 0]
    assert whole.clamped == parts.clamped
    both = add_up([whole, parts])
    assert np.array_equal(both.pairs, 2 * whole.pairs)
    assert np.array_equal(both.agreeing, 2 * whole.agreeing)


def test_p_values_of_counts_below_their_expectation_are_1() -> None:
    plan = Plan.grey(5.0)
    tests = len(pair_tests(plan))
    p_values = agreement_p_values(np.array([[0] * tests, [1000] * tests]), np.full((2, tests), 1000), plan)
    assert (p_values[0] == 1).all()
    assert (p_values[1] < 1e-3).all()


def test_every_family_has_disjoint_pairs_at_its_distance() -> None:
    places = np.arange(13 * 11, dtype=np.uint32).reshape(13, 11)
    for family in FAMILIES:
        one, other, _ = family.pairs(places, places)
        assert len({*one.ravel().tolist(), *other.ravel().tolist()}) == 2 * one.size
        assert np.unique(other - one).tolist() == [family.distance * (1 if family.axis else 11)]


@pytest.mark.parametrize("prune", [None, "haar"])
@pytest.mark.parametrize("where", ["columns", "rows", "chessboard"])
def test_half_of_a_source_is_found_however_it_is_interleaved(where: str, prune: Prune) -> None:
    plan = Plan.paper(20.0)
    source = sample_image(3)
    y, x = np.indices(source.shape[:2])
    shown = {"columns": x, "rows": y, "chessboard": x + y}[where] % 2 == 0
    mixed = np.where(shown[..., None], source, Slicer(plan, prune=prune)(source))
    counts = count_noise(mixed, plan)
    assert agreement_p_values(counts.agreeing[None], counts.pairs[None], plan).min() < 1e-12


@pytest.mark.parametrize("prune", [None, "haar"])
@pytest.mark.parametrize("tile", [(1, 128), (64, 64), (128, 8)])
def test_a_mask_that_is_repeated_within_a_release_is_found(tile: tuple[int, int], prune: Prune) -> None:
    plan = Plan.paper(5.2)
    height, width = tile
    image = np.concatenate([sample_image(number) for number in (3, 4, 5)])
    source = view_words(image, plan, prune)
    mask = source[:height, :width] ^ view_words(Slicer(plan, prune=prune)(image[:height, :width]), plan, None)
    words = source ^ np.tile(mask, (3 * 128 // height, 128 // width))
    colours = to_rgb(np.stack([words >> np.uint32(shift) & np.uint32(255) for shift in (16, 8, 0)]).astype(np.uint8))
    counts = count_noise(np.moveaxis(colours, 0, -1), plan)
    assert agreement_p_values(counts.agreeing[None], counts.pairs[None], plan).min() < 1e-12


def test_clamped_pixels_beyond_those_of_the_words_that_are_clamped_most_and_least() -> None:
    plan = Plan.sliced(5.2, "Y7+Y6,Cb7,Cr7")
    least, most = rebuilt(plan).clamped_shares
    for share in (least, (least + most) / 2, most):
        assert clamped_p_value(round(10_000 * share), 10_000, plan) > 0.5
    assert clamped_p_value(10_000, 10_000, plan) < 1e-10
    assert clamped_p_value(0, 10_000, Plan.grey(5.0)) == 1
    paper = Plan.paper(5.2)
    assert clamped_p_value(round(10_000 * (rebuilt(paper).clamped_shares[0] - 0.05)), 10_000, paper) < 1e-10


@pytest.mark.parametrize(("claimed", "used"), [(1.0, 12.0), (5.2, 20.0), (12.0, 32.0)])
def test_a_card_that_claims_far_less_than_was_used_is_refuted_by_clamped_pixels(claimed: float, used: float) -> None:
    counts = count_noise(Slicer(Plan.paper(used))(sample_image(1)), Plan.paper(claimed))
    assert clamped_p_value(counts.clamped, counts.pixels, Plan.paper(claimed)) < 1e-12


@pytest.mark.parametrize("pixels", [100, 1000])
def test_the_p_value_of_clamped_pixels_is_one(pixels: int) -> None:
    """Where all words are clamped alike, both tails reach their bounds: P(p-value <= x) is at most x, and near it."""
    plan = Plan.paper(1e-9)
    low, high = rebuilt(plan).clamped_shares
    assert high - low < 3e-5
    counts = np.arange(pixels + 1)
    p_values = np.array([clamped_p_value(count, pixels, plan) for count in counts.tolist()])
    chances = binom.pmf(counts, pixels, (low + high) / 2)
    for x in (1e-6, 1e-3, 0.05, 0.2):
        assert x / 10 < chances[p_values <= x].sum() <= x
