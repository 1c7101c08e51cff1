from __future__ import annotations

import os
import re
import socket
import sqlite3
import unicodedata
from pathlib import Path, PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldp_slicing.keys import Secret
from ldp_slicing.release.names import SCHEMA, OutputNames, random_name
from ldp_slicing.storage import LocalStorage, StoredFile


def names_of(*sources: str, suffix: str = ".png") -> dict[str, str]:
    database = sqlite3.connect(":memory:")
    database.executescript(SCHEMA)
    namer = OutputNames(database.execute)
    for source in sources:
        namer.request(source, suffix)
    names = {source: namer.choose(source, suffix) for source in sorted(sources)}
    database.close()
    return names


def find_files(folder: Path) -> list[StoredFile]:
    return sorted(LocalStorage(folder).files(), key=lambda found: found.path)


def test_a_release_has_the_name_of_its_source_and_ends_in_png() -> None:
    assert names_of("a.jpg", "b/c.tiff", "d", "e.f.webp", ".hidden", "g.png") == {
        "a.jpg": "a.png",
        "b/c.tiff": "b/c.png",
        "d": "d.png",
        "e.f.webp": "e.f.png",
        ".hidden": ".hidden.png",
        "g.png": "g.png",
    }


def test_sources_that_would_share_a_name_keep_their_endings() -> None:
    assert names_of("a.jpg", "a.png", "b.jpg") == {"a.jpg": "a.jpg.png", "a.png": "a.png.png", "b.jpg": "b.png"}


def test_names_that_differ_only_in_case_count_as_the_same() -> None:
    assert names_of("A.PNG", "a.jpg", "a.png") == {"A.PNG": "A.PNG.png", "a.jpg": "a.jpg.png", "a.png": "a.png.2.png"}


def test_a_longer_name_does_not_take_that_of_another() -> None:
    assert names_of("a.gif", "a.jpg", "a.jpg.bmp") == {
        "a.gif": "a.gif.png",
        "a.jpg": "a.jpg.png",
        "a.jpg.bmp": "a.jpg.bmp.png",
    }


def test_a_release_does_not_take_the_name_of_a_folder() -> None:
    assert names_of("x.jpg", "X.png/y.jpg") == {"x.jpg": "x.jpg.png", "X.png/y.jpg": "X.png/y.png"}


def one_name(path: PurePath) -> str:
    return unicodedata.normalize("NFC", str(path)).casefold()


PARTS = st.sampled_from(
    [
        "a",
        "A",
        "a.png",
        "A.PNG",
        "a.jpg",
        "a.jpg.png",
        "a.png.png",
        "a.jpg.2.png",
        "é.jpg",
        "e\u0301.jpg",
        "É.png",
        "b",
        "ß",
        "ss",
    ]
)
PATHS = st.lists(PARTS, min_size=1, max_size=3).map(lambda parts: PurePath(*parts))


@given(st.sets(PATHS, min_size=1, max_size=25))
def test_no_two_releases_share_a_name_on_any_file_system(paths: set[PurePath]) -> None:
    sources = [path for path in paths if not any(path in other.parents for other in paths)]
    names = {PurePath(source): PurePath(name) for source, name in names_of(*map(str, sources)).items()}
    assert set(names) == set(sources)
    assert len({one_name(name) for name in names.values()}) == len(sources)
    folders = {one_name(folder) for source in sources for folder in source.parents}
    assert not folders & {one_name(name) for name in names.values()}
    for source, name in names.items():
        assert name.parent == source.parent
        assert name.name.endswith(".png")
    assert names_of(*map(str, sources[::-1])) == names_of(*map(str, sources))


def test_earlier_names_are_kept_and_new_ones_avoid_them() -> None:
    database = sqlite3.connect(":memory:")
    database.executescript(SCHEMA)
    namer = OutputNames(database.execute)
    namer.request("a.jpg", ".png")
    assert namer.choose("a.jpg", ".png") == "a.png"
    namer.forget_requests()
    for later in ("a.gif", "a.png"):
        namer.request(later, ".png")
    assert [namer.choose(later, ".png") for later in ("a.gif", "a.png")] == ["a.gif.png", "a.png.png"]
    database.close()


def test_a_random_name_reveals_nothing_and_is_repeatable() -> None:
    secret = Secret(bytes(32), is_owners=False)
    one, two = (random_name(secret.output_name, path, ".png") for path in ("anna/secret.jpg", "anna/other.jpg"))
    assert one != two
    assert one == random_name(secret.output_name, "anna/secret.jpg", ".png")
    assert re.fullmatch(r"([0-9a-f]{2})/\1[0-9a-f]{30}\.png", one)


def test_every_file_is_found_and_no_link_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    for file in (source / "b.jpg", source / "a" / "c.txt", source / "a" / "deep" / ".hidden", elsewhere / "secret.jpg"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (source / "empty").mkdir()
    (source / "link.jpg").symlink_to(elsewhere / "secret.jpg")
    (source / "folder link").symlink_to(elsewhere)
    (source / "up").symlink_to("..")
    (source / "dangling").symlink_to("nowhere")
    os.mkfifo(source / "pipe.jpg")
    monkeypatch.chdir(source)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        found = find_files(source)
    assert [item.path for item in found if item.problem is None] == ["a/c.txt", "a/deep/.hidden", "b.jpg"]
    problems = {item.path: item.problem for item in found if item.problem}
    links = dict.fromkeys(["dangling", "folder link", "link.jpg", "up"], "is a symbolic link; links are not followed")
    assert problems == links | dict.fromkeys(["pipe.jpg", "socket"], "is not a regular file")
    assert [item.path for item in found] == sorted(item.path for item in found)


def test_the_source_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.jpg").touch()
    (tmp_path / "link").symlink_to("real")
    assert [str(item.path) for item in find_files(tmp_path / "link")] == ["a.jpg"]


def test_an_unreadable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    (tmp_path / "closed").mkdir(mode=0)
    if os.access(
        tmp_path / "closed", os.R_OK
    ):  # root reads everything; then a folder that is gone stands in for a closed one
        (found,) = find_files(tmp_path / "gone")
        assert found.path == "."
    else:
        jpg, found = find_files(tmp_path)
        assert (str(jpg.path), jpg.problem) == ("a.jpg", None)
        assert str(found.path) == "closed"
    assert (found.problem or "").startswith("folder cannot be read: ")
