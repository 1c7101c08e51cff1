"""Flip rates of more than 1e8 released bits, and controls: faults that the same tests must detect."""

from __future__ import annotations

import numpy as np
import pytest

from ldp_slicing import Plan, Slice, Slicer
from ldp_slicing.audit.pixel_words import Words, masks_of
from ldp_slicing.kernel import VARIANTS
from tests.cases import COLOUR_PLANS, PLANS, random_image
from tests.mask_checks import failed_tests

GREY_SOURCE = np.uint8(200)  # Y = 200, Cb = Cr = 128: the view of a flat grey image
VIEW = np.array(0xC88080, np.uint32)


def released_masks(plan: Plan, height: int, width: int, backend: str = "auto") -> Words:
    source = np.full((height, width, 3), GREY_SOURCE)
    return masks_of(plan, Slicer(plan, prune=None, output="ycbcr", backend=backend)(source), VIEW)


def test_flip_rates_of_a_hundred_million_bits() -> None:
    plan = Plan.paper(20.0)
    words, other = (released_masks(plan, 2100, 2003) for _ in range(2))
    assert words.size * 24 > 1e8
    assert failed_tests(words, plan, other) == []


@pytest.mark.parametrize("name", COLOUR_PLANS)
def test_flip_rates_of_colour_plans(name: str) -> None:
    plan = COLOUR_PLANS[name]
    words, other = (released_masks(plan, 500, 701) for _ in range(2))
    assert failed_tests(words, plan, other) == []


@pytest.mark.parametrize("name", ["grey 20", "grey 16", "grey 12", "grey 16, top 12 as one"])
def test_flip_rates_of_grey_plans(name: str) -> None:
    plan = PLANS[name]
    source = random_image(plan, (500, 701))
    words, other = (masks_of(plan, Slicer(plan, prune=None)(source), source.astype(np.uint32)) for _ in range(2))
    assert failed_tests(words, plan, other) == []


@pytest.mark.parametrize("backend", ["reference", "kernel"] if VARIANTS else ["reference"])
def test_flip_rates_of_both_backends(backend: str) -> None:
    plan = Plan.paper(5.2)
    words, other = (released_masks(plan, 500, 701, backend) for _ in range(2))
    assert failed_tests(words, plan, other) == []


# Controls: the same tests on wrong masks.

PLAN = Plan.paper(20.0)
SIZE = (700, 801)


def reverse_bits(words: Words) -> Words:
    out = np.zeros_like(words)
    for shift in (0, 8, 16):
        for b in range(8):
            out |= (words >> np.uint32(shift + b) & np.uint32(1)) << np.uint32(shift + 7 - b)
    return out


def test_control_wrong_bit_order_is_detected() -> None:
    assert failed_tests(reverse_bits(released_masks(PLAN, *SIZE)), PLAN)


def test_control_whole_budget_on_every_bit_is_detected() -> None:
    spent = Plan([Slice(1 << b, 20.0) for b in range(24)])
    assert failed_tests(released_masks(spent, *SIZE), PLAN)


@pytest.mark.parametrize("bit", [0, 7, 8, 16, 23])
def test_control_skipped_slice_is_detected(bit: int) -> None:
    words = released_masks(PLAN, *SIZE) & np.uint32(~(1 << bit) & 0xFFFFFF)
    found = failed_tests(words, PLAN)
    assert any(PLAN.bit_name(bit) in line for line in found)


def test_control_reused_mask_is_detected() -> None:
    words = released_masks(PLAN, *SIZE)
    assert failed_tests(words, PLAN) == []
    assert any("two releases" in line for line in failed_tests(words, PLAN, words.copy()))


@pytest.mark.parametrize("lag", [1, 64])
def test_control_repeated_mask_within_an_image_is_detected(lag: int) -> None:
    words = released_masks(PLAN, *SIZE)
    for start in range(0, len(words) - 2 * lag, 20 * lag):
        words[start + lag : start + 2 * lag] = words[start : start + lag]
    assert any(f"pixels {lag} apart" in line for line in failed_tests(words, PLAN))


def test_control_shared_noise_of_channels_is_detected() -> None:
    words = released_masks(PLAN, *SIZE)
    shared = words & np.uint32(0xFFFF00) | words >> np.uint32(8) & np.uint32(0xFF)
    assert any("of one pixel" in line for line in failed_tests(shared, PLAN))


def test_control_slightly_smaller_epsilon_is_detected() -> None:
    assert failed_tests(released_masks(Plan.paper(19.8), 2100, 2003), PLAN)
