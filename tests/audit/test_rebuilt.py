from __future__ import annotations

import itertools

import numpy as np
import pytest

from ldp_slicing import Plan, Slice, Slicer, view
from ldp_slicing.audit.rebuilt import channel_kernel, is_clamped, rebuilt
from tests.cases import COLOUR_PLANS, DEEP_PLANS, GREY_PLANS, random_image

FEW = Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7")


def colours_of(words: list[int]) -> list[tuple[int, int, int]]:
    """The released colours of words, one by one."""
    rebuilt_words = view.to_rgb(np.array([[word >> 16, word >> 8 & 255, word & 255] for word in words], np.uint8).T)
    return [tuple(colour) for colour in rebuilt_words.T.tolist()]


def words_of(plan: Plan) -> list[int]:
    bits = [1 << bit for bit in range(24) if plan.kept_bits >> bit & 1]
    return [sum(chosen) | plan.dropped_value for chosen in itertools.product(*((0, bit) for bit in bits))]


@pytest.mark.parametrize("slices", ["Y7+Y4+Cb7+Cr7", "Y7+Y6+Y5,Cb7+Cb6,Cr7+Cr0", "Y0", "Cb7+Cr7"])
def test_the_colours_of_a_plan_with_few_words_by_brute_force(slices: str) -> None:
    plan = Plan.sliced(5.2, slices)
    values, possible = rebuilt(plan), colours_of(words_of(plan))
    neighbours = {(r + i, g + j, b + k) for r, g, b in possible for i, j, k in itertools.product((-1, 0, 1), repeat=3)}
    tried = np.array([colour for colour in neighbours if min(colour) >= 0 and max(colour) <= 255], np.uint8)
    expected = [tuple(colour) not in possible for colour in tried.tolist()]
    assert values.impossible(tried).tolist() == expected
    words, known = values.words(np.array(possible, np.uint8))
    for word, colour, found, certain in zip(words_of(plan), possible, words, known, strict=True):
        alike = [other for other, same in zip(words_of(plan), possible, strict=True) if same == colour]
        shared = ~(np.bitwise_or.reduce(alike) ^ np.bitwise_and.reduce(alike)) & 0xFFFFFF
        assert int(certain) & 0xFFFFFF == shared
        assert (int(found) ^ word) & shared == 0


def test_a_quarter_of_all_colours_can_come_out_of_the_papers_plan() -> None:
    every = np.arange(1 << 24, dtype=np.uint32)
    colours = np.stack([every >> 16, every >> 8 & 255, every & 255], axis=-1).astype(np.uint8)
    possible = ~rebuilt(Plan.paper(20.0)).impossible(colours)
    assert 0.25 < possible.mean() < 0.26
    back = np.moveaxis(view.to_rgb(np.moveaxis(colours, -1, 0)), 0, -1)  # every word once
    assert not rebuilt(Plan.paper(20.0)).impossible(back).any()
    keys = back[:, 0].astype(np.uint32) << 16 | back[:, 1].astype(np.uint32) << 8 | back[:, 2]
    assert np.array_equal(np.flatnonzero(possible), np.unique(keys))


@pytest.mark.parametrize("name", [*COLOUR_PLANS, *GREY_PLANS, *DEEP_PLANS])
def test_no_release_has_an_impossible_value(name: str) -> None:
    plan = (COLOUR_PLANS | GREY_PLANS | DEEP_PLANS)[name]
    released = Slicer(plan)(random_image(plan, (64, 64)))
    assert not rebuilt(plan).impossible(released.reshape(-1, *released.shape[2:])).any()


def test_grey_values_with_dropped_bits_and_beyond_the_word() -> None:
    plan = Plan([Slice(0xF0, 3.0)], 12)  # released as 1000 xxxx 1000, without the highest bits
    assert plan.dropped_value == 0x800
    values = np.array([0x800, 0x8F0, 0x801, 0x0F0, 0x1800], np.uint16)
    assert rebuilt(plan).impossible(values).tolist() == [False, False, True, True, True]
    assert not rebuilt(Plan.grey(20.0)).impossible(np.arange(256, dtype=np.uint8)).any()  # full grey: no power


@pytest.mark.parametrize("slices", ["Y7+Y4+Cb7+Cr7", "Y7+Y6,Y5+Cb7,Cr7", "Y7,Y6,Cb7,Cr7,Cr6"])
def test_the_least_and_the_largest_share_of_clamped_pixels_by_brute_force(slices: str) -> None:
    plan = Plan.sliced(4.0, slices)
    words = words_of(plan)
    clamped = is_clamped(np.array(colours_of(words), np.uint8))
    shares = []
    for word in words:
        share = 0.0
        for other, is_one in zip(words, clamped, strict=True):
            chance = 1.0
            for part in plan.slices:
                k = 1 << part.bits.bit_count()
                change = float(plan.tables.change_probability(part.bits))
                chance *= change / (k - 1) if (word ^ other) & part.bits else 1 - change
            share += chance * is_one
        shares.append(share)
    least, most = rebuilt(plan).clamped_shares
    assert min(shares) - 2e-5 <= least <= min(shares)
    assert max(shares) <= most <= max(shares) + 2e-5
    assert rebuilt(plan).mean_clamped_share == pytest.approx(np.mean(clamped))


def test_a_white_image_clamps_88_percent_and_the_worst_word_more() -> None:
    plan = Plan.paper(20.0)
    white = np.full((256, 256, 3), 255, np.uint8)
    share = is_clamped(Slicer(plan, prune=None)(white).reshape(-1, 3)).mean()
    assert share == pytest.approx(0.88, abs=0.01)
    assert rebuilt(plan).mean_clamped_share < share < rebuilt(plan).clamped_shares[1] < 0.98


def test_the_kernel_of_a_channel() -> None:
    plan = Plan([Slice(0xC08080, 3.0), Slice(0x3F0000, 2.0), Slice(0x000001, 1.0)])
    kernel = channel_kernel(plan, 16)
    assert kernel.shape == (256, 256)
    assert kernel.sum(axis=0) == pytest.approx(1.0)
    assert np.array_equal(kernel, kernel.T)
    miss = [float(plan.tables.miss_probability(bits)) for bits in (0xC08080, 0x3F0000)]
    assert kernel[0, 0] == pytest.approx((miss[0] + (1 - miss[0]) / 4) * (miss[1] + (1 - miss[1]) / 64))
    assert kernel[5, 5 ^ 0x40] == pytest.approx((1 - miss[0]) / 4 * (miss[1] + (1 - miss[1]) / 64))
    assert channel_kernel(plan, 0).shape == (4, 4)
    assert np.array_equal(channel_kernel(plan, 8, crossing=False), np.eye(2))
