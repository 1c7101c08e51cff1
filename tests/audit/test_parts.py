from __future__ import annotations

import itertools

import numpy as np
import pytest

from ldp_slicing import Plan, Slicer
from ldp_slicing.audit import noise
from ldp_slicing.audit.faults import sample_image
from ldp_slicing.audit.noise import FAMILIES, agreement_p_values, count_noise, pair_tests
from ldp_slicing.audit.parts import SIDE, PartTests, add_parts, judge_parts, tile_sums
from tests.cases import photographs, random_image

SHAPES = [(1, 1), (1, 2), (1, 200), (200, 1), (2, 33), (33, 2), (31, 32), (32, 32), (32, 34), (70, 97)]


def test_tiles_are_counted_with_those_at_the_edges() -> None:
    assert tile_sums(np.ones((70, 40), np.bool_)).tolist() == [[512, 512, 256], [512, 512, 256], [96, 96, 48]]
    some = np.zeros((64, 32), np.bool_)
    some[40, 3] = some[41, 20] = True
    assert tile_sums(some).tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_size_is_divided_and_strips_do_not_matter(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan.paper(5.0)
    pixels = Slicer(plan)(random_image(plan, shape))
    whole = count_noise(pixels, plan).parts
    tests = sum(test.family == FAMILIES[0] for test in pair_tests(plan))
    down, across, tiles = -(-shape[0] // SIDE), -(-(shape[1] // 2) // (SIDE // 2)), 0
    while down * across > 1:
        tiles += down * across
        down, across = -(-down // 2), -(-across // 2)
    assert whole.tests == tests * tiles
    for strip in (1, 50, 300, 5000):
        monkeypatch.setattr(noise, "STRIP_PIXELS", strip)
        assert count_noise(pixels, plan).parts == whole


def test_the_worst_tile_is_named() -> None:
    pairs = np.full((2, 3), 512)
    agreeing = np.array([[[50, 50, 50], [50, 50, 50]], [[50, 50, 50], [50, 50, 400]]])
    found = judge_parts(agreeing, pairs, [0.1, 0.2], ["Y7 equal", "Cb7 equal"])
    assert found.smallest < 1e-100
    assert found.worst == (
        "Cb7 equal in 400 of 512 pairs of pixels side by side, in the 32 x 32 pixels at column 64, row 32"
    )
    assert found.tests == 2 * (6 + 2)
    assert judge_parts(agreeing[:0], pairs, [], []) == PartTests()
    assert add_parts([PartTests(3, 0.5, "a"), PartTests(4, 0.1, "b")]) == PartTests(7, 0.1, "b")
    assert add_parts([]) == PartTests()


def test_a_tile_in_which_all_pairs_agree_is_found_although_most_pairs_may() -> None:
    found = judge_parts(np.array([[[460, 512]]]), np.array([[512, 512]]), [0.9], ["Y7 equal"])
    assert found.smallest == pytest.approx(0.9**512)


@pytest.mark.parametrize(("epsilon", "side"), [(5.2, 64), (20.0, 64), (58.0, 128)])
def test_an_unprotected_part_of_a_large_release_is_found_wherever_it_lies(epsilon: float, side: int) -> None:
    plan = Plan.paper(epsilon)
    source = photographs()["astronaut"]
    released = Slicer(plan, prune=None)(source)
    for top, left in itertools.product((0, 77, 512 - side), repeat=2):
        mixed, here = released.copy(), np.s_[top : top + side, left : left + side]
        mixed[here] = source[here]
        parts = count_noise(mixed, plan).parts
        assert parts.smallest * parts.tests < 1e-9


def test_the_counts_of_a_whole_release_miss_a_part_that_its_tiles_show() -> None:
    plan, generator = Plan.paper(20.0), np.random.default_rng(1)
    source = np.tile(sample_image(3), (4, 4, 1))
    face = np.clip(source[:64, :64] + generator.normal(0, 5, (64, 64, 3)), 1, 254).astype(np.uint8)
    mixed = Slicer(plan, prune=None)(source)
    mixed[100:164, 200:264] = face
    counts = count_noise(mixed, plan)
    limit = 1e-6 / 5 / 2 / len(pair_tests(plan))
    assert agreement_p_values(counts.agreeing[None], counts.pairs[None], plan).min() > limit
    assert counts.parts.smallest < 1e-6 / 5 / counts.parts.tests
