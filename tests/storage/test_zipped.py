"""A zip file as a folder."""

from __future__ import annotations

import os
import stat
import warnings
import zipfile
from pathlib import Path

import pytest

from ldp_slicing.errors import ImageError, ReleaseError
from ldp_slicing.storage import ZipStorage
from tests.release.helpers import BESIDE, PNG, release, tree, verified


def zipped(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> ZipStorage:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return ZipStorage(path)


def test_members_are_files(tmp_path: Path) -> None:
    storage = zipped(tmp_path / "a.zip", {"a/": b"", "a/b.txt": b"text", "c": bytes(3000)})
    assert [(one.path, one.size, one.problem) for one in storage.files()] == [("a/b.txt", 4, None), ("c", 3000, None)]
    with storage.open("a/b.txt") as file:
        assert (file.read(2), file.seek(1), file.read()) == (b"te", 1, b"ext")
    with pytest.raises(ImageError, match="no longer in the zip file"):
        storage.open("d")


def test_names_without_the_flag_of_utf_8_are_utf_8_if_they_can_be(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    storage = zipped(path, {"XX.png": b"as Info-ZIP writes it", "Y.png": b"code page 437", "ö": b"with the flag"})
    path.write_bytes(path.read_bytes().replace(b"XX", "ü".encode()).replace(b"Y.", "é.".encode("cp437")))
    assert [(one.path, one.problem) for one in storage.files()] == [("ü.png", None), ("é.png", None), ("ö", None)]
    assert [storage.open(name).read()[:2] for name in ("ü.png", "é.png", "ö")] == [b"as", b"co", b"wi"]


def test_a_zip_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    storage = zipped(tmp_path / "a.zip", {"a": b"1"})
    before = next(storage.files())
    zipped(tmp_path / "a.zip", {"a": b"22"})
    assert next(storage.files()).stamp != before.stamp
    assert storage.open("a").read() == b"22"


def test_damage_is_a_fault_of_the_member(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    storage = zipped(path, {"a": b"0123456789" * 9}, zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b"0123", b"0124", 1))
    with pytest.raises(ImageError, match="is damaged in its zip file: Bad CRC"):
        storage.open("a").read()
    path.write_bytes(b"PK")
    with pytest.raises(ReleaseError, match="is not a zip file"):
        list(storage.files())
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ReleaseError, match="is not a regular file"):
        list(storage.files())


def test_members_that_cannot_be_sources(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the repeated name
        archive.writestr(link, b"/etc/passwd")
        archive.writestr("twice", b"1")
        archive.writestr("twice", b"2")
        archive.writestr("a\\b", b"3")
        archive.writestr("locked", b"4")
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02")  # the last entry of the directory
    data[at + 8] |= 1  # says that it is encrypted
    path.write_bytes(data)
    found = {one.path: one.problem or "" for one in ZipStorage(path).files()}
    for name, why in {
        "link": "is a symbolic link",
        "twice": "more than once",
        "a\\b": "with a backslash",
        "locked": "is encrypted",
    }.items():
        assert why in found[name]
    with pytest.raises(ImageError, match="is encrypted"):
        ZipStorage(path).open("locked")


@pytest.mark.parametrize("name", ["", ".", "./."])
def test_a_member_without_a_name_does_not_stop_the_others(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.png", PNG)
        nameless = zipfile.ZipInfo("x")
        nameless.filename = name
        archive.writestr(nameless, PNG)
    ran = release(tmp_path / "a.zip", tmp_path / "out")
    ((file, problem),) = ran.problems.items()
    assert (file, f"is called {name!r}" in problem) == (name or ".", True)
    assert tree(tmp_path / "out") == ["a.png", *BESIDE]
    assert verified(tmp_path / "out") == []


def test_a_member_that_declares_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    zipped(path, {"a": bytes(100)})
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(data)
    assert "declares 1,073,741,824 bytes" in (next(ZipStorage(path).files()).problem or "")


def test_many_members_with_a_repeated_name_are_listed_at_once(tmp_path: Path) -> None:
    """Repeated names were once looked for by comparing all pairs."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in (*range(20_000), 0):
            archive.writestr(zipfile.ZipInfo(str(number)), b"")
    problems = [one.path for one in ZipStorage(tmp_path / "a.zip").files() if one.problem]
    assert problems == ["0", "0"]


def test_a_large_member_may_not_expand_much(tmp_path: Path) -> None:
    """An image is read as a whole: 3 MB of zip file would take gigabytes of memory."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, count in (("large.png", 257), ("small.png", 2)):
            with archive.open(name, "w") as member:
                for _ in range(count):
                    member.write(bytes(1 << 20))
    found = {one.path: one.problem for one in ZipStorage(tmp_path / "a.zip").files()}
    assert found["small.png"] is None
    assert "more than its" in str(found["large.png"])
