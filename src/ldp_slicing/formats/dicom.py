"""DICOM: grey images of 8 to 16 bits, released as secondary captures that carry nothing of the source but its pixels' protected bits.

Signed values are shifted by half their range, so that the order of words is that of values; the release is unsigned, and its rescale
intercept shifts back. MONOCHROME1 (white is zero) becomes MONOCHROME2. Each frame of a multi-frame object is a release.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import pydicom
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import generate_fragments
from pydicom.pixels.utils import iter_pixels
from pydicom.uid import ExplicitVRLittleEndian, RLELossless

from ldp_slicing.errors import ImageError
from ldp_slicing.formats.base import Entry, Options, Plain, Seen
from ldp_slicing.storage import Draft
from ldp_slicing.version import __version__

SINGLE, MANY_BYTES, MANY_WORDS = (f"1.2.840.10008.5.1.4.1.1.7{suffix}" for suffix in ("", ".2", ".3"))
EMPTY = (  # the object needs them, and they may be empty
    "PatientName",
    "PatientID",
    "PatientBirthDate",
    "PatientSex",
    "StudyDate",
    "StudyTime",
    "ReferringPhysicianName",
    "StudyID",
    "AccessionNumber",
    "SeriesNumber",
    "InstanceNumber",
    "PatientOrientation",
)
ALLOWED = frozenset(
    {
        *EMPTY,
        *(
            "SOPClassUID",
            "SOPInstanceUID",
            "StudyInstanceUID",
            "SeriesInstanceUID",
            "Modality",
            "ConversionType",
            "NumberOfFrames",
        ),
        *(
            "FrameIncrementPointer",
            "PageNumberVector",
            "SamplesPerPixel",
            "PhotometricInterpretation",
            "Rows",
            "Columns",
            "BitsAllocated",
        ),
        *(
            "BitsStored",
            "HighBit",
            "PixelRepresentation",
            "RescaleIntercept",
            "RescaleSlope",
            "RescaleType",
            "PresentationLUTShape",
        ),
        *(
            "PatientIdentityRemoved",
            "DeidentificationMethod",
            "BurnedInAnnotation",
            "LongitudinalTemporalInformationModified",
            "PixelData",
        ),
    }
)
META = frozenset(
    {
        *(
            "FileMetaInformationGroupLength",
            "FileMetaInformationVersion",
            "MediaStorageSOPClassUID",
            "MediaStorageSOPInstanceUID",
        ),
        *("TransferSyntaxUID", "ImplementationClassUID", "ImplementationVersionName"),
    }
)

NEEDED = (
    "PhotometricInterpretation",
    "SamplesPerPixel",
    "Rows",
    "Columns",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
)
_STARTS = (
    b"\xff\xd8",
    b"\xff\x4f",
)  # of a frame in JPEG and JPEG-LS, in JPEG 2000; within one they do not begin a fragment


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    data = file.read()
    digest = hashlib.sha256(data).digest()
    try:
        dataset = pydicom.dcmread(io.BytesIO(data))
        about = _check(dataset)
        frames = int(dataset.get("NumberOfFrames") or 1)
        _check_whole(dataset, frames)
        for number, stored in enumerate(iter_pixels(io.BytesIO(data), raw=True), 1):
            frame = number if frames > 1 else 0
            yield Entry(
                str(number) if frame else "", _words(stored, about), about["bits"], digest, frame=frame, kept=about
            )
    except ImageError:
        raise
    except pydicom.errors.InvalidDicomError:
        raise ImageError("is no DICOM file: its header is missing") from None
    except Exception as error:  # pydicom and its decoders raise many things
        raise ImageError(
            f"cannot be decoded (damaged, or a compression that is not read here): {type(error).__name__}: {error}"
        ) from None


def _check(dataset: Any) -> dict[str, Any]:  # noqa: ANN401
    """What is needed to know of the pixels; refuses all that is not one channel of 8 to 16 bits."""
    if "PixelData" not in dataset:
        raise ImageError("has no pixels, or floating-point ones, which have no fixed range")
    if missing := [name for name in NEEDED if name not in dataset]:
        raise ImageError(f"does not say how its pixels are stored: {', '.join(missing)} missing")
    photometric, samples, bits = dataset.PhotometricInterpretation, dataset.SamplesPerPixel, int(dataset.BitsStored)
    if samples != 1 or photometric not in ("MONOCHROME1", "MONOCHROME2"):
        raise ImageError(
            f"is {photometric} with {samples} samples a pixel; only grey (MONOCHROME1, MONOCHROME2) is released"
        )
    if not 8 <= bits <= 16 or int(dataset.HighBit) != bits - 1:
        raise ImageError(
            f"has {bits} bits stored below bit {int(dataset.HighBit) + 1}; 8 to 16 bits from the lowest on are released"
        )
    return {
        "bits": bits,
        "signed": bool(dataset.PixelRepresentation),
        "inverted": photometric == "MONOCHROME1",
        "burned": str(dataset.get("BurnedInAnnotation") or ""),
    }


def _check_whole(dataset: Any, frames: int) -> None:  # noqa: ANN401
    """Refuse pixels that are not those of ``frames`` frames: the decoders take as many as are stated and leave the rest."""
    syntax = dataset.file_meta.TransferSyntaxUID
    if not syntax.is_encapsulated:
        size = (int(dataset.Rows) * int(dataset.Columns) * frames * int(dataset.BitsAllocated) + 7) // 8
        if not size <= len(dataset.PixelData) < size + size // frames:  # some pad what they write
            raise ImageError(
                f"cannot be decoded: {len(dataset.PixelData)} bytes of pixels where its {frames} frames have {size}"
            )
        return
    fragments = generate_fragments(dataset.PixelData)
    next(fragments, None)  # the table of offsets, which is often empty
    begun = sum(syntax == RLELossless or fragment[:2] in _STARTS for fragment in fragments)
    if begun not in (0, frames):  # none: of a kind that the decoders must know
        raise ImageError(f"cannot be decoded: holds {begun} compressed frames and says {frames}")


def _words(stored: NDArray[Any], about: dict[str, Any]) -> NDArray[np.unsignedinteger]:
    """Stored values to words: without what lies above the stored bits (overlays), in the order of grey."""
    bits = about["bits"]
    words = stored.astype(np.int64) & ((1 << bits) - 1)
    if about["signed"]:
        words ^= 1 << (bits - 1)
    if about["inverted"]:
        words = (1 << bits) - 1 - words
    unsigned: NDArray[np.unsignedinteger] = words.astype(np.uint8 if bits == 8 else np.uint16)
    return unsigned


class Writer:
    canvas = Plain

    def __init__(self, draft: Draft, options: Options) -> None:
        self._draft = draft
        self._frames: list[bytes] = []
        self._first: tuple[Entry, str] | None = None

    def add(self, entry: Entry, name: str, identity: str, canvas: Plain) -> None:
        self._first = self._first or (entry, identity)
        self._frames.append(canvas.pixels.astype(canvas.pixels.dtype.newbyteorder("<")).tobytes())

    def close(self) -> None:
        if self._first is None:
            raise ImageError("holds no frame")
        whole = io.BytesIO()
        _dataset(*self._first, self._frames).save_as(whole, enforce_file_format=True)
        self._draft.write(whole.getbuffer())

    def abort(self) -> None:
        self._frames.clear()


def _dataset(entry: Entry, identity: str, frames: list[bytes]) -> Dataset:
    about, bits, many = entry.kept, entry.bits, len(frames) > 1
    made = Dataset()
    made.SOPClassUID = (MANY_BYTES if bits == 8 else MANY_WORDS) if many else SINGLE
    made.SOPInstanceUID, made.StudyInstanceUID, made.SeriesInstanceUID = (
        _uid(identity, part) for part in ("image", "study", "series")
    )
    for name in EMPTY:
        setattr(made, name, "")
    made.Modality, made.ConversionType = "OT", "WSD"
    if many:
        made.NumberOfFrames = len(frames)
        made.FrameIncrementPointer = pydicom.tag.Tag("PageNumberVector")
        made.PageNumberVector = list(range(1, len(frames) + 1))
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    made.Rows, made.Columns = entry.pixels.shape
    made.BitsAllocated, made.BitsStored, made.HighBit, made.PixelRepresentation = (
        8 if bits == 8 else 16,
        bits,
        bits - 1,
        0,
    )
    shift = 1 << (bits - 1) if about["signed"] else 0
    made.RescaleIntercept, made.RescaleSlope, made.RescaleType, made.PresentationLUTShape = -shift, 1, "US", "IDENTITY"
    # Whether text was burned into the pixels is not looked for: identity is said to be removed only where the source says there is none.
    made.PatientIdentityRemoved = "YES" if about["burned"] == "NO" else "NO"
    made.DeidentificationMethod = [
        f"ldp-slicing {__version__}: attributes removed",
        "pixels randomised, see card",
        "burned-in text not sought",
    ]
    if about["burned"] in ("YES", "NO"):
        made.BurnedInAnnotation = about["burned"]
    made.LongitudinalTemporalInformationModified = "REMOVED"
    pixels = b"".join(frames)
    made.PixelData = pixels + b"\0" * (len(pixels) % 2)
    made["PixelData"].VR = "OB" if bits == 8 else "OW"
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made.file_meta.MediaStorageSOPClassUID, made.file_meta.MediaStorageSOPInstanceUID = (
        made.SOPClassUID,
        made.SOPInstanceUID,
    )
    return made


def _uid(identity: str, part: str) -> str:
    """A new UID (2.25. and a 128-bit number), the same when the same release is made again."""
    return f"2.25.{int.from_bytes(hashlib.sha256(f'{part} {identity}'.encode()).digest()[:16], 'big')}"


def inspect(file: BinaryIO) -> Iterator[Seen]:
    made = pydicom.dcmread(file)
    unwanted = [str(item.tag) for item in made.iterall() if item.keyword not in ALLOWED]
    unwanted += [str(item.tag) for item in made.file_meta if item.keyword not in META]
    unwanted += [item.keyword for item in made if item.keyword in EMPTY and item.value]
    if unwanted or any(made.preamble or b""):
        yield Seen(None, problem=f"holds more than pixels: {', '.join(unwanted) or 'a preamble'}")
        return
    frames = int(made.get("NumberOfFrames") or 1)
    yield Seen(None, int(made.Columns), int(made.Rows), int(made.BitsStored), frames)
