"""The one encoding of a DICOM release: a secondary capture in Explicit VR Little Endian.

Grey words are unsigned, and 0 is black. A rescale slope and intercept turn them into values: into the range of
``--range``, or, without one, into signed numbers if those of the source were signed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction

from pydicom.valuerep import format_number_as_ds

from ldp_slicing.errors import ImageError
from ldp_slicing.formats.base import Entry, Options, PixelBuffer
from ldp_slicing.formats.dicom.tags import TAGS
from ldp_slicing.formats.dicom.uids import ROOT, Uids, uids_of
from ldp_slicing.plan import COLOUR_BITS, channel_bits
from ldp_slicing.storage import TemporaryFile

_SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
_EXPLICIT_LITTLE_ENDIAN = "1.2.840.10008.1.2.1"
_IMPLEMENTATION = "2.25.243081634961029577117206419637925893214"  # ours, the same for every version
_METHOD = ("ldp-slicing: attributes removed", "pixels randomised, see card", "burned-in text not sought")
LONG_FORM = ("OB", "OW", "UN")  # value representations whose length has four bytes
PIXEL_DATA = 0x7FE00010
Attribute = tuple[int, str, str | int | bytes]


@dataclass(frozen=True)
class DicomHeader:
    """Everything that a release says besides its pixels.

    bits: of a word, 24 for colour and 1 to 16 for grey.
    burned: what is said of text in the pixels: YES, NO or nothing.
    rescale: intercept and slope as they are written; nothing for colour.
    tags: the attributes that the owner kept, by name.
    """

    uids: Uids
    rows: int
    columns: int
    bits: int
    frames: int
    burned: str
    rescale: tuple[str, str] | None
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def is_colour(self) -> bool:
        return self.bits == COLOUR_BITS

    @property
    def sample_bits(self) -> int:
        return channel_bits(self.bits)

    @property
    def sample_bytes(self) -> int:
        return 1 if self.sample_bits <= 8 else 2

    @property
    def frame_bytes(self) -> int:
        return self.rows * self.columns * self.sample_bytes * (3 if self.is_colour else 1)

    @property
    def sop_class(self) -> str:
        if self.frames == 1:
            return _SECONDARY_CAPTURE
        return _SECONDARY_CAPTURE + (".4" if self.is_colour else ".2" if self.sample_bytes == 1 else ".3")

    def encode(self) -> bytes:
        """Return the file up to the first pixel: its one and only encoding."""
        meta = b"".join(
            (
                _element(0x00020001, "OB", b"\0\1"),
                _element(0x00020002, "UI", self.sop_class),
                _element(0x00020003, "UI", f"{ROOT}{self.uids.image}"),
                _element(0x00020010, "UI", _EXPLICIT_LITTLE_ENDIAN),
                _element(0x00020012, "UI", _IMPLEMENTATION),
            )
        )
        attributes = {attribute[0]: attribute for attribute in (*self._about_file(), *self._about_pixels())}
        for name, text in self.tags:
            attributes[TAGS[name].number] = (TAGS[name].number, TAGS[name].kind, text)
        size = self.frames * self.frame_bytes
        pixels = _start(PIXEL_DATA, "OB" if self.sample_bytes == 1 else "OW", size + size % 2)
        parts = [bytes(128), b"DICM", _element(0x00020000, "UL", struct.pack("<L", len(meta))), meta]
        return b"".join((*parts, *(_element(*attributes[tag]) for tag in sorted(attributes)), pixels))

    def _about_file(self) -> list[Attribute]:
        """A secondary capture must have the empty ones, too."""
        return [
            (0x00080016, "UI", self.sop_class),
            (0x00080018, "UI", f"{ROOT}{self.uids.image}"),
            (0x00080020, "DA", ""),  # study date
            (0x00080030, "TM", ""),  # study time
            (0x00080050, "SH", ""),  # accession number
            (0x00080060, "CS", NO_MODALITY),
            (0x00080064, "CS", "WSD"),  # conversion type
            (0x00080090, "PN", ""),  # referring physician
            (0x00100010, "PN", ""),  # patient's name
            (0x00100020, "LO", ""),  # patient's ID
            (0x00100030, "DA", ""),  # patient's birth date
            (0x00100040, "CS", ""),  # patient's sex
            # Burned-in text is not sought, so identity counts as removed only if it is said that there is none.
            (0x00120062, "CS", "YES" if self.burned == "NO" else "NO"),
            (0x00120063, "LO", "\\".join(_METHOD)),
            (0x0020000D, "UI", f"{ROOT}{self.uids.study}"),
            (0x0020000E, "UI", f"{ROOT}{self.uids.series}"),
            (0x00200010, "SH", ""),  # study ID
            (0x00200011, "IS", ""),  # series number
            (0x00200013, "IS", ""),  # instance number
            (0x00200020, "CS", ""),  # patient orientation
            *([] if self.uids.place is None else [(0x00200052, "UI", f"{ROOT}{self.uids.place}")]),
        ]

    def _about_pixels(self) -> list[Attribute]:
        several, attributes = self.frames > 1, list[Attribute]()
        if several:
            attributes += [
                (0x00182001, "IS", "\\".join(map(str, range(1, self.frames + 1)))),  # page numbers
                (0x00280008, "IS", str(self.frames)),
                (0x00280009, "AT", struct.pack("<HH", 0x0018, 0x2001)),  # frames are in the order of the page numbers
            ]
        if self.is_colour:
            attributes.append((0x00280006, "US", 0))  # the samples of a pixel are next to each other
        if self.burned:
            attributes.append((0x00280301, "CS", self.burned))
        if self.rescale is not None:
            attributes += [
                (0x00281052, "DS", self.rescale[0]),
                (0x00281053, "DS", self.rescale[1]),
                (0x00281054, "LO", "US"),  # rescale type: unspecified
                (0x20500020, "CS", "IDENTITY"),  # presentation LUT shape
            ]
        return [
            *attributes,
            (0x00280002, "US", 3 if self.is_colour else 1),
            (0x00280004, "CS", "RGB" if self.is_colour else "MONOCHROME2"),
            (0x00280010, "US", self.rows),
            (0x00280011, "US", self.columns),
            (0x00280100, "US", 8 * self.sample_bytes),
            (0x00280101, "US", self.sample_bits),
            (0x00280102, "US", self.sample_bits - 1),  # high bit
            (0x00280103, "US", 0),  # unsigned
            (0x00280303, "CS", "REMOVED"),  # longitudinal temporal information
        ]


NO_MODALITY = "OT"


def _start(tag: int, kind: str, length: int) -> bytes:
    """Return what comes before a value: tag, value representation and length."""
    head = struct.pack("<HH2s", tag >> 16, tag & 0xFFFF, kind.encode())
    return head + (struct.pack("<HL", 0, length) if kind in LONG_FORM else struct.pack("<H", length))


def _element(tag: int, kind: str, value: str | int | bytes) -> bytes:
    if isinstance(value, int):
        data = struct.pack("<H", value)
    else:
        data = value.encode() if isinstance(value, str) else value
        data += (b"\0" if kind in ("UI", "OB") else b" ") * (len(data) % 2)
    kind = kind if len(data) < 1 << 16 else "UN"  # the standard's form for values that are too long
    return _start(tag, kind, len(data)) + data


def plain_rescale(bits: int, *, signed: bool) -> tuple[str, str]:
    """Return intercept and slope of a release without a range: signed values were shifted by half their range."""
    return str(-(1 << (bits - 1)) if signed else 0), "1"


def written_rescale(slope: Fraction, intercept: Fraction) -> tuple[str, str]:
    """Return intercept and slope as decimal strings of at most 16 characters."""
    return _decimal(intercept), _decimal(slope)


def _decimal(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else str(format_number_as_ds(float(value)))


class Writer:
    """Writes all frames as one secondary capture."""

    canvas = PixelBuffer

    def __init__(self, file: TemporaryFile, options: Options) -> None:
        self._file = file
        self._frames: list[bytes] = []
        self._first: tuple[Entry, str, tuple[int, ...]] | None = None

    def add(self, entry: Entry, name: str, identity: str, canvas: PixelBuffer) -> None:
        self._first = self._first or (entry, identity, canvas.pixels.shape)
        self._frames.append(canvas.pixels.astype(canvas.pixels.dtype.newbyteorder("<")).tobytes())

    def close(self) -> None:
        if self._first is None:
            raise ImageError("has no frames")
        entry, identity, shape = self._first
        kept = entry.kept
        rescale = None
        if entry.bits != COLOUR_BITS:
            mapped = kept.get("rescale")
            rescale = written_rescale(*mapped) if mapped else plain_rescale(entry.bits, signed=kept["signed"])
        uids, tags = uids_of(identity, kept["groups"]), tuple(sorted(kept["tags"].items()))
        header = DicomHeader(uids, shape[0], shape[1], entry.bits, len(self._frames), kept["burned"], rescale, tags)
        padding = b"\0" * (header.frames * header.frame_bytes % 2)
        self._file.writelines([header.encode(), *self._frames, padding])

    def abort(self) -> None:
        self._frames.clear()
