"""Image files: reads JPEG, PNG, WebP, TIFF, BMP and GIF; writes PNG that holds the pixels and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO

from ldp_slicing.errors import ImageError
from ldp_slicing.formats.base import Content, Entry, Options, make_entry
from ldp_slicing.images import decode_image
from ldp_slicing.integrity import NO_IMAGE, read_whole
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.png import Canvas, read_release_png
from ldp_slicing.storage import TemporaryFile

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

    def __init__(self, file: TemporaryFile, options: Options) -> None:
        self._file, self._compression = file, options.compression

    def add(self, entry: Entry, name: str, identity: str, canvas: Canvas) -> None:
        self._file.writelines(canvas.encode(self._compression))

    def close(self) -> None:
        """Do nothing: the file is complete."""

    abort = close


def inspect(file: BinaryIO) -> Iterator[Content]:
    """Yield the release in the file."""
    yield inspect_png(file.read(), None)


def inspect_png(data: bytes, member: str | None) -> Content:
    """Describe a PNG that ``Writer`` made. Anything else in it is a problem."""
    try:
        pixels, extras = read_release_png(data)
    except ImageError as error:
        return Content(member, problem=str(error))
    if extras:
        return Content(member, problem=f"holds more than pixels: {', '.join(extras)}")
    height, width = pixels.shape[:2]
    return Content(member, width, height, COLOUR_BITS if pixels.ndim == 3 else 8 * pixels.dtype.itemsize)
