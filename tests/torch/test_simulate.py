from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ldp_slicing import Plan, Slicer, mask, view
from ldp_slicing.audit.pixel_words import masks_of
from ldp_slicing.comparison_sheet import view_image
from ldp_slicing.errors import ImageError, LdpSlicingError
from ldp_slicing.torch.simulate import apply_view, simulate, to_rgb
from ldp_slicing.view import Prune, Size
from tests.cases import COLOUR_PLANS, GREY_PLANS, PRUNES, SIZES, can_shrink
from tests.mask_checks import failed_tests

PLANS_TO_SIMULATE = COLOUR_PLANS | {name: plan for name, plan in GREY_PLANS.items() if plan.word_bits == 8}
simulating = importlib.import_module("ldp_slicing.torch.simulate")  # ldp_slicing.torch.simulate is the function


def random_batch(height: int, width: int, channels: int = 3) -> torch.Tensor:
    return torch.randint(
        256, (3, channels, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(5)
    )


@pytest.mark.parametrize("prune", PRUNES)
@pytest.mark.parametrize("size", [(1, 1), (8, 8), (9, 13), (16, 7)])
def test_the_view_equals_the_slicers(prune: Prune, size: tuple[int, int]) -> None:
    batch = random_batch(*size)
    seen = apply_view(batch, prune, colour=True).permute(0, 2, 3, 1).numpy()
    assert all(np.array_equal(seen[i], view_image(batch[i].permute(1, 2, 0).numpy(), prune)) for i in range(len(batch)))


def test_conversion_to_rgb_equals_the_slicers() -> None:
    batch = random_batch(40, 50)
    back = to_rgb(batch.int()).numpy()
    assert all(np.array_equal(back[i], view.to_rgb(batch[i].numpy())) for i in range(len(batch)))


@pytest.mark.parametrize("name", COLOUR_PLANS)
def test_masks_have_the_distribution_of_the_tables(name: str) -> None:
    plan, generator = COLOUR_PLANS[name], torch.Generator().manual_seed(11)
    batch = torch.full((4, 3, 300, 301), 200, dtype=torch.uint8)
    words, other = (
        masks_of(
            plan,
            simulate(batch, plan, generator, prune=None, output="ycbcr").permute(0, 2, 3, 1).numpy(),
            np.array(0xC88080, np.uint32),
        )
        for _ in range(2)
    )
    assert failed_tests(words, plan, other) == []


@pytest.mark.parametrize("below", [0, 1])
@pytest.mark.parametrize("each", [False, True], ids=["one generator", "one for each image"])
@pytest.mark.parametrize("name", PLANS_TO_SIMULATE)
def test_equal_bits_give_the_masks_of_a_release(
    name: str, each: bool, below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All 2^16 draws of each group. The bits that settle a tie are at the threshold, or one below it."""
    tables, pixels = PLANS_TO_SIMULATE[name].tables, np.arange(1 << 16)
    rest = np.maximum(tables.rest[:, pixels >> 8].astype(np.int64) - below, 0)  # [groups, pixels]
    rng = np.random.default_rng(3)
    uniform = rng.integers(0, 1 << 24, (tables.groups, 1 << 16))
    bits: list[NDArray[np.int64]] = []
    lanes = np.zeros((1024, tables.lanes, 64), np.uint16)
    lane = 0
    for group in range(tables.groups):
        bits += [pixels, rest[group]] + [uniform[group]] * int(tables.uniform[group])
        wide = [uniform[group] >> 16 * i & 0xFFFF for i in range(tables.uniform_lanes * int(tables.uniform[group]))]
        for numbers in (pixels, *wide):
            lanes[:, lane] = numbers.reshape(1024, 64)
            lane += 1

    def settle(counters: memoryview) -> bytes:
        index = np.frombuffer(counters, ">u8")[1::2].astype(np.int64)
        more = rest[index % tables.groups, index // tables.groups]
        return np.stack([more, np.zeros_like(more)], 1).astype("<u8").tobytes()

    expected = np.empty((tables.planes, 1 << 16), np.uint8)
    mask.draw(lanes, tables, 0, settle, expected, 0)
    image = torch.full((1, 3 if tables.planes == 3 else 1, 256, 256), 128, dtype=torch.uint8)
    drawn = iter(bits)
    if each:  # the upper of its 63 bits are not used
        rows = [numbers | rng.integers(0, 1 << 15, 1 << 16) << 48 for numbers in bits]

        def random_(row: torch.Tensor, generator: object) -> torch.Tensor:
            row[: len(rows)] = torch.from_numpy(np.stack(rows))
            return row

        monkeypatch.setattr(torch.Tensor, "random_", random_)
    else:

        def randint(high: int, shape: tuple[int, int], dtype: torch.dtype, **_: object) -> torch.Tensor:
            numbers = next(drawn)
            assert numbers.max() < high <= 1 << 48
            return torch.from_numpy(numbers).to(dtype).view(shape)

        monkeypatch.setattr(torch, "randint", randint)
    generator = [torch.Generator()] if each else None
    made = simulate(image, PLANS_TO_SIMULATE[name], generator, prune=None, output="ycbcr").flatten(2)[0].numpy()
    kept, dropped = PLANS_TO_SIMULATE[name].kept_bits, PLANS_TO_SIMULATE[name].dropped_value
    for channel, values in enumerate(made):
        shift = 8 * (len(made) - 1 - channel)
        right = (expected[len(made) - 1 - channel] ^ 128) & (kept >> shift & 255) | dropped >> shift & 255
        assert np.array_equal(values, right)


def test_one_plan_per_image() -> None:
    plans = [*COLOUR_PLANS.values(), next(iter(COLOUR_PLANS.values()))]
    assert len({plan.tables.groups for plan in plans}) > 1
    generator = torch.Generator().manual_seed(12)
    batch = torch.full((len(plans), 3, 600, 602), 200, dtype=torch.uint8)
    one, two = (
        simulate(batch, plans, generator, prune=None, output="ycbcr").permute(0, 2, 3, 1).numpy() for _ in range(2)
    )
    for plan, *released in zip(plans, one, two, strict=True):
        words, other = (masks_of(plan, image[None], np.array(0xC88080, np.uint32)) for image in released)
        assert failed_tests(words, plan, other) == []
    with pytest.raises(ImageError, match="one for each image"):
        simulate(batch, plans[:2])


def test_grey_batches_and_dropped_bits() -> None:
    plan = GREY_PLANS["grey, top 4 as one"]
    out = simulate(random_batch(20, 20, 1), plan)
    assert out.shape == (3, 1, 20, 20)
    assert torch.all(out & 15 == 8)


def test_a_seeded_generator_repeats_the_noise_and_does_not_reach_the_slicer() -> None:
    batch, plan = random_batch(8, 8), Plan.paper(20.0)
    one, two = (simulate(batch, plan, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)
    releases = set()
    for _ in range(3):
        torch.manual_seed(42)
        releases.add(Slicer(plan)(batch[0].permute(1, 2, 0).numpy()).tobytes())
    assert len(releases) == 3


@pytest.mark.parametrize(
    ("batch", "plan"),
    [
        (torch.zeros(2, 3, 4, 4), Plan.paper(1.0)),
        (torch.zeros(3, 4, 4, dtype=torch.uint8), Plan.paper(1.0)),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), Plan.paper(1.0)),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), Plan.grey(1.0, 12)),
    ],
)
def test_wrong_images_and_plans_are_refused(batch: torch.Tensor, plan: Plan) -> None:
    with pytest.raises(ImageError, match="uint8"):
        simulate(batch, plan)


def test_tables_are_cached_by_set_of_plans() -> None:
    plans, batch = [Plan.paper(eps) for eps in (1.0, 5.2, 20.0)], torch.zeros(9, 3, 4, 4, dtype=torch.uint8)
    tables, numbers = simulating._tables_on_device, simulating._index_tensor
    before = tables.cache_info().misses
    for order in itertools.permutations(plans):
        simulate(batch, 3 * order)
    assert tables.cache_info().misses == before + 1
    assert all(cache.cache_info().maxsize for cache in (tables, numbers))


def test_noise_does_not_depend_on_the_cached_order_of_plans() -> None:
    batch, plans = random_batch(9, 7), [Plan.paper(20.0), Plan.paper(1.0), Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7")]
    whole = simulate(batch, plans, torch.Generator().manual_seed(3))
    simulating._tables_on_device.cache_clear()
    simulate(batch, plans[::-1], torch.Generator().manual_seed(3))  # makes the tables
    assert torch.equal(simulate(batch, plans, torch.Generator().manual_seed(3)), whole)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", [(1, 1), (8, 9), (64, 65), (131, 201)])
def test_the_shrunk_view_equals_the_slicers(size: Size, shape: tuple[int, int]) -> None:
    for channels, prune in ((3, "haar"), (1, None), (3, "dct")):
        batch = random_batch(*shape, channels)
        if not can_shrink(size, shape):
            with pytest.raises(ImageError, match="nothing is enlarged"):
                apply_view(batch, prune, colour=channels == 3, size=size)
            continue
        seen = apply_view(batch, prune, colour=channels == 3, size=size).permute(0, 2, 3, 1).numpy()
        for i, image in enumerate(batch.permute(0, 2, 3, 1).numpy()):
            small = view.shrink(image, size)
            expected = view_image(small, prune) if channels == 3 else view_image(small[..., 0], prune)[..., None]
            assert np.array_equal(seen[i], expected)


def test_large_images_are_shrunk_exactly() -> None:
    """From 2^22 pixels on the sums take 64 bits."""
    for side in (2047, 2048, 3100):
        batch = torch.full((1, 1, side, side), 255, dtype=torch.uint8)
        assert apply_view(batch, None, colour=False, size=1).tolist() == [[[[255]]]]


def test_simulated_releases_are_shrunk() -> None:
    batch, plan = random_batch(40, 30), Plan.paper(20.0)
    small = torch.from_numpy(view.shrink(batch.permute(0, 2, 3, 1).numpy(), (10, 12))).permute(0, 3, 1, 2)
    one = simulate(batch, plan, torch.Generator().manual_seed(3), size=(10, 12))
    assert one.shape == (3, 3, 12, 10)
    assert torch.equal(one, simulate(small, plan, torch.Generator().manual_seed(3)))


def test_a_generator_for_each_image_decides_its_release_alone() -> None:
    batch, plan = random_batch(9, 13), Plan.paper(12.0)

    def released(seeds: list[int]) -> torch.Tensor:
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        return simulate(batch[: len(seeds)], plan, generators)

    assert torch.equal(released([1, 2, 3])[:2], released([1, 2]))
    assert not torch.equal(released([1, 2])[1], released([1, 3])[1])
    masks = torch.zeros(64, 3, 64, 64, dtype=torch.uint8)
    several = [torch.Generator().manual_seed(seed) for seed in range(64)]
    drawn = simulate(masks, plan, several, prune=None, output="ycbcr")
    together = simulate(masks, plan, torch.Generator().manual_seed(0), prune=None, output="ycbcr")
    for bit in range(8):  # the flips of each bit are as frequent as with one generator
        shares = [
            ((one ^ together.new_tensor([0, 128, 128])[:, None, None]) >> bit & 1).float().mean((0, 2, 3))
            for one in (drawn, together)
        ]
        assert torch.allclose(*shares, atol=0.01)


def test_arrays_and_unknown_outputs_are_refused() -> None:
    with pytest.raises(ImageError, match=r"tensor .* got ndarray"):
        simulate(np.zeros((1, 3, 4, 4), np.uint8), Plan.paper(20.0))  # type: ignore[arg-type]
    with pytest.raises(LdpSlicingError, match=r"output must be .* got 'RGB'"):
        simulate(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), Plan.paper(20.0), output="RGB")
