"""Image files: decode, orient, convert to sRGB or grey. Only pixels leave ``read_image``; metadata is dropped.

Tests: tests/test_images.py.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from ldp_slicing.errors import ImageError
from ldp_slicing.files import open_regular
from ldp_slicing.heif import colour_notices, is_box_image, is_heic, open_heic
from ldp_slicing.integrity import NO_IMAGE, check_whole, read_whole
from ldp_slicing.png import MAX_PIXELS

FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "AVIF")  # no other decoder is tried on an untrusted file
_DEEP_GREY = ("I;16", "I;16L", "I;16B", "I;16N")
_TIFF_PHOTOMETRIC, _TIFF_WHITE_IS_ZERO = 262, 0
_TIFF_SUBFILE, _TIFF_DNG_VERSION = 254, 50706
_USUAL_MILLISECONDS = Fraction(100)  # of a frame whose duration is not stated, as browsers show it
_ALPHA_NOTICE = "transparency is dropped; the pixels it hid are released too"


@dataclass(frozen=True)
class Decoded:
    """A source's pixels (uint8 H x W x 3, uint8 H x W or uint16 H x W), and notices to its owner about the decoding."""

    pixels: NDArray[np.unsignedinteger]
    notices: tuple[str, ...]


def read_image(path: Path) -> Decoded:
    """Decode an image file, upright and in sRGB or grey. A file that cannot be decoded reliably is an ImageError."""
    try:
        with open_regular(path) as file:
            data = read_whole(file)
    except OSError as error:
        raise ImageError(error.strerror or type(error).__name__) from None
    return decode_image(data)


def decode_image(data: bytes) -> Decoded:
    """Decode the bytes of an image file, as ``read_image`` does."""
    check_whole(data)
    with _as_image_errors():
        if is_heic(data):
            image, notices = open_heic(data)
            return _decode(image, notices + colour_notices(data))
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_single(image)
            return _decode(image, colour_notices(data) if is_box_image(data) else [])


def decode_frames(data: bytes) -> Iterator[tuple[Decoded, Fraction]]:
    """Yield the frames of an animation, in colour, each with the rate that its duration means, in frames per second."""
    check_whole(data)
    with _as_image_errors(), Image.open(io.BytesIO(data), formats=FORMATS) as image:
        _check_size(image)
        # Viewers of animations do not show the still image that some APNG files begin with.
        first, size = int(bool(image.info.get("default_image"))), image.size
        for number in range(first, getattr(image, "n_frames", 1)):
            image.seek(number)
            frame = _decode(image.copy(), [])
            if image.size != size:
                raise ImageError(f"changes its frame size at frame {number + 1 - first}")
            if frame.pixels.dtype != np.uint8:
                raise ImageError("is an animation of 16-bit grey frames: convert it to 8 bits first")
            pixels = frame.pixels if frame.pixels.ndim == 3 else np.repeat(frame.pixels[..., None], 3, axis=-1)
            milliseconds = Fraction(image.info.get("duration") or 0) or _USUAL_MILLISECONDS
            yield Decoded(pixels, frame.notices), 1000 / milliseconds


@contextmanager
def _as_image_errors() -> Iterator[None]:
    """Turn whatever decoders raise on damaged files into an ImageError."""
    try:
        yield
    except ImageError:
        raise
    except UnidentifiedImageError:
        raise ImageError(NO_IMAGE) from None
    except Image.DecompressionBombError:
        raise ImageError(f"has more than {MAX_PIXELS:,} pixels: shrink or crop it") from None
    except OSError as error:
        raise ImageError(error.strerror or f"cannot be decoded: {str(error) or type(error).__name__}") from None
    except Exception as error:  # decoders raise many types on damaged files; none may stop the other files
        raise ImageError(f"cannot be decoded: {str(error) or type(error).__name__}") from None


def _check_size(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise ImageError(f"{image.width} x {image.height} pixels are more than {MAX_PIXELS:,}: shrink or crop it")


def _check_single(image: Image.Image) -> None:
    """Refuse animations and pages: every one of their frames would be a release."""
    if image.format == "TIFF":  # Pillow counts pages in a time that is quadratic in their number
        if getattr(image, "is_animated", True):
            raise ImageError("has several pages: split it into single images first")
        return
    if image.format == "MPO" or (frames := getattr(image, "n_frames", 1)) == 1:
        return
    raise ImageError(
        f"is an animation of {frames} frames, and each would be a release: --frames releases it as a video, at "
        f"{frames} times eps (not in shards and tables); or split it into single images"
    )


def _decode(image: Image.Image, notices: list[str]) -> Decoded:
    _check_size(image)
    tags = getattr(image, "tag_v2", {})
    if _TIFF_DNG_VERSION in tags or int(tags.get(_TIFF_SUBFILE) or 0) & 1:
        raise ImageError(
            "is a camera's raw file, or holds a preview before its image: export it as TIFF, PNG or JPEG first"
        )
    if image.format == "MPO":
        notices.append("holds more images after the first, such as a depth map or gain map: only the first is released")
    raw_mode = _raw_mode(image)
    white_is_zero = tags.get(_TIFF_PHOTOMETRIC) == _TIFF_WHITE_IS_ZERO
    image.load()
    profile = image.info.get("icc_profile")
    if "icc_profile" in image.info and not profile:
        notices.append("the colour profile is damaged and is dropped")
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode in _DEEP_GREY:
        return _deep_grey(image, white_is_zero, notices)
    if re.search(r";16[BLN]$", raw_mode):
        notices.append("16 bits per channel are reduced to 8")
    image = _without_alpha(image, notices)
    if image.mode == "1" or raw_mode.partition(";")[0] == "LA":  # Pillow reads 16-bit grey with transparency as colour
        image = image.convert("L")
    if profile:
        image = _to_srgb(image, profile, notices)
    if image.mode in ("CMYK", "YCbCr", "LAB"):
        image = image.convert("RGB")
    if image.mode not in ("L", "RGB"):
        raise ImageError(
            f"has pixels of mode {image.mode}, which have no fixed range: "
            "convert it to 8-bit colour, or to 8-bit or 16-bit grey"
        )
    return Decoded(np.asarray(image), tuple(notices))


def _deep_grey(image: Image.Image, white_is_zero: bool, notices: list[str]) -> Decoded:
    if "transparency" in image.info:
        notices.append(_ALPHA_NOTICE)
    if image.info.get("icc_profile"):
        notices.append("the colour profile of a 16-bit grey image is not applied")
    pixels = np.asarray(image, dtype=np.uint16)
    return Decoded(~pixels if white_is_zero else pixels, tuple(notices))  # Pillow inverts white-is-zero only at 8 bits


def _raw_mode(image: Image.Image) -> str:
    """Return how the file stores its pixels, such as 'RGB;16B'. This is known only before the pixels are loaded."""
    tiles: list[Any] = list(getattr(image, "tile", ()))
    arguments = tiles[0][3] if tiles else ""
    return str(arguments[0] if isinstance(arguments, tuple) and arguments else arguments)


def _without_alpha(image: Image.Image, notices: list[str]) -> Image.Image:
    if image.info.pop("transparency", None) is not None or image.mode in ("RGBA", "LA", "PA"):
        notices.append(_ALPHA_NOTICE)
    if image.mode in ("P", "PA", "RGBA"):
        return image.convert("RGB")
    return image.convert("L") if image.mode == "LA" else image


def _to_srgb(image: Image.Image, profile: bytes, notices: list[str]) -> Image.Image:
    grey = image.mode == "L"
    try:
        converted = ImageCms.profileToProfile(
            image, io.BytesIO(profile), ImageCms.createProfile("sRGB"), outputMode="RGB"
        )
    except (ImageCms.PyCMSError, OSError, ValueError) as error:
        notices.append(f"the colour profile cannot be applied and is dropped ({error})")
        return image
    if converted is None:
        raise ImageError("the colour profile could not be applied")
    return converted.convert("L") if grey else converted


def silence_decoders() -> None:
    """Silence decoder warnings. Anything important is raised or recorded."""
    for module in ("PIL", "pydicom"):
        warnings.filterwarnings("ignore", module=module)
