"""Image files: reads JPEG, PNG, WebP, TIFF, BMP and GIF; writes PNG that holds the pixels and nothing else."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from ldp_slicing.formats.base import Content, Entry, Options, make_entry
from ldp_slicing.images import Canvas, decode_image
from ldp_slicing.integrity import NO_IMAGE, read_whole
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.storage import Draft

_HEAD = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
_CHUNKS = [b"IHDR", b"IDAT", b"IEND"]
NOT_RECOGNISED = (  # files that no other reader claims end up here
    f"{NO_IMAGE}, and its name does not say that it is a shard (.tar), Parquet (.parquet), DICOM (.dcm), "
    "a video (.mp4, ...) or a CIFAR pickle (no suffix)"
)


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    """Yield the one image of the file."""
    data = read_whole(file, otherwise=NOT_RECOGNISED)
    yield make_entry("", decode_image(data), hashlib.sha256(data).digest())


class Writer:
    """Writes one release as a PNG file."""

    canvas = Canvas

    def __init__(self, draft: Draft, options: Options) -> None:
        self._draft, self._compression = draft, options.compression

    def add(self, entry: Entry, name: str, identity: str, canvas: Canvas) -> None:
        self._draft.writelines(canvas.encode(self._compression))

    def close(self) -> None:
        """Do nothing: the file is complete."""

    abort = close


def inspect(file: BinaryIO) -> Iterator[Content]:
    """Yield the release in the file."""
    yield inspect_png(file.read(), None)


def inspect_png(data: bytes, member: str | None) -> Content:
    """Return the release in a PNG file. A PNG that ``Writer`` made has three chunks; any other chunk is metadata."""
    if not data.startswith(_HEAD):
        return Content(member, problem="is not a PNG file")
    width, height, depth, colour = struct.unpack_from(">IIBB", data, 16)
    position, chunks = 8, []
    while position + 12 <= len(data):
        length, chunk = struct.unpack_from(">I4s", data, position)
        chunks.append(chunk)
        position += 12 + length
    if chunks != _CHUNKS or position != len(data):
        extra = b", ".join(chunk for chunk in chunks if chunk not in _CHUNKS).decode("ascii", "replace")
        return Content(member, problem=f"holds more than pixels: {extra or 'data after its end'}")
    row_bytes = 1 + width * (depth // 8) * (3 if colour == 2 else 1)
    if len(zlib.decompress(data[41:-16])) != row_bytes * height:
        return Content(member, problem="holds more or fewer pixels than its header states")
    return Content(member, width, height, COLOUR_BITS if colour == 2 else depth)
