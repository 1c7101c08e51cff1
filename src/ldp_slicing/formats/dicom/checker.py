"""Every byte of a DICOM release: its header is read, encoded again and compared."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from ldp_slicing.errors import ImageError
from ldp_slicing.formats.base import Claims, Content, Member, Released
from ldp_slicing.formats.dicom.tags import TAGS, parse_tag
from ldp_slicing.formats.dicom.uids import ROOT, Uids, parse_uid
from ldp_slicing.formats.dicom.writer import (
    LONG_FORM,
    NO_MODALITY,
    PIXEL_DATA,
    DicomHeader,
    plain_rescale,
    written_rescale,
)
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.value_range import RangeMap, ValueRange

_MAX_HEADER_BYTES = 1 << 20  # the numbers of 150,000 frames


def check(file: BinaryIO, claims: Claims) -> Iterator[Content]:
    """Yield the file as one release of one or more frames, and what is kept in it.

    Every byte must be the one that ``Writer`` writes.
    """
    written, values = _read_header(file)
    header = _parse(values)
    problem = claims.size_problem(header.columns, header.rows, header.bits) or _rescale_problem(header, claims)
    if problem is not None:
        yield Content(None, problem=problem)
        return
    expected = header.encode()
    if written != expected:
        where = _first_difference(values, expected)
        yield Content(None, problem=f"holds more than pixels, or is not our file: {where} differs")
        return
    for _ in range(header.frames):
        data = file.read(header.frame_bytes)
        if len(data) != header.frame_bytes:
            yield Content(None, problem="is cut off in its pixels")
            return
        if header.sample_bits != 8 * header.sample_bytes:
            words = np.frombuffer(data, "<u2" if header.sample_bytes == 2 else "u1")
            if words.max() >> header.sample_bits:
                yield Content(None, problem=f"holds more than pixels: bits above the {header.bits} that are stored")
                return
    padding = bytes(header.frames * header.frame_bytes % 2)
    if file.read(len(padding) + 1) != padding:
        yield Content(None, problem="holds more than pixels: bytes after them")
        return
    yield Content(None, header.columns, header.rows, header.bits, header.frames)
    for name, _ in header.tags:
        yield Content(None, kept=name)


def members(file: BinaryIO) -> Iterator[Member]:
    """Yield one member per frame. The piece is the number of the frame, from 0."""
    frames = _parse(_read_header(file)[1]).frames
    yield from (Member(str(number + 1) if frames > 1 else "", number) for number in range(frames))


def load(file: BinaryIO, piece: int) -> list[Released]:
    """Return a frame. ``kept`` has the attributes that were kept, and SeriesInstanceUID."""
    written, values = _read_header(file)
    header = _parse(values)
    file.seek(len(written) + piece * header.frame_bytes)
    data = file.read(header.frame_bytes)
    if len(data) != header.frame_bytes:
        raise ImageError("is cut off in its pixels")
    words = np.frombuffer(data, "<u2" if header.sample_bytes == 2 else "u1")
    shape = (header.rows, header.columns, 3) if header.is_colour else (header.rows, header.columns)
    kept = {name: TAGS[name].decode(text) for name, text in header.tags}
    pixels = words.astype(words.dtype.newbyteorder("=")).reshape(shape)
    return [Released(pixels, header.bits, kept | {"SeriesInstanceUID": f"{ROOT}{header.uids.series}"})]


def _rescale_problem(header: DicomHeader, claims: Claims) -> str | None:
    """Return what is wrong with the stated rescale, by the range on the card. Without a plan there is no card."""
    if header.bits not in claims.plans or header.is_colour:
        return None
    wanted = claims.ranges.get(header.bits)
    if header.rescale in _possible_rescales(header.bits, wanted):
        return None
    stated = (
        f"a rescale intercept of {header.rescale[0]} and slope of {header.rescale[1]}" if header.rescale else "none"
    )
    return f"states {stated}, which does not follow from the card (range {wanted or 'none'})"


def _possible_rescales(bits: int, wanted: ValueRange | None) -> list[tuple[str, str]]:
    if wanted is None:
        return [plain_rescale(bits, signed=signed) for signed in (False, True)]
    maps = (RangeMap(wanted, wanted.high - wanted.low, wanted.low, inverted) for inverted in (False, True))
    return [written_rescale(*by.rescale) for by in maps]


def _read_header(file: BinaryIO) -> tuple[bytes, dict[int, bytes]]:
    """Return the bytes up to the first pixel, and the encoded elements in them by their tags."""
    written, values = bytearray(file.read(132)), dict[int, bytes]()
    while PIXEL_DATA not in values:
        head = file.read(8)
        if len(head) < 8:
            raise ImageError("is cut off in its header")
        group, number, kind, length = struct.unpack("<HH2sH", head)
        if kind.decode("latin1") in LONG_FORM:
            more = file.read(4)
            head, length = head + more, int.from_bytes(more, "little")
        tag = group << 16 | number
        if tag != PIXEL_DATA:
            if len(written) + length > _MAX_HEADER_BYTES:
                raise ImageError("has a header that is longer than any release has")
            head += file.read(length)
        written += head
        values[tag] = head
    return bytes(written), values


def _parse(values: dict[int, bytes]) -> DicomHeader:
    """Return the description in a header. Whatever it does not cover is found by encoding it again."""

    def text(tag: int) -> str:
        return values[tag][8:].decode("ascii").rstrip(" \0") if tag in values else ""

    samples, rows, columns, bits = (
        struct.unpack("<H", values[tag][8:])[0] for tag in (0x00280002, 0x00280010, 0x00280011, 0x00280101)
    )
    image, study, series = (parse_uid(text(tag)) for tag in (0x00080018, 0x0020000D, 0x0020000E))
    place = parse_uid(text(0x00200052))
    frames, burned = re.fullmatch("[1-9][0-9]{0,8}", text(0x00280008) or "1"), text(0x00280301)
    if None in (image, study, series) or not (frames and rows and columns and 1 <= bits <= 16):
        raise ImageError("is not a release: its UIDs, size or depth are none that a release has")
    is_colour = samples == 3
    uids = Uids(image or 0, study or 0, series or 0, place)
    rescale = None if is_colour else (text(0x00281052), text(0x00281053))
    return DicomHeader(
        uids,
        rows,
        columns,
        COLOUR_BITS if is_colour else bits,
        int(frames[0]),
        burned if burned in ("YES", "NO") else "",
        rescale,
        _kept_tags({name: text(tag.number) for name, tag in TAGS.items() if tag.number in values}),
    )


def _kept_tags(texts: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the attributes that were kept. Those without a value, and no modality, are in every release."""
    kept = {name: text for name, text in texts.items() if text and (name, text) != ("Modality", NO_MODALITY)}
    for name, text in kept.items():
        if parse_tag(name, text) is None:
            raise ImageError(f"is not a release: its {name} is not as this software writes it")
    return tuple(sorted(kept.items()))


def _first_difference(values: dict[int, bytes], expected: bytes) -> str:
    """Return which element of a header is not as expected."""
    right = _read_header(io.BytesIO(expected))[1]
    differing = [tag for tag in sorted({*values, *right}) if values.get(tag) != right.get(tag)]
    if not differing:
        return "its preamble, or the order of its elements,"
    return f"the element ({differing[0] >> 16:04X},{differing[0] & 0xFFFF:04X})"
