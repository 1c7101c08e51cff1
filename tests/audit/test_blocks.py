from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from ldp_slicing import Plan, Slice, Slicer, view
from ldp_slicing.audit import blocks
from ldp_slicing.audit.blocks import block_words, check_blocks, cost_function, search, word_differences
from ldp_slicing.audit.exact import epsilon_of, product, read_groups, worst_ratio
from ldp_slicing.audit.pixel_words import view_words
from ldp_slicing.tables import build_tables
from ldp_slicing.view import Prune
from tests.cases import PLANS, random_image


def flat_pair(plan: Plan, level: int, step: int) -> np.ndarray:
    """A flat 2 x 2 block and its first pixel moved by ``step``, in the form of the search."""
    block = np.full((1, 5, 3 if plan.is_colour else 1), level)
    block[0, 4] += step
    return block


def ratio_of(plan: Plan, block: np.ndarray) -> Fraction:
    groups = read_groups(plan.tables)
    found = product(
        [group.ratio_for(int(word)) for word in word_differences(plan, "haar", block)[0] for group in groups]
    )
    assert found is not None
    return found


def test_a_small_step_on_a_flat_block_costs_more_than_the_released_pixels_epsilon() -> None:
    plan = Plan.paper(20.0)
    pixel = worst_ratio(read_groups(plan.tables), plan.kept_bits)
    assert pixel is not None
    assert ratio_of(plan, flat_pair(plan, 200, 2)) < pixel
    assert ratio_of(plan, flat_pair(plan, 200, 3)) > pixel  # three pixels go from 128 to 127: all bits of Y
    assert epsilon_of(ratio_of(plan, flat_pair(plan, 200, 3))) == pytest.approx(30.39, abs=0.01)


@pytest.mark.parametrize("prune", ["haar", "haar4", "dct"])
@pytest.mark.parametrize("name", ["paper 20", "grey 20", "grey 16", "thick, across channels", "wide and narrow"])
def test_the_bound_is_needed_and_nothing_found_passes_it(name: str, prune: Prune) -> None:
    plan, side = PLANS[name], view.block_of(prune)
    groups = read_groups(plan.tables)
    found, pixel = search(plan, prune, groups, rounds=60), worst_ratio(groups, plan.kept_bits)
    assert pixel is not None
    assert found.ratio is not None
    assert pixel ** (side * side // 2) < found.ratio <= pixel ** (side * side)
    assert found.block.shape == (side, side, 3 if plan.is_colour else 1)


@pytest.mark.parametrize("prune", ["haar", "haar4", "dct"])
def test_a_thick_slice_reaches_the_bound(prune: Prune) -> None:
    plan = PLANS["thick, across channels"]
    groups = read_groups(plan.tables)
    pixel = worst_ratio(groups, plan.kept_bits)
    assert pixel is not None
    assert search(plan, prune, groups, rounds=60).ratio == pixel ** (view.block_of(prune) ** 2)


def test_the_search_is_the_same_every_time() -> None:
    plan = PLANS["grey 20"]
    one, two = (search(plan, "haar", read_groups(plan.tables), rounds=20) for _ in range(2))
    assert one.ratio == two.ratio
    assert np.array_equal(one.block, two.block)


def test_every_pair_and_every_output_of_a_tiny_word_by_brute_force() -> None:
    plan = Plan([Slice(0b10, 1.0), Slice(0b01, 0.5)], 2)
    groups = read_groups(plan.tables)
    masks = [math.prod((group.masks[mask & group.bits] for group in groups), start=Fraction(1)) for mask in range(4)]
    sources = np.array(list(itertools.product(range(4), repeat=5)))[..., None]
    one = sources[:, :4]
    other = np.concatenate([sources[:, 4:], sources[:, 1:4]], axis=1)
    words, changed = block_words(plan, "haar", one), block_words(plan, "haar", other)
    # Outputs factor over pixels, so the worst output is the worst at each.
    worst = [[max(masks[z ^ x] / masks[z ^ y] for z in range(4)) for y in range(4)] for x in range(4)]
    exhaustive = max(
        math.prod((worst[x][y] for x, y in zip(a, b, strict=True)), start=Fraction(1))
        for a, b in zip(words, changed, strict=True)
    )
    assert search(plan, "haar", groups, rounds=60).ratio == exhaustive
    pixel = worst_ratio(groups, 0b11)
    assert pixel is not None
    assert pixel < exhaustive <= pixel**4


@pytest.mark.parametrize("name", ["paper 20", "grey 16"])
@pytest.mark.parametrize("prune", ["haar", "haar4", "dct"])
def test_the_words_are_those_that_the_slicer_randomises(name: str, prune: Prune) -> None:
    plan, side = PLANS[name], view.block_of(prune)
    keep_all = Plan([Slice(part.bits, 40.0) for part in plan.slices], plan.word_bits)  # flips once in 10^17
    source = random_image(plan, (side, 5 * side))
    released = Slicer(keep_all, prune=prune, output="ycbcr")(source).astype(np.int64)
    whole = released @ np.array([1 << 16, 1 << 8, 1]) if plan.is_colour else released
    assert np.array_equal(view_words(source, plan, prune), whole)
    channels = 3 if plan.is_colour else 1
    as_blocks = (
        source.reshape(side, 5, side, channels).transpose(1, 0, 2, 3).reshape(5, side * side, channels).astype(np.int64)
    )
    assert np.array_equal(
        block_words(plan, prune, as_blocks), whole.reshape(side, 5, side).transpose(1, 0, 2).reshape(5, -1)
    )


@pytest.mark.parametrize("name", ["paper 20", "wide and narrow", "grey 12"])
def test_the_costs_are_the_logarithms_of_the_exact_ratios(name: str) -> None:
    plan = PLANS[name]
    groups = read_groups(plan.tables)
    words = np.array([0, 1, plan.kept_bits, plan.kept_bits & 0xABCDEF, 1 << plan.word_bits - 1])
    wanted = [epsilon_of(product([group.ratio_for(int(word)) for group in groups])) for word in words]
    assert cost_function(groups)(words) == pytest.approx(wanted)


def test_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan.paper(20.0)
    block, source = check_blocks(plan, "haar", plan.tables)
    assert block.passed
    assert block.value == 0
    assert source.passed
    assert source.details["released_pixel_is_exceeded"] is True
    assert 3.9 * 20 < (source.value or 0) <= 80
    assert [check.name for check in check_blocks(plan, None, plan.tables)] == ["block"]

    def with_the_sum_of_the_row(source: np.ndarray, plan: Plan, prune: Prune) -> np.ndarray:
        return view_words(source, plan, prune) + source.astype(np.uint32).sum(axis=(1, 2))[:, None]

    monkeypatch.setattr(blocks, "view_words", with_the_sum_of_the_row)
    assert not check_blocks(plan, None, plan.tables)[0].passed


def test_uniform_masks_and_missing_masks() -> None:
    plan = Plan.grey(1e-18)  # too little for 64 bits: uniform masks, ratio 1
    assert [check.passed for check in check_blocks(plan, "haar", plan.tables)] == [True, True]
    missing = build_tables([(0x80, 1.0)], 8)
    source = check_blocks(Plan.grey(20.0), "haar", missing)[1]
    assert not source.passed
