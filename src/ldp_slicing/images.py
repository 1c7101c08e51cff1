"""Files: decode, orient, convert, strip; encode and write atomically. Nothing of a source but its pixels gets past ``read_image``."""

from __future__ import annotations

import io
import secrets
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from ldp_slicing.errors import ImageError

FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF")  # nothing else is tried on a file from outside
MAX_PIXELS = 178_956_970  # as Pillow: more is taken for a decompression bomb
_DEEP_GREY = ("I;16", "I;16L", "I;16B", "I;16N")


@dataclass(frozen=True)
class Decoded:
    """A source's pixels (uint8 H x W x 3, uint8 H x W, or uint16 H x W) and what its owner should know about how they were read."""

    pixels: NDArray[np.unsignedinteger]
    notices: tuple[str, ...]


def read_image(path: Path) -> Decoded:
    """The pixels of an image file, upright and in sRGB or grey. Whatever cannot be read for certain is refused."""
    try:
        data = path.read_bytes()
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            return _decode(image)
    except ImageError:
        raise
    except UnidentifiedImageError:
        raise ImageError("not an image of a kind that is read here (JPEG, PNG, WebP, TIFF, BMP, GIF)") from None
    except OSError as error:
        raise ImageError(error.strerror or str(error) or type(error).__name__) from None
    except Exception as error:  # decoders raise many things on damaged files; none may stop the other files or let this one through
        raise ImageError(f"cannot be decoded: {type(error).__name__}: {error}") from None


def _decode(image: Image.Image) -> Decoded:
    notices: list[str] = []
    if image.width * image.height > MAX_PIXELS:
        raise ImageError(f"{image.width} x {image.height} pixels are more than {MAX_PIXELS:,}: taken for a decompression bomb")
    if image.format == "MPO":
        notices.append("holds further pictures behind the first (a depth map or gain map, for example): only the first is released")
    elif getattr(image, "n_frames", 1) > 1:
        raise ImageError(
            f"has {getattr(image, 'n_frames', 1)} frames or pages; split an animation or multi-page file into single images first"
        )
    raw_mode = _raw_mode(image)
    image.load()
    if raw_mode.startswith(("RGB", "RGBA", "RGBX")) and "16" in raw_mode:
        notices.append("16-bit colour is taken at 8 bits per channel")
    profile = image.info.get("icc_profile")
    image = ImageOps.exif_transpose(image)
    if image.mode in _DEEP_GREY:
        if profile:
            notices.append("the colour profile of a 16-bit grey image is not applied")
        return Decoded(np.array(image, dtype=np.uint16), tuple(notices))
    image = _without_alpha(image, notices)
    if profile:
        image = _to_srgb(image, profile, notices)
    if image.mode in ("1", "L"):
        image = image.convert("L")
    elif image.mode in ("P", "RGB", "CMYK", "YCbCr", "LAB"):
        image = image.convert("RGB")
    else:
        raise ImageError(f"has pixels of mode {image.mode}, which have no fixed range; convert it to 8-bit colour, or to 8- or 16-bit grey")
    return Decoded(np.array(image), tuple(notices))


def _raw_mode(image: Image.Image) -> str:
    """How the file stores its pixels, such as 'RGB;16B'; known only before the pixels are loaded."""
    tiles: list[Any] = list(getattr(image, "tile", ()))
    arguments = tiles[0][3] if tiles else ""
    return str(arguments[0] if isinstance(arguments, tuple) and arguments else arguments)


def _without_alpha(image: Image.Image, notices: list[str]) -> Image.Image:
    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    if image.mode in ("RGBA", "RGBa", "RGBX", "LA", "La", "PA") or "transparency" in image.info:
        if image.mode != "RGBX":
            notices.append("transparency is dropped; what it hid is released like the rest")
        straight = {"RGBa": "RGBA", "La": "LA", "PA": "RGBA"}.get(image.mode)
        image = image.convert(straight) if straight else image
        return image.convert("L" if image.mode in ("L", "LA") else "RGB")
    return image


def _to_srgb(image: Image.Image, profile: bytes, notices: list[str]) -> Image.Image:
    grey = image.mode == "L"
    try:
        converted = ImageCms.profileToProfile(image, io.BytesIO(profile), ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError) as error:
        notices.append(f"the colour profile cannot be applied and is dropped ({error})")
        return image
    if converted is None:
        raise ImageError("the colour profile could not be applied")
    return converted.convert("L") if grey else converted


def encode_png(pixels: NDArray[np.unsignedinteger], level: int = 0) -> list[bytes]:
    """A PNG, in pieces, with nothing in it but these pixels: uint8 H x W x 3, uint8 H x W or uint16 H x W.

    A release is noise and hardly compresses, so by default (level 0) it is stored, which is many times faster.
    """
    height, width = pixels.shape[:2]
    colour, depth = (2 if pixels.ndim == 3 else 0), 8 * pixels.dtype.itemsize
    rows = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder(">")).reshape(height, -1).view(np.uint8)
    filtered = np.empty((height, rows.shape[1] + 1), np.uint8)
    filtered[:, 0] = 0  # filter "none"
    filtered[:, 1:] = rows
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return [
        b"\x89PNG\r\n\x1a\n",
        *_chunk(b"IHDR", header),
        *_chunk(b"IDAT", zlib.compress(filtered.data, level)),
        *_chunk(b"IEND", b""),
    ]


def _chunk(kind: bytes, data: bytes) -> tuple[bytes, bytes, bytes]:
    return struct.pack(">I", len(data)) + kind, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


def write_atomically(path: Path, pieces: Iterable[bytes]) -> None:
    """The whole file under its name, or nothing."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        with open(temporary, "xb") as file:
            file.writelines(pieces)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
