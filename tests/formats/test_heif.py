"""HEIC and AVIF, the image formats of phones."""

from __future__ import annotations

import io
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ldp_slicing import heif
from ldp_slicing.errors import ImageError
from ldp_slicing.images import decode_image
from tests.formats.heif_files import heic
from tests.formats.shards import shard
from tests.markers import encoded, exif, gradient, orientation, rgb_profile
from tests.release.helpers import SECRET, outputs, plant, release, verified

pillow_heif = pytest.importorskip("pillow_heif")
COLOUR = gradient(48, 32)
IMAGE = Image.fromarray(COLOUR)


def by_library(data: bytes) -> Image.Image:
    image: Image.Image = pillow_heif.open_heif(io.BytesIO(data)).to_pillow()
    return image


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_heic_is_decoded(mode: str) -> None:
    data = heic(IMAGE.convert(mode))
    decoded = decode_image(data)
    assert decoded.notices == ()
    np.testing.assert_array_equal(decoded.pixels, np.asarray(by_library(data)))
    assert np.abs(decoded.pixels - np.asarray(IMAGE.convert(mode)).astype(int)).mean() < 16


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("kind", ["HEIC", "AVIF"])
def test_orientation_is_applied_once(kind: str, value: int) -> None:
    options = {"quality": 95, "exif": orientation(value)}
    data = heic(IMAGE, **options) if kind == "HEIC" else encoded(IMAGE, kind, **options)
    png = decode_image(encoded(IMAGE, "PNG", exif=orientation(value))).pixels
    pixels = decode_image(data).pixels
    assert pixels.shape == png.shape
    assert np.abs(pixels.astype(int) - png)[..., :2].mean() < 16


@pytest.mark.parametrize("kind", ["HEIC", "AVIF"])
def test_colour_profile_is_applied(kind: str) -> None:
    profile = rgb_profile()
    data = heic(IMAGE, icc_profile=profile) if kind == "HEIC" else encoded(IMAGE, kind, icc_profile=profile)
    plain = heic(IMAGE) if kind == "HEIC" else encoded(IMAGE, kind)
    shown = decode_image(data).pixels.astype(int)
    assert np.abs(shown - decode_image(plain).pixels).mean() > 30
    assert np.abs(shown[..., 2] - COLOUR[..., 0]).mean() < 24  # red is shown as blue


def test_transparency_and_depth_are_reported() -> None:
    transparent = IMAGE.convert("RGBA")
    transparent.putalpha(Image.fromarray(COLOUR[..., 2]))
    assert any("transparency" in notice for notice in decode_image(heic(transparent)).notices)
    deep = pillow_heif.from_bytes("RGB;16", IMAGE.size, (COLOUR * np.uint16(257)).tobytes())
    file = io.BytesIO()
    deep.save(file)
    assert decode_image(file.getvalue()).notices == ("10 bits per channel are reduced to 8",)


@pytest.mark.parametrize("kind", ["HEIC", "AVIF"])
def test_hdr_colours_are_reported(kind: str) -> None:
    data = heic(IMAGE, color_primaries=1) if kind == "HEIC" else encoded(IMAGE, kind)
    at = data.index(b"colrnclx") + 8
    changed = data[:at] + struct.pack(">HH", 9, 16) + data[at + 4 :]
    assert "wide or HDR colours" in decode_image(changed).notices[0]


def test_a_file_of_several_images_is_refused() -> None:
    with pytest.raises(ImageError, match="has 2 images: split it"):
        decode_image(heic(IMAGE, IMAGE.rotate(180)))


@pytest.mark.parametrize("kind", ["HEIC", "AVIF"])
def test_a_file_that_is_cut_off_is_refused(kind: str) -> None:
    data = heic(IMAGE) if kind == "HEIC" else encoded(IMAGE, kind)
    for cut in sorted({*range(0, len(data), 97), *range(len(data) - 16, len(data))}):
        with pytest.raises(ImageError):
            decode_image(data[:cut])


def test_without_the_library_the_advice_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = heic(IMAGE)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(ImageError, match=r"pip install 'ldp-slicing\[heif\]'"):
        decode_image(data)


def test_files_and_members_are_released_without_metadata(tmp_path: Path) -> None:
    phone, avif = heic(IMAGE, exif=exif(SECRET)), encoded(IMAGE, "AVIF", exif=exif(SECRET))
    files = {"IMG_1.HEIC": phone, "b.avif": avif, "s.tar": shard({"a.heic": heic(IMAGE.rotate(180))})}
    assert release(plant(tmp_path / "in", files), tmp_path / "out").problems == {}
    made = outputs(tmp_path / "out")
    assert set(made) == {"IMG_1.png", "b.png", "s.tar"}
    assert not any(SECRET in data for data in made.values())
    assert verified(tmp_path / "out") == []


def test_a_large_image_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = heic(IMAGE)
    assert decode_image(data).pixels.shape == COLOUR.shape
    monkeypatch.setattr(heif, "MAX_PIXELS", 48 * 32 - 1)
    monkeypatch.setattr(pillow_heif.HeifImage, "to_pillow", None)
    with pytest.raises(ImageError, match=r"\d\d x \d\d pixels are more than 1,535"):
        decode_image(data)
