"""PNG: one walk over its chunks, one encoder, and the strict reader of what that encoder writes.

A release has exactly one encoding, so that no byte of a file is free to carry anything else: IHDR, PLTE if its plan has
a palette, one IDAT, IEND; rows without filters; and a zlib stream of stored blocks of 65,535 bytes, which is written
here because the blocks of zlib differ from version to version. The reader therefore never decompresses anything.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import ImageError
from ldp_slicing.palette import MOST_COLOURS, Palette, make_palette, palette_of
from ldp_slicing.plan import COLOUR_BITS, Plan
from ldp_slicing.wording import counted

Pixels = NDArray[np.unsignedinteger]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_PIXELS = 178_956_970  # Pillow's limit: larger images are treated as decompression bombs
MOST_FILE_BYTES = 1 << 30  # of a release or of its pixels as other software writes them
HEADER_BYTES = 33  # signature and IHDR
_GREY, _RGB, _INDEXED = 0, 2, 3  # colour types
_DEPTHS = {_GREY: (8, 16), _RGB: (8,), _INDEXED: (1, 2, 4, 8)}  # bits per sample
_RELEASE_CHUNKS = [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
_MOST_CHUNKS = 64  # of a file that is read; one of ours has 3 or 4
_ZLIB_HEADER = b"\x78\x01"
_BLOCK = 65535  # the most bytes that a stored block of a deflate stream can hold
_BLOCK_HEADER = struct.Struct("<BHH")  # whether it is the last, its length, and the complement of the length


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


def encode_chunk(kind: bytes, body: bytes | memoryview) -> tuple[bytes, bytes | memoryview, bytes]:
    """Return a chunk in three pieces: length and kind, body, checksum."""
    return struct.pack(">I", len(body)) + kind, body, struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))


@dataclass(frozen=True)
class Header:
    """The size and the kind of the pixels of a PNG: ``colour`` is its colour type, ``depth`` its bits per sample."""

    width: int
    height: int
    depth: int
    colour: int

    @property
    def word_bits(self) -> int:
        """The bits per word of such releases: 24 for colour, 8 or 16 for grey."""
        return self.depth if self.colour == _GREY else COLOUR_BITS

    @property
    def row_bytes(self) -> int:
        """The bytes of a row: the filter type and the pixels."""
        return 1 + (self.width * self.depth * (3 if self.colour == _RGB else 1) + 7) // 8

    @property
    def stream_bytes(self) -> int:
        """The bytes of the zlib stream, and so of IDAT."""
        rows = self.height * self.row_bytes
        return len(_ZLIB_HEADER) + rows + _BLOCK_HEADER.size * -(-rows // _BLOCK) + 4

    @property
    def most_file_bytes(self) -> int:
        """The most bytes that the file of such a release can have."""
        return HEADER_BYTES + 12 + 3 * MOST_COLOURS + 12 + self.stream_bytes + 12

    def fits(self, plan: Plan) -> bool:
        """Whether releases of a plan in colour have this kind of pixels."""
        palette = palette_of(plan)
        return (self.colour, self.depth) == ((_RGB, 8) if palette is None else (_INDEXED, palette.bits))

    def encoded(self) -> bytes:
        return struct.pack(">IIBBBBB", self.width, self.height, self.depth, self.colour, 0, 0, 0)


class _Encoder:
    """Memory for the rows of a PNG and for the file. ``rows``: uint8 [H, row bytes]; column 0 stays 0, no filter."""

    def __init__(self, header: Header, palette: Palette | None) -> None:
        self._header, self._palette = header, palette
        self.rows = np.zeros((header.height, header.row_bytes), np.uint8)
        self._stream = np.empty(header.stream_bytes, np.uint8)
        self._whole, self._rest = divmod(self.rows.size, _BLOCK)
        if not self._rest:
            self._whole, self._rest = self._whole - 1, _BLOCK
        start = len(_ZLIB_HEADER)
        end = start + self._whole * (_BLOCK_HEADER.size + _BLOCK)
        blocks = self._stream[start:end].reshape(self._whole, _BLOCK_HEADER.size + _BLOCK)
        blocks[:, : _BLOCK_HEADER.size] = np.frombuffer(_BLOCK_HEADER.pack(0, _BLOCK, 0), np.uint8)
        last = _ZLIB_HEADER + _BLOCK_HEADER.pack(1, self._rest, _BLOCK - self._rest)
        self._stream[:start] = np.frombuffer(last[:start], np.uint8)
        self._stream[end : end + _BLOCK_HEADER.size] = np.frombuffer(last[start:], np.uint8)
        self._blocks, self._last = blocks[:, _BLOCK_HEADER.size :], self._stream[end + _BLOCK_HEADER.size : -4]

    def encode(self) -> list[bytes | memoryview]:
        """Return the PNG in pieces, which are valid until the next call."""
        raw = self.rows.reshape(-1)
        self._blocks[...] = raw[: self._whole * _BLOCK].reshape(self._blocks.shape)
        self._last[...] = raw[self._whole * _BLOCK :]
        self._stream[-4:] = np.frombuffer(struct.pack(">I", zlib.adler32(raw.data)), np.uint8)
        chunks: list[tuple[bytes, bytes | memoryview]] = [(b"IHDR", self._header.encoded())]
        if self._palette is not None:
            chunks.append((b"PLTE", self._palette.colours.tobytes()))
        chunks += [(b"IDAT", self._stream.data), (b"IEND", b"")]
        return [SIGNATURE, *(piece for kind, body in chunks for piece in encode_chunk(kind, body))]


class Canvas:
    """Memory for a release that becomes a PNG. Fill ``pixels``, then ``encode``.

    pixels: uint8 H x W x 3, uint8 H x W or big-endian uint16 H x W. With a ``plan`` that has a palette, the PNG holds
    the rank of each pixel's colour (see ``palette_of``); without one, the colours themselves.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.unsignedinteger], plan: Plan | None = None) -> None:
        height, width, *channels = shape
        self._palette = palette_of(plan) if plan is not None and channels else None
        if self._palette is not None:
            header = Header(width, height, self._palette.bits, _INDEXED)
            self._encoder = _Encoder(header, self._palette)
            self._colours = np.zeros(3 * height * width + 1, np.uint8)
            self.pixels: Pixels = self._colours[:-1].reshape(shape)
        else:
            header = Header(width, height, 8 * dtype.itemsize, _RGB if channels else _GREY)
            self._encoder = _Encoder(header, None)
            # A view of the rows, not a copy.
            self.pixels = self._encoder.rows[:, 1:].view(dtype.newbyteorder(">")).reshape(shape)

    def encode(self) -> list[bytes | memoryview]:
        """Return the PNG in pieces, which are valid until the next call. It holds the pixels and nothing else."""
        if self._palette is not None:
            height, width, _ = self.pixels.shape
            ranks = np.empty(height * width, np.uint8)
            self._palette.rank(self._colours, ranks)
            _pack(ranks.reshape(height, width), self._palette.bits, self._encoder.rows[:, 1:])
        return self._encoder.encode()


def _pack(ranks: NDArray[np.uint8], bits: int, packed: NDArray[np.uint8]) -> None:
    """Write ranks, [H, W] of ``bits`` bits each, into bytes [H, ceil(W bits / 8)], the first in the highest bits."""
    each = 8 // bits
    width = ranks.shape[1]
    packed[...] = 0
    for place in range(each):
        if place < width:
            column = packed[:, : len(range(place, width, each))]
            np.bitwise_or(column, ranks[:, place::each] << np.uint8(8 - bits * (place + 1)), out=column)


def _unpack(packed: NDArray[np.uint8], bits: int, width: int) -> NDArray[np.uint8]:
    """Return the ranks, uint8 [H, W], that ``_pack`` wrote."""
    each = 8 // bits
    ranks = np.empty((len(packed), packed.shape[1] * each), np.uint8)
    for place in range(each):
        ranks[:, place::each] = packed >> np.uint8(8 - bits * (place + 1)) & np.uint8((1 << bits) - 1)
    return ranks[:, :width]


def encode_png(pixels: Pixels, plan: Plan | None = None) -> list[bytes | memoryview]:
    """Return the PNG of uint8 H x W x 3, uint8 H x W or uint16 H x W in pieces, as ``Canvas`` encodes it."""
    canvas = Canvas(pixels.shape, pixels.dtype, plan)
    canvas.pixels[...] = pixels
    return canvas.encode()


def read_header(data: bytes) -> Header:
    """Return the header of a PNG from its first bytes; raise ImageError if no release has such a header."""
    if not data.startswith(SIGNATURE):
        raise ImageError("is not a PNG")
    if len(data) < HEADER_BYTES or data[8:16] != b"\0\0\0\x0dIHDR":
        raise ImageError("is damaged: it has no valid IHDR chunk")
    width, height, depth, colour, *methods = struct.unpack(">IIBBBBB", data[16:29])
    if depth not in _DEPTHS.get(colour, ()) or any(methods) or not width or not height:
        raise ImageError(f"has pixels that no release has (colour type {colour}, {depth} bits)")
    if width * height > MAX_PIXELS:
        raise ImageError(f"declares {width} x {height} pixels, more than any release has")
    return Header(width, height, depth, colour)


def read_release_png(data: bytes, plan: Plan | None = None) -> tuple[Pixels, list[str]]:
    """Return the pixels of a PNG that ``encode_png`` wrote, and descriptions of everything else in the file.

    pixels: uint8 H x W x 3, uint8 H x W or uint16 H x W. The pixels are encoded again, and every byte of the file that
    differs is described. With a ``plan``, its palette is part of the comparison. A file whose pixels are encoded in
    any other way is an ImageError. Memory is a small multiple of ``len(data)``, whatever the header declares.
    """
    header = read_header(data)
    chunks = list(islice(chunks_of(data), _MOST_CHUNKS))
    streams = [chunk.body for chunk in chunks if chunk.kind == b"IDAT"]
    if [len(stream) for stream in streams] != [header.stream_bytes]:
        raise ImageError(
            "was not written by this software (privatize, or Slicer.save in Python): its pixels are not in one stream "
            "of stored blocks"
        )
    palette = _read_palette(header, chunks)
    encoder = _Encoder(header, palette)
    _copy_stored(streams[0], encoder.rows.reshape(-1))
    if encoder.rows[:, 0].any():
        raise ImageError("was not written by this software: its rows are filtered")
    packed = encoder.rows[:, 1:].copy()
    extras = _extras(chunks, len(data), has_palette=palette is not None)
    if header.colour == _INDEXED:  # so that bits after the last pixel of a row become 0
        _pack(_unpack(packed, header.depth, header.width), header.depth, encoder.rows[:, 1:])
    if not extras and b"".join(encoder.encode()) != data:
        extras.append("bytes that differ from what this software writes for its pixels")
    if plan is not None and not extras and not _is_palette_of(plan, palette):
        extras.append("another palette than its plan has")
    return _pixels_of(packed, header, palette), extras


def _copy_stored(stream: memoryview, rows: NDArray[np.uint8]) -> None:
    """Copy the content of stored blocks. Their headers are compared later."""
    step = _BLOCK_HEADER.size + _BLOCK
    content = np.frombuffer(stream, np.uint8)[len(_ZLIB_HEADER) : -4]
    for number in range(-(-len(rows) // _BLOCK)):
        block = content[number * step + _BLOCK_HEADER.size : (number + 1) * step]
        rows[number * _BLOCK : (number + 1) * _BLOCK] = block


def _pixels_of(packed: NDArray[np.uint8], header: Header, palette: Palette | None) -> Pixels:
    """Return the pixels of rows without their filter types, uint8 [H, row bytes - 1]."""
    if palette is not None:
        ranks = _unpack(packed, header.depth, header.width)
        if ranks.max() >= len(palette.colours):
            raise ImageError("is damaged: it has a pixel outside its palette")
        return palette.colours[ranks]
    if header.colour == _RGB:
        return packed.reshape(header.height, header.width, 3)
    return packed if header.depth == 8 else packed.view(">u2").astype(np.uint16)


def _read_palette(header: Header, chunks: list[Chunk]) -> Palette | None:
    """Return the palette of a PNG that has one, or None."""
    if header.colour != _INDEXED:
        return None
    body = next((chunk.body for chunk in chunks if chunk.kind == b"PLTE"), b"")
    colours = np.frombuffer(body, np.uint8)
    if not len(colours) or len(colours) % 3 or len(colours) > 3 << header.depth:
        raise ImageError("is damaged: it has no valid palette")
    colours = colours.reshape(-1, 3)
    if len(np.unique(colours, axis=0)) != len(colours):
        raise ImageError("was not written by this software: its palette has a colour twice")
    return make_palette(colours)


def _is_palette_of(plan: Plan, palette: Palette | None) -> bool:
    right = palette_of(plan)
    if right is None or palette is None:
        return right is palette
    return right.colours.tobytes() == palette.colours.tobytes()


def _extras(chunks: list[Chunk], size: int, *, has_palette: bool) -> list[str]:
    extras, kinds = list[str](), [chunk.kind for chunk in chunks]
    expected = [kind for kind in _RELEASE_CHUNKS if has_palette or kind != b"PLTE"]
    if chunks[-1].end < size:
        extras.append(f"{counted(size - chunks[-1].end, 'byte')} after the end of the PNG")
    if foreign := sorted(set(kinds) - set(expected)):
        extras.append(f"chunks {', '.join(kind.decode('latin-1') for kind in foreign)}")
    elif kinds != expected or len(chunks[-1].body):
        extras.append("its chunks are not one each of those that a release has, with an empty IEND")
    return extras
