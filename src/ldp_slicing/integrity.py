"""Integrity of image files: find damage that Pillow ignores.

Such damage could lose the orientation, the colour profile or further frames without a notice.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO

from ldp_slicing.errors import ImageError
from ldp_slicing.files import CHUNK_BYTES
from ldp_slicing.heif import check_boxes, is_box_image
from ldp_slicing.png import SIGNATURE, chunks_of

NO_IMAGE = "not an image in a supported format (JPEG, PNG, WebP, TIFF, BMP, GIF, HEIC, AVIF)"
# Bytes per value of a TIFF type. All others have 1.
_TIFF_TYPE_BYTES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
MOST_BYTES = 1 << 30  # of an image file, which is read as a whole; a sparse file can have any size


def read_whole(file: BinaryIO, *, otherwise: str = NO_IMAGE) -> bytes:
    """Return the bytes of an open image file, or raise an ImageError with the text ``otherwise``.

    Only the first bytes of any other file are read, because a video can be larger than the memory.
    """
    head = file.read(12)
    if _check_for(head) is None:
        raise ImageError(otherwise if head else "is empty")
    data = bytearray(head)
    while piece := file.read(CHUNK_BYTES):  # reading all at once would allocate as much as may be read
        data += piece
        if len(data) > MOST_BYTES:
            raise ImageError(f"has more than {MOST_BYTES:,} bytes: shrink or crop it")
    return bytes(data)


def check_whole(data: bytes) -> None:
    """Raise an ImageError if the data is not an image, or is cut off where Pillow would not notice."""
    check = _check_for(data[:12])
    if check is None:
        raise ImageError(NO_IMAGE if data else "is empty")
    try:
        check(data)
    except (IndexError, OverflowError, struct.error):
        raise ImageError("is cut off before its end") from None


def is_animation(data: bytes) -> bool:
    """Return whether a whole file is an animated GIF, PNG, WebP or AVIF. A damaged file is not."""
    try:
        if data.startswith(b"GIF8"):
            return len(list(_gif_frames(data))) > 1
        if data.startswith(SIGNATURE):
            frames = (int.from_bytes(one.body[:4], "big") for one in chunks_of(data) if one.kind == b"acTL")
            return any(count > 1 for count in frames)
    except (ImageError, IndexError, OverflowError, struct.error):
        return False
    if data.startswith(b"RIFF"):
        return data[8:16] == b"WEBPVP8X" and len(data) > 20 and bool(data[20] & 2)
    return data[4:12] == b"ftypavis"


def looks_like_image_or_video(data: bytes, whole: int | None = None) -> bool:
    """Return whether the data begins like an image or a video of any common format.

    whole: the number of bytes of the whole, if ``data`` is only its first 4,096.
    """
    whole = len(data) if whole is None else whole
    if data[4:8] == b"ftyp" or data[128:132] == b"DICM" or _NETPBM.match(data[:99]) or data.startswith(_OTHERS):
        return True
    if data.startswith(b"BM"):  # ordinary text can begin like this
        return len(data) > 9 and (struct.unpack_from("<L", data, 2)[0] == whole or data[6:10] == bytes(4))
    if data.startswith(b"RIFF"):
        return data[8:12] in (b"WEBP", b"AVI ", b"AVIX")
    for at, size in ((0, 188), (4, 192)):  # MPEG transport streams
        if len(data) > at + 4 * size and data[at : at + 4 * size + 1 : size] == b"GGGGG":
            return True
    if data[344:348] in (b"n+1\0", b"ni1\0") or data[4:8] in (b"n+2\0", b"ni2\0"):  # NIfTI
        return True
    if data.startswith(b"icns"):
        return len(data) > 8 and struct.unpack_from(">L", data, 4)[0] == whole
    if data.startswith(b"\x01\xda"):  # SGI: storage, bytes per channel, dimensions
        return data[2:3] in (b"\0", b"\1") and data[3:4] in (b"\1", b"\2") and data[4:6] in (b"\0\1", b"\0\2", b"\0\3")
    if data.startswith(b"\n") and len(data) > 128:  # PCX: version, encoding, depth, a zero byte
        return data[1] < 6 and data[2] == 1 and data[3] in (1, 2, 4, 8) and data[64] == 0
    if data.startswith(b"OggS"):
        return b"theora" in data[:64] or b"fishead" in data[:64]
    return _check_for(data[:8]) is not None


def looks_like_archive(data: bytes) -> bool:
    """Return whether the data begins like an archive or like compressed data, which may hold images."""
    if (data[:3], data[4:8]) == (b"BZh", b"1AY&") or _is_tar(data):
        return True
    return any(data.startswith(start) and len(data) >= least for start, least in _ARCHIVES.items())


def _is_tar(data: bytes) -> bool:
    """Return whether the data begins with the header of a tar member. All formats of tar have its checksum.

    Some old software added up signed bytes. Readers of tar accept either sum.
    """
    header, stored = data[:512], data[148:156].strip(b" \0")
    if len(header) < 512 or not re.fullmatch(rb"[0-7]+", stored):
        return False
    counted = header[:148] + b" " * 8 + header[156:]
    unsigned = sum(counted)
    return int(stored, 8) in (unsigned, unsigned - 256 * sum(byte > 127 for byte in counted))


_ARCHIVES = {  # how they begin, and the size of the smallest one: numbers of a few bytes can begin like this, too
    b"PK\3\4": 30,
    b"\x1f\x8b\x08": 18,  # gzip; 8 is the only method that it has
    b"\xfd7zXZ\0": 32,
    b"7z\xbc\xaf\x27\x1c": 32,
    b"Rar!\x1a\7": 20,
    b"(\xb5/\xfd": 9,  # zstd
}
_NETPBM = re.compile(rb"P([1-6]\s+(#[^\n]*\n\s*)*\d+\s+\d+|7\s+(#|WIDTH|HEIGHT|DEPTH))")
_OTHERS = (
    # JPEG 2000, JPEG XL, Matroska and WebM, Photoshop, QOI, OpenEXR, icons
    *(
        b"\0\0\0\x0cjP  ",
        b"\xffO\xffQ",
        b"\xff\n",
        b"\0\0\0\x0cJXL ",
        b"\x1aE\xdf\xa3",
        b"8BPS",
        b"qoif",
        b"v/1\x01",
        b"\0\0\x01\0",
    ),
    # Flash, Windows Media, MPEG streams, Sun, DirectDraw
    *(b"FLV\x01", b"0&\xb2u\x8ef\xcf\x11", b"\0\0\x01\xba", b"\0\0\x01\xb3", b"Y\xa6j\x95", b"DDS |\0\0\0"),
    # Medical images (NRRD, MetaImage), raw files of cameras, and others
    *(b"NRRD000", b"ObjectType = Image"),
    *(b"II\xbc\x01", b"IIU\0", b"IIRO", b"IIRS", b"MMOR", b"FUJIFILMCCD-RAW", b"gimp xcf ", b"FLIF", b"BPG\xfb"),
    *(b"#?RADIANCE\n", b"#?RGBE\n", b"PF\n", b"Pf\n"),
    # FITS, PDF and PostScript, raw video, RealMedia
    *(b"SIMPLE  =", b"%PDF-", b"%!PS", b"\xc5\xd0\xd3\xc6", b"YUV4MPEG2", b".RMF"),
)


def _check_for(head: bytes) -> Callable[[bytes], None] | None:
    if is_box_image(head):
        return check_boxes
    return next((check for signature, check in _CHECKS.items() if head.startswith(signature)), None)


def _check_nothing(data: bytes) -> None:
    """Do nothing: Pillow itself refuses truncated files of these formats."""


def _check_png(data: bytes) -> None:
    """Check all chunks. Pillow ignores wrong checksums of pixels and missing chunks, such as the orientation."""
    for _ in chunks_of(data):
        pass


def _check_gif(data: bytes) -> None:
    """Check for the trailer. Pillow would read an animation that is cut off after its first frame as a still image."""
    for _ in _gif_frames(data):
        pass


def _gif_frames(data: bytes) -> Iterator[int]:
    """Yield where each frame begins. Raise IndexError if the trailer is missing."""

    def palette_bytes(flags: int) -> int:
        return 6 << (flags & 7) if flags & 0x80 else 0

    def after_blocks(at: int) -> int:
        while data[at]:
            at += data[at] + 1
        return at + 1

    at = 13 + palette_bytes(data[10])
    while data[at] != ord(";"):
        if data[at] == ord("!"):
            at = after_blocks(at + 2)
        elif data[at] == ord(","):
            yield at
            at = after_blocks(at + 11 + palette_bytes(data[at + 9]))
        else:
            at += 1


def _check_tiff(data: bytes) -> None:
    """Check that the data of every tag is in the file. Pillow only warns, and would drop a colour profile."""
    order, big = (">" if data.startswith(b"MM") else "<"), data[2:4] in (b"+\0", b"\0+")
    offset, count, entry, room = ("Q", "Q", "HHQ", 8) if big else ("L", "H", "HHL", 4)
    (at,) = struct.unpack_from(order + offset, data, room)
    (entries,) = struct.unpack_from(order + count, data, at)
    at += struct.calcsize(order + count)
    for _ in range(entries):
        _, kind, values = struct.unpack_from(order + entry, data, at)
        at += struct.calcsize(order + entry)
        (start,) = struct.unpack_from(order + offset, data, at)
        if (size := _TIFF_TYPE_BYTES.get(kind, 1) * values) > room and start + size > len(data):
            raise ImageError("is cut off before its end")
        at += room


_CHECKS = {
    b"\xff\xd8\xff": _check_nothing,  # JPEG
    SIGNATURE: _check_png,
    b"RIFF": _check_nothing,  # WebP
    b"BM": _check_nothing,  # BMP
    b"GIF8": _check_gif,
    **dict.fromkeys((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), _check_tiff),
}
