"""The package against tests/independent.py, a second implementation that follows section 17 of docs/proofs.md."""

from __future__ import annotations

import hashlib
import json
import math
import random
from dataclasses import astuple
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp_slicing import Plan, Slice, Slicer
from ldp_slicing.digests import source_digest, tables_digest
from ldp_slicing.keys import Secret
from ldp_slicing.randomness import ImageKey
from ldp_slicing.slicer import STRIP_BYTES, Output
from ldp_slicing.value_range import RangeMap, ValueRange
from ldp_slicing.view import BLOCK, Padded, Prune, Size, shrinking_of
from tests import independent
from tests.cases import backends, random_image
from tests.independent import Raster, Slices

VECTORS = Path(__file__).parent / "vectors"
RELEASES = json.loads((VECTORS / "release-v1.json").read_text())
KEYS = json.loads((VECTORS / "keys-v1.json").read_text())
PRUNES: list[Prune] = [None, "haar", "haar2", "haar4", "haar8", "dct"]


def to_raster(image: NDArray[np.unsignedinteger]) -> Raster:
    """uint8 H x W x 3 or uint8, uint16 H x W."""
    height, width = image.shape[:2]
    return Raster(height, width, [tuple(pixel) for pixel in image.reshape(height * width, -1).tolist()])


def to_array(raster: Raster, like: NDArray[Any]) -> NDArray[Any]:
    return np.array(raster.pixels, like.dtype).reshape(like.shape)


def as_bytes(raster: Raster, size: int) -> bytes:
    return b"".join(value.to_bytes(size, "little") for pixel in raster.pixels for value in pixel)


def from_bytes(case: dict[str, Any], word_bits: int) -> Raster:
    size, channels = (2 if 8 < word_bits <= 16 else 1), (3 if word_bits == 24 else 1)
    raw = bytes.fromhex(case["source"])
    values = [int.from_bytes(raw[i : i + size], "little") for i in range(0, len(raw), size)]
    pixels = [tuple(values[i : i + channels]) for i in range(0, len(values), channels)]
    return Raster(case["height"], case["width"], pixels)


def shrinking_of_case(case: dict[str, Any]) -> independent.Shrinking | None:
    size = case.get("size")
    if size is None:
        return None
    return independent.shrinking(tuple(size) if isinstance(size, list) else size, case["height"], case["width"])


@cache
def plans_of_vectors() -> dict[str, independent.Tables]:
    return {
        case["plan"]: independent.build(
            [(int(bits, 16), float.fromhex(epsilon)) for bits, epsilon in case["slices"]], case["word_bits"]
        )
        for case in {case["plan"]: case for case in RELEASES["vectors"]}.values()
    }


def slices_of(plan: Plan) -> Slices:
    return [(part.bits, part.epsilon) for part in plan.slices]


def random_plan(seed: int) -> Plan:
    """A plan of any kind, with budgets that no rule treats specially."""
    rng = np.random.default_rng(seed)
    epsilon = float(np.exp(rng.uniform(math.log(0.05), math.log(300))))
    kind = seed % 6
    if kind == 0:
        weights = rng.integers(0, 5, 3) + rng.integers(0, 2, 3) / 4
        return Plan.paper(epsilon, [float(w) for w in weights] if weights.any() else (4, 1, 1))
    if kind == 1:
        return Plan.grey(epsilon, bits=int(rng.integers(8, 17)))
    if kind == 2:
        return Plan.uniform(epsilon, bits=24 if rng.integers(2) else int(rng.integers(8, 17)))
    # Thick slices, some of them wide: a few bits are dropped, the others go to slices by lot.
    word_bits = 24 if kind < 5 else int(rng.integers(1, 17))
    owner = rng.integers(-1, int(rng.integers(1, 9 if kind == 3 else 3)), word_bits)
    owner[rng.integers(word_bits)] = 0
    parts = [sum(1 << b for b in range(word_bits) if owner[b] == name) for name in range(int(owner.max()) + 1)]
    return Plan(
        [Slice(bits, float(rng.uniform(0.01, 14))) for bits in rng.permutation(parts).tolist() if bits], word_bits
    )


def assert_same_releases(plan: Plan, image: NDArray[np.unsignedinteger], prunes: list[Prune]) -> None:
    """Every backend and the second reference, with each pruning and output."""
    tables, source = independent.build(slices_of(plan), plan.word_bits), to_raster(image)
    for prune in prunes:
        key = hashlib.sha256(f"{plan.slices} {prune} {image.shape}".encode()).digest()
        outputs: tuple[Output, ...] = get_args(Output) if plan.is_colour else ("ycbcr",)
        for output in outputs:
            expected = to_array(independent.release(source, tables, prune, key, rgb=output == "rgb"), image)
            for backend in backends():
                release = Slicer(plan, prune=prune, output=output, backend=backend)(image, key=ImageKey(key))
                np.testing.assert_array_equal(release, expected, err_msg=f"{plan} {prune} {output} {backend.name}")


def assert_same_tables(plan: Plan) -> None:
    tables = independent.build(slices_of(plan), plan.word_bits)
    assert plan.tables.group_bits == tuple(group.bits for group in tables.groups)
    for name, content in tables.arrays().items():
        array = getattr(plan.tables, name)
        assert array.astype(array.dtype.newbyteorder("<")).tobytes() == content, (plan, name)
    assert tables_digest(plan.tables) == independent.tables_digest(tables)
    assert plan.realised_epsilon == tables.realised()


@pytest.mark.parametrize("plan", RELEASES["tables"])
def test_tables_of_the_vectors(plan: str) -> None:
    tables, expected = plans_of_vectors()[plan], RELEASES["tables"][plan]
    assert [hex(group.bits) for group in tables.groups] == expected["groups"]
    assert [int(group.is_wide) for group in tables.groups] == expected["uniform"]
    assert {name: hashlib.sha256(array).hexdigest() for name, array in tables.arrays().items()} == expected["sha256"]


def test_releases_of_the_vectors() -> None:
    for case in RELEASES["vectors"]:
        tables = plans_of_vectors()[case["plan"]]
        source, size = from_bytes(case, tables.word_bits), 2 if 8 < tables.word_bits <= 16 else 1
        how = shrinking_of_case(case)
        small = independent.shrink(source, how) if how else source
        assert sum(map(tables.lanes, tables.groups)) == case["lanes_per_block"]
        for output, expected in case["release"].items():
            release = independent.release(small, tables, case["prune"], bytes.fromhex(case["key"]), rgb=output == "rgb")
            assert as_bytes(release, size).hex() == expected, (case["plan"], case["prune"], output)


def test_keys_of_the_vectors() -> None:
    for case in KEYS["vectors"]:
        tables, secret, name = (
            plans_of_vectors()[case["plan"]],
            bytes.fromhex(case["secret"]),
            bytes.fromhex(case["name"]),
        )
        depth = 8 if tables.word_bits == 24 else tables.word_bits
        digest = independent.source_digest(from_bytes(case, tables.word_bits), depth)
        assert digest.hex() == case["source_digest"]
        assert independent.tables_digest(tables).hex() == case["tables_digest"]
        for owner, key in ((name, "image_key_of_run"), (None, "image_key_of_owner")):
            made = independent.image_key(secret, owner, digest, tables, case["prune"], shrinking_of_case(case))
            assert made.hex() == case[key]
        assert independent.output_name(secret, name) == case["output_name"]


@pytest.mark.parametrize("epsilon", [0.001, 1.0, 20.0, 129.7, 1e4])
def test_budgets_are_split_alike(epsilon: float) -> None:
    for weights in ((4, 1, 1), (2, 1, 1), (1, 1, 1), (4, 0, 0), (0.3, 7.25, 0)):
        assert slices_of(Plan.paper(epsilon, weights)) == independent.paper(epsilon, weights)
    for bits in range(1, 17):
        ramp, flat = {b: Fraction(2**b) for b in range(bits)}, {b: Fraction(1) for b in range(bits)}
        assert slices_of(Plan.grey(epsilon, bits)) == independent.one_bit_slices(epsilon, ramp)
        assert slices_of(Plan.uniform(epsilon, bits)) == independent.one_bit_slices(epsilon, flat)
    shared = [(0xC00000, Fraction(3)), (0x8000, Fraction("0.7")), (0x80, Fraction(1))]
    assert slices_of(Plan.sliced(epsilon, "Cb7=0.7,Y7+Y6=3,Cr7")) == independent.split(epsilon, shared)


def test_tables_and_realised_epsilons_of_random_plans() -> None:
    for seed in range(150):
        assert_same_tables(random_plan(seed))


@pytest.mark.parametrize(
    "slices",
    [
        *[[(1 << b, 2.0**-k) for b in range(8)] for k in (50, 51, 52, 53, 54, 64)],  # from 2^-53 on it becomes uniform
        [(0xE0, 2.0**-53), (0x1C, 2.0**-52), (0x03, 2.0**-53)],
        [(0x80, 1e-17), (0x40, 1e-18)],
        [(0x80, 2.0**-49), (0x40, 2.0**-51), (0x20, 2.0**-50)],
        [(0x80, 1.0), *[(1 << b, 1e-18) for b in range(7)]],
        [(0xF0, 5e-324), (0x0F, 1e-100)],
        [(0x80, 16.0), (0x40, 16.0), (0x20, 1e-9)],  # exactly eps 32, and more
        [(0x80, 44.0), (0x40, 45.0), (0x20, 1e3), (0x10, 1e300)],  # the smallest probability is 2^-64
        [(0x800000, 3.0), (0x7FFF, 1.0)],  # a wide slice takes two lanes of uniform bits wherever its own bits are
        [(0x1FF, 1e-30)],
        [(0x1FF, 500.0)],
        [(0x7E01FF, 4.0), (0x8000, 0.3)],
    ],
)
def test_plans_at_the_edges(slices: Slices) -> None:
    parts = [Slice(bits, epsilon) for bits, epsilon in slices]
    widest = max(part.bits for part in parts).bit_length()
    for word_bits in {24, widest} if widest <= 16 else {24}:
        plan = Plan(parts, word_bits)
        assert_same_tables(plan)
        assert_same_releases(plan, random_image(plan, (9, 8)), ["haar"])


def test_groups_are_packed_by_the_exact_sum_of_their_epsilons() -> None:
    """Five times 6.4, as floats, is a little more than 32."""
    assert_same_tables(Plan([Slice(1 << b, 6.4) for b in range(5)], 5))


@pytest.mark.parametrize("seed", range(36))
def test_releases_of_random_plans(seed: int) -> None:
    plan, rng = random_plan(1000 + seed), np.random.default_rng(seed)
    shape = (1, 1) if seed < 6 else tuple(rng.integers(1, 41, 2).tolist())
    image = random_image(plan, shape, seed)
    if seed % 3 == 0:  # saturated values and flat areas, where clamping and rounding show
        image = np.where(image > image.max() // 2, image.dtype.type(plan_top(plan)), image // 64)
    assert_same_releases(plan, image, PRUNES)


def random_size(rng: np.random.Generator, shape: tuple[int, ...]) -> Size:
    """A size that an image of shape (H, W, ...) can be shrunk or padded to."""
    kind = rng.integers(3)
    if kind == 0:
        return int(rng.integers(1, max(shape[:2]) + 2))
    if kind == 1:
        return Padded(int(rng.integers(1, 2 * shape[1] + 2)), int(rng.integers(1, 2 * shape[0] + 2)))
    return int(rng.integers(1, shape[1] + 1)), int(rng.integers(1, shape[0] + 1))


def plain(size: Size) -> Any:
    """A size as the second implementation takes it."""
    return (size.width, size.height) if isinstance(size, Padded) else size


def test_shrinking_rules_are_alike() -> None:
    for height, width in np.ndindex(13, 13):
        shape = (height + 1, width + 1)
        fits = [(w + 1, h + 1) for h, w in np.ndindex(*shape)]
        padded = [Padded(w + 1, h + 1) for h, w in np.ndindex(15, 15)]
        for size in [*range(1, 15), *fits, *padded]:
            how = shrinking_of(size, *shape)
            assert independent.shrinking(plain(size), *shape) == (None if how is None else astuple(how))


@pytest.mark.parametrize("seed", range(36))
def test_shrunk_releases_of_random_plans(seed: int) -> None:
    plan, rng = random_plan(3000 + seed), np.random.default_rng(seed)
    image = random_image(plan, tuple(rng.integers(1, 41, 2).tolist()), seed)
    tables = independent.build(slices_of(plan), plan.word_bits)
    for prune in PRUNES:
        size, key = random_size(rng, image.shape), rng.bytes(32)
        how = independent.shrinking(plain(size), *image.shape[:2])
        source = to_raster(image) if how is None else independent.shrink(to_raster(image), how)
        expected = independent.release(source, tables, prune, key)
        for backend in backends():
            slicer = Slicer(plan, prune=prune, size=size, output="ycbcr", backend=backend)
            release = slicer(image, key=ImageKey(key))
            assert release.shape[:2] == (expected.height, expected.width)
            np.testing.assert_array_equal(release, to_array(expected, release), err_msg=f"{plan} {prune} {size}")


def plan_top(plan: Plan) -> int:
    """The largest value of a channel."""
    return 255 if plan.is_colour else (1 << plan.word_bits) - 1


def test_all_colours_that_a_coarse_grid_has() -> None:
    steps = np.array([0, 1, 2, 31, 64, 127, 128, 129, 200, 254, 255], np.uint8)
    image = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), -1).reshape(11, 121, 3)
    assert_same_releases(Plan.paper(200.0), image, [None, "haar4"])


@pytest.mark.parametrize("prune", [None, "haar2", "dct"])
def test_one_row_more_than_a_strip(prune: Prune) -> None:
    """A group for each bit, so that strips are small. The width is no multiple of a block of 64 pixels."""
    plan, width = Plan([Slice(1 << b, 16.5) for b in range(24)]), 83
    rows = STRIP_BYTES // (2 * 24) // width // BLOCK[prune] * BLOCK[prune]
    assert_same_releases(plan, random_image(plan, (rows + 1, width)), [prune])


def test_images_of_a_batch_have_their_own_keystreams() -> None:
    plan = Plan.grey(3.3, bits=12)
    images = random_image(plan, (3, 7, 11))[..., None]
    keys = [bytes([n]) * 32 for n in range(3)]
    tables = independent.build(slices_of(plan), 12)
    for backend in backends():
        releases = Slicer(plan, backend=backend)(images, key=[ImageKey(key) for key in keys])
        for image, release, key in zip(images, releases, keys, strict=True):
            expected = independent.release(to_raster(image), tables, "haar", key)
            np.testing.assert_array_equal(release, to_array(expected, image))


def test_sources_of_long_words_and_of_floats_have_digests_of_their_own() -> None:
    """Their values need a range. A float and the integer that has its bytes are different sources."""
    values = np.random.default_rng(7).uniform(-5, 5, (6, 5))
    digests = []
    for floats, whole in ((values.astype(np.float32), np.uint32), (values, np.uint64)):
        depth = 8 * floats.itemsize
        for given in (floats, floats.astype(floats.dtype.newbyteorder())):
            assert source_digest(given, depth) == independent.source_digest(to_raster(floats), depth, floats=True)
        digests += [source_digest(floats, depth), source_digest(floats.view(whole), depth)]
    assert digests[1] == independent.source_digest(to_raster(values.astype(np.float32).view(np.uint32)), 32)
    assert len(set(digests)) == 4


@pytest.mark.parametrize("is_owners", [False, True])
def test_derived_keys_of_random_plans(is_owners: bool) -> None:
    for seed in range(24):
        plan, rng = random_plan(2000 + seed), np.random.default_rng(seed)
        image = random_image(plan, tuple(rng.integers(1, 20, 2).tolist()), seed)
        depth = 8 if plan.is_colour else plan.word_bits
        digest = source_digest(image, depth)
        assert digest == independent.source_digest(to_raster(image), depth)
        secret, name = rng.bytes(32), rng.bytes(int(rng.integers(0, 30)))
        tables = independent.build(slices_of(plan), plan.word_bits)
        for prune in PRUNES:
            size = random_size(rng, image.shape)
            how = independent.shrinking(plain(size), *image.shape[:2])
            shrinking = Slicer(plan, size=size).shrinking(*image.shape[:2])
            key = Secret(secret, is_owners=is_owners).image_key(name, digest, plan, prune, shrinking).take()
            assert key == independent.image_key(secret, None if is_owners else name, digest, tables, prune, how)
        assert Secret(secret, is_owners=is_owners).output_name(name) == independent.output_name(secret, name)


def test_a_range_maps_words_and_enters_keys_alike() -> None:
    rng, plan = random.Random(5), Plan.grey(8.0, 12)
    tables = independent.build(slices_of(plan), 12)
    for _ in range(20):
        low, size = Fraction(rng.randint(-2048, 0)), Fraction(rng.randint(1, 9000), rng.choice((1, 2, 5)))
        slope, intercept = Fraction(rng.randint(1, 9), rng.choice((1, 2, 3))), Fraction(rng.randint(-3000, 100))
        by = RangeMap(ValueRange(low, low + size, 12), slope, intercept)
        words = np.array([rng.randrange(1 << 16) for _ in range(50)], np.uint16)
        right = [independent.range_word(int(word), low, low + size, 12, slope, intercept) for word in words]
        assert by.apply(words).tolist() == right
        text = f"{decimal(low)}:{decimal(low + size)}:12 {slope} {intercept} upright"
        key = Secret(bytes(32), is_owners=True).image_key(b"", bytes(32), plan, "haar", None, str(by)).take()
        assert key == independent.image_key(bytes(32), None, bytes(32), tables, "haar", None, text)


def decimal(value: Fraction) -> str:
    return f"{float(value):.1f}".removesuffix(".0")
