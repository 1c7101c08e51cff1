from __future__ import annotations

import itertools
import tracemalloc
from fractions import Fraction
from math import floor
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
from ldp_slicing.errors import ImageError, LdpSlicingError
from ldp_slicing.view import Padded, Shrinking, Size, shrinking_of
from tests.cases import PRUNES, SHAPES, SIZES, can_shrink, photographs

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


def shrink_by_definition(image: NDArray[Any], size: Size) -> NDArray[Any]:
    """Shrink [H, W, C] by slices and exact means, rounded half up. Padding comes first, and makes the source larger."""
    if isinstance(size, Padded):
        missing = [max(0, side - has) for side, has in zip((size.height, size.width), image.shape, strict=False)]
        image = np.pad(image, [*((some // 2, some - some // 2) for some in missing), (0, 0)])
        size = size.width, size.height
    how = shrinking_of(size, *image.shape[:2])
    if how is None:
        return image
    kept = image[how.top : how.top + how.height, how.left : how.left + how.width]
    height, width, h, w = how.height, how.width, how.released_height, how.released_width
    small = np.empty((h, w, image.shape[2]), image.dtype)
    for i, j, c in np.ndindex(small.shape):
        cell = kept[i * height // h : (i + 1) * height // h, j * width // w : (j + 1) * width // w, c]
        small[i, j, c] = floor(Fraction(int(cell.astype(object).sum()), cell.size) + Fraction(1, 2))
    return small


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if max(shape) < 300])
def test_shrinking_equals_the_definition(shape: tuple[int, int], size: Size) -> None:
    rng = np.random.default_rng(sum(shape))
    for dtype, channels in ((np.uint8, 3), (np.uint16, 1)):
        image = rng.integers(0, np.iinfo(dtype).max, (*shape, channels), dtype, endpoint=True)
        if not can_shrink(size, shape):
            with pytest.raises(ImageError, match=rf"{shape[1]} x {shape[0]} pixels.*smaller size"):
                view.shrink(image, size)
            continue
        expected = shrink_by_definition(image, size)
        assert np.array_equal(view.shrink(image, size), expected)
        assert np.array_equal(view.shrink(image[..., 0], size), expected[..., 0])
        batch = view.shrink(np.stack([image, image[::-1], image]), size)
        assert np.array_equal(batch, [expected, shrink_by_definition(image[::-1], size), expected])
        assert batch.dtype == dtype


PADDED = st.builds(Padded, st.integers(1, 15), st.integers(1, 15))


@given(hnp.arrays(np.uint16, st.tuples(st.integers(1, 12), st.integers(1, 12), st.sampled_from([1, 3]))), st.data())
def test_shrinking_of_any_image(image: NDArray[np.uint16], data: st.DataObject) -> None:
    height, width = image.shape[:2]
    size = data.draw(st.one_of(st.integers(1, 13), st.tuples(st.integers(1, width), st.integers(1, height)), PADDED))
    assert np.array_equal(view.shrink(image, size), shrink_by_definition(image, size))


def test_memory_layout_and_strips_do_not_change_the_shrunk_image() -> None:
    image = np.random.default_rng(1).integers(0, 1 << 16, (2, 19, 23, 1)).astype(np.uint16)
    expected = view.shrink(image, (5, 7))
    planes_first = np.ascontiguousarray(np.moveaxis(image, -1, 1))
    for layout in (image.astype(">u2"), np.asfortranarray(image), np.moveaxis(planes_first, 1, -1)):
        small = view.shrink(layout, (5, 7))
        assert np.array_equal(small, expected)
        assert small.dtype == np.uint16
    for size, rows in (((5, 7), 7), (Padded(30, 26), 26)):
        how, whole = shrinking_of(size, 19, 23), view.shrink(image, size)
        assert how is not None
        for first, end in itertools.combinations(range(rows + 1), 2):
            assert np.array_equal(view.shrink_rows(image, how, first, end), whole[:, first:end])


@pytest.mark.parametrize(
    ("dtype", "side"), [(np.uint8, 2896), (np.uint8, 2897), (np.uint16, 181), (np.uint16, 182), (np.uint16, 700)]
)
def test_sums_of_large_rectangles_are_exact(dtype: type, side: int) -> None:
    """Between the sides 2896 and 2897, and 181 and 182, twice the sum begins to need more than 32 bits."""
    top = np.iinfo(dtype).max
    image = np.full((side, side), top, dtype)
    assert view.shrink(image, 1).tolist() == [[top]]
    image.reshape(-1)[: -(-side * side // 2)] = top - 1  # at least half of the pixels
    assert view.shrink(image, 1).tolist() == [[top if side % 2 == 0 else top - 1]]


def test_ties_round_up() -> None:
    assert view.shrink(np.array([[0, 1, 254, 255, 3, 3]], np.uint8), 3).tolist() == [[1, 255, 3]]
    assert view.shrink(np.array([[0, 1], [0, 0]], np.uint16), 1).tolist() == [[0]]


@pytest.mark.parametrize(
    ("size", "height", "width", "expected"),
    [
        (None, 4000, 6000, None),
        (224, 4000, 6000, (0, 0, 4000, 6000, 149, 224)),
        (224, 6000, 4000, (0, 0, 6000, 4000, 224, 149)),
        (224, 224, 224, None),
        (224, 100, 223, None),
        (224, 1, 10000, (0, 0, 1, 10000, 1, 224)),  # at least one pixel
        ((224, 224), 4000, 6000, (0, 1000, 4000, 4000, 224, 224)),
        ((224, 224), 6000, 4001, (999, 0, 4001, 4001, 224, 224)),  # the offset is rounded down
        ((224, 224), 225, 224, (0, 0, 224, 224, 224, 224)),
        ((224, 224), 448, 448, (0, 0, 448, 448, 224, 224)),
        ((224, 224), 224, 224, None),
        ((3, 2), 7, 10, (0, 0, 6, 10, 2, 3)),
        ((2, 3), 7, 10, (0, 3, 7, 4, 3, 2)),
        (Padded(224, 224), 4000, 6000, (0, 1000, 4000, 4000, 224, 224)),  # large enough: nothing is padded
        (Padded(224, 224), 224, 224, None),
        (Padded(224, 224), 100, 80, (0, 0, 100, 80, 224, 224)),
        (Padded(224, 224), 223, 6000, (0, 2888, 223, 224, 224, 224)),  # as 224 x 6000 would be
    ],
)
def test_rules_for_the_released_size(size: Size, height: int, width: int, expected: tuple[int, ...] | None) -> None:
    assert shrinking_of(size, height, width) == (None if expected is None else Shrinking(*expected))


def test_nothing_is_enlarged_and_the_centre_is_kept() -> None:
    for height, width in itertools.product(range(1, 10), repeat=2):
        for side in range(1, 11):
            how = shrinking_of(side, height, width)
            assert (how is None) == (side >= max(height, width))
            if how is not None:
                assert (how.top, how.left, how.height, how.width) == (0, 0, height, width)
                assert max(how.released_height, how.released_width) == side
        for w, h in itertools.product(range(1, width + 1), range(1, height + 1)):
            how = shrinking_of((w, h), height, width) or Shrinking(0, 0, height, width, height, width)
            assert (how.released_width, how.released_height) == (w, h)
            assert h <= how.height <= height
            assert w <= how.width <= width
            assert how.height == height or how.width == width
            assert abs(how.height * w - how.width * h) < max(w, h)  # the aspect, up to less than one pixel
            assert (how.top, how.left) == ((height - how.height) // 2, (width - how.width) // 2)


@pytest.mark.parametrize("prune", PRUNES)
def test_one_source_pixel_affects_only_one_block_of_the_shrunk_image(prune: view.Prune) -> None:
    """Every pixel of all small sources, for every size, and of one whose releases have several 8 x 8 blocks."""
    block = view.block_of(prune)
    small: list[tuple[int, int, Size]] = [
        (height, width, size)
        for height, width in itertools.product(range(1, 5), repeat=2)
        for size in (1, 2, 3, *itertools.product(range(1, width + 1), range(1, height + 1)), Padded(4, 2), Padded(6, 7))
    ]
    for height, width, size in (*small, (19, 11, 17), (19, 11, (9, 10)), (19, 11, (11, 17)), (19, 11, Padded(13, 18))):
        source = np.full((height, width), 30000, np.uint16)
        before = view.shrink(source, size)
        for y, x in np.ndindex(height, width):
            changed = source.copy()
            changed[y, x] = 65535
            after = view.shrink(changed, size)
            how = shrinking_of(size, height, width) or Shrinking(0, 0, height, width, height, width)
            is_kept = y - how.top in range(how.height) and x - how.left in range(how.width)
            moved = np.argwhere(before != after)
            assert len(moved) == is_kept  # one released pixel, or none if it is outside of the rectangle
            pruned = np.argwhere(view.prune_low(before, prune, 16) != view.prune_low(after, prune, 16))
            assert all((pixel // block == moved[0] // block).all() for pixel in pruned)


def test_every_kept_pixel_belongs_to_one_released_pixel() -> None:
    """Image i has one bright pixel, at place i of its only column or row. Released pixels own runs of places."""
    for length in range(1, 50):
        columns = 65535 * np.eye(length, dtype=np.uint16)[:, :, None, None]
        for parts in range(1, length + 1):
            tall, wide = Shrinking(0, 0, length, 1, parts, 1), Shrinking(0, 0, 1, length, 1, parts)
            small = view.shrink_rows(columns, tall, 0, parts)
            assert np.array_equal(small.swapaxes(1, 2), view.shrink_rows(columns.swapaxes(1, 2), wide, 0, 1))
            image, owner = np.nonzero(small[..., 0, 0])
            assert np.array_equal(image, np.arange(length))  # one owner each
            assert np.array_equal(owner, np.sort(owner))
            assert np.array_equal(np.unique(owner), np.arange(parts))


def test_padding_is_black_and_around_the_middle() -> None:
    image = np.full((2, 3, 1), 7, np.uint16)
    assert view.shrink(image[..., 0], Padded(6, 5)).tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 7, 7, 7, 0, 0],
        [0, 7, 7, 7, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    assert Padded(2, 3) != (2, 3)  # settings are compared, and caches look them up


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (None, "that of the source"),
        (224, "at most 224 x 224"),
        ((224, 168), "224 x 168"),
        (Padded(224, 168), "224 x 168, smaller sources padded with black"),
    ],
)
def test_sizes_in_words(size: Size, words: str) -> None:
    assert view.sizing(size) == words


def test_shrinking_needs_little_memory() -> None:
    image = np.zeros((1000, 3000, 3), np.uint8)
    tracemalloc.start()
    view.shrink(image, 224)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e5  # the image has 9 MB


@pytest.mark.parametrize(
    "size", [0, -1, True, 2.0, "224", (), (224,), (3, 0), (3, 2, 1), [224, 224], (2.0, 2), Padded(0, 3)]
)
def test_unknown_size_is_refused(size: Any) -> None:
    with pytest.raises(LdpSlicingError, match=r"size must be the longest side.*\(224, 224\); got"):
        view.check_size(size)
