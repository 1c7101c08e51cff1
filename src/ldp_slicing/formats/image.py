"""Image files: reads JPEG, PNG, WebP, TIFF, BMP and GIF; writes PNG that holds the pixels and nothing else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from ldp_slicing.arrays import word_bits_of
from ldp_slicing.errors import ImageError
from ldp_slicing.formats.base import NOTHING, Claims, Content, Entry, Member, Options, Released, make_entry
from ldp_slicing.images import decode_image
from ldp_slicing.integrity import NO_IMAGE, read_whole
from ldp_slicing.png import HEADER_BYTES, SIGNATURE, Canvas, encode_png, read_header, read_release_png
from ldp_slicing.storage import TemporaryFile

NOT_RECOGNISED = (  # files that no other reader claims end up here
    f"{NO_IMAGE}, nor by its name a shard (.tar), a Parquet file (.parquet), a DICOM file (.dcm), a video (.mp4, ...) "
    "or a CIFAR pickle (no suffix): convert it, or leave it out with --exclude"
)
_ZIP_START, _ZIP_FILE = b"PK\x03\x04", "is a zip file: name it as a source of its own, or unpack it"
_MOST_FOREIGN_PIXELS = 1 << 26
_TAIL_BYTES = 1 << 20  # that are read beyond the longest PNG of a size, to describe them


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    """Yield the one image of the file."""
    is_zip = file.read(len(_ZIP_START)) == _ZIP_START
    file.seek(0)
    data = read_whole(file, otherwise=_ZIP_FILE if is_zip else NOT_RECOGNISED)
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


def members(file: BinaryIO) -> Iterator[Member]:
    yield Member("", 0)


def load(file: BinaryIO, piece: int) -> list[Released]:
    head = file.read(HEADER_BYTES)
    return [load_png(head + file.read(read_header(head).most_file_bytes))]


def load_png(data: bytes, kept: Mapping[str, Any] = NOTHING) -> Released:
    """Return the release in a PNG; raise ImageError if it is not one."""
    pixels, extras = read_release_png(data)
    if extras:
        raise ImageError(f"holds more than pixels: {', '.join(extras)}")
    return Released(pixels, word_bits_of(pixels), kept)


def is_intact(file: BinaryIO, claims: Claims, sha256: str) -> bool:
    """Return whether a PNG of other software has the pixels of the release whose file has the checksum ``sha256``.

    The pixels are encoded as ``Writer`` encodes them. Large images are not tried: they may be decompression bombs.
    """
    head = file.read(HEADER_BYTES)
    width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    fits = [bits for bits in claims.largest if claims.size_problem(width, height, bits) is None]
    if not head.startswith(SIGNATURE) or not fits or width * height > _MOST_FOREIGN_PIXELS:
        return False
    data = head + file.read(8 * width * height + _TAIL_BYTES)
    try:
        pixels = decode_image(data).pixels
        forms = [pixels, pixels[..., 0]] if pixels.ndim == 3 and not np.ptp(pixels, axis=-1).any() else [pixels]
        for form in forms:
            bits = word_bits_of(form)
            written = b"".join(encode_png(form, claims.plans.get(bits)))
            if hashlib.sha256(written).hexdigest() == sha256:
                return np.array_equal(read_release_png(written)[0], form)
    except ImageError:
        return False
    return False


def check_png(file: BinaryIO, size: int, member: str | None, claims: Claims) -> Content:
    """Describe the PNG of ``size`` bytes at the position of ``file``. Anything that ``Writer`` does not write is wrong.

    No more is read than the header allows.
    """
    try:
        head = file.read(min(size, HEADER_BYTES))
        header = read_header(head)
        bits = header.word_bits
        if (problem := claims.size_problem(header.width, header.height, bits)) is not None:
            return Content(member, problem=problem)
        if size > header.most_file_bytes + _TAIL_BYTES:
            return Content(member, problem=f"has {size:,} bytes, more than its pixels need")
        _, extras = read_release_png(head + file.read(size - len(head)), claims.plans.get(bits))
    except ImageError as error:
        return Content(member, problem=str(error))
    if extras:
        return Content(member, problem=f"holds more than pixels: {', '.join(extras)}")
    return Content(member, header.width, header.height, bits)
