from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing import Plan, view
from ldp_slicing.audit.noise import agreement_p_values, count_noise, pair_tests
from ldp_slicing.audit.pixel_words import view_words
from ldp_slicing.audit.power import MODERATE, Detectable, detectable, detected_sigma, unprotected_image
from ldp_slicing.audit.rebuilt import rebuilt
from tests.cases import PLANS, photographs

LIMIT = 1e-9


def rebuilt_without_noise(rgb: NDArray[np.float64], plan: Plan) -> NDArray[np.unsignedinteger]:
    """An image as a release without a mask would show it: in values that the plan can release."""
    source = np.clip(np.rint(rgb), 0, 255).astype(np.uint8)
    if not plan.is_colour:
        return source[..., 1].astype(plan.dtype) << (plan.word_bits - 8)
    words = view_words(source, plan, None) & np.uint32(plan.kept_bits) | np.uint32(plan.dropped_value)
    return np.moveaxis(view.to_rgb(np.stack([words >> 16, words >> 8 & 255, words & 255]).astype(np.uint8)), 0, -1)


@pytest.mark.parametrize("name", ["paper 20", "thick, across channels", "wide and narrow", "grey 20", "grey 12"])
def test_the_images_have_values_that_the_plan_can_release(name: str) -> None:
    image = unprotected_image(PLANS[name], 5)
    assert not rebuilt(PLANS[name]).impossible(image.reshape(-1, *image.shape[2:])).any()
    assert not np.array_equal(image, unprotected_image(PLANS[name], 3))
    assert np.array_equal(image, unprotected_image(PLANS[name], 5))


def test_a_high_budget_a_small_image_and_strong_noise_have_less_power() -> None:
    five = {epsilon: detectable(Plan.paper(epsilon), LIMIT)[4].pixels for epsilon in (5.2, 20.0, 58.0, 120.0)}
    assert (five[5.2] or 0) < (five[20.0] or 0) < (five[58.0] or 0) < 128 * 128
    assert five[120.0] is None
    assert (five[20.0] or 0) < (detectable(Plan.paper(20.0), LIMIT / 1e6)[4].pixels or 0)
    assert all(each.pixels is None for each in detectable(Plan.grey(20.0), LIMIT))


def test_the_strongest_noise_that_is_detected() -> None:
    found = (Detectable(0, 50), Detectable(5, 80), Detectable(10, None), Detectable(20, 70))
    assert [detected_sigma(found, pixels) for pixels in (10, 50, 79, 80, 10**9)] == [None, 0, 0, 5, 5]


@pytest.mark.parametrize(
    "plan",
    [
        *(Plan.paper(epsilon) for epsilon in (5.2, 20.0, 58.0)),
        Plan.uniform(58.0),
        Plan.sliced(2.4, "Y7+Y4+Cb7+Cr7"),
        Plan.sliced(5.2, "Y7+Y6,Cb7,Cr7"),
        Plan.grey(5.2),
        Plan.grey(12.0),
    ],
    ids=lambda plan: f"{len(plan.slices)} slices, {plan.word_bits} bits, epsilon {plan.epsilon}",
)
def test_photographs_are_detected_where_the_self_test_says_so(plan: Plan) -> None:
    rng = np.random.default_rng(0)
    limit = LIMIT / len(pair_tests(plan))
    found, tried = detectable(plan, limit), 0
    for photograph in photographs().values():
        for side in (32, 64, 128, 256):
            small = np.asarray(Image.fromarray(photograph).resize((side, side))).astype(np.float64)
            sigma = detected_sigma(found, side * side)
            if sigma is None or sigma < MODERATE[plan.is_colour]:
                continue
            for strength in {0, MODERATE[plan.is_colour]}:
                image = rebuilt_without_noise(small + rng.normal(0, strength, small.shape), plan)
                counts = count_noise(image, plan)
                p_values = agreement_p_values(counts.agreeing[None], counts.pairs[None], plan)
                assert p_values.min() < limit, (side, strength)
                tried += 1
    assert tried or plan == Plan.grey(12.0)


def test_the_self_test_takes_less_than_two_seconds() -> None:
    plan = Plan.paper(19.9)
    rebuilt(plan)  # what the other checks need, too
    pair_tests(plan)
    count_noise(unprotected_image(plan, 0), plan)
    started = time.process_time()
    detectable(plan, LIMIT)
    assert time.process_time() - started < 2
