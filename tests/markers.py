"""Image files with a marker in every place where a format stores more than pixels, and visible colour profiles."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, TiffImagePlugin

Plant = Callable[[bytes], bytes]  # maps a marker to a file that contains it
PAST = 1_234_567_890  # a time at which no release was made


def gradient(height: int = 23, width: int = 37) -> NDArray[np.uint8]:
    """Return uint8 H x W x 3 that differs from all its rotations and mirror images, and uses all values."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x * 255 // max(1, width - 1), y * 255 // max(1, height - 1), (x * 7 + y * 13) % 256], -1).astype(
        np.uint8
    )


def encoded(image: Image.Image | NDArray[np.unsignedinteger], kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    image.save(file, kind, **options)
    return file.getvalue()


# Handmade colour profiles with a visible effect


def rgb_profile(text: str = "swapped") -> bytes:
    """Return an sRGB profile with permuted primaries: red is shown as blue, green as red, blue as green."""
    red, green, blue = (0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7139)
    primaries = {b"rXYZ": _xyz(*blue), b"gXYZ": _xyz(*red), b"bXYZ": _xyz(*green)}
    return _profile(b"RGB ", primaries | dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), _gamma(2.2)), text)


def grey_profile(text: str = "linear") -> bytes:
    """Return a profile of linear grey: middle grey becomes much lighter in sRGB."""
    return _profile(b"GRAY", {b"kTRC": _gamma(1.0)}, text)


def _profile(space: bytes, tags: dict[bytes, bytes], text: str) -> bytes:
    name = text.encode() + b"\0"
    description = b"desc\0\0\0\0" + struct.pack(">I", len(name)) + name + bytes(78)
    tags = {b"desc": description, b"cprt": b"text\0\0\0\0" + name, b"wtpt": _xyz(*_D50), **tags}
    table, body, start = b"", b"", 132 + 12 * len(tags)
    for tag, content in tags.items():
        table += struct.pack(">4sII", tag, start + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    head = (
        struct.pack(">I4xI4s4s4s12x4s28x", start + len(body), 0x02100000, b"mntr", space, b"XYZ ", b"acsp")
        + _xyz(*_D50)[8:]
    )
    return head.ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + body


_D50 = (0.9642, 1.0, 0.8249)


def _xyz(*values: float) -> bytes:
    return b"XYZ \0\0\0\0" + b"".join(struct.pack(">i", round(value * 65536)) for value in values)


def _gamma(exponent: float) -> bytes:
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(exponent * 256))


# EXIF


def exif(marker: bytes) -> bytes:
    """Return EXIF with the marker in the main, camera and GPS directories and in a preview image."""
    tags = Image.Exif()
    text = marker.decode()
    tags[ExifTags.Base.ImageDescription] = tags[ExifTags.Base.Artist] = tags[ExifTags.Base.Make] = text
    tags[ExifTags.Base.XPComment] = text.encode("utf-16-le")
    tags.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.UserComment] = b"ASCII\0\0\0" + marker
    tags.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.MakerNote] = marker
    tags.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSAreaInformation] = marker
    data = tags.tobytes().removeprefix(b"Exif\0\0")
    assert data.startswith(b"MM")
    (count,) = struct.unpack_from(">H", data, 8)
    next_directory = 10 + 12 * count
    return (
        data[:next_directory] + struct.pack(">L", len(data)) + data[next_directory + 4 :] + _preview(len(data), marker)
    )


def _preview(offset: int, marker: bytes) -> bytes:
    thumbnail = jpeg_with(0xFE, marker)
    entries = [(0x103, 6), (0x201, offset + 2 + 3 * 12 + 4), (0x202, len(thumbnail))]
    return (
        struct.pack(">H", 3)
        + b"".join(struct.pack(">HHLL", tag, 4, 1, value) for tag, value in entries)
        + bytes(4)
        + thumbnail
    )


def orientation(value: int) -> bytes:
    tags = Image.Exif()
    tags[ExifTags.Base.Orientation] = value
    return tags.tobytes()


# Containers


def jpeg_with(segment: int, *contents: bytes) -> bytes:
    """Return a JPEG with additional segments at its start."""
    data = encoded(gradient(), "JPEG")
    return (
        data[:2]
        + b"".join(struct.pack(">BBH", 0xFF, segment, len(content) + 2) + content for content in contents)
        + data[2:]
    )


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_16(pixels: NDArray[np.uint16]) -> bytes:
    """Return a PNG of uint16 [H, W, C] with C = 2 (grey, alpha), 3 or 4, which Pillow cannot write."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, {2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + png_chunk(b"IDAT", zlib.compress(rows))
        + png_chunk(b"IEND", b"")
    )


def png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return kind and content of each chunk. Data after the last one is a chunk of kind b''."""
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
        if chunks[-1][0] == b"IEND":
            return chunks + ([(b"", data[at:])] if data[at:] else [])
    raise AssertionError("no IEND")


def png_with(
    kind: bytes, content: bytes, *, late: bool = False, pixels: NDArray[np.unsignedinteger] | None = None
) -> bytes:
    """Return a PNG with one more chunk, after IHDR or, if ``late``, before IEND."""
    data = encoded(gradient() if pixels is None else pixels, "PNG")
    at = len(data) - 12 if late else 33
    return data[:at] + png_chunk(kind, content) + data[at:]


def webp_with(marker: bytes) -> bytes:
    """Return a WebP with an unknown chunk."""
    data = encoded(gradient(), "WEBP", exif=exif(marker), lossless=True)
    data += struct.pack("<4sL", b"whoa", len(marker)) + marker + bytes(len(marker) % 2)
    return b"RIFF" + struct.pack("<L", len(data) - 8) + data[8:]


def tiff_with(tag: int, kind: int, value: object, **options: object) -> bytes:
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags.tagtype[tag] = kind
    tags[tag] = value
    return encoded(gradient(), "TIFF", tiffinfo=tags, **options)


def tiff_16(pixels: NDArray[np.uint16], photometric: int, order: str = "<", profile: bytes = b"") -> bytes:
    """Return a TIFF of uint16 [H, W, C] with its tags after its pixels and the profile last."""
    height, width, channels = pixels.shape
    body = pixels.astype(order + "u2").tobytes()
    depths = struct.pack(f"{order}{channels}H", *[16] * channels)
    entries = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, channels, 8 + len(body)),
        (259, 4, 1, 1),
        (262, 4, 1, photometric),
    ]
    entries += [(273, 4, 1, 8), (277, 4, 1, channels), (278, 4, 1, height), (279, 4, 1, len(body))]
    end = 8 + len(body) + len(depths) + 2 + 12 * (len(entries) + bool(profile)) + 4
    entries += [(34675, 7, len(profile), end)] if profile else []
    if channels == 1:  # fits into the entry itself
        entries[2] = (258, 4, 1, 16)
    table = b"".join(struct.pack(order + "HHLL", *entry) for entry in entries)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "L", 8 + len(body) + len(depths))
    return head + body + depths + struct.pack(order + "H", len(entries)) + table + bytes(4) + profile


def bmp_rle(indices: NDArray[np.uint8]) -> bytes:
    """Return a run-length encoded BMP of 256 greys without runs longer than one pixel."""
    height, width = indices.shape
    rows = b"".join(b"".join(bytes([1, value]) for value in row) + b"\0\0" for row in indices[::-1]) + b"\0\1"
    palette = b"".join(bytes([value, value, value, 0]) for value in range(256))
    info = struct.pack("<LllHHLLllLL", 40, width, height, 1, 8, 1, len(rows), 0, 0, 256, 0)
    return (
        b"BM"
        + struct.pack("<LLL", 14 + len(info) + len(palette) + len(rows), 0, 14 + len(info) + len(palette))
        + info
        + palette
        + rows
    )


def gif_with(extension: bytes) -> bytes:
    data = encoded(Image.fromarray(gradient()).quantize(16), "GIF")
    at = 13 + 3 * 2 ** ((data[10] & 7) + 1)
    return data[:at] + extension + data[at:]


def bmp_with_gap(marker: bytes) -> bytes:
    """Return a BMP with bytes between its header and its pixels."""
    data = encoded(gradient(), "BMP")
    (start,) = struct.unpack_from("<L", data, 10)
    return data[:10] + struct.pack("<L", start + len(marker)) + data[14:start] + marker + data[start:]


def mpo(marker: bytes) -> bytes:
    """Return two images in one file, with the marker in the second."""
    second = Image.fromarray(gradient()[::-1])
    data = encoded(gradient(), "MPO", save_all=True, append_images=[second])
    at = data.rindex(b"\xff\xd8\xff") + 2
    return data[:at] + struct.pack(">BBH", 0xFF, 0xFE, len(marker) + 2) + marker + data[at:]


def _xmp(marker: bytes) -> bytes:
    return b"<x:xmpmeta xmlns:x='adobe:ns:meta/'><dc:creator>" + marker + b"</dc:creator></x:xmpmeta>"


def _iptc(marker: bytes) -> bytes:
    caption = b"\x1c\x02\x78" + struct.pack(">H", len(marker)) + marker
    return b"8BIM\x04\x04\0\0" + struct.pack(">I", len(caption)) + caption + bytes(len(caption) % 2)


def _extended_xmp(marker: bytes) -> bytes:
    content = _xmp(marker)
    return b"http://ns.adobe.com/xmp/extension/\0" + b"0" * 32 + struct.pack(">II", len(content), 0) + content


def _sub_blocks(content: bytes) -> bytes:
    return bytes([len(content)]) + content + b"\0"


DEEP_GREY = gradient()[..., 0].astype(np.uint16) * 257
PLANTS: dict[str, Plant] = {
    "jpeg exif": lambda m: jpeg_with(0xE1, b"Exif\0\0" + exif(m)),
    "jpeg xmp": lambda m: jpeg_with(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + _xmp(m)),
    "jpeg extended xmp": lambda m: jpeg_with(0xE1, _extended_xmp(m)),
    "jpeg iptc": lambda m: jpeg_with(0xED, b"Photoshop 3.0\0" + _iptc(m)),
    "jpeg icc": lambda m: jpeg_with(0xE2, b"ICC_PROFILE\0\x01\x01" + rgb_profile(m.decode())),
    "jpeg broken icc": lambda m: jpeg_with(0xE2, b"ICC_PROFILE\0\x01\x01" + m),
    "jpeg comment": lambda m: jpeg_with(0xFE, m),
    "jpeg jfif extension": lambda m: jpeg_with(0xE0, b"JFXX\0\x10" + m),
    "jpeg flashpix": lambda m: jpeg_with(0xE2, b"FPXR\0" + m),
    "jpeg unknown segment": lambda m: jpeg_with(0xE9, b"nobody knows\0" + m),
    "jpeg after the end": lambda m: encoded(gradient(), "JPEG") + b"\0\0\0\x18ftypmp42" + m,
    "jpeg second image": mpo,
    "jpeg cmyk exif":
        lambda m: encoded(Image.fromarray(gradient()).convert("CMYK"), "JPEG", exif=b"Exif\0\0" + exif(m)),
    "png text": lambda m: png_with(b"tEXt", b"Author\0" + m),
    "png text after the pixels": lambda m: png_with(b"tEXt", b"Author\0" + m, late=True),
    "png deflated text": lambda m: png_with(b"zTXt", b"Author\0\0" + zlib.compress(m, 0)),
    "png xmp": lambda m: png_with(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + _xmp(m)),
    "png exif": lambda m: png_with(b"eXIf", exif(m)),
    "png exif after the pixels": lambda m: png_with(b"eXIf", exif(m), late=True),
    "png icc": lambda m: png_with(b"iCCP", b"name\0\0" + zlib.compress(rgb_profile(m.decode()), 0)),
    "png icc name": lambda m: png_with(b"iCCP", m + b"\0\0" + zlib.compress(rgb_profile())),
    "png broken icc": lambda m: png_with(b"iCCP", b"name\0\0" + m),
    "png unknown chunk": lambda m: png_with(b"prVt", m),
    "png time": lambda m: png_with(b"tIME", m[:7]),
    "png after the end": lambda m: encoded(gradient(), "PNG") + m,
    "png deep grey text": lambda m: png_with(b"tEXt", b"Author\0" + m, pixels=DEEP_GREY),
    "webp exif": lambda m: encoded(gradient(), "WEBP", exif=exif(m)),
    "webp xmp": lambda m: encoded(gradient(), "WEBP", xmp=_xmp(m)),
    "webp icc": lambda m: encoded(gradient(), "WEBP", icc_profile=rgb_profile(m.decode())),
    "webp unknown chunk": webp_with,
    "webp after the end": lambda m: encoded(gradient(), "WEBP") + m,
    "tiff description": lambda m: tiff_with(270, 2, m.decode()),
    "tiff software": lambda m: tiff_with(305, 2, m.decode()),
    "tiff artist": lambda m: tiff_with(315, 2, m.decode(), compression="tiff_lzw"),
    "tiff private tag": lambda m: tiff_with(65000, 2, m.decode()),
    "tiff xmp": lambda m: tiff_with(700, 1, _xmp(m)),
    "tiff iptc": lambda m: tiff_with(33723, 7, _iptc(m)),
    "tiff photoshop": lambda m: tiff_with(34377, 1, _iptc(m)),
    "tiff icc": lambda m: encoded(gradient(), "TIFF", icc_profile=rgb_profile(m.decode())),
    "tiff exif": lambda m: encoded(gradient(), "TIFF", exif=exif(m)),
    "tiff after the end": lambda m: encoded(gradient(), "TIFF") + m,
    "gif comment": lambda m: gif_with(b"!\xfe" + _sub_blocks(m)),
    "gif application": lambda m: gif_with(b"!\xff" + b"\x0bXMP DataXMP" + _sub_blocks(m)),
    "gif plain text": lambda m: gif_with(b"!\x01" + _sub_blocks(bytes(12)) [:-1] + _sub_blocks(m)),
    "gif after the end": lambda m: gif_with(b"") + m,
    "bmp before the pixels": bmp_with_gap,
    "bmp after the pixels": lambda m: encoded(gradient(), "BMP") + m,
}  # fmt: skip
