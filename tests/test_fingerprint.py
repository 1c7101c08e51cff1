from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.fingerprint import CELLS, ENOUGH_MARKS, MARKS, cells_of, marks_of

PORTRAIT = Image.open(Path(__file__).parents[1] / "examples/astronaut.jpg").convert("RGB")


def shared(one: Image.Image, other: Image.Image) -> int:
    return len({*marks_of(np.asarray(one), 8)} & {*marks_of(np.asarray(other), 8)})


def obvious_cells(grey: NDArray[np.unsignedinteger]) -> NDArray[np.int64]:
    """The means over equal cells, from an image that is enlarged 16 times each way."""
    large = np.repeat(np.repeat(grey.astype(np.int64), CELLS, 0), CELLS, 1)
    height, width = grey.shape
    sums = large.reshape(CELLS, height, CELLS, width).sum((1, 3))
    means: NDArray[np.int64] = (sums << 8) // (height * width)
    return means


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (7, 5), (16, 16), (17, 31), (100, 255)])
def test_cells_are_means_over_equal_parts(shape: tuple[int, int]) -> None:
    grey = (np.arange(shape[0] * shape[1], dtype=np.uint32) ** 2 >> 3).astype(np.uint8).reshape(shape)
    assert (cells_of(grey, 8) == obvious_cells(grey)).all()
    colour = np.repeat(grey[..., None], 3, 2)
    assert (cells_of(colour, 8) == cells_of(grey, 8)).all()
    assert (cells_of(grey.astype(np.uint16) << 4, 12) == cells_of(grey, 8)).all()
    assert (cells_of(grey.astype(np.uint16) << 8, 16) == cells_of(grey, 8)).all()


def test_a_copy_resembles_its_original_and_another_image_does_not() -> None:
    assert len(marks_of(np.asarray(PORTRAIT), 8)) == MARKS
    for size in (64, 200, 300, 1700):
        small = PORTRAIT.resize((size, size), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=75)
        assert shared(PORTRAIT, Image.open(buffer).convert("RGB")) >= ENOUGH_MARKS
    assert shared(PORTRAIT, PORTRAIT.transpose(Image.Transpose.FLIP_LEFT_RIGHT)) < ENOUGH_MARKS
    assert shared(PORTRAIT, PORTRAIT.crop((0, 0, 256, 256))) < ENOUGH_MARKS


def test_an_image_without_contrast_has_no_marks() -> None:
    assert marks_of(np.full((30, 40, 3), 200, np.uint8), 8) == ()
    assert marks_of(np.full((30, 40), 4000, np.uint16), 12) == ()
