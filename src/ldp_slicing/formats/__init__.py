"""File formats: how sources are read from files and how releases are written to files.

Each module holds one format. It has up to three functions or classes, described in ``formats.base``:
``read`` yields the sources of a file, ``Writer`` writes releases, and ``check`` accounts for every byte of a file.
One source file becomes one file of releases.

| kind    | reads                                | writes                                  |
|---------|--------------------------------------|-----------------------------------------|
| image   | JPEG, PNG, WebP, TIFF, BMP, GIF      | PNG                                     |
| tar     | WebDataset shards                    | WebDataset shards with PNG members      |
| parquet | Hugging Face data sets               | the same, with PNG images               |
| cifar   | CIFAR-10 and CIFAR-100 pickles       | WebDataset shards with PNG members      |
| dicom   | grey DICOM files                     | DICOM secondary captures                |
| video   | videos, frame by frame               | FFV1 in Matroska                        |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePosixPath
from types import ModuleType
from typing import BinaryIO

from ldp_slicing.errors import ReleaseError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")
VIDEO_SUFFIXES = (
    ".mp4",
    ".m4v",
    ".mov",
    ".mkv",
    ".webm",
    ".avi",
    ".mpg",
    ".mpeg",
    ".ts",
    ".wmv",
    ".flv",
    ".ogv",
    ".3gp",
)
CIFAR_ENDINGS = {"labels": "cls", "fine_labels": "cls", "coarse_labels": "coarse.cls"}  # "cls" is WebDataset's name
_PICKLE_HEADS = tuple(bytes([0x80, protocol]) for protocol in (2, 3, 4, 5))
_HEAD_BYTES = 132  # up to and including the magic bytes of DICOM


@dataclass(frozen=True)
class Kind:
    """A kind of source file.

    reader: the module of this package that reads it.
    writers: the modules that write its releases, by file suffix; the default comes first.
    extra: the optional dependency group of ldp-slicing that the reader needs.
    is_container: whether a file may hold several sources.
    goes_alone: whether files are large, so that a batch should hold only one.
    """

    reader: str
    writers: dict[str, str]
    extra: str = ""
    is_container: bool = True
    goes_alone: bool = True


KINDS = {
    "image": Kind("image", {".png": "image"}, is_container=False, goes_alone=False),
    "tar": Kind("tar", {".tar": "tar"}),
    "parquet": Kind("parquet", {".parquet": "parquet"}, "parquet"),
    "cifar": Kind("cifar", {".tar": "tar"}),
    "dicom": Kind("dicom", {".dcm": "dicom"}, "dicom", goes_alone=False),
    "video": Kind("video", {".mkv": "video"}, "video"),
}
WRITERS = {suffix: writer for kind in KINDS.values() for suffix, writer in kind.writers.items()}


def detect_kind(path: str, head: Callable[[], bytes]) -> str:
    """Return the key in KINDS of a file, from its name or, if the name does not tell, from its first bytes.

    ``head`` returns the first bytes, see ``read_head``. It is called only when needed.
    """
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in (".tar", ".parquet"):
        return suffix[1:]
    if suffix in (".dcm", ".dicom"):
        return "dicom"
    if suffix in VIDEO_SUFFIXES:
        return "video"
    if suffix in IMAGE_SUFFIXES:
        return "image"
    data = head()  # DICOM files are often called IM0001, 1.2.840.113619 or x.IMA; CIFAR files have no suffix
    if data[128:132] == b"DICM":
        return "dicom"
    return "cifar" if data.startswith(_PICKLE_HEADS) and (not suffix or suffix[1:].isdigit()) else "image"


def read_head(file: BinaryIO) -> bytes:
    """Return the bytes that ``detect_kind`` looks at, and close the file."""
    with file:
        return file.read(_HEAD_BYTES)


def kept_names(keep: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names under which kept data appears in the output: the label columns of CIFAR become endings."""
    return tuple(sorted({*keep, *(CIFAR_ENDINGS[name] for name in keep if name in CIFAR_ENDINGS)}))


def suffix_of(path: str) -> str:
    """The suffix that decides the format, in lower case. A file called ".png" has the suffix ".png", too."""
    return path[path.rfind(".") :].lower()


def load_format(name: str, extra: str = "") -> ModuleType:
    """Import a module of this package; raise ReleaseError with installation advice if a library is missing."""
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise ReleaseError(f"needs {error.name}: pip install 'ldp-slicing[{extra or name}]'") from None
