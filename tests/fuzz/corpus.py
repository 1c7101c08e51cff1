"""Small valid files of every format that is read, made anew: the seeds of the fuzzer."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def pixels(number: int = 0, side: int = 24, channels: int = 3) -> NDArray[np.uint8]:
    """uint8 [side, side + 6, channels]: a smooth image with some texture, another one for each number."""
    rows, columns = np.mgrid[:side, : side + 6]
    waves = [128 + 90 * np.sin(rows / (3 + c) + number) * np.cos(columns / (5 + c)) for c in range(channels)]
    return np.stack(waves, -1).astype(np.uint8)


def image(kind: str, number: int = 0, mode: str = "RGB") -> bytes:
    made = Image.fromarray(pixels(number)).convert(mode)
    file = io.BytesIO()
    if kind == "GIF":
        more = [Image.fromarray(pixels(number + 1)).convert(mode)]
        made.save(file, kind, save_all=True, append_images=more)
    else:
        exif = Image.Exif()
        exif[274] = 6  # the orientation
        made.save(file, kind, **({"exif": exif} if kind in ("JPEG", "PNG", "WEBP") else {}))
    return file.getvalue()


def deep_png() -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels(channels=1)[..., 0].astype(np.uint16) * 257).save(file, "PNG")
    return file.getvalue()


def shard() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number in range(3):
            for ending, data in (("png", image("PNG", number)), ("cls", b"7")):
                member = tarfile.TarInfo(f"{number:03}.{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    images = [{"bytes": image("PNG", number), "path": None} for number in range(3)]
    table = pa.table({"image": images, "label": [1, 2, 3]})
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def cifar() -> bytes:
    rng = np.random.default_rng(1)
    data = rng.integers(0, 256, (4, 3072), dtype=np.uint8)
    return pickle.dumps({b"data": data, b"labels": [0, 1, 2, 3], b"filenames": [b"a", b"b", b"c", b"d"]}, protocol=2)


def dicom() -> bytes:
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    found = Dataset()
    found.file_meta = meta
    found.SOPClassUID, found.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    found.Modality, found.PatientName = "CT", "Doe^Jane"
    found.Rows, found.Columns, found.SamplesPerPixel = 24, 30, 1
    found.PhotometricInterpretation = "MONOCHROME2"
    found.BitsAllocated, found.BitsStored, found.HighBit, found.PixelRepresentation = 16, 12, 11, 0
    found.BurnedInAnnotation = "NO"
    found.PixelData = (pixels(channels=1)[..., 0].astype("<u2") * 16).tobytes()
    file = io.BytesIO()
    found.save_as(file, enforce_file_format=True)
    return file.getvalue()


def video() -> bytes:
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as container:
        stream = container.add_stream("ffv1", rate=Fraction(25))
        stream.width, stream.height, stream.pix_fmt = 30, 24, "bgr0"
        for number in range(3):
            frame = av.VideoFrame.from_ndarray(pixels(number), format="rgb24")
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return file.getvalue()


SEEDS: dict[str, Callable[[], bytes]] = {
    "image.jpg": lambda: image("JPEG"),
    "image.png": lambda: image("PNG", 1),
    "palette.png": lambda: image("PNG", 2, "P"),
    "deep.png": deep_png,
    "image.webp": lambda: image("WEBP", 3),
    "image.gif": lambda: image("GIF", 4),
    "image.tiff": lambda: image("TIFF", 5),
    "image.bmp": lambda: image("BMP", 6),
    "shard.tar": shard,
    "table.parquet": parquet,
    "data_batch_1": cifar,
    "file.dcm": dicom,
    "video.mkv": video,
}
