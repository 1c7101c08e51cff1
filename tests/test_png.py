from __future__ import annotations

import io
import struct
import tracemalloc
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
from ldp_slicing.images import decode_image
from ldp_slicing.palette import palette_of
from ldp_slicing.plan import Plan
from ldp_slicing.png import Pixels, chunks_of, encode_chunk, encode_png, read_release_png
from ldp_slicing.slicer import Slicer
from tests.markers import gradient


def encoded(pixels: NDArray[Any], plan: Plan | None = None) -> bytes:
    return b"".join(encode_png(pixels, plan))


def encoded_chunk(kind: bytes, body: bytes) -> bytes:
    return b"".join(encode_chunk(kind, body))


COLOUR = gradient()
GREY, DEEP = COLOUR[..., 0], COLOUR[..., 1].astype(np.uint16) * 257
SMALL = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
GOOD = encoded(SMALL)
HEADER = GOOD[:33]


@pytest.mark.parametrize("pixels", [SMALL, SMALL[..., 0], SMALL[..., 0].astype(np.uint16) * 999])
def test_release_png_is_read_back(pixels: NDArray[Any]) -> None:
    found, extras = read_release_png(encoded(pixels))
    assert np.array_equal(found, pixels)
    assert found.dtype == pixels.dtype
    assert extras == []


@pytest.mark.parametrize("size", [1, 65534, 65535, 65536, 131069, 131070, 131071, 200_000])
def test_rows_are_stored_in_blocks_of_65535_bytes(size: int) -> None:
    pixels = np.resize(np.arange(251, dtype=np.uint8), (1, size - 1)) if size > 1 else np.zeros((1, 1), np.uint8)
    rows = b"\0" + pixels.tobytes()
    stream, left = b"\x78\x01", rows
    while left:
        block, left = left[:65535], left[65535:]
        stream += struct.pack("<BHH", not left, len(block), len(block) ^ 0xFFFF) + block
    stream += struct.pack(">I", zlib.adler32(rows))
    data = encoded(pixels)
    assert data[41:-16] == stream
    assert zlib.decompress(stream) == rows
    assert read_release_png(data)[1] == []


def test_everything_but_pixels_is_described() -> None:
    body, end = GOOD[33:-12], GOOD[-12:]
    assert read_release_png(HEADER + encoded_chunk(b"tEXt", b"Author\0me") + body + end)[1] == ["chunks tEXt"]
    assert read_release_png(HEADER + body + encoded_chunk(b"eXIf", b"II*\0") + end)[1] == ["chunks eXIf"]
    assert read_release_png(GOOD + b"thumbnail")[1] == ["9 bytes after the end of the PNG"]
    assert read_release_png(HEADER + body + encoded_chunk(b"IEND", b"hello"))[1] == [
        "its chunks are not one each of those that a release has, with an empty IEND"
    ]
    assert read_release_png(HEADER + encoded_chunk(b"PLTE", bytes(3)) + body + end)[1] == ["chunks PLTE"]


NOT_OURS = "pixels are not in one stream of stored blocks"
ROWS = b"".join(b"\0" + row.tobytes() for row in SMALL)
STORED = GOOD[41:-16]  # the zlib stream


def with_stream(*streams: bytes) -> bytes:
    return HEADER + b"".join(encoded_chunk(b"IDAT", stream) for stream in streams) + GOOD[-12:]


@pytest.mark.parametrize(
    "data",
    [
        with_stream(zlib.compress(ROWS, 9)),
        with_stream(STORED + b"hidden"),
        with_stream(STORED[:9], STORED[9:]),
        with_stream(STORED[:2] + b"\0\0\0\xff\xff" + STORED[2:]),
        with_stream(STORED, b""),
    ],
    ids=["compressed", "behind the stream", "two chunks", "an empty block", "an empty chunk"],
)
def test_any_other_stream_is_refused(data: bytes) -> None:
    with pytest.raises(ImageError, match=NOT_OURS):
        read_release_png(data)


@pytest.mark.parametrize("at", [0, 1, 2, 3, 5, -1], ids=["header", "level", "last", "length", "complement", "adler"])
def test_no_bit_of_the_stream_is_free(at: int) -> None:
    changed = bytearray(STORED)
    changed[at] ^= 0x40
    assert read_release_png(with_stream(bytes(changed)))[1] == [
        "bytes that differ from what this software writes for its pixels"
    ]


def test_filtered_rows_are_refused() -> None:
    rows = bytes([1]) + ROWS[1:]
    with pytest.raises(ImageError, match="filtered"):
        read_release_png(with_stream(STORED[:7] + rows + struct.pack(">I", zlib.adler32(rows))))


def test_a_header_that_declares_gigabytes_takes_no_memory() -> None:
    for width, height in ((40_000, 4_000), (40_000, 33_000), (1 << 30, 1 << 30)):
        huge = header(width, height, 8, 2) + encoded_chunk(b"IDAT", zlib.compress(bytes(1 << 22))) + GOOD[-12:]
        tracemalloc.start()
        with pytest.raises(ImageError):
            read_release_png(huge)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20


THICK = Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7")
PALETTES = {"Y7": 1, "Y7+Y6": 2, "Cb7,Cr7": 2, "Y7+Y4+Cb7+Cr7": 4, "Y7+Y6+Y5+Y4+Cb7+Cb6+Cr7+Cr6": 8}


@pytest.mark.parametrize("slices", PALETTES)
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 9, 33])
def test_a_plan_with_few_colours_takes_few_bits_per_pixel(slices: str, width: int) -> None:
    plan = Plan.sliced(5.2, slices)
    pixels = Slicer(plan)(gradient(11, width))
    data = encoded(pixels, plan)
    assert data[24] == PALETTES[slices]  # bits per pixel
    found, extras = read_release_png(data, plan)
    assert extras == []
    np.testing.assert_array_equal(found, pixels)
    with Image.open(io.BytesIO(data)) as image:
        np.testing.assert_array_equal(np.asarray(image.convert("RGB")), pixels)
    np.testing.assert_array_equal(decode_image(data).pixels, pixels)


@pytest.mark.parametrize("plan", [Plan.paper(20.0), Plan.grey(20.0), Plan.grey(20.0, 16), Plan.sliced(5.2, "7+6", 8)])
def test_other_plans_have_no_palette(plan: Plan) -> None:
    assert palette_of(plan) is None


def test_a_palette_is_that_of_the_plan_and_not_of_the_release() -> None:
    black = encoded(Slicer(THICK)(np.zeros((2, 2, 3), np.uint8)), THICK)
    white = encoded(Slicer(THICK)(np.full((2, 2, 3), 255, np.uint8)), THICK)
    palette = palette_of(THICK)
    assert palette is not None
    assert [bytes(chunk.body) for data in (black, white) for chunk in chunks_of(data) if chunk.kind == b"PLTE"] == [
        palette.colours.tobytes()
    ] * 2
    assert palette.colours.tolist() == sorted(palette.colours.tolist())


def test_the_palette_holds_every_colour_that_the_plan_can_release() -> None:
    for slices in PALETTES:
        plan = Plan.sliced(0.01, slices)
        palette = palette_of(plan)
        assert palette is not None
        seen = {tuple(colour) for colour in Slicer(plan)(gradient(200, 200)).reshape(-1, 3).tolist()}
        assert seen == {tuple(colour) for colour in palette.colours.tolist()}


def test_another_palette_is_described() -> None:
    other = Plan.sliced(5.2, "Y7+Y5+Cb7+Cr7")
    pixels = Slicer(THICK)(gradient())
    wrong = ["another palette than its plan has"]
    assert read_release_png(encoded(pixels, THICK), other)[1] == wrong
    assert read_release_png(encoded(pixels), THICK)[1] == wrong
    assert read_release_png(encoded(pixels, THICK), Plan.paper(20.0))[1] == wrong
    assert read_release_png(encoded(pixels, THICK), THICK)[1] == []


def test_bits_after_the_last_pixel_of_a_row_are_not_free() -> None:
    data = encoded(Slicer(THICK)(gradient(3, 3)), THICK)
    *start, idat, _ = chunks_of(data)
    stream = bytearray(idat.body)
    stream[2 + 5 + 2] |= 1  # the second byte of a row of 3 x 4 bits
    stream[-4:] = struct.pack(">I", zlib.adler32(stream[7:-4]))
    changed = data[: start[-1].end] + encoded_chunk(b"IDAT", bytes(stream)) + data[idat.end :]
    assert changed != data
    assert np.array_equal(read_release_png(changed)[0], read_release_png(data)[0])
    assert read_release_png(changed)[1] == ["bytes that differ from what this software writes for its pixels"]


def test_colours_that_a_plan_cannot_release_are_not_encoded() -> None:
    with pytest.raises(ImageError, match="colour that its plan cannot release"):
        encoded(gradient(), THICK)


def test_palettes_that_are_not_ours_are_refused() -> None:
    data = encoded(Slicer(THICK)(gradient(3, 4)), THICK)
    _, palette, _, _ = chunks_of(data)
    for body in (b"", bytes(palette.body[:-1]), bytes(48), bytes(3 * 17)):
        with pytest.raises(ImageError, match="palette"):
            read_release_png(data[:33] + encoded_chunk(b"PLTE", body) + data[palette.end :])
    fewer = encoded_chunk(b"PLTE", bytes(palette.body[:3]))
    with pytest.raises(ImageError, match="outside its palette"):
        read_release_png(data[:33] + fewer + data[palette.end :])


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
        (header(3, 3, 8, 2) + GOOD[33:], NOT_OURS),
        (header(3, 1, 8, 2) + GOOD[33:], NOT_OURS),
        (HEADER + encoded_chunk(b"IDAT", b"junk") + GOOD[-12:], NOT_OURS),
        (header(20_000, 20_000, 8, 0) + GOOD[33:], "more than any release has"),
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


@given(pixels=IMAGES)
@settings(max_examples=150)
def test_encoded_png_holds_the_pixels_and_nothing_else(pixels: Pixels) -> None:
    data = encoded(pixels)
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
