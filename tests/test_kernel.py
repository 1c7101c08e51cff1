"""The compiled module called directly: it must refuse arguments that the slicer never passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ldp_slicing import _kernel
from ldp_slicing.kernel import VARIANTS, Kernel
from ldp_slicing.mask import Blocks
from ldp_slicing.slicer import Reference
from tests.cases import PLANS


def tie_everywhere(name: str, blocks: int) -> np.ndarray[Any, np.dtype[np.uint16]]:
    tables = PLANS[name].tables
    rng = np.random.default_rng(3)
    lanes = rng.integers(0, 1 << 16, (blocks, tables.lanes, 64), dtype=np.uint16)
    lane = 0
    for group in range(tables.groups):
        column = lanes[:, lane] >> 8
        lanes[:, lane] = column << 8 | tables.first[group, column]
        lane += 1 + tables.uniform_lanes * int(tables.uniform[group])
    return lanes.reshape(-1, 64)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["paper 20", "wide and narrow", "grey 16", "paper 200 (eight groups)"])
def test_any_number_of_ties_is_settled(name: str, variant: str) -> None:
    tables = PLANS[name].tables
    lanes = tie_everywhere(name, 7)
    lanes = np.stack([lanes, np.zeros_like(lanes), lanes])  # three images

    def blocks_of(image: int) -> Blocks:
        def blocks(counters: memoryview) -> bytes:
            rows = np.frombuffer(counters, ">u8").reshape(-1, 2).tolist()
            return b"".join(
                int((index + image) * 0x9E3779B97F4A7C15 & (1 << 48) - 1).to_bytes(16, "little") for _, index in rows
            )

        return blocks

    blocks = [blocks_of(image) for image in range(3)]
    expected, got = (np.zeros((3, tables.planes, 500), np.uint8) for _ in range(2))
    Reference.draw(lanes, tables, 1000, blocks, expected, 11)
    Kernel(variant).draw(lanes, tables, 1000, blocks, got, 11)
    assert np.array_equal(got, expected)
    assert not np.array_equal(got[0], got[2])
    assert not got[:, :, :11].any()
    assert not got[:, :, 11 + 7 * 64 :].any()


def arguments(**changed: Any) -> list[Any]:
    tables = PLANS["paper 20"].tables
    values = {
        "lanes": np.zeros((3, 64), np.uint16),
        "first": tables.first,
        "rest": tables.rest,
        "outcome": tables.outcome,
        "uniform": tables.uniform,
        "planes": 3,
        "first_pixel": 0,
        "masks": np.zeros((3, 64), np.uint8),
        "offset": 0,
        "ties": np.ones(1, np.int64),
    }
    return list((values | changed).values())


WRONG = [
    {"lanes": np.zeros((2, 64), np.uint16)},
    {"first": np.zeros((2, 256), np.uint8)},
    {"rest": np.zeros((3, 255), np.uint64)},
    {"outcome": np.zeros((3, 2, 2, 256), np.uint8)},
    {"uniform": np.zeros(0, np.uint8)},
    {"uniform": np.zeros(65, np.uint8)},
    {"planes": 0},
    {"planes": 4},
    {"masks": np.zeros((3, 63), np.uint8)},
    {"offset": 1},
    {"offset": -1},
    {"offset": (1 << 63) - 1},
    {"ties": np.zeros(0, np.int64)},
    {"ties": np.zeros(7, np.uint8)},
    {"ties": np.zeros(2, np.int64)},
    {"ties": np.zeros(2, np.int64), "lanes": np.zeros((2, 3, 64), np.uint16)},
    {"ties": np.zeros(2, np.int64), "masks": np.zeros((2, 3, 64), np.uint8)},
    {"ties": np.zeros(2, np.int64), "lanes": np.zeros((2, 3, 64), np.uint16), "masks": np.zeros((2, 3, 63), np.uint8)},
]


@pytest.mark.parametrize("changed", WRONG)
def test_mismatched_table_sizes_are_refused(changed: dict[str, Any]) -> None:
    counters = np.zeros((4, 2), ">u8")
    with pytest.raises(ValueError, match="do not belong together"):
        _kernel.draw(0, *arguments(**changed), counters)
    with pytest.raises(ValueError, match="do not belong together"):
        _kernel.settle(*arguments(**changed), counters, bytes(64))


@pytest.mark.parametrize("index", [192, 1 << 40, (1 << 64) - 1])
def test_counters_of_other_pixels_are_refused(index: int) -> None:
    counters = np.array([[1, index]], ">u8")
    with pytest.raises(ValueError, match="counters"):
        _kernel.settle(*arguments(), counters, bytes(16))
    with pytest.raises(ValueError, match="counters"):
        _kernel.settle(*arguments(), counters[:0], bytes(16))


@pytest.mark.parametrize("ties", [[0, 0], [1, 0], [0, 1], [1, 2], [3, -1], [2, 1], [(1 << 63) - 1, 2], [-(1 << 63), 1]])
def test_mismatched_numbers_of_ties_are_refused(ties: list[int]) -> None:
    """Two counters for two images."""
    counters = np.array([[1, 0], [1, 191]], ">u8")
    two = {"lanes": np.zeros((2, 3, 64), np.uint16), "masks": np.zeros((2, 3, 64), np.uint8)}
    _kernel.settle(*arguments(**two, ties=np.array([1, 1], np.int64)), counters, bytes(32))
    with pytest.raises(ValueError, match="counters"):
        _kernel.settle(*arguments(**two, ties=np.array(ties, np.int64)), counters, bytes(32))


@pytest.mark.parametrize("variant", [-1, 99])
def test_unknown_variant_is_refused(variant: int) -> None:
    with pytest.raises(ValueError, match="variant"):
        _kernel.draw(variant, *arguments(), np.zeros((4, 2), ">u8"))
    with pytest.raises(ValueError, match="variant"):
        _kernel.finish(variant, bytes(3), bytearray(3), bytes(3), 1, 1, 1, 3, 8, 1, 1, 0xFFFFFF, 0, True)


FINISH = (bytes(24), 24, bytes(24), 2, 2, 2, 3, 8, 2, 4)  # two images of 2 x 2


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, bytes(23)),
        (1, 23),
        (2, bytes(18)),
        (2, bytes(25)),
        (3, 0),
        (3, 3),
        (3, -2),
        (4, 3),
        (5, -2),
        (3, 1 << 62),
        (4, 1 << 62),
        (6, 2),
        (7, 16),
        (8, 4),
        (8, 0),
        (8, 8),
        (9, 0),
        (9, 9),
    ],
)
def test_mismatched_strip_sizes_are_refused(position: int, value: Any) -> None:
    values = [value if i == position else v for i, v in enumerate(FINISH)]
    values[1] = bytearray(values[1])
    with pytest.raises(ValueError, match="do not belong together"):
        _kernel.finish(0, *values, 0xFFFFFF, 0, True)


@pytest.mark.parametrize(("images", "height", "width"), [(1, 1 << 32, 1 << 32), (1 << 62, 0, 5), (1 << 61, 1 << 3, 1)])
def test_overflowing_sizes_are_refused(images: int, height: int, width: int) -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        _kernel.finish(0, b"", bytearray(0), b"", images, height, width, 3, 8, 1, 1, 0xFFFFFF, 0, True)
