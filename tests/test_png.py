from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.errors import ImageError
from ldp_slicing.png import Pixels, chunks_of, encode_chunk, encode_png, read_release_png
from tests.markers import gradient


def encoded(pixels: NDArray[Any], level: int = 0) -> bytes:
    return b"".join(encode_png(pixels, level))


def encoded_chunk(kind: bytes, body: bytes) -> bytes:
    return b"".join(encode_chunk(kind, body))


COLOUR = gradient()
GREY, DEEP = COLOUR[..., 0], COLOUR[..., 1].astype(np.uint16) * 257
SMALL = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
GOOD = encoded(SMALL)
HEADER = GOOD[:33]


@pytest.mark.parametrize("pixels", [SMALL, SMALL[..., 0], SMALL[..., 0].astype(np.uint16) * 999])
@pytest.mark.parametrize("level", [0, 9])
def test_release_png_is_read_back(pixels: NDArray[Any], level: int) -> None:
    found, extras = read_release_png(encoded(pixels, level))
    assert np.array_equal(found, pixels)
    assert found.dtype == pixels.dtype
    assert extras == []


def test_everything_but_pixels_is_described() -> None:
    body, end = GOOD[33:-12], GOOD[-12:]
    assert read_release_png(HEADER + encoded_chunk(b"tEXt", b"Author\0me") + body + end)[1] == ["chunks tEXt"]
    assert read_release_png(HEADER + body + encoded_chunk(b"eXIf", b"II*\0") + end)[1] == ["chunks eXIf"]
    assert read_release_png(GOOD + b"thumbnail")[1] == ["9 bytes after the end of the PNG"]
    assert read_release_png(HEADER + body + encoded_chunk(b"IEND", b"hello"))[1] == [
        "its chunks are not one IHDR, one IDAT and an empty IEND"
    ]
    stream = zlib.compress(b"".join(b"\0" + row.tobytes() for row in SMALL))
    assert read_release_png(HEADER + encoded_chunk(b"IDAT", stream + b"hidden") + end)[1] == [
        "6 bytes hidden after the pixels"
    ]
    halves = encoded_chunk(b"IDAT", stream[:9]) + encoded_chunk(b"IDAT", stream[9:])
    assert read_release_png(HEADER + halves + end)[1] == ["its chunks are not one IHDR, one IDAT and an empty IEND"]


def header(width: int, height: int, depth: int, colour: int, interlace: int = 0) -> bytes:
    return GOOD[:8] + encoded_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"GIF89a", "not a PNG"),
        (GOOD[:50], "cut off"),
        (GOOD[:-1] + b"\0", "wrong checksum"),
        (GOOD[:8] + GOOD[-12:], "no valid IHDR"),
        (header(3, 2, 8, 6) + GOOD[33:], "colour type 6"),
        (header(3, 2, 16, 2) + GOOD[33:], "16 bits"),
        (header(3, 2, 8, 2, 1) + GOOD[33:], "no release has"),
        (header(0, 2, 8, 2) + GOOD[33:], "no release has"),
        (header(3, 3, 8, 2) + GOOD[33:], "more or fewer pixels"),
        (header(3, 1, 8, 2) + GOOD[33:], "more or fewer pixels"),
        (HEADER + encoded_chunk(b"IDAT", b"junk") + GOOD[-12:], "is damaged"),
    ],
)
def test_png_that_is_not_a_release_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(ImageError, match=complaint):
        read_release_png(data)


SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 9))
IMAGES = st.one_of(
    SHAPES.flatmap(lambda shape: arrays(np.uint8, (*shape, 3))),
    SHAPES.flatmap(lambda shape: arrays(np.uint8, shape)),
    SHAPES.flatmap(lambda shape: arrays(np.uint16, shape)),
)


@given(pixels=IMAGES, level=st.sampled_from([0, 1, 9]))
@settings(max_examples=150)
def test_encoded_png_holds_the_pixels_and_nothing_else(pixels: Pixels, level: int) -> None:
    data = encoded(pixels, level)
    with Image.open(io.BytesIO(data)) as image:
        np.testing.assert_array_equal(np.asarray(image), pixels)
    assert [chunk.kind for chunk in chunks_of(data)] == [b"IHDR", b"IDAT", b"IEND"]


@pytest.mark.parametrize(
    "pixels",
    [COLOUR[::-1, ::2], GREY.T, DEEP[:, ::-1], DEEP.astype(">u2")],
    ids=["colour", "grey", "deep", "big-endian"],
)
def test_arrays_of_any_memory_layout_are_encoded(pixels: Pixels) -> None:
    np.testing.assert_array_equal(read_release_png(encoded(pixels))[0], pixels)
