"""Reading a set of releases: what each file holds, and what it should not hold."""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.audit.pixel_words import Pixels, Words, recover_words
from ldp_slicing.card import counted
from ldp_slicing.errors import AuditError
from ldp_slicing.manifest import CARD_NAME, MANIFEST_NAME
from ldp_slicing.storage import LocalStorage

SIGNATURE = b"\x89PNG\r\n\x1a\n"
PAIRS = 2048  # of neighbouring pixels that are kept of each release
BESIDE = frozenset({CARD_NAME, MANIFEST_NAME})  # what lies beside releases in their folder


class NotARelease(Exception):  # noqa: N818
    """The file is not what ``images.encode_png`` writes; the text says in what."""


@dataclass(frozen=True, eq=False)
class ReleaseFile:
    """One release. ``left`` and ``right``: words of neighbouring pixels; ``sure``: where both of them are certain."""

    path: PurePath
    size: tuple[int, int]  # width, height
    word_bits: int  # 24, 16 or 8: those of the file
    digest: bytes
    certain: int  # pixels whose word is certain
    left: Words
    right: Words
    sure: NDArray[np.bool_]


@dataclass
class ReleaseSet:
    """The files of one release: a folder with its card, or one PNG with its own."""

    name: str
    card_path: Path
    folder: Path | None = None  # of a set; one release has none
    releases: list[ReleaseFile] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)  # files that are no releases
    metadata: list[str] = field(default_factory=list)  # releases that hold more than pixels


def read_set(target: Path) -> ReleaseSet:
    """Everything in a folder, or one release. Pixels are read and let go: memory grows by some kilobytes for each release."""
    if target.is_dir():
        found = ReleaseSet(str(target), target / CARD_NAME, target)
        for item in sorted(LocalStorage(target).files(), key=lambda item: item.path):
            if item.problem:
                found.odd.append(f"{item.path}: {item.problem}")
            elif item.path not in BESIDE:
                _add(found, target, PurePath(item.path))
        return found
    if not target.is_file():
        raise AuditError(f"{target} is neither a folder of releases nor a release")
    found = ReleaseSet(str(target), target.with_name(f"{target.name}.card.json"))
    _add(found, target.parent, PurePath(target.name))
    return found


def _add(found: ReleaseSet, folder: Path, path: PurePath) -> None:
    try:
        data = (folder / path).read_bytes()
        pixels, more = read_png(data)
    except OSError as error:
        raise AuditError(f"{folder / path} cannot be read: {error.strerror}") from None
    except NotARelease as error:
        found.odd.append(f"{path}: {error}")
        return
    found.metadata += [f"{path}: {problem}" for problem in more]
    found.releases.append(describe(path, pixels))


def describe(path: PurePath, pixels: Pixels) -> ReleaseFile:
    height, width = pixels.shape[:2]
    colour = pixels.ndim == 3
    digest = hashlib.sha256(f"{pixels.shape} {pixels.dtype}".encode() + pixels.tobytes()).digest()
    certain = int(np.count_nonzero(((pixels > 0) & (pixels < 255)).all(axis=-1))) if colour else height * width
    across = width // 2
    chosen = np.arange(min(PAIRS, height * across)) * (height * across) // max(1, min(PAIRS, height * across))
    rows, columns = (chosen // across, 2 * (chosen % across)) if across else (chosen, chosen)
    (left, left_sure), (right, right_sure) = (recover_words(pixels[rows, columns + step]) for step in (0, 1))
    return ReleaseFile(
        path,
        (width, height),
        24 if colour else 8 * pixels.dtype.itemsize,
        digest,
        certain,
        left,
        right,
        left_sure & right_sure,
    )


def read_png(data: bytes) -> tuple[Pixels, list[str]]:
    """The pixels of a PNG as ``images.encode_png`` writes it, and whatever else is in the file.

    One IHDR, one IDAT, IEND and nothing behind; rows without a filter; one zlib stream that ends with the last row. How the rows are
    compressed is not looked into.
    """
    if not data.startswith(SIGNATURE):
        raise NotARelease("is not a PNG")
    chunks, at, more = list[tuple[bytes, bytes]](), len(SIGNATURE), list[str]()
    try:
        while not chunks or chunks[-1][0] != b"IEND":
            length, kind = struct.unpack_from(">I4s", data, at)
            body = data[at + 8 : at + 8 + length]
            (checksum,) = struct.unpack_from(">I", data, at + 8 + length)
            if zlib.crc32(kind + body) != checksum:
                raise NotARelease(f"is damaged: wrong checksum of its chunk {kind!r}")
            chunks.append((kind, body))
            at += 12 + length
        width, height, depth, colour, *methods = struct.unpack(">IIBBBBB", dict(chunks)[b"IHDR"])
    except (struct.error, KeyError):
        raise NotARelease("is cut off or damaged") from None
    if at < len(data):
        more.append(f"{counted(len(data) - at, 'byte')} after the end of the PNG")
    foreign = sorted({kind for kind, _ in chunks if kind not in (b"IHDR", b"IDAT", b"IEND")})
    if foreign:
        more.append(f"chunks {', '.join(kind.decode('latin-1') for kind in foreign)}")
    elif [kind for kind, _ in chunks] != [b"IHDR", b"IDAT", b"IEND"] or chunks[-1][1]:
        more.append("its chunks are not one IHDR, one IDAT and an empty IEND")
    if (colour, depth) not in ((2, 8), (0, 8), (0, 16)) or any(methods) or not width or not height:
        raise NotARelease(f"has pixels that no release has (colour type {colour}, {depth} bits)")
    row = width * (3 if colour else 1) * depth // 8
    stream = zlib.decompressobj()
    try:
        rows = stream.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"), height * (row + 1) + 1)
    except zlib.error as error:
        raise NotARelease(f"is damaged: {error}") from None
    if len(rows) != height * (row + 1) or not stream.eof:
        raise NotARelease("has more or fewer pixels than its header says")
    if stream.unused_data:
        more.append(f"{counted(len(stream.unused_data), 'byte')} hidden behind the pixels")
    table = np.frombuffer(rows, np.uint8).reshape(height, row + 1)
    if table[:, 0].any():
        raise NotARelease("was not written by this software: its rows are filtered")
    pixels: Pixels = (
        table[:, 1:]
        .copy()
        .view(">u2" if depth == 16 else np.uint8)
        .reshape((height, width, 3) if colour else (height, width))
    )
    return pixels.astype(np.uint16) if depth == 16 else pixels, more
