"""How a DICOM file says that it stores its pixels, and the checks before anything is decoded."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydicom.encaps import generate_fragments, generate_frames
from pydicom.uid import RLELossless

from ldp_slicing.errors import ImageError
from ldp_slicing.png import MAX_PIXELS

_REQUIRED = ("PhotometricInterpretation", "SamplesPerPixel", "Rows", "Columns", "BitsAllocated")
_REQUIRED_OF_INTEGERS = ("BitsStored", "HighBit", "PixelRepresentation")
_PIXELS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_GREY = ("MONOCHROME1", "MONOCHROME2")
_COLOUR = {"RGB": 3, "YBR_FULL": 3, "YBR_FULL_422": 3, "YBR_ICT": 3, "YBR_RCT": 3, "PALETTE COLOR": 1}
_FRAME_HEADS = (b"\xff\xd8", b"\xff\x4f")  # JPEG and JPEG-LS; JPEG 2000. Later fragments of a frame do not begin so
_FRAME_MARKERS = (*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0), 0xF7)  # size follows
_DEFLATED, _PLAIN = b"1.2.840.10008.1.2.1.99", b"1.2.840.10008.1.2.1\0\0\0"  # transfer syntaxes
_META_START, _TRANSFER_SYNTAX = 132, 0x10  # where group 2 begins, and an element of it
_LONG_FORM = tuple(b"OB OD OF OL OV OW SQ SV UC UN UR UT UV".split())  # whose length has four bytes
_MOST_INFLATED = 4 * MAX_PIXELS
_JP2_HEAD = b"\0\0\0\x0cjP  "
_RLE_HEADER, _RLE_EXPANSION = 64, 3  # bytes, and the most that a wasteful writer may need for a byte of pixels


@dataclass(frozen=True)
class Stored:
    """How the pixels of a file are stored.

    attribute: the name of the element that holds them.
    bits: the bits stored of a sample, 1 to 32, or 64 for floats.
    is_inverted: whether 0 is white.
    """

    attribute: str
    frames: int
    bits: int
    is_colour: bool
    is_palette: bool
    is_signed: bool
    is_inverted: bool

    @property
    def is_float(self) -> bool:
        return self.attribute != "PixelData"


def inflated(data: bytes) -> bytes:
    """Return a file that is deflated as a whole in its plain form, and any other file as it is.

    pydicom would inflate it whatever its size.
    """
    if _DEFLATED not in data:
        return data
    end, is_deflated = _end_of_meta(data)
    if not is_deflated:
        return data
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        plain = inflate.decompress(data[end:], _MOST_INFLATED)
    except zlib.error:
        raise ImageError("cannot be decoded: its deflated part is damaged") from None
    if not inflate.eof:
        raise ImageError(f"is deflated, and cut off or larger than {_MOST_INFLATED:,} bytes")
    return data[:end].replace(_DEFLATED, _PLAIN) + plain


def _end_of_meta(data: bytes) -> tuple[int, bool]:
    """Return where the elements of group 2 end, and whether they say that the rest is deflated.

    As in pydicom, they end where another group begins, whatever length they state.
    """
    at, is_deflated = _META_START, False
    while data[at : at + 2] == b"\2\0":
        number, kind, length = struct.unpack_from("<H2sH", data, at + 2)
        start = at + 8
        if kind in _LONG_FORM:
            start, (length,) = at + 12, struct.unpack_from("<L", data, at + 8)
        if not kind.isalpha() or not kind.isupper() or kind == b"SQ" or start + length > len(data):
            raise ImageError("cannot be decoded: its file meta information is damaged")
        at = start + length
        is_deflated = is_deflated or (number == _TRANSFER_SYNTAX and _DEFLATED in data[start:at])
    return at, is_deflated


def describe(dataset: Any) -> Stored:  # noqa: ANN401
    """Return how the pixels are stored; raise ImageError if they cannot be released in any way."""
    attribute = next((name for name in _PIXELS if name in dataset), None)
    if attribute is None:
        raise ImageError("has no pixels")
    needed = (*_REQUIRED, *(_REQUIRED_OF_INTEGERS if attribute == "PixelData" else ()))
    if missing := [name for name in needed if dataset.get(name) is None]:
        raise ImageError(f"does not state how its pixels are stored: {', '.join(missing)} missing")
    if dataset.Rows * dataset.Columns > MAX_PIXELS:
        raise ImageError(f"declares {dataset.Columns} x {dataset.Rows} pixels, more than {MAX_PIXELS:,}")
    photometric, samples = str(dataset.PhotometricInterpretation), int(dataset.SamplesPerPixel)
    if samples != (1 if photometric in _GREY else _COLOUR.get(photometric)):
        raise ImageError(
            f"is {photometric} with {samples} samples per pixel; only {', '.join((*_GREY, *_COLOUR))} can be released"
        )
    is_colour = photometric in _COLOUR
    bits = int(dataset.BitsStored if attribute == "PixelData" else dataset.BitsAllocated)
    if attribute == "PixelData" and (not 1 <= bits <= 32 or int(dataset.HighBit) != bits - 1):
        raise ImageError(
            f"stores {bits} bits with high bit {int(dataset.HighBit)}; only 1 to 32 bits, starting at the lowest bit, "
            "can be released"
        )
    is_palette = photometric == "PALETTE COLOR"
    is_signed = attribute == "PixelData" and bool(dataset.PixelRepresentation)
    if is_colour and (attribute != "PixelData" or is_signed or (bits < 8 and not is_palette)):
        raise ImageError("has colours that are signed, floating-point or of fewer than 8 bits")
    frames = int(dataset.get("NumberOfFrames") or 1)
    if frames < 1 or dataset.Rows < 1 or dataset.Columns < 1:
        raise ImageError("states that it has no pixels")
    return Stored(attribute, frames, bits, is_colour, is_palette, is_signed, photometric == "MONOCHROME1")


def check_amount(dataset: Any, stored: Stored) -> None:  # noqa: ANN401
    """Raise ImageError if the pixel data does not hold the stated frames: decoders ignore what is beyond them."""
    syntax, data, frames = dataset.file_meta.TransferSyntaxUID, dataset[stored.attribute].value, stored.frames
    if not syntax.is_encapsulated:
        # Of a pair of pixels, YBR_FULL_422 stores two Y, one Cb and one Cr.
        samples = 2 if dataset.PhotometricInterpretation == "YBR_FULL_422" else int(dataset.SamplesPerPixel)
        size = (int(dataset.Rows) * int(dataset.Columns) * samples * frames * int(dataset.BitsAllocated) + 7) // 8
        if not size <= len(data) < size + max(2, size // max(1, frames)):  # some writers pad the pixel data
            raise ImageError(f"cannot be decoded: it has {len(data)} bytes of pixels, and {frames} frames need {size}")
        return
    fragments = generate_fragments(data)
    next(fragments, None)  # the offset table, which is often empty
    begun = 0
    for fragment in fragments:
        begun += syntax == RLELossless or fragment[:2] in _FRAME_HEADS
    if begun not in (0, frames):  # 0: a compression whose frames are not recognised here
        raise ImageError(f"cannot be decoded: it holds {begun} compressed frames and states {frames}")


def encapsulated_frames(dataset: Any, stored: Stored) -> Iterator[bytes]:  # noqa: ANN401
    """Yield the compressed frames, put together as pydicom does it: one may be spread over fragments."""
    offsets = (dataset.get("ExtendedOffsetTable"), dataset.get("ExtendedOffsetTableLengths"))
    return generate_frames(
        dataset[stored.attribute].value,
        number_of_frames=stored.frames,
        extended_offsets=None if None in offsets else offsets,
    )


def check_frame(dataset: Any, frame: bytes) -> None:  # noqa: ANN401
    """Raise ImageError if a compressed frame states another size: decoders allocate memory for that size."""
    rows, columns, samples = int(dataset.Rows), int(dataset.Columns), int(dataset.SamplesPerPixel)
    if dataset.file_meta.TransferSyntaxUID == RLELossless:
        stated = rows * columns * samples * int(dataset.BitsAllocated) // 8
        if len(frame) > _RLE_HEADER + _RLE_EXPANSION * stated + 2 * 4 * samples:
            raise ImageError(f"cannot be decoded: a compressed frame has {len(frame)} bytes, for {stated} of pixels")
        return
    coded = _coded_size(frame)
    if coded != (rows, columns, samples):
        raise ImageError(
            f"cannot be decoded: a compressed frame has {coded[1]} x {coded[0]} pixels of {coded[2]} samples, and the "
            f"file states {columns} x {rows} of {samples}"
        )


def _coded_size(frame: bytes) -> tuple[int, int, int]:
    """Return the rows, columns and samples that a frame of JPEG, JPEG-LS or JPEG 2000 states."""
    frame = _codestream(frame)
    if frame.startswith(b"\xff\x4f\xff\x51"):  # JPEG 2000: right and lower edge, left and upper edge
        right, lower, left, upper = struct.unpack_from(">4L", frame, 8)
        (samples,) = struct.unpack_from(">H", frame, 40)
        return lower - upper, right - left, samples
    if not frame.startswith(b"\xff\xd8"):
        raise ImageError("cannot be decoded: the beginning of a compressed frame is missing")
    at = 2
    while frame[at] == 0xFF and frame[at + 1] not in _FRAME_MARKERS:  # skip other segments
        at += 1 if frame[at + 1] == 0xFF else 2 + struct.unpack_from(">H", frame, at + 2)[0]
    rows, columns, samples = struct.unpack_from(">HHB", frame, at + 5)
    return rows, columns, samples


def _codestream(frame: bytes) -> bytes:
    """Return the JPEG 2000 in a JP2 file, which some writers store, or any other frame as it is."""
    at = 0
    while frame.startswith(_JP2_HEAD):
        size, kind = struct.unpack_from(">L4s", frame, at)
        if kind == b"jp2c":
            return frame[at + (16 if size == 1 else 8) :]
        if size < 8:
            raise ImageError("cannot be decoded: a compressed frame is damaged")
        at += size
    return frame
