"""Kinds of files: how sources are read from each and releases written to each. Many small readers and writers behind one factory.

A *reader* takes an open file and yields its entries, one at a time; a *writer* takes releases one at a time. One file becomes one file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePosixPath
from types import ModuleType
from typing import BinaryIO

from ldp_slicing.errors import ReleaseError

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
CIFAR_ENDINGS = {"labels": "cls", "fine_labels": "cls", "coarse_labels": "coarse.cls"}  # as WebDataset calls a class
_PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")
_PICKLES = tuple(bytes([0x80, protocol]) for protocol in (2, 3, 4, 5))


@dataclass(frozen=True)
class Kind:
    """``reader`` and ``writers`` name modules of this package; ``writers``: by the ending of what is written, the usual one first."""

    reader: str
    writers: dict[str, str]
    extra: str = ""
    is_container: bool = True  # may hold several entries
    goes_alone: bool = True  # is large: a batch of its own


KINDS = {
    "image": Kind("image", {".png": "image"}, is_container=False, goes_alone=False),
    "tar": Kind("tar", {".tar": "tar"}),
    "parquet": Kind("parquet", {".parquet": "parquet"}, "parquet"),
    "cifar": Kind("cifar", {".tar": "tar"}),
    "dicom": Kind("dicom", {".dcm": "dicom"}, "dicom", goes_alone=False),
    "video": Kind("video", {".mkv": "video"}, "video"),
}
WRITERS = {suffix: writer for kind in KINDS.values() for suffix, writer in kind.writers.items()}


def kind_of(path: str, peek: Callable[[], bytes]) -> str:
    """The kind of a file, by its name; where that does not say it, ``peek`` gives its first bytes."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in (".tar", ".parquet"):
        return suffix[1:]
    if suffix in (".dcm", ".dicom"):
        return "dicom"
    if suffix in VIDEO_SUFFIXES:
        return "video"
    if suffix in _PICTURES:
        return "image"
    head = peek()  # DICOM's are often called IM0001, by a UID, or .IMA; CIFAR's files have no ending
    if head[128:132] == b"DICM":
        return "dicom"
    return "cifar" if head.startswith(_PICKLES) and (not suffix or suffix[1:].isdigit()) else "image"


def endings(keep: tuple[str, ...]) -> tuple[str, ...]:
    """What is kept, as it is called in the output: CIFAR's columns become endings."""
    return tuple(sorted({*keep, *(CIFAR_ENDINGS[name] for name in keep if name in CIFAR_ENDINGS)}))


def module_of(name: str, extra: str = "") -> ModuleType:
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise ReleaseError(f"needs {error.name}: pip install 'ldp-slicing[{extra or name}]'") from None


def first_bytes(file: BinaryIO) -> bytes:
    with file:
        return file.read(132)
