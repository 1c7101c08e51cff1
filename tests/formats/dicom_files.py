"""DICOM files for tests. A test that uses them is skipped where pydicom is not installed."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.release.helpers import SECRET

if TYPE_CHECKING:
    from pydicom.dataset import Dataset


def dicom(pixels: NDArray[Any], bits: int, **about: Any) -> Dataset:
    """Return a dataset with the marker in every kind of attribute: names, icon, overlay, private tags, window."""
    pydicom = pytest.importorskip("pydicom")
    made: Dataset = pydicom.Dataset()
    made.file_meta = pydicom.dataset.FileMetaDataset()
    made.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    made.SOPClassUID = made.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.2"
    made.SOPInstanceUID = made.file_meta.MediaStorageSOPInstanceUID = "1.2.3.4.5"
    made.StudyInstanceUID, made.SeriesInstanceUID, made.Modality = "1.2.3", "1.2.3.4", "CT"
    made.PatientName = made.PatientID = made.InstitutionName = made.StudyDescription = SECRET.decode()
    made.PatientBirthDate, made.StudyDate = "19700101", "20200101"
    made.WindowCenter, made.WindowWidth, made.RescaleSlope, made.RescaleIntercept = 40, 400, 1, -1024
    made.SmallestImagePixelValue, made.LargestImagePixelValue = int(pixels.min()), min(int(pixels.max()), 65535)
    icon = pydicom.Dataset()
    icon.Rows, icon.Columns, icon.BitsAllocated, icon.PixelData = 2, 2, 8, SECRET + b"\0"
    made.IconImageSequence = [icon]
    made.add_new(0x60003000, "OW", SECRET + b"\0")
    made.private_block(0x0009, "ACME", create=True).add_new(1, "LO", SECRET.decode())
    if is_colour := about.get("PhotometricInterpretation") in ("RGB", "YBR_FULL"):
        made.PlanarConfiguration = 0
    made.SamplesPerPixel, made.PhotometricInterpretation = 3 if is_colour else 1, "MONOCHROME2"
    *frames, made.Rows, made.Columns = pixels.shape[:-1] if is_colour else pixels.shape
    if frames:
        made.NumberOfFrames = frames[0]
    made.BitsAllocated, made.BitsStored, made.HighBit, made.PixelRepresentation = (
        8 * pixels.dtype.itemsize,
        bits,
        bits - 1,
        0,
    )
    made.PixelData = pixels.tobytes() + b"\0" * (pixels.nbytes % 2)
    made["PixelData"].VR = "OB" if pixels.dtype.itemsize == 1 else "OW"
    for name, value in about.items():
        setattr(made, name, value)
    return made


def saved(dataset: Dataset) -> bytes:
    file = io.BytesIO()
    dataset.save_as(file, enforce_file_format=True)
    return file.getvalue()


SLICE = (np.arange(12 * 15).reshape(12, 15) * 37 % 4096).astype(np.uint16)


STACK = np.stack([SLICE, SLICE + 1, SLICE + 2]) & 4095
