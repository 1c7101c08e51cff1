"""DICOM files: reads grey images of 8 to 16 bits, writes secondary captures without any attribute of the source.

Signed values are shifted by half their range, so that words have the order of the values; the release is unsigned, and
its rescale intercept shifts back. MONOCHROME1 (0 is white) becomes MONOCHROME2. Each frame of a multi-frame file is a
release.
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
from ldp_slicing.formats.base import Content, Entry, Options, PixelBuffer
from ldp_slicing.storage import TemporaryFile
from ldp_slicing.version import __version__

_SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
_MULTI_FRAME_8_BIT, _MULTI_FRAME_16_BIT = f"{_SECONDARY_CAPTURE}.2", f"{_SECONDARY_CAPTURE}.3"
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
_EMPTY = (  # attributes that a secondary capture must have and that may be empty
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
_ALLOWED = frozenset(
    {
        *_EMPTY,
        "SOPClassUID",
        "SOPInstanceUID",
        "StudyInstanceUID",
        "SeriesInstanceUID",
        "Modality",
        "ConversionType",
        "NumberOfFrames",
        "FrameIncrementPointer",
        "PageNumberVector",
        "SamplesPerPixel",
        "PhotometricInterpretation",
        "Rows",
        "Columns",
        "BitsAllocated",
        "BitsStored",
        "HighBit",
        "PixelRepresentation",
        "RescaleIntercept",
        "RescaleSlope",
        "RescaleType",
        "PresentationLUTShape",
        "PatientIdentityRemoved",
        "DeidentificationMethod",
        "BurnedInAnnotation",
        "LongitudinalTemporalInformationModified",
        "PixelData",
    }
)
_ALLOWED_META = frozenset(
    {
        "FileMetaInformationGroupLength",
        "FileMetaInformationVersion",
        "MediaStorageSOPClassUID",
        "MediaStorageSOPInstanceUID",
        "TransferSyntaxUID",
        "ImplementationClassUID",
        "ImplementationVersionName",
    }
)
_FRAME_HEADS = (b"\xff\xd8", b"\xff\x4f")  # JPEG and JPEG-LS; JPEG 2000. Later fragments of a frame do not begin so


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    """Yield every frame as uint8 [H, W] (8 bits) or uint16 [H, W]. ``kept`` says how the source stores its pixels."""
    data = file.read()
    digest = hashlib.sha256(data).digest()
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
    begun = sum(syntax == RLELossless or fragment[:2] in _FRAME_HEADS for fragment in fragments)
    if begun not in (0, frames):  # 0: a compression whose frames are not recognised here
        raise ImageError(f"cannot be decoded: it holds {begun} compressed frames and states {frames}")


def _to_words(stored: NDArray[Any], about: dict[str, Any]) -> NDArray[np.unsignedinteger]:
    """Return unsigned words, 0 is black. Bits above the stored ones (overlays) are removed."""
    bits = about["bits"]
    words = stored.astype(np.int64) & ((1 << bits) - 1)
    if about["signed"]:
        words ^= 1 << (bits - 1)
    if about["inverted"]:
        words = (1 << bits) - 1 - words
    unsigned: NDArray[np.unsignedinteger] = words.astype(np.uint8 if bits == 8 else np.uint16)
    return unsigned


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
        encoded = io.BytesIO()
        _secondary_capture(*self._first, self._frames).save_as(encoded, enforce_file_format=True)
        self._file.write(encoded.getbuffer())

    def abort(self) -> None:
        self._frames.clear()


def _secondary_capture(entry: Entry, identity: str, frames: list[bytes]) -> Dataset:
    about, bits = entry.kept, entry.bits
    made = Dataset()
    made.SOPClassUID = _SECONDARY_CAPTURE
    made.SOPInstanceUID, made.StudyInstanceUID, made.SeriesInstanceUID = (
        _uid(identity, part) for part in ("image", "study", "series")
    )
    for name in _EMPTY:
        setattr(made, name, "")
    made.Modality, made.ConversionType = "OT", "WSD"
    if len(frames) > 1:
        made.SOPClassUID = _MULTI_FRAME_8_BIT if bits == 8 else _MULTI_FRAME_16_BIT
        made.NumberOfFrames = len(frames)
        made.FrameIncrementPointer = pydicom.tag.Tag("PageNumberVector")
        made.PageNumberVector = list(range(1, len(frames) + 1))
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    made.Rows, made.Columns = entry.pixels.shape
    made.BitsAllocated = 8 if bits == 8 else 16
    made.BitsStored, made.HighBit, made.PixelRepresentation = bits, bits - 1, 0
    made.RescaleIntercept = -(1 << (bits - 1)) if about["signed"] else 0
    made.RescaleSlope, made.RescaleType, made.PresentationLUTShape = 1, "US", "IDENTITY"
    # Burned-in text is not searched for, so identity counts as removed only if the source states that there is none.
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
    made.file_meta.MediaStorageSOPClassUID = made.SOPClassUID
    made.file_meta.MediaStorageSOPInstanceUID = made.SOPInstanceUID
    return made


def _uid(identity: str, part: str) -> str:
    """Return a UID (2.25. and a 128-bit number) that is the same whenever the same release is made again."""
    return f"2.25.{int.from_bytes(hashlib.sha256(f'{part} {identity}'.encode()).digest()[:16], 'big')}"


def inspect(file: BinaryIO) -> Iterator[Content]:
    """Yield the file as one release of one or more frames."""
    made = pydicom.dcmread(file)
    unwanted = [str(item.tag) for item in made.iterall() if item.keyword not in _ALLOWED]
    unwanted += [str(item.tag) for item in made.file_meta if item.keyword not in _ALLOWED_META]
    unwanted += [item.keyword for item in made if item.keyword in _EMPTY and item.value]
    if unwanted or any(made.preamble or b""):
        yield Content(None, problem=f"holds more than pixels: {', '.join(unwanted) or 'a preamble'}")
        return
    frames = int(made.get("NumberOfFrames") or 1)
    yield Content(None, int(made.Columns), int(made.Rows), int(made.BitsStored), frames)
