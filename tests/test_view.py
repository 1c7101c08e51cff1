from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import pywt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from PIL import Image
from scipy import fft

from ldp_slicing import view
from ldp_slicing.errors import LdpSlicingError
from tests.cases import PRUNES, photographs

CHANNEL = hnp.arrays(np.uint8, st.tuples(st.integers(1, 20), st.integers(1, 20)))


def planes(image: NDArray[Any]) -> NDArray[Any]:
    return np.array(np.moveaxis(image, -1, 0), order="C")


def every_colour(step: int) -> NDArray[np.uint8]:
    axis = np.unique(np.append(np.arange(0, 256, step), 255)).astype(np.uint8)
    return np.stack([grid.ravel() for grid in np.meshgrid(axis, axis, axis)])


def without_low_band(channel: NDArray[Any], middle: float) -> NDArray[np.float64]:
    """Prune in floating point, as in the paper: 1-level Haar transform, LL = 0, inverse transform."""
    low, details = pywt.dwt2(channel.astype(np.float64) - middle, "haar", mode="periodization")
    pruned: NDArray[np.float64] = pywt.idwt2((np.zeros_like(low), details), "haar", mode="periodization") + middle
    return pruned


def agree_but_for_ties(ours: NDArray[Any], exact: NDArray[np.float64], top: int) -> None:
    exact = np.clip(exact, 0, top)
    tie = np.abs(exact - np.floor(exact) - 0.5) < 1e-6
    assert np.array_equal(ours[~tie], np.rint(exact[~tie]))
    assert np.array_equal(ours[tie], np.ceil(exact[tie]))  # rounded half up


@pytest.mark.parametrize(("height", "width"), [(2, 2), (16, 34), (112, 112)])
@pytest.mark.parametrize("bits", [8, 9, 12, 16])
def test_haar_pruning_equals_the_float_transform_except_ties(height: int, width: int, bits: int) -> None:
    channel = (
        np.random.default_rng(height + bits)
        .integers(0, 1 << bits, (height, width))
        .astype(np.uint8 if bits == 8 else np.uint16)
    )
    agree_but_for_ties(
        view.prune_low(channel, "haar", bits), without_low_band(channel, 1 << (bits - 1)), (1 << bits) - 1
    )


@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 8), st.integers(1, 8)).map(lambda s: (2 * s[0], 2 * s[1]))))
def test_haar_pruning_of_any_even_channel(channel: NDArray[np.uint8]) -> None:
    agree_but_for_ties(view.prune_low(channel, "haar", 8), without_low_band(channel, 128), 255)


def test_haar_pruning_of_a_photograph() -> None:
    for channel in view.to_ycbcr(planes(photographs()["astronaut"])):
        agree_but_for_ties(view.prune_low(channel, "haar", 8), without_low_band(channel, 128), 255)


@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 3), st.integers(1, 3)).map(lambda s: (8 * s[0], 8 * s[1]))))
def test_dct_pruning_is_the_float_transform_without_dc(channel: NDArray[np.uint8]) -> None:
    exact = channel.astype(np.float64)
    for top in range(0, channel.shape[0], 8):
        for left in range(0, channel.shape[1], 8):
            block = np.s_[top : top + 8, left : left + 8]
            coefficients = fft.dctn(exact[block] - 128, norm="ortho")
            coefficients[0, 0] = 0
            exact[block] = fft.idctn(coefficients, norm="ortho") + 128
    agree_but_for_ties(view.prune_low(channel, "dct", 8), exact, 255)


@pytest.mark.parametrize("bits", [8, 9, 16])
@pytest.mark.parametrize(("prune", "gain"), [("haar2", 2), ("haar4", 4), ("haar8", 8)])
def test_gain_amplifies_the_remaining_detail(prune: view.Prune, gain: int, bits: int) -> None:
    channel = np.random.default_rng(bits).integers(0, 1 << bits, (16, 34)).astype(np.uint8 if bits == 8 else np.uint16)
    channel[8:] >>= 3  # low contrast in one half, so that not everything is clamped
    middle = 1 << bits - 1
    agree_but_for_ties(
        view.prune_low(channel, prune, bits),
        middle + gain * (without_low_band(channel, middle) - middle),
        2 * middle - 1,
    )
    assert (view.block_of(prune), view.gain_of(prune)) == (2, gain)


@given(CHANNEL, st.sampled_from(PRUNES))
def test_edges_are_repeated_and_the_size_is_kept(channel: NDArray[np.uint8], prune: view.Prune) -> None:
    (height, width), block = channel.shape, view.block_of(prune)
    padded = np.pad(channel, ((0, -height % block), (0, -width % block)), mode="edge")
    assert np.array_equal(view.prune_low(channel, prune, 8), view.prune_low(padded, prune, 8)[:height, :width])


@given(CHANNEL, st.sampled_from(PRUNES), st.data())
def test_one_source_pixel_affects_only_its_block(
    channel: NDArray[np.uint8], prune: view.Prune, data: st.DataObject
) -> None:
    """At most block x block released pixels depend on a source pixel, as the card states."""
    y, x = (data.draw(st.integers(0, size - 1)) for size in channel.shape)
    changed = channel.copy()
    changed[y, x] = data.draw(st.integers(0, 255))
    moved, block = (
        np.argwhere(view.prune_low(channel, prune, 8) != view.prune_low(changed, prune, 8)),
        view.block_of(prune),
    )
    assert all(row // block == y // block and column // block == x // block for row, column in moved)


@pytest.mark.parametrize("prune", [prune for prune in view.BLOCK if prune])
@pytest.mark.parametrize("bits", [8, 12, 16])
def test_flat_channel_becomes_the_middle(prune: view.Prune, bits: int) -> None:
    for value in (0, 1, (1 << bits) - 1):
        channel = np.full((9, 7), value, np.uint8 if bits == 8 else np.uint16)
        assert np.all(view.prune_low(channel, prune, bits) == 1 << (bits - 1))


def test_ycbcr_equals_pillow_within_one() -> None:
    colours = every_colour(5)
    pillow = np.asarray(Image.fromarray(colours.T[None].copy()).convert("YCbCr"))[0].T
    assert np.abs(view.to_ycbcr(colours).astype(int) - pillow).max() <= 1
    back = np.asarray(Image.frombytes("YCbCr", (colours.shape[1], 1), colours.T.tobytes()).convert("RGB"))[0].T
    assert np.abs(view.to_rgb(colours).astype(int) - back).max() <= 1


def test_ycbcr_equals_the_definition_rounded() -> None:
    r, g, b = every_colour(5).astype(np.float64)
    exact = np.stack(
        [
            0.299 * r + 0.587 * g + 0.114 * b,
            128 - 0.168736 * r - 0.331264 * g + 0.5 * b,
            128 + 0.5 * r - 0.418688 * g - 0.081312 * b,
        ]
    )
    assert np.abs(view.to_ycbcr(every_colour(5)) - exact).max() <= 0.51


def test_round_trip_error_is_at_most_two() -> None:
    colours = every_colour(3)
    assert np.abs(view.to_rgb(view.to_ycbcr(colours)).astype(int) - colours).max() <= 2


def test_grey_stays_grey() -> None:
    greys = np.tile(np.arange(256, dtype=np.uint8), (3, 1))
    seen = view.to_ycbcr(greys)
    assert np.array_equal(seen[0], greys[0])
    assert np.all(seen[1:] == 128)
    assert np.array_equal(view.to_rgb(seen), greys)


def test_unknown_pruning_is_refused() -> None:
    with pytest.raises(LdpSlicingError, match="fourier"):
        view.block_of("fourier")
