from __future__ import annotations

import io
import os
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms

from ldp_slicing.errors import ImageError
from ldp_slicing.images import Decoded, decode_image, read_image
from tests.markers import (
    bmp_rle,
    encoded,
    gradient,
    grey_profile,
    jpeg_with,
    orientation,
    png_16,
    png_chunk,
    png_with,
    rgb_profile,
    tiff_16,
)

Pixels = NDArray[np.unsignedinteger]

COLOUR = gradient()
GREY = COLOUR[..., 2]
DEEP = GREY * np.uint16(256) + COLOUR[..., 0]
BLACK_WHITE = np.where(GREY > 127, np.uint8(255), np.uint8(0))
IMAGE = Image.fromarray(COLOUR)
PALETTE = IMAGE.quantize(64)
ALPHA = np.where(GREY > 200, np.uint8(0), np.uint8(255))
WITH_ALPHA = np.dstack([COLOUR, ALPHA])
TRANSPARENCY, EIGHT_BITS = "transparency is dropped", "16 bits per channel are reduced to 8"


def read(tmp_path: Path, data: bytes) -> Decoded:
    path = tmp_path / "source"
    path.write_bytes(data)
    return read_image(path)


def by_pillow(data: bytes, mode: str = "RGB") -> Pixels:
    """Decode a file with Pillow alone, as the expected pixels of lossy formats."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert(mode))


def rgb(image: Image.Image) -> Pixels:
    return np.asarray(image.convert("RGB"))


JPEG, WEBP, AVIF = (encoded(COLOUR, kind) for kind in ("JPEG", "WEBP", "AVIF"))
JPEG_GREY, JPEG_CMYK = encoded(GREY, "JPEG"), encoded(IMAGE.convert("CMYK"), "JPEG")
WIDE = COLOUR * np.uint16(256) + np.uint16(0x7F)
KINDS: dict[str, tuple[bytes, Pixels, list[str]]] = {
    "jpeg": (JPEG, by_pillow(JPEG), []),
    "jpeg, progressive": (
        encoded(COLOUR, "JPEG", progressive=True),
        by_pillow(encoded(COLOUR, "JPEG", progressive=True)),
        [],
    ),
    "jpeg, grey": (JPEG_GREY, by_pillow(JPEG_GREY, "L"), []),
    "jpeg, cmyk": (JPEG_CMYK, by_pillow(JPEG_CMYK), []),
    "avif": (AVIF, by_pillow(AVIF), []),
    "png": (encoded(COLOUR, "PNG"), COLOUR, []),
    "png, grey": (encoded(GREY, "PNG"), GREY, []),
    "png, 1 bit": (encoded(Image.fromarray(BLACK_WHITE).convert("1"), "PNG"), BLACK_WHITE, []),
    "png, palette": (encoded(PALETTE, "PNG"), rgb(PALETTE), []),
    "png, palette, transparent": (encoded(PALETTE, "PNG", transparency=3), rgb(PALETTE), [TRANSPARENCY]),
    "png, palette, half transparent": (
        encoded(PALETTE, "PNG", transparency=bytes(range(64))),
        rgb(PALETTE),
        [TRANSPARENCY],
    ),
    "png, one colour transparent": (encoded(COLOUR, "PNG", transparency=(0, 0, 0)), COLOUR, [TRANSPARENCY]),
    "png, one grey transparent": (encoded(GREY, "PNG", transparency=7), GREY, [TRANSPARENCY]),
    "png, grey and alpha": (encoded(Image.fromarray(np.dstack([GREY, ALPHA])), "PNG"), GREY, [TRANSPARENCY]),
    "png, alpha": (encoded(WITH_ALPHA, "PNG"), COLOUR, [TRANSPARENCY]),
    "png, deep grey": (encoded(DEEP, "PNG"), DEEP, []),
    "png, deep grey, one transparent": (png_with(b"tRNS", b"\0\7", pixels=DEEP), DEEP, [TRANSPARENCY]),
    "png, deep colour": (png_16(WIDE), COLOUR, [EIGHT_BITS]),
    "png, deep colour and alpha": (png_16(np.dstack([WIDE, WIDE[..., 0]])), COLOUR, [EIGHT_BITS, TRANSPARENCY]),
    "png, deep grey and alpha": (png_16(WIDE[..., :2]), COLOUR[..., 0], [EIGHT_BITS, TRANSPARENCY]),
    "webp": (WEBP, by_pillow(WEBP), []),
    "webp, lossless": (encoded(COLOUR, "WEBP", lossless=True), COLOUR, []),
    "webp, alpha": (encoded(WITH_ALPHA, "WEBP", lossless=True, exact=True), COLOUR, [TRANSPARENCY]),
    "tiff": (encoded(COLOUR, "TIFF"), COLOUR, []),
    "tiff, lzw": (encoded(COLOUR, "TIFF", compression="tiff_lzw"), COLOUR, []),
    "tiff, grey": (encoded(GREY, "TIFF"), GREY, []),
    "tiff, 1 bit": (encoded(Image.fromarray(BLACK_WHITE).convert("1"), "TIFF", compression="group4"), BLACK_WHITE, []),
    "tiff, palette": (encoded(PALETTE, "TIFF"), rgb(PALETTE), []),
    "tiff, alpha": (encoded(WITH_ALPHA, "TIFF"), COLOUR, [TRANSPARENCY]),
    "tiff, cmyk": (encoded(IMAGE.convert("CMYK"), "TIFF"), rgb(IMAGE.convert("CMYK")), []),
    "tiff, lab": (encoded(IMAGE.convert("LAB"), "TIFF", icc_profile=None), rgb(IMAGE.convert("LAB")), []),
    "tiff, deep grey": (encoded(DEEP, "TIFF"), DEEP, []),
    "tiff, deep grey, deflated": (encoded(DEEP, "TIFF", compression="tiff_adobe_deflate"), DEEP, []),
    "tiff, deep grey, big-endian": (tiff_16(DEEP[..., None], 1, ">"), DEEP, []),
    "tiff, deep grey, white is zero": (tiff_16(DEEP[..., None], 0), 65535 - DEEP, []),
    "tiff, deep colour": (tiff_16(WIDE, 2), COLOUR, [EIGHT_BITS]),
    "tiff, deep colour, big-endian": (tiff_16(WIDE, 2, ">"), COLOUR, [EIGHT_BITS]),
    "bmp": (encoded(COLOUR, "BMP"), COLOUR, []),
    "bmp, grey": (encoded(GREY, "BMP"), GREY, []),
    "bmp, 1 bit": (encoded(Image.fromarray(BLACK_WHITE).convert("1"), "BMP"), BLACK_WHITE, []),
    "bmp, palette": (encoded(PALETTE, "BMP"), rgb(PALETTE), []),
    "bmp, run-length": (bmp_rle(GREY), GREY, []),
    "gif": (encoded(PALETTE, "GIF"), rgb(PALETTE), []),
    "gif, transparent": (encoded(PALETTE, "GIF", transparency=3), rgb(PALETTE), [TRANSPARENCY]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_read(kind: str, tmp_path: Path) -> None:
    data, expected, notices = KINDS[kind]
    decoded = read(tmp_path, data)
    assert decoded.pixels.dtype == expected.dtype
    np.testing.assert_array_equal(decoded.pixels, expected)
    assert len(decoded.notices) == len(notices)
    assert all(any(notice.startswith(start) for notice in decoded.notices) for start in notices)


# EXIF orientations: what a viewer must do with the stored rows and columns
UPRIGHT: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a),
}


@pytest.mark.parametrize("value", UPRIGHT)
@pytest.mark.parametrize(
    "kind", ["JPEG", "PNG", "WEBP", "TIFF", "TIFF, lzw", "PNG, late", "PNG, deep grey", "PNG, 1 bit"]
)
def test_orientation_is_applied(kind: str, value: int, tmp_path: Path) -> None:
    stored: Pixels = COLOUR
    exif = orientation(value)
    match kind:
        case "JPEG":
            data, stored = encoded(COLOUR, kind, exif=exif), by_pillow(encoded(COLOUR, kind))
        case "TIFF, lzw":
            data = encoded(COLOUR, "TIFF", tiffinfo={274: value}, compression="tiff_lzw")
        case "PNG, late":
            data = png_with(b"eXIf", exif.removeprefix(b"Exif\0\0"), late=True)
        case "PNG, deep grey":
            data, stored = encoded(DEEP, "PNG", exif=exif), DEEP
        case "PNG, 1 bit":
            data, stored = encoded(Image.fromarray(BLACK_WHITE).convert("1"), "PNG", exif=exif), BLACK_WHITE
        case _:
            data = encoded(COLOUR, kind, exif=exif, lossless=True)
    np.testing.assert_array_equal(read(tmp_path, data).pixels, UPRIGHT[value](stored))


PATCH = np.full((4, 6, 3), (250, 10, 30), np.uint8)  # red, or blue by the profile with swapped primaries


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "PNG, palette", "PNG, alpha"])
def test_colour_profile_is_applied(kind: str, tmp_path: Path) -> None:
    image = Image.fromarray(PATCH)
    image = image.quantize(4) if "palette" in kind else image.convert("RGBA") if "alpha" in kind else image
    data = encoded(image, kind.split(",")[0], icc_profile=rgb_profile(), lossless=True)
    decoded = read(tmp_path, data)
    stored = Image.fromarray(by_pillow(data))
    expected = ImageCms.profileToProfile(stored, io.BytesIO(rgb_profile()), ImageCms.createProfile("sRGB"))
    assert expected is not None
    np.testing.assert_array_equal(decoded.pixels, np.asarray(expected))
    red, _, blue = decoded.pixels[0, 0].tolist()
    assert red < 80
    assert blue > 220
    assert not any("profile" in notice for notice in decoded.notices)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_grey_profile_is_applied_and_the_image_stays_grey(kind: str, tmp_path: Path) -> None:
    decoded = read(tmp_path, encoded(np.full((8, 8), 128, np.uint8), kind, icc_profile=grey_profile()))
    assert decoded.pixels.shape == (8, 8)
    assert set(decoded.pixels.ravel().tolist()) <= {187, 188, 189}  # half the light
    assert decoded.notices == ()


def test_orientation_and_profile_are_both_applied(tmp_path: Path) -> None:
    stored = np.concatenate([PATCH, PATCH[..., ::-1]])
    decoded = read(tmp_path, encoded(stored, "PNG", exif=orientation(6), icc_profile=rgb_profile()))
    np.testing.assert_array_equal(
        decoded.pixels, np.rot90(read(tmp_path, encoded(stored, "PNG", icc_profile=rgb_profile())).pixels, -1)
    )


@pytest.mark.parametrize(
    ("data", "stored"),
    {
        "garbage": (encoded(COLOUR, "PNG", icc_profile=b"garbage" * 30), COLOUR),
        "cut off": (encoded(COLOUR, "TIFF", icc_profile=rgb_profile()[:200]), COLOUR),
        "not even deflated": (png_with(b"iCCP", b"name\0\0garbage"), COLOUR),
        "a part is missing": (jpeg_with(0xE2, b"ICC_PROFILE\0\1\2" + rgb_profile()), by_pillow(JPEG)),
        "for colour, on grey": (encoded(GREY, "PNG", icc_profile=rgb_profile()), GREY),
        "for grey, on colour": (encoded(COLOUR, "PNG", icc_profile=grey_profile()), COLOUR),
        "for colour, on CMYK": (
            encoded(IMAGE.convert("CMYK"), "TIFF", icc_profile=rgb_profile()),
            rgb(IMAGE.convert("CMYK")),
        ),
        "on deep grey": (encoded(DEEP, "PNG", icc_profile=grey_profile()), DEEP),
    }.values(),
)
def test_unusable_profile_gives_a_notice(data: bytes, stored: Pixels, tmp_path: Path) -> None:
    decoded = read(tmp_path, data)
    np.testing.assert_array_equal(decoded.pixels, stored)
    assert [notice for notice in decoded.notices if "colour profile" in notice]


def png_that_claims(width: int, height: int) -> bytes:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + encoded(COLOUR, "PNG")[33:]


def frames(kind: str) -> bytes:
    """Return a small animation of two frames."""
    first, second = Image.fromarray(COLOUR[:9, :8]), Image.fromarray(COLOUR[-9:, -8:])
    return encoded(first.quantize(8) if kind == "GIF" else first, kind, save_all=True, append_images=[second])


def test_pages_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow takes a time that is quadratic in their number: 40,000 pages in 5 MB took 20 s."""
    counted = property(lambda image: pytest.fail("the pages were counted"))
    monkeypatch.setattr("PIL.TiffImagePlugin.TiffImageFile.n_frames", counted)
    with pytest.raises(ImageError, match="several pages"):
        decode_image(frames("TIFF"))
    assert np.array_equal(decode_image(encoded(COLOUR, "TIFF")).pixels, COLOUR)


REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "text": (b"these are the holiday pictures\n" * 100, "not an image"),
    "zeros": (bytes(5000), "not an image"),
    "of another kind": (encoded(COLOUR, "PPM"), "not an image"),
    "a bomb": (png_that_claims(30_000, 30_000), "more than 178,956,970 pixels: shrink or crop it"),
    "boxes without an image": (b"\0\0\0\x18ftypavif" + bytes(96), "."),
    "boxes that end too late": (b"\0\0\0\x18ftypheic" + bytes(12) + b"\0\0\1\0meta", "cut off"),
    "a preview": (encoded(COLOUR, "TIFF", tiffinfo={254: 1}), "a camera's raw file"),
    "a raw photo": (encoded(COLOUR, "TIFF", tiffinfo={50706: b"\1\4\0\0"}), "export it as TIFF, PNG or JPEG"),
    "no size": (png_that_claims(0, 5), "."),
    "animated gif": (frames("GIF"), "2 frames, .* --frames releases it as a video, at 2 times eps"),
    "animated png": (frames("PNG"), "2 frames"),
    "animated webp": (frames("WEBP"), "2 frames"),
    "animated avif": (frames("AVIF"), "2 frames"),
    "pages": (frames("TIFF"), "several pages"),
    "floats": (encoded(Image.fromarray(GREY.astype(np.float32)), "TIFF"), "no fixed range"),
    "32 bits": (encoded(Image.fromarray(GREY.astype(np.int32)), "TIFF"), "no fixed range"),
    "damaged checksum": (encoded(COLOUR, "PNG")[:-16] + b"xxxx" + encoded(COLOUR, "PNG")[-12:], "damaged"),
} | {
    f"garbage behind {start!r}": (start + bytes(range(256)) * 9, ".")
    for start in (b"\xff\xd8\xff\xe0", b"BM", b"GIF89a", b"II*\0", b"RIFF")
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore")  # without pytest, Pillow's warnings stop nothing
def test_unreliable_file_is_refused(name: str, tmp_path: Path) -> None:
    data, why = REFUSED[name]
    with pytest.raises(ImageError, match=why):
        read(tmp_path, data)


CUT_ANYWHERE = {
    "png, exif behind the pixels": png_with(b"eXIf", orientation(6).removeprefix(b"Exif\0\0"), late=True),
    "tiff, profile behind the pixels": tiff_16(WIDE[:9, :9], 2, profile=rgb_profile()),
    "tiff, profile by libtiff": encoded(
        COLOUR[:9, :8], "TIFF", compression="tiff_lzw", icc_profile=rgb_profile(), tiffinfo={274: 6}
    ),
    "webp, exif and profile": encoded(COLOUR, "WEBP", exif=orientation(6), icc_profile=rgb_profile()),
    "gif, animated": frames("GIF"),
    "png, animated": frames("PNG"),
    "tiff, pages": frames("TIFF"),
}
CUT_HERE_AND_THERE = {kind: data for kind, (data, _, _) in KINDS.items()} | {"jpeg, two pictures": frames("MPO")}


@pytest.mark.parametrize("kind", CUT_ANYWHERE | CUT_HERE_AND_THERE)
@pytest.mark.filterwarnings("ignore")  # without pytest, Pillow's warnings stop nothing
def test_truncated_file_is_refused_or_complete(kind: str, tmp_path: Path) -> None:
    data = CUT_ANYWHERE.get(kind) or CUT_HERE_AND_THERE[kind]
    whole = pixels_or_none(tmp_path, data)
    step = 1 if kind in CUT_ANYWHERE else len(data) // 100 + 1
    for cut in sorted({*range(0, len(data), step), *range(len(data) - 32, len(data))}):
        part = pixels_or_none(tmp_path, data[:cut])
        assert part is None or (whole is not None and np.array_equal(part, whole)), f"cut at {cut} of {len(data)}"


def pixels_or_none(tmp_path: Path, data: bytes) -> Pixels | None:
    try:
        return read(tmp_path, data).pixels
    except ImageError:
        return None


def test_damaged_png_is_refused_or_read_correctly(tmp_path: Path) -> None:
    data = png_with(b"eXIf", orientation(6).removeprefix(b"Exif\0\0"), late=True)
    whole = read(tmp_path, data).pixels
    for at in range(0, len(data), 3):
        part = pixels_or_none(tmp_path, data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :])
        assert part is None or np.array_equal(part, whole), f"byte {at}"


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def fail(*_: object) -> None:
        pytest.fail(f"hangs for {seconds} s")  # not an Exception: nobody takes it for a decoder's

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_pipes_devices_folders_and_missing_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for path in (
        tmp_path / "pipe",
        Path("/dev/zero"),
        tmp_path / "folder.png",
        tmp_path / "vanished",
        tmp_path / "loop",
    ):
        with at_most(5), pytest.raises(ImageError):
            read_image(path)


def test_video_is_not_read_into_memory(tmp_path: Path) -> None:
    with open(tmp_path / "film.mp4", "wb") as film:
        film.write(b"\0\0\0\x18ftypmp42")
        film.truncate(1 << 40)  # a sparse file of one terabyte
    with pytest.raises(ImageError, match="not an image"):
        read_image(tmp_path / "film.mp4")
