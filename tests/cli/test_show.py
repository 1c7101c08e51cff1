from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.comparison_sheet import WARNING
from ldp_slicing.formats.single import read_single
from ldp_slicing.view import Prune
from tests.formats.dicom_files import SLICE, dicom, saved
from tests.markers import encoded, gradient, jpeg_with


def show(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["show", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


SOURCES = {
    "colour": encoded(gradient(), "PNG"),
    "grey": encoded(gradient()[..., 0], "PNG"),
    "deep grey": encoded(gradient()[..., 0].astype(np.uint16) * 257, "PNG"),
    "one pixel": encoded(gradient(1, 1), "PNG"),
    "very wide": encoded(gradient(1, 3000), "PNG"),
    "very high": encoded(gradient(3000, 2), "PNG"),
    "DICOM": saved(dicom(SLICE, 12)),
    "with metadata": jpeg_with(0xFE, b"a comment to be kept at home"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_sheet_is_a_png_with_the_warning_and_no_metadata(name: str, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(SOURCES[name])
    status, out, _ = show(tmp_path / "source", "--out", tmp_path / "sheet.png")
    assert status == 0
    assert "for the owner only" in out
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"
        assert sheet.getpixel((0, 0)) == WARNING
        assert sheet.info == {}
    assert b"kept at home" not in (tmp_path / "sheet.png").read_bytes()


def test_named_slices(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(SOURCES["colour"])
    assert show(tmp_path / "source", "--out", tmp_path / "sheet.png", "--slices", "Y7+Y4", "--prune", "haar4")[0] == 0
    assert show(tmp_path / "source", "--out", tmp_path / "lower.png", "--prune", "none")[0] == 0
    with Image.open(tmp_path / "sheet.png") as sheet, Image.open(tmp_path / "lower.png") as lower:
        assert lower.height < sheet.height  # without pruning there is one row of releases
    status, _, err = show(tmp_path / "source", "--out", tmp_path / "other.png", "--slices", "Y8")
    assert status == 2
    assert "'Y8'" in err
    assert not (tmp_path / "other.png").exists()


def test_notices_are_printed(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(
        encoded(Image.fromarray(gradient()[..., 0].astype(np.uint16) * 257), "PNG", transparency=7)
    )
    _, _, err = show(tmp_path / "source", "-o", tmp_path / "sheet.png", "--side", 16)
    assert "notice: transparency is dropped" in err


def test_dicom_files_and_deep_grey_use_the_plan_of_their_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[tuple[int, ...], int]] = []

    def note(
        pixels: NDArray[np.unsignedinteger], side: int, slices: str | None, prune: Prune, bits: int, *, shrunk: bool
    ) -> Image.Image:
        given.append((pixels.shape, bits))
        return Image.new("L", (1, 1))

    monkeypatch.setattr(
        import_module("ldp_slicing.cli.show"), "make_sheet", note
    )  # the package exports the command under that name
    frames = np.stack([SLICE, SLICE ^ 1])
    files = {
        "a.dcm": saved(dicom(frames, 12)),
        "IM0001": saved(dicom(SLICE, 12)),
        "b.png": SOURCES["deep grey"],
        "c.png": SOURCES["colour"],
    }
    said = ""
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        status, _, err = show(tmp_path / name, "-o", tmp_path / f"{name}.sheet.png")
        assert status == 0
        said += err
    assert given == [(SLICE.shape, 12), (SLICE.shape, 12), (gradient().shape[:2], 16), (gradient().shape, 8)]
    assert said.strip() == "notice: only its first frame is shown; each frame would be a release"
    np.testing.assert_array_equal(read_single(tmp_path / "a.dcm").pixels, SLICE)


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        ("source.png", "source.png", "exists and is not overwritten"),
        ("source.png", "there.png", "exists and is not overwritten"),
        ("source.png", "link.png", "exists and is not overwritten"),
        ("source.png", "sheet.jpg", "must end in .png"),
        ("source.png", "no/such/folder/sheet.png", "cannot be written: No such file or directory"),
        ("missing.png", "sheet.png", "missing.png does not exist"),
        (
            "text.jpg",
            "sheet.png",
            "text.jpg: not an image in a supported format (JPEG, PNG, WebP, TIFF, BMP, GIF, HEIC, AVIF), nor DICOM",
        ),
        ("shard.tar", "sheet.png", "shard.tar: not an image"),
        ("torn.dcm", "sheet.png", "torn.dcm: cannot be decoded"),
        (".", "sheet.png", "is a folder: name one image or DICOM file in it"),
    ],
)
def test_refusals_write_nothing(source: str, target: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "source.png").write_bytes(SOURCES["colour"])
    (tmp_path / "there.png").write_bytes(b"something dear")
    (tmp_path / "text.jpg").write_bytes(b"text")
    (tmp_path / "shard.tar").write_bytes(SOURCES["colour"])
    (tmp_path / "torn.dcm").write_bytes(SOURCES["DICOM"][:-40])
    (tmp_path / "link.png").symlink_to("nowhere")
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    status, out, err = show(tmp_path / source, "--out", tmp_path / target, "--side", 16)
    assert (status, out) == (2, "")
    assert why in err
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before
