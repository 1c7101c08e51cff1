"""HEIC and AVIF, the image formats of phones: which of the two a file is, and how it is opened.

Pillow reads AVIF. HEIC needs the extra ``heif`` (pillow-heif). Both are files of boxes, as MP4 is.
"""

from __future__ import annotations

import io
import struct

from PIL import Image

from ldp_slicing.errors import ImageError
from ldp_slicing.png import MAX_PIXELS

AVIF_BRANDS = (b"avif", b"avis")
HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1")
_PLAIN_PRIMARIES = (1, 2, 5, 6)  # BT.709 as in sRGB, unspecified, BT.601
_HDR_TRANSFERS = (16, 18)  # PQ, HLG


def is_box_image(head: bytes) -> bool:
    """Return whether a file that begins with these 12 bytes is HEIC or AVIF."""
    return head[4:8] == b"ftyp" and head[8:12] in (*AVIF_BRANDS, *HEIC_BRANDS)


def is_heic(data: bytes) -> bool:
    """Return whether a whole file is HEIC. "mif1" alone means either of the two: then the other brands tell."""
    brands = data[8 : int.from_bytes(data[:4], "big")]
    return is_box_image(data[:12]) and not any(brand in brands for brand in AVIF_BRANDS)


def check_boxes(data: bytes) -> None:
    """Raise ImageError or struct.error unless the boxes of a file end where the file ends."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">L", data, at)
        size = struct.unpack_from(">Q", data, at + 8)[0] if size == 1 else size or len(data) - at
        at += max(size, 8)
    if at != len(data):
        raise ImageError("is cut off before its end")


def open_heic(data: bytes) -> tuple[Image.Image, list[str]]:
    """Return the main image of a HEIC file, upright, and notices to its owner."""
    try:
        import pillow_heif  # an extra
    except ModuleNotFoundError:
        raise ImageError("is HEIC, which needs pillow-heif: pip install 'ldp-slicing[heif]'") from None
    try:
        opened = pillow_heif.open_heif(io.BytesIO(data))
    except ValueError as error:
        raise ImageError(f"is damaged, or is not a HEIC image: {' '.join(str(error).split())}") from None
    if len(opened) > 1:
        raise ImageError(f"has {len(opened)} images: split it into single images first")
    if opened.size[0] * opened.size[1] > MAX_PIXELS:  # before it is decoded
        raise ImageError(f"{opened.size[0]} x {opened.size[1]} pixels are more than {MAX_PIXELS:,}: shrink or crop it")
    notices = []
    if opened.info.get("depth_images") or opened.info.get("aux"):
        notices.append("holds more images beside the main one, such as a depth map or gain map: only that is released")
    if (bits := opened.info.get("bit_depth", 8)) > 8:
        notices.append(f"{bits} bits per channel are reduced to 8")
    image: Image.Image = opened.to_pillow()
    return image, notices


def colour_notices(data: bytes) -> list[str]:
    """Return notices about colours of a HEIC or AVIF file that are not converted to sRGB."""
    at = data.find(b"colrnclx")
    if at < 0 or len(data) < at + 12:
        return []
    primaries, transfer = struct.unpack_from(">HH", data, at + 8)
    if transfer in _HDR_TRANSFERS or primaries not in _PLAIN_PRIMARIES:
        return ["has wide or HDR colours, which are taken as sRGB: they look paler or darker in the release"]
    return []
