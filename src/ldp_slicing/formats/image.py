"""Image files: reads JPEG, PNG, WebP, TIFF, BMP and GIF; writes PNG that holds the pixels and nothing else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import BinaryIO

from ldp_slicing.errors import ImageError
from ldp_slicing.formats.base import Claims, Content, Entry, Options, make_entry
from ldp_slicing.images import decode_image
from ldp_slicing.integrity import NO_IMAGE, read_whole
from ldp_slicing.png import HEADER_BYTES, Canvas, read_header, read_release_png
from ldp_slicing.storage import TemporaryFile

NOT_RECOGNISED = (  # files that no other reader claims end up here
    f"{NO_IMAGE}, and its name does not say that it is a shard (.tar), Parquet (.parquet), DICOM (.dcm), "
    "a video (.mp4, ...) or a CIFAR pickle (no suffix)"
)
_TAIL_BYTES = 1 << 20  # that are read beyond the longest PNG of a size, to describe them


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    """Yield the one image of the file."""
    data = read_whole(file, otherwise=NOT_RECOGNISED)
    yield make_entry("", decode_image(data), hashlib.sha256(data).digest())


class Writer:
    """Writes one release as a PNG file."""

    canvas = Canvas

    def __init__(self, file: TemporaryFile, options: Options) -> None:
        self._file = file

    def add(self, entry: Entry, name: str, identity: str, canvas: Canvas) -> None:
        self._file.writelines(canvas.encode())

    def close(self) -> None:
        """Do nothing: the file is complete."""

    abort = close


def check(file: BinaryIO, claims: Claims) -> Iterator[Content]:
    """Yield the release in the file, after comparing every byte with what ``Writer`` writes."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    yield check_png(file, size, None, claims)


def check_png(file: BinaryIO, size: int, member: str | None, claims: Claims) -> Content:
    """Describe the PNG of ``size`` bytes at the position of ``file``. Anything that ``Writer`` does not write is wrong.

    No more is read than the header allows.
    """
    try:
        head = file.read(min(size, HEADER_BYTES))
        header = read_header(head)
        bits = header.word_bits
        if size > header.most_file_bytes + _TAIL_BYTES:
            return Content(member, problem=f"has {size:,} bytes, more than its pixels need")
        _, extras = read_release_png(head + file.read(size - len(head)), claims.plans.get(bits))
    except ImageError as error:
        return Content(member, problem=str(error))
    if extras:
        return Content(member, problem=f"holds more than pixels: {', '.join(extras)}")
    return Content(member, header.width, header.height, bits)
