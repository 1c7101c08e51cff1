"""One picture to look at: an image file, or the first frame of a DICOM file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ldp_slicing.errors import ImageError
from ldp_slicing.files import open_regular
from ldp_slicing.formats import KINDS, first_bytes, kind_of, module_of
from ldp_slicing.formats.base import Entry, Options, entry_of
from ldp_slicing.images import decode_image
from ldp_slicing.integrity import NO_IMAGE, read_whole

NO_STILL = f"{NO_IMAGE}, nor DICOM (.dcm)"


def read_still(path: Path) -> Entry:
    """As ``privatize`` reads it, with the same words, so that what is shown of it is what would be released."""
    kind = kind_of(path.name, lambda: first_bytes(open_regular(path)))
    if kind not in ("image", "dicom"):
        raise ImageError(NO_STILL)
    try:
        with open_regular(path) as file:
            if kind == "image":
                return entry_of("", decode_image(read_whole(file, otherwise=NO_STILL)), None)
            frames: Iterator[Entry] = module_of("dicom", KINDS["dicom"].extra).read(file, Options())
            first = next(frames, None)
    except OSError as error:
        raise ImageError(error.strerror or type(error).__name__) from None
    if first is None:
        raise ImageError("holds no frame")
    shown = ("its first frame is shown; each frame would be a release",) if first.frame else ()
    return replace(first, notices=(*shown, *first.notices))
