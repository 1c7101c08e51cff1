"""Read one source on its own: an image file, or the first frame of a DICOM file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ldp_slicing.errors import ImageError
from ldp_slicing.files import open_regular
from ldp_slicing.formats import KINDS, detect_kind, load_format, read_head
from ldp_slicing.formats.base import Entry, Options, make_entry
from ldp_slicing.images import decode_image
from ldp_slicing.integrity import NO_IMAGE, read_whole

NOT_SINGLE = f"{NO_IMAGE}, nor DICOM (.dcm)"


def read_single(path: Path) -> Entry:
    """Return the source with the same pixels that ``privatize`` would release."""
    kind = detect_kind(path.name, lambda: read_head(open_regular(path)))
    if kind not in ("image", "dicom"):
        raise ImageError(NOT_SINGLE)
    try:
        with open_regular(path) as file:
            if kind == "image":
                return make_entry("", decode_image(read_whole(file, otherwise=NOT_SINGLE)), None)
            frames: Iterator[Entry] = load_format("dicom", KINDS["dicom"].extra).read(file, Options())
            first = next(frames, None)
    except OSError as error:
        raise ImageError(error.strerror or type(error).__name__) from None
    if first is None:
        raise ImageError("has no frames")
    if not first.frame:
        return first
    return replace(first, notices=("only its first frame is shown; each frame would be a release", *first.notices))
