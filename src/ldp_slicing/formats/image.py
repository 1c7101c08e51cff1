"""An image file to a PNG that holds the pixels and nothing else."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from ldp_slicing.formats.base import Entry, Options, Seen, entry_of
from ldp_slicing.images import Canvas, decode_image
from ldp_slicing.integrity import NO_IMAGE, read_whole
from ldp_slicing.storage import Draft

_HEAD = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
NO_KIND = (  # what no reader claimed by its name comes here
    f"{NO_IMAGE}, nor by its name a shard (.tar), Parquet (.parquet), DICOM (.dcm), a film (.mp4, ...) or a pickle of CIFAR (no ending)"
)


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    data = read_whole(file, otherwise=NO_KIND)
    yield entry_of("", decode_image(data), hashlib.sha256(data).digest())


class Writer:
    canvas = Canvas

    def __init__(self, draft: Draft, options: Options) -> None:
        self._draft, self._compression = draft, options.compression

    def add(self, entry: Entry, name: str, identity: str, canvas: Canvas) -> None:
        self._draft.writelines(canvas.encode(self._compression))

    def close(self) -> None:
        """The draft is whole."""

    abort = close


def inspect(file: BinaryIO) -> Iterator[Seen]:
    yield inspect_png(file.read(), None)


def inspect_png(data: bytes, member: str | None) -> Seen:
    """A PNG as ``Writer`` makes it has three chunks; whatever else is in it is metadata."""
    if not data.startswith(_HEAD):
        return Seen(member, problem="is not a PNG")
    width, height, depth, colour = struct.unpack_from(">IIBB", data, 16)
    at, kinds, size = 8, [], len(data)
    while at + 12 <= size:
        length, kind = struct.unpack_from(">I4s", data, at)
        kinds.append(kind)
        at += 12 + length
    if kinds != [b"IHDR", b"IDAT", b"IEND"] or at != size:
        extra = b", ".join(kind for kind in kinds if kind not in (b"IHDR", b"IDAT", b"IEND")).decode("ascii", "replace")
        return Seen(member, problem=f"holds more than pixels: {extra or 'something behind its end'}")
    row = 1 + width * (depth // 8) * (3 if colour == 2 else 1)
    if len(zlib.decompress(data[41:-16])) != row * height:
        return Seen(member, problem="holds more or fewer pixels than it says")
    return Seen(member, width, height, 24 if colour == 2 else depth)
