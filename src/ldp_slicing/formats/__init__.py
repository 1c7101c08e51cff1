"""File formats: how sources are read from files and how releases are written to files.

Each module holds one format. It has up to six functions or classes, described in ``formats.base``:
``read`` yields the sources of a file, ``keepable`` names the other data in it that can be kept, ``Writer`` writes
releases, ``check`` accounts for every byte of a file, and ``members`` and ``load`` find and read single releases.
One source file becomes one file of releases.

| kind    | reads                                | writes                                  |
|---------|--------------------------------------|-----------------------------------------|
| image   | JPEG, PNG, WebP, TIFF, BMP, GIF, ... | PNG                                     |
| tar     | WebDataset shards                    | WebDataset shards with PNG members      |
| parquet | Hugging Face data sets               | the same, with PNG images               |
| cifar   | CIFAR-10 and CIFAR-100 pickles       | WebDataset shards with PNG members      |
| dicom   | DICOM files                          | DICOM secondary captures                |
| video   | videos, frame by frame               | FFV1 in Matroska                        |
| animation | animated GIF, PNG, WebP and AVIF, if their frames are wanted | as video    |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePosixPath
from types import ModuleType
from typing import BinaryIO

from ldp_slicing.errors import Reason, ReleaseError
from ldp_slicing.integrity import is_animation, looks_like_image_or_video
from ldp_slicing.png import MOST_FILE_BYTES

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".apng", ".webp", ".tif", ".tiff", ".bmp", ".gif"),
    *(".heic", ".heif", ".hif", ".avif"),
)
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
OTHER_IMAGES = re.compile(  # images and videos that are not read here
    "jp2|j2k|jpx|jxl|pbm|pnm|pam|qoi|tga|ico|svg|psd|exr|hdr|dng"
    "|cr2|cr3|nef|arw|orf|rw2|raf|dcm|dicom|pcx|sgi|xbm|xpm|dds|icns"
    "|nii|nrrd|nhdr|mha|mhd|mgh|mgz|mnc|pfm|jxr|wdp|hdp|xcf|flif|bpg"
    "|mpo|jpe|jfif|apng|eps|wmf|emf|pdf|fits|m2ts|mts|mpv|m2v|vob|asf|rmvb|f4v|mjpeg|"
    + "|".join(suffix[1:] for suffix in VIDEO_SUFFIXES if suffix != ".ts")  # .ts may be a time: its bytes decide
)
ARCHIVES = (".zip", ".tgz", ".tbz2", ".txz", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar")
CIFAR_ENDINGS = {"labels": "cls", "fine_labels": "cls", "coarse_labels": "coarse.cls"}  # "cls" is WebDataset's name
_PICKLE_HEADS = tuple(bytes([0x80, protocol]) for protocol in (2, 3, 4, 5))
_HEAD_BYTES = 1 << 12


@dataclass(frozen=True)
class Kind:
    """A kind of source file.

    reader: the module of this package that reads it.
    writers: the modules that write its releases, by file suffix; the default comes first.
    extra: the optional dependency group of ldp-slicing that the reader needs.
    is_container: whether a file may hold several sources.
    goes_alone: whether files are large, so that a batch should hold only one.
    can_keep: whether it holds other data that can be kept by name.
    has_units: whether its values have units, so that a range of them can be mapped to words.
    """

    reader: str
    writers: dict[str, str]
    extra: str = ""
    is_container: bool = True
    goes_alone: bool = True
    can_keep: bool = False
    has_units: bool = False

    @property
    def suffix(self) -> str:
        """The usual suffix of what is written for it."""
        return next(iter(self.writers))


KINDS = {
    "image": Kind("image", {".png": "image"}, is_container=False, goes_alone=False),
    "tar": Kind("tar", {".tar": "tar"}, can_keep=True),
    "parquet": Kind("parquet", {".parquet": "parquet"}, "parquet", can_keep=True),
    "cifar": Kind("cifar", {".tar": "tar"}, can_keep=True),
    "dicom": Kind("dicom", {".dcm": "dicom"}, "dicom", goes_alone=False, can_keep=True, has_units=True),
    "video": Kind("video", {".mkv": "video"}, "video"),
    "animation": Kind("animation", {".mkv": "video"}, "video"),
}
MOST_BYTES = {".png": MOST_FILE_BYTES, ".dcm": (1 << 32) + (1 << 20)}  # of a release; its length field, and a header
WRITERS = {suffix: writer for kind in KINDS.values() for suffix, writer in kind.writers.items()}


def detect_kind(path: str, head: Callable[[], bytes], whole: Callable[[], bytes] | None = None) -> str:
    """Return the key in KINDS of a file, from its name or, if the name does not tell, from its first bytes.

    ``head`` returns the first bytes, see ``read_head``. It is called only when needed. ``whole`` returns all bytes of
    an image, to tell whether it is an animation. Without it, an animation counts as an image, which refuses it.
    """
    kind = _kind(path, head)
    return "animation" if kind == "image" and whole is not None and is_animation(whole()) else kind


def _kind(path: str, head: Callable[[], bytes]) -> str:
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


def may_hold_images(path: str, size: int, head: Callable[[], bytes]) -> bool:
    """Return whether the name or the first bytes of a file tell of an image, a video or an archive, read here or not.

    ``size`` is that of the file in bytes, and ``head`` as for ``detect_kind``.
    """
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in ARCHIVES or OTHER_IMAGES.fullmatch(suffix[1:]) or detect_kind(path, lambda: b"") != "image":
        return True
    return suffix in IMAGE_SUFFIXES or detect_kind(path, head) != "image" or looks_like_image_or_video(head(), size)


def read_head(file: BinaryIO) -> bytes:
    """Return the bytes that ``detect_kind`` looks at, and close the file."""
    with file:
        return file.read(_HEAD_BYTES)


def suffix_of(path: str) -> str:
    """Return the suffix that decides the format, in lower case. A file called ".png" has the suffix ".png", too."""
    return path[path.rfind(".") :].lower()


def load_format(name: str, extra: str = "") -> ModuleType:
    """Import a module of this package; raise ReleaseError with installation advice if a library is missing."""
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise ReleaseError(f"needs {error.name}: pip install 'ldp-slicing[{extra or name}]'", Reason.LIBRARY) from None
