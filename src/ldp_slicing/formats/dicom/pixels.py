"""How a DICOM file says that it stores its pixels, and the checks before anything is decoded."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

from pydicom.encaps import generate_fragments
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
_META_START, _META_LENGTH = 132, b"\x02\0\0\0UL\x04\0"
_MOST_INFLATED = 4 * MAX_PIXELS


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
    if data[_META_START : _META_START + 8] != _META_LENGTH:
        return data
    end = _META_START + 12 + int.from_bytes(data[_META_START + 8 : _META_START + 12], "little")
    if _DEFLATED not in data[:end]:
        return data
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        plain = inflate.decompress(data[end:], _MOST_INFLATED)
    except zlib.error:
        raise ImageError("cannot be decoded: its deflated part is damaged") from None
    if not inflate.eof:
        raise ImageError(f"is deflated, and cut off or larger than {_MOST_INFLATED:,} bytes")
    return data[:end].replace(_DEFLATED, _PLAIN, 1) + plain


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
        if syntax == RLELossless:
            begun += 1
        elif fragment[:2] in _FRAME_HEADS:
            begun += 1
            _check_coded_size(fragment, int(dataset.Rows), int(dataset.Columns))
    if begun not in (0, frames):  # 0: a compression whose frames are not recognised here
        raise ImageError(f"cannot be decoded: it holds {begun} compressed frames and states {frames}")


def _check_coded_size(frame: bytes, rows: int, columns: int) -> None:
    """Raise ImageError if a compressed frame states another size: decoders allocate memory for that size."""
    if frame.startswith(b"\xff\x4f\xff\x51"):  # JPEG 2000: right and lower edge, left and upper edge
        right, lower, left, upper = struct.unpack_from(">4L", frame, 8)
        coded = (lower - upper, right - left)
    else:
        at = 2
        while frame[at] == 0xFF and frame[at + 1] not in _FRAME_MARKERS:  # skip other segments
            at += 2 + int.from_bytes(frame[at + 2 : at + 4], "big")
        coded = struct.unpack_from(">HH", frame, at + 5)
    if coded != (rows, columns):
        raise ImageError(f"cannot be decoded: a compressed frame has {coded[1]} x {coded[0]} pixels")
