from __future__ import annotations

import copy
import dataclasses
import itertools
import pathlib
import pickle
import tracemalloc
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing import Plan, Slice, Slicer, privatize, slicer, view
from ldp_slicing.comparison_sheet import view_image
from ldp_slicing.errors import ImageError, ImageKeyError, KernelError, LdpSlicingError, PlanError
from ldp_slicing.randomness import ImageKey, SeededForTests
from ldp_slicing.slicer import Backend
from ldp_slicing.view import Prune, Size
from tests.cases import (
    COLOUR_PLANS,
    DEEP_PLANS,
    PLANS,
    PRUNES,
    SHAPES,
    SIZES,
    backends,
    can_shrink,
    photographs,
    random_image,
)


def release_with(
    backend: Backend, image: NDArray[Any], plan: Plan, prune: Prune = "haar", output: Any = "rgb", seed: int = 1
) -> NDArray[Any]:
    return Slicer(plan, prune=prune, output=output, backend=backend, randomness=SeededForTests(seed))(image)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("prune", [*PRUNES, "haar2", "haar4"])
def test_every_backend_returns_the_same_bytes(shape: tuple[int, int], prune: Prune) -> None:
    for name, plan in PLANS.items():
        image = random_image(plan, shape)
        for output in ("rgb", "ycbcr"):
            reference, *kernels = (release_with(backend, image, plan, prune, output) for backend in backends())
            for got in kernels:
                assert np.array_equal(got, reference), (name, output)


@given(
    st.integers(1, 40), st.integers(1, 70), st.sampled_from(PRUNES), st.sampled_from(list(PLANS)), st.integers(0, 2**32)
)
def test_every_backend_returns_the_same_bytes_for_any_size(
    height: int, width: int, prune: Prune, name: str, seed: int
) -> None:
    image = random_image(PLANS[name], (height, width), seed)
    reference, *kernels = (release_with(backend, image, PLANS[name], prune, seed=seed) for backend in backends())
    assert all(np.array_equal(got, reference) for got in kernels)


def test_unaligned_words_are_read_and_written() -> None:
    """A memory-mapped file can begin at any byte."""
    whole = random_image(Plan.grey(20.0, 16), (9, 7))
    between = np.frombuffer(b"x" + whole.tobytes(), np.uint8)[1:].view(np.uint16).reshape(whole.shape)
    room = np.zeros(whole.nbytes + 1, np.uint8)[1:].view(np.uint16).reshape(whole.shape)
    assert not between.flags.aligned
    assert not room.flags.aligned
    for backend in backends():
        expected = release_with(backend, whole, Plan.grey(20.0, 16))
        assert np.array_equal(release_with(backend, between, Plan.grey(20.0, 16)), expected)
        made = Slicer(Plan.grey(20.0, 16), backend=backend, randomness=SeededForTests(1))
        made.release_into(between, room)
        assert np.array_equal(room, expected)


@pytest.mark.parametrize("strip", [1, 64, 200, 1000, 1 << 20])
def test_strip_size_has_no_effect(strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for plan in (COLOUR_PLANS["paper 20"], COLOUR_PLANS["wide and narrow"], DEEP_PLANS["grey 12"]):
        for shape in ((61, 37), (200, 1), (1, 200)):
            image = random_image(plan, shape)
            for prune in PRUNES:
                whole = [release_with(backend, image, plan, prune) for backend in backends()]
                with monkeypatch.context() as patch:
                    patch.setattr(slicer, "STRIP_BYTES", 6 * strip)
                    stripped = [release_with(backend, image, plan, prune) for backend in backends()]
                assert all(np.array_equal(a, b) for a, b in zip(whole, stripped, strict=True))


def test_memory_layout_has_no_effect() -> None:
    image = random_image(COLOUR_PLANS["paper 20"], (30, 50))
    wide = np.zeros((60, 100, 6), np.uint8)
    wide[::2, ::2, ::2] = image
    read_only = image.copy()
    read_only.flags.writeable = False
    layouts = [wide[::2, ::2, ::2], np.asfortranarray(image), image[::-1, ::-1].copy()[::-1, ::-1], read_only]
    for backend in backends():
        expected = release_with(backend, image, Plan.paper(20.0))
        for layout in layouts:
            assert np.array_equal(release_with(backend, layout, Plan.paper(20.0)), expected)


def test_byte_order_has_no_effect() -> None:
    plan = DEEP_PLANS["grey 16"]
    image = random_image(plan, (9, 13))
    for backend in backends():
        got = release_with(backend, image.astype(">u2"), plan)
        assert np.array_equal(got, release_with(backend, image, plan))
        assert got.dtype == np.uint16


@pytest.mark.parametrize("name", PLANS)
def test_source_is_not_modified(name: str) -> None:
    for backend in backends():
        for prune in PRUNES:
            image = random_image(PLANS[name], (16, 9))
            before = image.copy()
            release_with(backend, image, PLANS[name], prune)
            assert np.array_equal(image, before)


def test_each_image_of_a_batch_has_its_own_key() -> None:
    images = np.tile(random_image(Plan.paper(20.0), (16, 16)), (3, 1, 1, 1))
    for backend in backends():
        batch = release_with(backend, images, Plan.paper(20.0), seed=7)
        one_by_one = Slicer(Plan.paper(20.0), randomness=SeededForTests(7))
        assert all(np.array_equal(release, one_by_one(image)) for release, image in zip(batch, images, strict=True))
        assert not np.array_equal(batch[0], batch[1])


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (8, 8), (32, 32), (28, 29), (33, 70), (257, 300)])
@pytest.mark.parametrize("name", PLANS)
def test_batch_equals_its_images_released_one_by_one(name: str, shape: tuple[int, int]) -> None:
    """Keys are used in order, whether images share a strip or not."""
    plan, count = PLANS[name], 5 if shape[0] < 257 else 2
    images = random_image(plan, (count, *shape))
    images = images if plan.is_colour else images[..., None]
    for backend in backends():
        for prune in PRUNES if shape[0] < 33 else PRUNES[:1]:
            one_by_one = Slicer(plan, prune=prune, backend="reference", randomness=SeededForTests(5))
            expected = [one_by_one(image) for image in images]
            assert np.array_equal(release_with(backend, images, plan, prune, seed=5), expected), backend.name


@pytest.mark.parametrize("together", [1, 2, 3, 7, 8, 100])
def test_number_of_images_per_strip_has_no_effect(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for plan in (COLOUR_PLANS["paper 20"], COLOUR_PLANS["wide and narrow"], DEEP_PLANS["grey 12"]):
        images = random_image(plan, (8, 9, 15))
        images = images if plan.is_colour else images[..., None]
        turned = np.moveaxis(
            np.moveaxis(images, -1, 1).astype(images.dtype.newbyteorder(">")), 1, -1
        )  # as tensors lie in memory
        for backend in backends():
            expected = release_with(backend, images, plan)
            with monkeypatch.context() as patch:
                patch.setattr(
                    slicer, "STRIP_BYTES", together * 3 * 64 * 2 * plan.tables.lanes
                )  # 9 x 15 pixels are three blocks
                for layout in (images, turned, turned[::-1][::-1]):
                    got = release_with(backend, layout, plan)
                    assert got.dtype == images.dtype
                    assert np.array_equal(got, expected)


def test_memory_does_not_grow_with_the_batch() -> None:
    images = np.zeros((1500, 3, 16, 16), np.uint8).transpose(0, 2, 3, 1)  # not contiguous, so that sources are copied
    for backend in backends():
        made = Slicer(Plan.paper(20.0), backend=backend)
        made(images[:2])  # makes the tables
        tracemalloc.start()
        release = made(images)
        beside = tracemalloc.get_traced_memory()[1] - release.nbytes
        tracemalloc.stop()
        assert beside < 1.8e6, backend.name  # masks, keystream and copies of all images would take 4.6 MB


@pytest.mark.parametrize(
    ("shape", "dtype", "plan"),
    [
        ((5, 4, 3), np.uint8, Plan.paper(20.0)),
        ((2, 5, 4, 3), np.uint8, Plan.paper(20.0)),
        ((0, 5, 4, 3), np.uint8, Plan.paper(20.0)),
        ((5, 3), np.uint8, Plan.grey(20.0)),
        ((5, 4, 1), np.uint8, Plan.grey(20.0)),
        ((2, 5, 4, 1), np.uint16, Plan.grey(20.0, 16)),
    ],
)
def test_release_has_the_shape_and_dtype_of_the_image(shape: tuple[int, ...], dtype: type, plan: Plan) -> None:
    release = Slicer(plan)(np.zeros(shape, dtype))
    assert (release.shape, release.dtype) == (shape, dtype)


@pytest.mark.parametrize("mode", ["RGB", "L", "I;16"])
def test_pil_image_gives_a_pil_image_without_metadata(mode: str) -> None:
    image = Image.new(mode, (7, 5))
    image.info["comment"] = "secret"
    release = privatize(image, 20.0)
    assert (release.mode, release.size, release.info) == (mode, (7, 5), {})


def test_ycbcr_output_is_the_word() -> None:
    image = Image.new("RGB", (70, 50), (12, 200, 99))
    kinds = Slicer(Plan.paper(20.0), output="ycbcr", randomness=SeededForTests(3))
    release = kinds(image)
    assert release.mode == "YCbCr"
    word = Slicer(Plan.paper(20.0), output="ycbcr", randomness=SeededForTests(3))(np.asarray(image))
    assert np.array_equal(np.asarray(release), word)


@pytest.mark.parametrize("name", [name for name in PLANS if PLANS[name].dropped_value])
def test_only_dropped_bits_are_constant(name: str) -> None:
    plan = PLANS[name]
    release = Slicer(plan, prune=None, output="ycbcr")(random_image(plan, (64, 64)))
    words = (
        release.astype(np.uint32)
        if not plan.is_colour
        else np.dot(release.astype(np.uint32), [1 << 16, 1 << 8, 1]).astype(np.uint32)
    )
    assert np.all(words & ~np.uint32(plan.kept_bits) == plan.dropped_value)
    assert np.bitwise_or.reduce(words.ravel()) & plan.kept_bits == plan.kept_bits
    assert np.bitwise_and.reduce(words.ravel()) & plan.kept_bits == 0


def test_the_error_of_releases_of_real_photographs_grows_as_epsilon_falls() -> None:
    for name, photograph in photographs().items():
        for prune in ("haar", None):
            releases = [Slicer(Plan.paper(eps), prune=prune)(photograph) for eps in (58.0, 32.0, 20.0, 12.0, 5.2, 1.0)]
            errors = [float(np.square(release.astype(float) - photograph).mean()) for release in releases]
            assert errors == sorted(errors), (name, prune)
            assert errors[-1] > 1.6 * errors[0]


def test_huge_epsilon_without_pruning_returns_the_image() -> None:
    photograph = photographs()["cat"]
    release = Slicer(Plan([Slice(1 << b, 44.0) for b in range(24)]), prune=None)(photograph)
    assert np.abs(release.astype(int) - photograph).max() <= 2


@pytest.mark.parametrize(
    ("image", "plan", "shown"),
    [
        (np.zeros((4, 4, 3)), Plan.paper(1.0), r"float64.*astype\(np.uint8\)"),
        (np.zeros((4, 4, 3), np.float32), Plan.paper(1.0), "float32"),
        (np.zeros((4, 4, 3), np.int64), Plan.paper(1.0), "int64"),
        (np.zeros((4, 4, 3), bool), Plan.paper(1.0), "bool"),
        (np.zeros((4, 4, 3), np.uint32), Plan.paper(1.0), "uint32"),
        (np.zeros((4, 4, 3), np.uint16), Plan.paper(1.0), "image >> 8"),
        (np.zeros((4, 4), np.uint8), Plan.paper(1.0), r"grey image.*Plan.grey.*24"),
        (np.zeros((4, 4, 3), np.uint8), Plan.grey(1.0), r"colour image.*Plan.paper.*8"),
        (np.zeros((4, 4), np.uint16), Plan.grey(1.0), "uint16.*8 bits"),
        (np.zeros((4, 4), np.uint8), Plan.grey(1.0, 12), "uint8.*12"),
        (np.full((4, 4), 4096, np.uint16), Plan.grey(1.0, 12), "4096"),
        (np.full((4, 4), 2, np.uint8), Plan([Slice(1, 1.0)], 1), "value 2"),
        (np.zeros((2, 4, 4), np.uint8), Plan.grey(1.0), r"\(2, 4, 4\)"),
        (np.zeros((4, 4, 4), np.uint8), Plan.paper(1.0), r"\(4, 4, 4\)"),
        (np.zeros(4, np.uint8), Plan.grey(1.0), r"\(4,\)"),
        (np.zeros((0, 4, 3), np.uint8), Plan.paper(1.0), r"\(0, 4, 3\)"),
        ([[1, 2], [3, 4]], Plan.grey(1.0), "list"),
        (Image.new("RGBA", (2, 2)), Plan.paper(1.0), r"RGBA.*convert"),
        (Image.new("P", (2, 2)), Plan.paper(1.0), "'P'"),
        (Image.new("F", (2, 2)), Plan.paper(1.0), "'F'"),
    ],
)
def test_unfit_images_are_refused_with_advice(image: Any, plan: Plan, shown: str) -> None:
    with pytest.raises(ImageError, match=shown):
        Slicer(plan)(image)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"prune": "fft"}, "fft"),
        ({"size": "small"}, "small"),
        ({"output": "hsv"}, "hsv"),
        ({"backend": "gpu"}, "gpu"),
        ({"plan": 20.0}, "20.0"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], shown: str) -> None:
    with pytest.raises(LdpSlicingError, match=shown):
        Slicer(**{"plan": Plan.paper(20.0)} | options)


@pytest.mark.parametrize("shape", [(4, 4, 3), (4, 4)])
def test_privatize_refuses_a_budget_without_noise(shape: tuple[int, ...]) -> None:
    image = np.zeros(shape, np.uint8)
    with pytest.raises(PlanError, match=r"epsilon 1e\+06 makes the noise pointless.* use Slicer\(plan\)"):
        privatize(image, epsilon=1e6)


def test_privatize_chooses_the_plan_for_the_image() -> None:
    assert privatize(np.zeros((4, 6, 3), np.uint8), 20).shape == (4, 6, 3)
    assert privatize(np.zeros((4, 6), np.uint8), epsilon=1).dtype == np.uint8
    assert privatize(np.full((4, 6), 65535, np.uint16), 20).dtype == np.uint16
    with pytest.raises(ImageError, match="list"):
        privatize([[1, 2]], 20)
    with pytest.raises(LdpSlicingError, match="-1"):
        privatize(np.zeros((4, 6), np.uint8), epsilon=-1)


def test_repr_shows_the_settings() -> None:
    shown = repr(Slicer(Plan.grey(3.0), prune=None, size=(64, 48), backend="reference"))
    assert "prune=None, size=(64, 48)" in shown
    assert "reference" in shown


def test_unknown_kernel_variant_is_refused() -> None:
    from ldp_slicing.kernel import VARIANTS, Kernel

    with pytest.raises(KernelError, match="mmx"):
        Kernel("mmx")
    assert VARIANTS[0] == "portable"


def test_many_releases_of_one_source_reveal_it() -> None:
    """A majority vote over 25 releases at eps 20 recovers the high bits: one source must have one release."""
    photograph = photographs()["astronaut"]
    slicer = Slicer(Plan.paper(20.0), prune=None, output="ycbcr")
    releases = [slicer(photograph)[..., 0] for _ in range(25)]
    luma = view_image(photograph, None)[..., 0]
    for bit in (7, 6, 5, 4):
        vote = sum((release >> bit & 1).astype(int) for release in releases) > 12
        assert np.mean(vote != luma >> bit & 1) < 0.004


@pytest.mark.parametrize("name", ["paper 20", "grey 20", "grey 16"])
def test_release_into_existing_memory(name: str) -> None:
    plan = PLANS[name]
    image = random_image(plan, (50, 37))
    expected = Slicer(plan, randomness=SeededForTests(4))(image)
    roomy = np.zeros((100, *image.shape[1:]), image.dtype.newbyteorder(">"))
    for target in (np.zeros_like(image), roomy[::2]):
        Slicer(plan, randomness=SeededForTests(4)).release_into(image, target)
        assert np.array_equal(target, expected)
    assert not roomy[1::2].any()
    images = np.stack([image.reshape(50, 37, -1)] * 3)
    expected = Slicer(plan, randomness=SeededForTests(4))(images)
    batch = np.zeros((3, 50, 37, 2 * images.shape[-1]), image.dtype.newbyteorder(">"))[..., ::2]
    Slicer(plan, randomness=SeededForTests(4)).release_into(images, batch)
    assert np.array_equal(batch, expected)
    with pytest.raises(ImageError, match="shape"):
        Slicer(plan).release_into(image, roomy)


@pytest.mark.parametrize("wide", [1, 2])
def test_output_of_another_dtype_is_refused(wide: int) -> None:
    deep, flat = np.full((6, 8), 4000, np.uint16), np.zeros((6, 8), np.uint8)
    for image, kind, plan in (
        (deep, np.uint8, Plan.grey(20.0, 12)),
        (flat, np.uint16, Plan.grey(20.0)),
        (flat, np.int8, Plan.grey(20.0)),
    ):
        target = np.zeros((6, 8 * wide), kind)[:, ::wide]
        with pytest.raises(ImageError, match=f"dtype {np.dtype(kind)}, but the image has {image.dtype}"):
            Slicer(plan).release_into(image, target)
        assert not target.any()
    swapped = np.zeros((6, 8 * wide), ">u2")[:, ::wide]
    Slicer(Plan.grey(20.0, 12)).release_into(deep, swapped)
    assert swapped.any()


@pytest.mark.parametrize(
    ("image", "advice"),
    [
        ("portrait.jpg", r"PIL\.Image\.open"),
        (pathlib.Path("portrait.jpg"), r"PIL\.Image\.open"),
        ([[1, 2]], r"np\.asarray"),
        (SimpleNamespace(detach=None), r"torch\.Privatize"),
    ],
)
def test_objects_that_are_not_images_are_refused_with_advice(image: Any, advice: str) -> None:
    for release in (partial(privatize, epsilon=20.0), Slicer(Plan.paper(20.0))):
        with pytest.raises(ImageError, match=advice):
            release(image)


IMAGE = np.zeros((8, 6, 3), np.uint8)
BATCH = np.zeros((3, 8, 6, 3), np.uint8)


def keys(count: int, *, is_secret: bool = True) -> list[ImageKey]:
    return [ImageKey(bytes([number]) * 32, is_secret=is_secret) for number in range(count)]


def test_key_decides_the_release() -> None:
    one = Slicer(Plan.paper(20.0))
    expected = [one(IMAGE, key=key) for key in keys(3)]
    assert not np.array_equal(expected[0], expected[1])
    assert np.array_equal(one(BATCH, key=keys(3)), expected)
    assert np.array_equal(np.asarray(one(Image.fromarray(IMAGE), key=keys(1)[0])), expected[0])
    out = np.empty_like(BATCH)
    one.release_into(BATCH, out, key=keys(3))
    assert np.array_equal(out, expected)
    assert one(BATCH[:0], key=[]).shape == (0, 8, 6, 3)


def test_key_can_be_used_once() -> None:
    key, one = ImageKey(bytes(32)), Slicer(Plan.paper(20.0))
    one(IMAGE, key=key)
    out = np.zeros_like(BATCH)
    for release in (
        lambda: one(IMAGE, key=key),
        lambda: one.release_into(BATCH, out, key=[*keys(2), key]),
        lambda: one.release_into(BATCH, out, key=[*keys(2)] * 2),
        lambda: one.release_into(BATCH, out, key=keys(1) * 3),
    ):
        with pytest.raises(ImageKeyError, match=r"used|one per image"):
            release()
    assert not out.any()  # keys are checked before anything is released


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_key_cannot_be_copied(copied: Callable[[ImageKey], Any]) -> None:
    with pytest.raises(ImageKeyError, match="copied"):
        copied(ImageKey(bytes(32)))


@pytest.mark.parametrize("key", [bytes(32), [bytes(32)], bytearray(32), "secret"])
def test_raw_bytes_are_refused_as_key(key: Any) -> None:
    with pytest.raises(ImageKeyError, match=r"must be an ImageKey.*image_key"):
        Slicer(Plan.paper(20.0))(IMAGE, key=key)


@pytest.mark.parametrize("key", [b"", bytes(31), bytearray(32), "0" * 32])
def test_image_key_has_32_bytes(key: Any) -> None:
    with pytest.raises(ImageKeyError, match="32 bytes"):
        ImageKey(key)


@pytest.mark.parametrize(
    ("image", "key"),
    [(IMAGE, keys(1)), (BATCH, keys(1)[0]), (BATCH, keys(2)), (BATCH, keys(4)), (BATCH[:1], keys(1)[0])],
)
def test_wrong_number_of_keys_is_refused(image: NDArray[Any], key: Any) -> None:
    with pytest.raises(ImageKeyError, match="one per image"):
        Slicer(Plan.paper(20.0))(image, key=key)


def test_key_that_is_not_secret_needs_a_seeded_slicer() -> None:
    for key in (SeededForTests(1).key(), *keys(1, is_secret=False)):
        with pytest.raises(ImageKeyError, match="not secret"):
            Slicer(Plan.paper(20.0))(IMAGE, key=key)
        assert Slicer(Plan.paper(20.0), randomness=SeededForTests(2))(IMAGE, key=key).shape == IMAGE.shape


def test_image_key_hides_its_bytes() -> None:
    assert repr(ImageKey(b"k" * 32)) == "ImageKey(...)"


@pytest.mark.parametrize("name", ["plan", "prune", "size", "output", "backend", "randomness"])
def test_slicer_is_immutable(name: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(Slicer(Plan.paper(20.0)), name, None)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", SIZES)
def test_shrunk_release_is_the_release_of_the_shrunk_image(size: Size, shape: tuple[int, int]) -> None:
    for plan, prune in ((PLANS["paper 20"], "haar"), (PLANS["wide and narrow"], None), (PLANS["grey 12"], "dct")):
        image = random_image(plan, shape)
        for backend in backends():
            shrinking = Slicer(plan, prune=prune, size=size, backend=backend, randomness=SeededForTests(1))
            if not can_shrink(size, shape):
                with pytest.raises(ImageError, match="nothing is enlarged"):
                    shrinking(image)
                continue
            release = shrinking(image)
            assert np.array_equal(release, release_with(backend, view.shrink(image, size), plan, prune))
            assert release.dtype == image.dtype
            assert release.shape == shrinking.released_shape(image.shape)


@pytest.mark.parametrize("strip", [1, 200, 1000])
@pytest.mark.parametrize("name", ["paper 20", "wide and narrow", "grey 12"])
def test_strips_and_batches_do_not_change_shrunk_releases(
    strip: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = PLANS[name]
    images = random_image(plan, (4, 61, 83))
    images = images if plan.is_colour else images[..., None]
    turned = np.moveaxis(np.moveaxis(images, -1, 1).astype(images.dtype.newbyteorder(">")), 1, -1)
    for prune, size in itertools.product(PRUNES, (40, (33, 20))):
        one_by_one = Slicer(plan, prune=prune, size=size, backend="reference", randomness=SeededForTests(5))
        expected = [one_by_one(image) for image in images]
        with monkeypatch.context() as patch:
            patch.setattr(slicer, "STRIP_BYTES", 6 * strip)
            for backend, layout in itertools.product(backends(), (images, turned)):
                made = Slicer(plan, prune=prune, size=size, backend=backend, randomness=SeededForTests(5))
                assert np.array_equal(made(layout), expected), backend.name


def test_shrunk_release_into_existing_memory() -> None:
    images = random_image(Plan.grey(20.0, 16), (2, 50, 37))[..., None]
    expected = Slicer(Plan.grey(20.0, 16), size=(20, 10), randomness=SeededForTests(4))(images)
    out = np.zeros((2, 10, 20, 2), ">u2")[..., 1:]
    Slicer(Plan.grey(20.0, 16), size=(20, 10), randomness=SeededForTests(4)).release_into(images, out)
    assert np.array_equal(out, expected)
    with pytest.raises(ImageError, match=r"\(2, 50, 37, 1\), but the release has \(2, 10, 20, 1\)"):
        Slicer(Plan.grey(20.0, 16), size=(20, 10)).release_into(images, np.empty_like(images))


@pytest.mark.parametrize(
    ("size", "shape", "released"),
    [
        (None, (30, 40, 3), (30, 40, 3)),
        (20, (30, 40, 3), (15, 20, 3)),
        (20, (7, 30, 40, 1), (7, 15, 20, 1)),
        (20, (40, 30), (20, 15)),
        (50, (40, 30), (40, 30)),
        ((16, 8), (0, 30, 40, 3), (0, 8, 16, 3)),
    ],
)
def test_released_shape(size: Size, shape: tuple[int, ...], released: tuple[int, ...]) -> None:
    plan = Plan.paper(20.0) if shape[-1] == 3 else Plan.grey(20.0)
    assert Slicer(plan, size=size).released_shape(shape) == released
    assert Slicer(plan, size=size)(np.zeros(shape, np.uint8)).shape == released


@pytest.mark.parametrize("mode", ["RGB", "L", "I;16"])
def test_pil_image_gives_a_shrunk_pil_image(mode: str) -> None:
    plan = {"RGB": Plan.paper(20.0), "L": Plan.grey(20.0), "I;16": Plan.grey(20.0, 16)}[mode]
    for output in ("rgb", "ycbcr"):
        release = Slicer(plan, size=(5, 4), output=output)(Image.new(mode, (31, 17)))
        assert release.size == (5, 4)
        assert release.mode == ("YCbCr" if (mode, output) == ("RGB", "ycbcr") else mode)


def test_image_that_keeps_its_size_is_released_as_without_shrinking() -> None:
    image = random_image(Plan.paper(20.0), (30, 40))
    expected = release_with(slicer.Reference(), image, Plan.paper(20.0))
    for size in (40, 41, 1000, (40, 30)):
        made = Slicer(Plan.paper(20.0), size=size, randomness=SeededForTests(1))
        assert made.shrinking(30, 40) is None
        assert np.array_equal(made(image), expected)


@pytest.mark.parametrize(("prune", "factor"), [(None, 1), ("haar", 4), ("dct", 64)])
def test_shrinking_lowers_the_epsilon_of_the_image_and_no_other(prune: Prune, factor: int) -> None:
    plan = Plan.paper(20.0)
    small, large = (Slicer(plan, prune=prune, size=size).card(4000, 3000) for size in (224, None))
    levels = [{level.unit: level.epsilon for level in card.statements[0].levels} for card in (small, large)]
    epsilon = plan.realised_epsilon
    for unit, pixels in (("released pixel", 1), ("source pixel", factor)):
        assert levels[0][unit] == levels[1][unit] == pytest.approx(pixels * epsilon, rel=1e-12)
    assert levels[0]["image"] == pytest.approx(224 * 168 * epsilon, rel=1e-12)
    assert levels[1]["image"] == pytest.approx(4000 * 3000 * epsilon, rel=1e-12)


def test_memory_does_not_grow_with_the_source() -> None:
    images = np.zeros((2, 1200, 1600, 3), np.uint8)
    for backend in backends():
        for size in (1100, (16, 16)):
            made = Slicer(Plan.paper(20.0), size=size, backend=backend)
            made(images[:, :8, :8] if isinstance(size, int) else images[:1])  # makes the tables
            tracemalloc.start()
            release = made(images)
            beside = tracemalloc.get_traced_memory()[1] - release.nbytes
            tracemalloc.stop()
            assert beside < 3.5e6, (backend.name, size)  # the sources have 11.5 MB, and a copy of a release 2.7 MB
