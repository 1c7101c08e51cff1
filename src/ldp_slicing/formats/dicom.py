"""DICOM files: reads grey images of 8 to 16 bits, writes secondary captures without any attribute of the source.

Signed values are shifted by half their range, so that words have the order of the values; the release is unsigned, and
its rescale intercept shifts back. MONOCHROME1 (0 is white) becomes MONOCHROME2. Each frame of a multi-frame file is a
release.
"""

from __future__ import annotations

import hashlib
import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pydicom
from numpy.typing import NDArray
from pydicom.encaps import generate_fragments
from pydicom.pixels.utils import iter_pixels
from pydicom.uid import RLELossless

from ldp_slicing.errors import ImageError
from ldp_slicing.formats.base import Claims, Content, Entry, Options, PixelBuffer
from ldp_slicing.png import MAX_PIXELS
from ldp_slicing.storage import TemporaryFile

_SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
_EXPLICIT_LITTLE_ENDIAN, _DEFLATED = "1.2.840.10008.1.2.1", b"1.2.840.10008.1.2.1.99"
_IMPLEMENTATION = "2.25.243081634961029577117206419637925893214"  # ours, the same for every version
_REQUIRED_IN_SOURCE = (
    "PhotometricInterpretation",
    "SamplesPerPixel",
    "Rows",
    "Columns",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
)
_METHOD = ("ldp-slicing: attributes removed", "pixels randomised, see card", "burned-in text not sought")
_LONG_FORM = ("OB", "OW", "UN")  # value representations whose length has four bytes
_PIXEL_DATA = 0x7FE00010
_MAX_HEADER_BYTES = 1 << 20  # the numbers of 150,000 frames
_FRAME_HEADS = (b"\xff\xd8", b"\xff\x4f")  # JPEG and JPEG-LS; JPEG 2000. Later fragments of a frame do not begin so
_FRAME_MARKERS = (*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0), 0xF7)  # size follows


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    """Yield every frame as uint8 [H, W] (8 bits) or uint16 [H, W]. ``kept`` says how the source stores its pixels."""
    data = file.read()
    digest = hashlib.sha256(data).digest()
    if _DEFLATED in data:  # pydicom would inflate it whatever its size
        raise ImageError("is compressed as a whole (deflated): convert it to an uncompressed DICOM file first")
    try:
        dataset = pydicom.dcmread(io.BytesIO(data))
        about = _pixel_description(dataset)
        frames = int(dataset.get("NumberOfFrames") or 1)
        _check_frame_count(dataset, frames)
        for number, stored in enumerate(iter_pixels(io.BytesIO(data), raw=True), 1):
            words = _to_words(stored, about)
            if frames > 1:
                yield Entry(str(number), words, about["bits"], digest, frame=number, kept=about)
            else:
                yield Entry("", words, about["bits"], digest, kept=about)
    except ImageError:
        raise
    except pydicom.errors.InvalidDicomError:
        raise ImageError("is not a DICOM file: its header is missing") from None
    except Exception as error:  # pydicom and its decoders raise many types
        raise ImageError(
            f"cannot be decoded (damaged, or an unsupported compression): {type(error).__name__}: {error}"
        ) from None


def _pixel_description(dataset: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return how the pixels are stored; raise ImageError unless they are one channel of 8 to 16 bits."""
    if "PixelData" not in dataset:
        raise ImageError("has no integer pixels; floating-point pixels have no fixed range and cannot be released")
    if missing := [name for name in _REQUIRED_IN_SOURCE if name not in dataset]:
        raise ImageError(f"does not state how its pixels are stored: {', '.join(missing)} missing")
    if dataset.Rows * dataset.Columns > MAX_PIXELS:
        raise ImageError(f"declares {dataset.Columns} x {dataset.Rows} pixels, more than {MAX_PIXELS:,}")
    photometric, samples, bits = dataset.PhotometricInterpretation, dataset.SamplesPerPixel, int(dataset.BitsStored)
    if samples != 1 or photometric not in ("MONOCHROME1", "MONOCHROME2"):
        raise ImageError(
            f"is {photometric} with {samples} samples per pixel; only grey (MONOCHROME1, MONOCHROME2) can be released"
        )
    if not 8 <= bits <= 16 or int(dataset.HighBit) != bits - 1:
        raise ImageError(
            f"stores {bits} bits with high bit {int(dataset.HighBit)}; only 8 to 16 bits, starting at the lowest bit, "
            "can be released"
        )
    return {
        "bits": bits,
        "signed": bool(dataset.PixelRepresentation),
        "inverted": photometric == "MONOCHROME1",
        "burned": str(dataset.get("BurnedInAnnotation") or ""),
    }


def _check_frame_count(dataset: Any, frames: int) -> None:  # noqa: ANN401
    """Raise ImageError if the pixel data does not hold ``frames`` frames: decoders ignore what is beyond them."""
    syntax = dataset.file_meta.TransferSyntaxUID
    if not syntax.is_encapsulated:
        size = (int(dataset.Rows) * int(dataset.Columns) * frames * int(dataset.BitsAllocated) + 7) // 8
        if not size <= len(dataset.PixelData) < size + size // frames:  # some writers pad the pixel data
            raise ImageError(
                f"cannot be decoded: it has {len(dataset.PixelData)} bytes of pixels, and {frames} frames need {size}"
            )
        return
    fragments = generate_fragments(dataset.PixelData)
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


def _to_words(stored: NDArray[Any], about: dict[str, Any]) -> NDArray[np.unsignedinteger]:
    """Return unsigned words, 0 is black. Bits above the stored ones (overlays) are removed."""
    bits = about["bits"]
    mask = np.uint16((1 << bits) - 1)
    words = stored.astype(np.uint16)
    words &= mask
    if about["signed"]:
        words ^= np.uint16(1 << (bits - 1))
    if about["inverted"]:
        words ^= mask
    return words.astype(np.uint8) if bits == 8 else words


@dataclass(frozen=True)
class _Header:
    """Everything that a release says besides its pixels.

    uid: the number that identifies the release. UIDs of study and series follow from it.
    burned: what the source says of text in its pixels, YES, NO or nothing.
    """

    uid: int
    rows: int
    columns: int
    bits: int
    frames: int
    signed: bool
    burned: str

    def encode(self) -> bytes:
        """Return the file up to the first pixel: its one and only encoding, Explicit VR Little Endian."""
        sop_class = _SECONDARY_CAPTURE
        if self.frames > 1:
            sop_class += ".2" if self.bits == 8 else ".3"
        instance = f"2.25.{self.uid}"
        meta = b"".join(
            (
                _element(0x00020001, "OB", b"\0\1"),
                _element(0x00020002, "UI", sop_class),
                _element(0x00020003, "UI", instance),
                _element(0x00020010, "UI", _EXPLICIT_LITTLE_ENDIAN),
                _element(0x00020012, "UI", _IMPLEMENTATION),
            )
        )
        study, series = (f"2.25.{_number(f'{part} {instance}')}" for part in ("study", "series"))
        attributes: list[tuple[int, str, str | int | bytes]] = [  # a secondary capture must have the empty ones, too
            (0x00080016, "UI", sop_class),
            (0x00080018, "UI", instance),
            (0x00080020, "DA", ""),  # study date
            (0x00080030, "TM", ""),  # study time
            (0x00080050, "SH", ""),  # accession number
            (0x00080060, "CS", "OT"),  # modality
            (0x00080064, "CS", "WSD"),  # conversion type
            (0x00080090, "PN", ""),  # referring physician
            (0x00100010, "PN", ""),  # patient's name
            (0x00100020, "LO", ""),  # patient's ID
            (0x00100030, "DA", ""),  # patient's birth date
            (0x00100040, "CS", ""),  # patient's sex
            # Burned-in text is not sought, so identity counts as removed only if the source says that there is none.
            (0x00120062, "CS", "YES" if self.burned == "NO" else "NO"),
            (0x00120063, "LO", "\\".join(_METHOD)),
            *([(0x00182001, "IS", _page_numbers(self.frames))] if self.frames > 1 else []),
            (0x0020000D, "UI", study),
            (0x0020000E, "UI", series),
            (0x00200010, "SH", ""),  # study ID
            (0x00200011, "IS", ""),  # series number
            (0x00200013, "IS", ""),  # instance number
            (0x00200020, "CS", ""),  # patient orientation
            (0x00280002, "US", 1),  # samples per pixel
            (0x00280004, "CS", "MONOCHROME2"),
            *([(0x00280008, "IS", str(self.frames))] if self.frames > 1 else []),
            *([(0x00280009, "AT", struct.pack("<HH", 0x0018, 0x2001))] if self.frames > 1 else []),
            (0x00280010, "US", self.rows),
            (0x00280011, "US", self.columns),
            (0x00280100, "US", 8 * self.pixel_bytes),
            (0x00280101, "US", self.bits),
            (0x00280102, "US", self.bits - 1),  # high bit
            (0x00280103, "US", 0),  # unsigned
            *([(0x00280301, "CS", self.burned)] if self.burned else []),
            (0x00280303, "CS", "REMOVED"),  # longitudinal temporal information
            (0x00281052, "DS", str(-(1 << (self.bits - 1)) if self.signed else 0)),  # rescale intercept
            (0x00281053, "DS", "1"),  # rescale slope
            (0x00281054, "LO", "US"),  # rescale type
            (0x20500020, "CS", "IDENTITY"),  # presentation LUT shape
        ]
        size = self.frames * self.frame_bytes
        pixels = _start(_PIXEL_DATA, "OB" if self.bits == 8 else "OW", size + size % 2)
        parts = [bytes(128), b"DICM", _element(0x00020000, "UL", struct.pack("<L", len(meta))), meta]
        return b"".join((*parts, *(_element(*attribute) for attribute in attributes), pixels))

    @property
    def pixel_bytes(self) -> int:
        return 1 if self.bits == 8 else 2

    @property
    def frame_bytes(self) -> int:
        return self.rows * self.columns * self.pixel_bytes


def _start(tag: int, kind: str, length: int) -> bytes:
    """Return what comes before a value: tag, value representation and length."""
    head = struct.pack("<HH2s", tag >> 16, tag & 0xFFFF, kind.encode())
    return head + (struct.pack("<HL", 0, length) if kind in _LONG_FORM else struct.pack("<H", length))


def _element(tag: int, kind: str, value: str | int | bytes) -> bytes:
    if isinstance(value, int):
        data = struct.pack("<H", value)
    else:
        data = value.encode() if isinstance(value, str) else value
        data += (b"\0" if kind in ("UI", "OB") else b" ") * (len(data) % 2)
    kind = kind if len(data) < 1 << 16 else "UN"  # the standard's form for values that are too long
    return _start(tag, kind, len(data)) + data


def _page_numbers(frames: int) -> str:
    return "\\".join(map(str, range(1, frames + 1)))


def _number(text: str) -> int:
    """Return a number of 128 bits. After "2.25." it is a UID, the same whenever the same release is made again."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


class Writer:
    """Writes all frames as one secondary capture."""

    canvas = PixelBuffer

    def __init__(self, file: TemporaryFile, options: Options) -> None:
        self._file = file
        self._frames: list[bytes] = []
        self._first: tuple[Entry, str] | None = None

    def add(self, entry: Entry, name: str, identity: str, canvas: PixelBuffer) -> None:
        self._first = self._first or (entry, identity)
        self._frames.append(canvas.pixels.astype(canvas.pixels.dtype.newbyteorder("<")).tobytes())

    def close(self) -> None:
        if self._first is None:
            raise ImageError("has no frames")
        entry, identity = self._first
        rows, columns = entry.pixels.shape
        burned = entry.kept["burned"] if entry.kept["burned"] in ("YES", "NO") else ""
        frames, signed = len(self._frames), entry.kept["signed"]
        header = _Header(_number(f"image {identity}"), rows, columns, entry.bits, frames, signed, burned)
        padding = b"\0" * (frames * header.frame_bytes % 2)
        self._file.writelines([header.encode(), *self._frames, padding])

    def abort(self) -> None:
        self._frames.clear()


def check(file: BinaryIO, claims: Claims) -> Iterator[Content]:
    """Yield the file as one release of one or more frames. Every byte must be the one that ``Writer`` writes."""
    written, values = _read_header(file)
    header = _parse(values)
    if (problem := claims.size_problem(header.columns, header.rows, header.bits)) is not None:
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
        if header.bits not in (8, 16) and np.frombuffer(data, "<u2").max() >> header.bits:
            yield Content(None, problem=f"holds more than pixels: bits above the {header.bits} that are stored")
            return
    padding = bytes(header.frames * header.frame_bytes % 2)
    if file.read(len(padding) + 1) != padding:
        yield Content(None, problem="holds more than pixels: bytes after them")
        return
    yield Content(None, header.columns, header.rows, header.bits, header.frames)


def _read_header(file: BinaryIO) -> tuple[bytes, dict[int, bytes]]:
    """Return the bytes up to the first pixel, and the encoded elements in them by their tags."""
    written, values = bytearray(file.read(132)), dict[int, bytes]()
    while _PIXEL_DATA not in values:
        head = file.read(8)
        if len(head) < 8:
            raise ImageError("is cut off in its header")
        group, number, kind, length = struct.unpack("<HH2sH", head)
        if kind.decode("latin1") in _LONG_FORM:
            more = file.read(4)
            head, length = head + more, int.from_bytes(more, "little")
        tag = group << 16 | number
        if tag != _PIXEL_DATA:
            if len(written) + length > _MAX_HEADER_BYTES:
                raise ImageError("has a header that is longer than any release has")
            head += file.read(length)
        written += head
        values[tag] = head
    return bytes(written), values


def _parse(values: dict[int, bytes]) -> _Header:
    """Return the description in a header. Whatever it does not cover is found by encoding it again."""

    def text(tag: int) -> str:
        return values[tag][8:].decode("ascii").rstrip(" \0") if tag in values else ""

    rows, columns, bits = (struct.unpack("<H", values[tag][8:])[0] for tag in (0x00280010, 0x00280011, 0x00280101))
    uid = re.fullmatch(r"2\.25\.(0|[1-9][0-9]{0,38})", text(0x00080018))
    frames, burned = re.fullmatch("[1-9][0-9]{0,8}", text(0x00280008) or "1"), text(0x00280301)
    if not (uid and int(uid[1]) < 1 << 128 and frames and rows and columns and 8 <= bits <= 16):
        raise ImageError("is not a release: its UID, size or depth is one that no release has")
    signed = text(0x00281052).startswith("-")
    return _Header(int(uid[1]), rows, columns, bits, int(frames[0]), signed, burned if burned in ("YES", "NO") else "")


def _first_difference(values: dict[int, bytes], expected: bytes) -> str:
    """Return which element of a header is not as expected."""
    right = _read_header(io.BytesIO(expected))[1]
    differing = [tag for tag in sorted({*values, *right}) if values.get(tag) != right.get(tag)]
    if not differing:
        return "its preamble, or the order of its elements,"
    return f"the element ({differing[0] >> 16:04X},{differing[0] & 0xFFFF:04X})"
