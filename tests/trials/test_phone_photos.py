"""A folder of phone photos: turned cameras, one damaged file, one HEIC, one of 24 megapixels."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from tests.formats.heif_files import heic
from tests.markers import encoded, exif, orientation
from tests.release.helpers import SECRET, outputs, pixels, plant, snapshot
from tests.trials.command_line import check, ldp_slicing


def scene(width: int, height: int, seed: int) -> Image.Image:
    """Return an image with large shapes and fine detail."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def phone(folder: Path) -> Path:
    turned = {
        f"DCIM/IMG_{way:04}.JPG": encoded(scene(80, 60, way), "JPEG", exif=orientation(way)) for way in range(1, 9)
    }
    damaged = encoded(scene(80, 60, 9), "JPEG")
    files = {
        **turned,
        "DCIM/IMG_0009.JPG": damaged[: len(damaged) // 2],
        "DCIM/IMG_0010.jpeg": encoded(scene(6000, 4000, 10), "JPEG", exif=exif(SECRET)),
        "DCIM/.DS_Store": SECRET,
        "notes.txt": SECRET,
    }
    if find_spec("pillow_heif"):
        files["DCIM/IMG_0011.HEIC"] = heic(scene(64, 48, 11))
    return plant(folder, files)


def test_phone_photos(tmp_path: Path) -> None:
    source, target = phone(tmp_path / "phone"), tmp_path / "releases"
    originals = snapshot(source)
    images = [path for path in source.glob("DCIM/IMG*") if path.name != "IMG_0009.JPG"]
    command = ("privatize", source, target, "--epsilon", 20, "--max-side", 224)

    ran = ldp_slicing(*command)
    assert ran.status == 1  # because of the damaged one, which is named
    assert "not released: DCIM/IMG_0009.JPG: " in ran.err
    assert ran.err.count("not released: DCIM") == 1
    assert "skipped: 1 file of other formats: notes.txt" in ran.err
    assert f"{len(images)} of {len(images) + 1} files released" in ran.out

    made = outputs(target)
    assert {Path(name).stem for name in made} == {path.stem for path in images}
    assert not any(SECRET in data for data in snapshot(target).values())
    sizes = {name: pixels(target / name).shape for name in made}
    for way in range(1, 9):
        assert sizes[f"DCIM/IMG_{way:04}.png"] == ((60, 80, 3) if way < 5 else (80, 60, 3))
    assert sizes["DCIM/IMG_0010.png"] == (149, 224, 3)  # floor(4000 * 224 / 6000) rows
    assert len(made["DCIM/IMG_0010.png"]) < 150_000
    check(target)

    again = ldp_slicing(*command, "--json")  # the next day, with the damaged file fetched again
    assert (again.status, again.json["kept"], again.json["failed"]) == (1, len(images), 1)
    plant(source, {"DCIM/IMG_0009.JPG": encoded(scene(80, 60, 9), "JPEG")})
    last = ldp_slicing(*command, "--json").json
    assert (last["exit_status"], last["kept"], last["released"]) == (0, len(images), len(images) + 1)
    assert last["problems"] == []
    assert outputs(target).items() > made.items()
    check(target)
    changed = {name for name, data in snapshot(source).items() if originals[name] != data}
    assert changed == {str(source / "DCIM/IMG_0009.JPG")}
