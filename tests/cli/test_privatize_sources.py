"""What can be a source: several, a file into a folder, a zip file, a selection."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ldp_slicing.cli import app
from tests.release.helpers import PNG, outputs, plant, small_images, verified


def privatize(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    result = CliRunner().invoke(app, ["privatize", *map(str, arguments), "--epsilon", "5"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def as_json(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(privatize(*arguments, "--json")[1])
    return found


def test_several_sources_have_folders_of_their_own(tmp_path: Path) -> None:
    images = list(small_images(4).values())
    one = plant(tmp_path / "one", {"a.png": images[0]})
    two = plant(tmp_path / "two", {"a.png": images[1], "b/c.png": images[2]})
    (tmp_path / "single.png").write_bytes(images[3])
    command = (one, two, tmp_path / "single.png", tmp_path / "out")
    assert privatize(*command)[0] == 0
    assert list(outputs(tmp_path / "out")) == ["one/a.png", "single.png", "two/a.png", "two/b/c.png"]
    assert verified(tmp_path / "out") == []
    before = outputs(tmp_path / "out")
    status, out, _ = privatize(two, one, *command[2:])  # in another order it is the same run
    assert (status, outputs(tmp_path / "out")) == (0, before)
    assert "4 of them earlier" in out


def test_sources_with_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a/in", "b/in"):
        plant(tmp_path / name, {"x.png": PNG})
    status, _, err = privatize(tmp_path / "a/in", tmp_path / "b/in", tmp_path / "out")
    assert status == 2
    assert "two sources are called in" in err
    assert not (tmp_path / "out").exists()


def test_sources_that_overlap_are_refused_because_images_would_be_released_twice(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG, "sub/b.png": PNG})
    (tmp_path / "link").symlink_to(source / "sub")
    for other in (source / "sub", source / "a.png", tmp_path / "link"):
        status, _, err = privatize(source, other, tmp_path / "out")
        assert (status, "would be released twice" in err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_pattern_that_names_a_folder_as_a_file_is_refused(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG, "drafts/b.png": PNG})
    status, _, err = privatize(source, tmp_path / "out", "--exclude", "drafts")
    assert (status, "write 'drafts/' to mean everything in it" in " ".join(err.split())) == (2, True)
    assert as_json(source, tmp_path / "out", "--exclude", "drafts/")["released"] == 1


@pytest.mark.parametrize("inside", [True, False])
def test_a_target_inside_any_of_the_sources_is_refused(inside: bool, tmp_path: Path) -> None:
    one, two = plant(tmp_path / "one", {"a.png": PNG}), plant(tmp_path / "two", {"b.png": PNG})
    target = two / "out" if inside else tmp_path
    status, _, err = privatize(one, two, target)
    assert (status, "overlap" in err) == (2, True)


def test_a_file_into_a_folder(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG, "other.png": PNG}) / "a.png"
    (tmp_path / "there").mkdir()
    for target in ("there", "new/"):
        assert privatize(source, f"{tmp_path}/{target}", "--spend")[0] == 0
        assert list(outputs(tmp_path / target)) == ["a.png"]
        assert verified(tmp_path / target) == []
    status, _, err = privatize(source, tmp_path / "file.jpg")
    assert status == 2
    assert f"or name a folder: {tmp_path}/file.jpg/" in " ".join(err.split())


def test_a_zip_file_is_a_folder(tmp_path: Path) -> None:
    images = small_images(3)
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for name, data in images.items():
            archive.writestr(f"summer/{name}", data)
        archive.writestr("../out.png", PNG)
        archive.writestr("__MACOSX/._a.png", b"\0\5\x16\7")
    status, _, err = privatize(tmp_path / "photos.zip", tmp_path / "out")
    assert status == 1
    assert "../out.png: has a name that leads out of its folder" in err
    assert list(outputs(tmp_path / "out")) == [f"summer/{name}" for name in images]
    assert verified(tmp_path / "out") == []
    plant(tmp_path / "in", images)
    again = as_json(tmp_path / "in", tmp_path / "again")  # the ledger knows them
    assert (again["released"], again["failed"]) == (0, 3)
    plant(tmp_path / "more", {"a.png": small_images(4)["00003.png"]})
    both = as_json(tmp_path / "more", tmp_path / "photos.zip", tmp_path / "both", "--exclude", "out.png", "--spend")
    assert (both["released"], both["failed"]) == (4, 0)
    assert list(outputs(tmp_path / "both")) == ["more/a.png", *(f"photos/summer/{name}" for name in images)]


def test_a_zip_file_in_a_folder_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in/photos.zip", "w") as archive:
        archive.writestr("a.png", PNG)
    status, _, err = privatize(tmp_path / "in", tmp_path / "out")
    assert status == 1
    assert "not released: photos.zip: is a zip file: name it as a source of its own, or unpack it\n" in err


def test_include_and_exclude(tmp_path: Path) -> None:
    images = list(small_images(4).values())
    names = ("a.png", "drafts/b.png", "c.gif", "notes.txt")
    source = plant(tmp_path / "in", dict(zip(names, images, strict=True)))
    command = (source, tmp_path / "out", "--include", "*.png", "--include", "*.gif", "--exclude", "drafts/")
    status, _, err = privatize(*command)
    assert status == 0
    assert "left out 2 files by --include and --exclude" in err
    assert list(outputs(tmp_path / "out")) == ["a.png", "c.png"]
    assert privatize(source, tmp_path / "out", "--exclude", "*.txt")[0] == 0  # the same run, with more files
    assert list(outputs(tmp_path / "out")) == ["a.png", "c.png", "drafts/b.png"]
    assert verified(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("pattern", "why"), [("[a", "is not a pattern"), ("*.jpg", "no file that can be released and is selected by")]
)
def test_patterns_that_select_nothing_are_refused(pattern: str, why: str, tmp_path: Path) -> None:
    status, _, err = privatize(plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "out", "--include", pattern)
    assert (status, why in err) == (2, True)
    assert not (tmp_path / "out").exists()
