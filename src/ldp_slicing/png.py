"""PNG: one walk over its chunks, one encoder, and the strict reader of what that encoder writes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import ImageError

Pixels = NDArray[np.unsignedinteger]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
RELEASE_CHUNKS = [b"IHDR", b"IDAT", b"IEND"]
_RGB, _GREY = 2, 0  # colour types
_RELEASE_TYPES = {(_RGB, 8), (_GREY, 8), (_GREY, 16)}  # colour type, bits per channel


@dataclass(frozen=True)
class Chunk:
    kind: bytes
    body: memoryview
    end: int  # the offset of the next chunk


def chunks_of(data: bytes) -> Iterator[Chunk]:
    """Yield the chunks of a PNG up to IEND, or raise ImageError at a wrong signature, length or checksum."""
    if not data.startswith(SIGNATURE):
        raise ImageError("is not a PNG")
    at, kind, whole = len(SIGNATURE), b"", memoryview(data)
    while kind != b"IEND":
        try:
            length, kind = struct.unpack_from(">I4s", data, at)
            (checksum,) = struct.unpack_from(">I", data, at + 8 + length)
        except struct.error:
            raise ImageError("is cut off before its end") from None
        if zlib.crc32(whole[at + 4 : at + 8 + length]) != checksum:
            raise ImageError(f"is damaged: wrong checksum of its chunk {kind!r}")
        yield Chunk(kind, whole[at + 8 : at + 8 + length], at + 12 + length)
        at += 12 + length


def encode_chunk(kind: bytes, body: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a chunk in three pieces: length and kind, body, checksum."""
    return struct.pack(">I", len(body)) + kind, body, struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))


class Canvas:
    """Memory for a release in the layout of PNG rows. Fill ``pixels``, then ``encode``.

    pixels: uint8 H x W x 3, uint8 H x W or big-endian uint16 H x W.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.unsignedinteger]) -> None:
        height, width, *channels = shape
        self._header = struct.pack(">IIBBBBB", width, height, 8 * dtype.itemsize, _RGB if channels else _GREY, 0, 0, 0)
        # Column 0 is the filter type of each row: 0, none.
        self._rows = np.zeros((height, 1 + width * dtype.itemsize * (3 if channels else 1)), np.uint8)
        self.pixels: Pixels = self._rows[:, 1:].view(dtype.newbyteorder(">")).reshape(shape)  # a view, not a copy

    def encode(self, level: int = 0) -> list[bytes]:
        """Return the PNG in pieces. It holds the pixels and nothing else.

        Releases are noise and hardly compress. The default, level 0, stores them, which is many times faster.
        """
        body = zlib.compress(self._rows.data, level)
        chunks = zip(RELEASE_CHUNKS, (self._header, body, b""), strict=True)
        return [SIGNATURE, *(piece for kind, content in chunks for piece in encode_chunk(kind, content))]


def encode_png(pixels: Pixels, level: int = 0) -> list[bytes]:
    """Return the PNG of uint8 H x W x 3, uint8 H x W or uint16 H x W, in pieces."""
    canvas = Canvas(pixels.shape, pixels.dtype)
    canvas.pixels[...] = pixels
    return canvas.encode(level)


def read_release_png(data: bytes) -> tuple[Pixels, list[str]]:
    """Return the pixels of a PNG that ``encode_png`` wrote, and descriptions of everything else in the file.

    pixels: uint8 H x W x 3, uint8 H x W or uint16 H x W. The file must have one IHDR, one IDAT and an empty IEND, with
    nothing after it, unfiltered rows, and one zlib stream that ends with the last row. Any compression is accepted.
    Extra content is described; anything else is an ImageError.
    """
    chunks = list(chunks_of(data))
    width, height, depth, colour = _read_header(chunks)
    row = width * (3 if colour == _RGB else 1) * depth // 8
    stream = zlib.decompressobj()
    try:
        body = b"".join(chunk.body for chunk in chunks if chunk.kind == b"IDAT")
        rows = stream.decompress(body, height * (row + 1) + 1)
    except zlib.error as error:
        raise ImageError(f"is damaged: {error}") from None
    if len(rows) != height * (row + 1) or not stream.eof:
        raise ImageError("has more or fewer pixels than its header states")
    table = np.frombuffer(rows, np.uint8).reshape(height, row + 1)
    if table[:, 0].any():
        raise ImageError("was not written by this software: its rows are filtered")
    plain = np.ascontiguousarray(table[:, 1:]).view(">u2" if depth == 16 else np.uint8)
    pixels: Pixels = plain.reshape((height, width, 3) if colour == _RGB else (height, width))
    return pixels.astype(np.uint16) if depth == 16 else pixels, _extras(chunks, len(data), len(stream.unused_data))


def _read_header(chunks: list[Chunk]) -> tuple[int, int, int, int]:
    """Return width, height, bits per channel and colour type."""
    header = next((chunk.body for chunk in chunks if chunk.kind == b"IHDR"), b"")
    if len(header) != 13:
        raise ImageError("is damaged: it has no valid IHDR chunk")
    width, height, depth, colour, *methods = struct.unpack(">IIBBBBB", header)
    if (colour, depth) not in _RELEASE_TYPES or any(methods) or not width or not height:
        raise ImageError(f"has pixels that no release has (colour type {colour}, {depth} bits)")
    return width, height, depth, colour


def _extras(chunks: list[Chunk], size: int, hidden: int) -> list[str]:
    extras, kinds = list[str](), [chunk.kind for chunk in chunks]
    if chunks[-1].end < size:
        extras.append(f"{_bytes(size - chunks[-1].end)} after the end of the PNG")
    if foreign := sorted(set(kinds) - set(RELEASE_CHUNKS)):
        extras.append(f"chunks {', '.join(kind.decode('latin-1') for kind in foreign)}")
    elif kinds != RELEASE_CHUNKS or len(chunks[-1].body):
        extras.append("its chunks are not one IHDR, one IDAT and an empty IEND")
    if hidden:
        extras.append(f"{_bytes(hidden)} hidden after the pixels")
    return extras


def _bytes(count: int) -> str:
    return f"{count:,} byte{'' if count == 1 else 's'}"
