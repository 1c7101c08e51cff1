"""WebDataset shards: what is read, what is written, and what is left out."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.errors import ImageError
from ldp_slicing.formats import tar
from ldp_slicing.formats.base import Options
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import verify_file
from tests.formats.shards import GREY, OTHER, SAMPLES, members_of, shard
from tests.markers import encoded, gradient
from tests.release.helpers import (
    PNG,
    SECRET,
    card_of,
    expected,
    manifest_of,
    outputs,
    plant,
    release,
    spent,
    tree,
    verified,
)


def test_releases_with_the_same_stem_have_separate_cards(tmp_path: Path) -> None:
    plant(tmp_path, {"a.png": PNG, "b.tar": shard({"b.jpg": encoded(gradient(12, 8), "PNG")})})
    release(tmp_path / "a.png", tmp_path / "out" / "one.png")
    release(tmp_path / "b.tar", tmp_path / "out" / "one.tar")
    assert tree(tmp_path / "out") == ["one.png", "one.png.card.json", "one.tar", "one.tar.card.json"]


def test_a_shard_is_released_as_a_shard_with_the_members_that_are_kept(tmp_path: Path, key: Path) -> None:
    source = plant(
        tmp_path / "in",
        {
            "a/000.tar": shard(SAMPLES),
            "b.tar": shard({"x.png": encoded(gradient(4, 4), "PNG"), "x.cls": b"1"}),
            "c.png": OTHER,
        },
    )
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("cls",)), key=key)
    assert (ran.problems, ran.complete) == ({}, True)
    made = members_of(tmp_path / "out" / "a" / "000.tar")
    assert list(made) == [
        "train/0001.png",
        "train/0001.cls",
        "train/0002.left.png",
        "train/0002.cls",
        "train/0002.right.png",
        "train/0004.png",
    ]
    assert (made["train/0001.cls"], made["train/0002.cls"]) == (b"7", b"3")
    assert SECRET not in b"".join(outputs(tmp_path / "out").values())
    assert b"anna" not in (tmp_path / "out" / "a" / "000.tar").read_bytes()
    np.testing.assert_array_equal(
        np.asarray(Image.open(io.BytesIO(made["train/0004.png"]))),
        expected("a/000.tar", "train/0004.png", gradient()[..., 1], 8, key),
    )
    assert card_of(tmp_path / "out")["kept_beside"] == ["cls"]
    assert [line["member"] for line in manifest_of(tmp_path / "out")[:4]] == [
        name for name in made if name.endswith(".png")
    ]
    assert verified(tmp_path / "out") == []
    assert spent().releases == 5  # c.png equals an image of the shard, and under an owner's key they are one release


def test_a_single_shard_with_random_names(tmp_path: Path) -> None:
    plant(tmp_path, {"in.tar": shard(SAMPLES)})
    ran = release(tmp_path / "in.tar", tmp_path / "out.tar", ReleaseSettings(5.0, keep=("cls",), names="random"))
    assert ran.complete
    names = list(members_of(tmp_path / "out.tar"))
    assert len(names) == 6
    assert not any("000" in name.split(".")[0][:4] and "train" in name for name in names)
    assert {len(name.split(".")[0]) for name in names} == {32}
    assert "file names" in " ".join(json.loads((tmp_path / "out.tar.card.json").read_text())["not_protected"])
    assert verify_file(LocalStorage(tmp_path), "out.tar").problems == []


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("a.jpg", data)
    return file.getvalue()


def old_tar(data: bytes) -> bytes:
    """Return a tar as Unix version 7 wrote it: without the magic number of later formats."""
    made = bytearray(shard({"a.jpg": data}))
    made[257:265] = bytes(8)
    made[148:156] = b" " * 8
    made[148:156] = b"%06o\0 " % sum(made[:512])
    with tarfile.open(fileobj=io.BytesIO(made)) as found:
        assert found.getnames() == ["a.jpg"]
    return bytes(made)


def signed_tar(data: bytes) -> bytes:
    """Return a tar whose checksum is the sum of signed bytes, as some old software wrote it."""
    made = bytearray(shard({"Ä.jpg": data}, tarfile.GNU_FORMAT))
    made[148:156] = b" " * 8
    made[148:156] = b"%06o\0 " % sum(byte - 256 * (byte > 127) for byte in made[:512])
    with tarfile.open(fileobj=io.BytesIO(made)) as found:
        assert found.getnames() == ["Ä.jpg"]
    return bytes(made)


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("txt", gzip.compress),
        ("txt", bz2.compress),
        ("txt", lzma.compress),
        ("json", lambda data: shard({"a.jpg": data})),
        ("bin", old_tar),
        ("bin", signed_tar),
        ("tar", lambda data: b"another" + data),
        ("npz", zipped),
        ("zip", lambda data: b"encrypted" + data),
        ("x.GZ", lambda data: data),
    ],
    ids=[
        "gzip",
        "bzip2",
        "xz",
        "tar",
        "old tar",
        "signed tar",
        "a name of tar",
        "zip",
        "a name of archives",
        "another",
    ],
)
def test_archives_are_not_kept(name: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.tar": shard({"0.png": PNG, f"0.{name}": pack(PNG)})})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=(name,)))
    assert "archive, and cannot be kept without protection" in ran.problems[f"a.tar: 0.{name}"]
    assert list(members_of(tmp_path / "out" / "a.tar")) == ["0.png"]


@pytest.mark.parametrize("label", [35615, 0x04034B50, -0x2D04AD8], ids=["gzip", "zip", "zstd"])
def test_labels_that_begin_like_an_archive_are_kept(label: int, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.tar": shard({"0.png": PNG, "0.lbl": struct.pack("<i", label)})})
    assert not release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("lbl",))).problems
    assert set(members_of(tmp_path / "out" / "a.tar")) == {"0.lbl", "0.png"}


def test_damaged_members_are_left_out_and_reported(tmp_path: Path) -> None:
    bad = {
        "0.png": PNG,
        "1.png": b"text",
        "1.cls": b"1",
        "2.jpg": encoded(gradient(), "JPEG")[:300],
        "3.png": OTHER,
        "../4.png": GREY,
        "/5.png": GREY,
    }
    source = plant(tmp_path / "in", {"a.tar": shard(bad)})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("cls", "png")))
    assert "cannot be kept without protection" in ran.problems["a.tar: 0.png"]
    ran = release(source, tmp_path / "out2", ReleaseSettings(5.0, keep=("cls",)))
    assert list(members_of(tmp_path / "out2" / "a.tar")) == ["0.png", "3.png"]
    assert set(ran.problems) == {"a.tar: 1.png", "a.tar: 2.jpg", "a.tar: ../4.png", "a.tar: /5.png"}
    assert spent().releases == 2
    assert ran.complete


WHOLE = shard({f"{i}.png": encoded(gradient(4 + i, 4), "PNG") for i in range(6)})


DAMAGED = {
    "cut in a member": WHOLE[:1200],
    "cut between members": WHOLE[:1024],
    "a damaged header": WHOLE[:2048] + b"garbage" + WHOLE[2055:],
    "not a tar file": b"this is no tar" * 100,
    "empty": b"",
    "no image": shard({"a.txt": b"hello"}),
    "no image that can be decoded": shard({"a.png": b"hello"}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_shard_does_not_affect_the_others(name: str, tmp_path: Path) -> None:
    files = {f"{i}.tar": shard({"x.png": encoded(gradient(20 + i, 4), "PNG")}) for i in range(4)} | {
        "1b.tar": DAMAGED[name]
    }
    ran = release(plant(tmp_path / "in", files), tmp_path / "out")
    assert "1b.tar" in ran.problems
    assert list(outputs(tmp_path / "out")) == ["0.tar", "1.tar", "2.tar", "3.tar"]
    assert spent().releases == 4
    assert spent().unfinished == 0
    assert verified(tmp_path / "out") == []


def test_a_grey_member_is_left_out_if_the_plan_is_for_colour(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.tar": shard({"0.png": PNG, "1.png": GREY}), "grey.tar": shard({"1.png": GREY})})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, slices="Y7+Y6"))
    assert list(members_of(tmp_path / "out" / "a.tar")) == ["0.png"]
    assert set(ran.problems) >= {"a.tar: 1.png", "grey.tar: 1.png"}
    assert all("is grey" in ran.problems[name] for name in ("a.tar: 1.png", "grey.tar: 1.png"))
    assert (spent().releases, spent().unfinished) == (1, 0)
    assert verified(tmp_path / "out") == []
    assert audit_releases(tmp_path / "out").passed


def test_a_shard_is_refused_if_one_of_its_sources_was_released_before(tmp_path: Path) -> None:
    release(plant(tmp_path / "first", {"a.png": PNG}), tmp_path / "one")
    source = plant(
        tmp_path / "in", {"a.tar": shard(SAMPLES), "b.tar": shard({"x.png": encoded(gradient(4, 4), "PNG")})}
    )
    ran = release(source, tmp_path / "two")
    assert ran.problems.keys() == {"a.tar"}
    assert "train/0002.left.png was released before" in ran.problems["a.tar"]
    assert list(outputs(tmp_path / "two")) == ["b.tar"]
    assert (spent().releases, spent().unfinished) == (2, 0)
    assert release(source, tmp_path / "two", spend=True).problems == {}
    assert (spent().releases, spent().unfinished) == (6, 0)


def test_duplicates_in_shards_are_released_once(tmp_path: Path) -> None:
    source = plant(
        tmp_path / "in", {"a.tar": shard({"0.png": PNG, "1.png": PNG, "2.png": OTHER}), "b.tar": shard({"0.png": PNG})}
    )
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, duplicates="once"))
    assert list(members_of(tmp_path / "out" / "a.tar")) == ["0.png", "2.png"]
    assert (ran.copies, ran.problems) == (["b.tar", "a.tar: 1.png"], {})
    assert spent().releases == 2


@pytest.mark.parametrize("spoil", ["mtime", "uname", "type"])
def test_verify_inspects_members(spoil: str, tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.tar": shard({"0.png": PNG})}), tmp_path / "out")
    about = {
        "mtime": {"mtime": 5},
        "uname": {"uname": "anna"},
        "type": {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
    }[spoil]
    clean: dict[str, Any] = {"mtime": 0, "uname": "", "uid": 0}
    members = members_of(tmp_path / "out" / "a.tar")
    data = shard(members, tarfile.GNU_FORMAT, **(clean | about))
    (tmp_path / "out" / "a.tar").write_bytes(data)
    line = manifest_of(tmp_path / "out")[0] | {"sha256": hashlib.sha256(data).hexdigest()}
    (tmp_path / "out" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    assert "header that this software does not write" in verified(tmp_path / "out")[0][1]
    data = shard({**members, "0.cls": b"secret"}, tarfile.GNU_FORMAT, **clean)
    (tmp_path / "out" / "a.tar").write_bytes(data)
    line["sha256"] = hashlib.sha256(data).hexdigest()
    (tmp_path / "out" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    assert any("images: cls" in problem for _, problem in verified(tmp_path / "out"))


def test_an_image_with_another_ending_is_not_kept(tmp_path: Path) -> None:
    jpeg = encoded(gradient(), "JPEG")
    members = {
        "a.png": PNG,
        "a.thumb": jpeg,
        "b.png": OTHER,
        "b.thumb": b"BMW, a car",
        "c.png": GREY,
        "c.thumb": encoded(gradient(), "BMP"),
    }
    ran = release(
        plant(tmp_path / "in", {"s.tar": shard(members)}), tmp_path / "out", ReleaseSettings(5.0, keep=("thumb",))
    )
    assert set(ran.problems) == {"s.tar: a.thumb", "s.tar: c.thumb"}
    assert set(members_of(tmp_path / "out" / "s.tar")) == {"a.png", "b.png", "b.thumb", "c.png"}
    assert verified(tmp_path / "out") == []


def test_image_types_that_cannot_be_read_are_not_kept(tmp_path: Path) -> None:
    kinds = {
        "jp2": encoded(gradient(), "JPEG2000"),
        "one": encoded(gradient(), "JPEG2000"),
        "two": encoded(gradient(), "PPM"),
        "three": b"\0\0\0\x18ftypavif" + bytes(20),
        "four": bytes(128) + b"DICM",
        "heic": b"whatever",
    }
    words = {"caption": b"P6 is a road in Wales", "note": b"qoi is a format"}
    members = {"a.png": PNG, **{f"a.{ending}": data for ending, data in {**kinds, **words}.items()}}
    ran = release(
        plant(tmp_path / "in", {"s.tar": shard(members)}), tmp_path / "out", ReleaseSettings(5.0, keep=(*kinds, *words))
    )
    assert set(ran.problems) == {f"s.tar: a.{ending}" for ending in kinds}
    assert set(members_of(tmp_path / "out" / "s.tar")) == {"a.png", "a.caption", "a.note"}


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_a_link_is_reported(kind: bytes, tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        first, link = tarfile.TarInfo("a.png"), tarfile.TarInfo("b.png")
        first.size, link.type, link.linkname = len(PNG), kind, "a.png"
        tar.addfile(first, io.BytesIO(PNG))
        tar.addfile(link)
    ran = release(plant(tmp_path / "in", {"s.tar": file.getvalue()}), tmp_path / "out")
    assert ran.problems == {"s.tar: b.png": "is a link to another member; links are not followed"}


def test_verify_finds_an_image_with_another_ending(tmp_path: Path) -> None:
    release(
        plant(tmp_path / "in", {"s.tar": shard({"a.png": PNG, "a.cls": b"3"})}),
        tmp_path / "out",
        ReleaseSettings(5.0, keep=("cls",)),
    )
    made = members_of(tmp_path / "out" / "s.tar")
    with tarfile.open(tmp_path / "out" / "s.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in {**made, "a.cls": encoded(gradient(), "JPEG")}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = (tmp_path / "out" / "s.tar").read_bytes()
    lines = [line | {"sha256": hashlib.sha256(data).hexdigest()} for line in manifest_of(tmp_path / "out")]
    (tmp_path / "out" / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert any("an image or an archive that was not released" in problem for _, problem in verified(tmp_path / "out"))


def test_images_that_differ_only_in_their_ending_stay_apart(tmp_path: Path) -> None:
    source = plant(
        tmp_path / "in", {"s.tar": shard({"a.jpg": encoded(gradient(), "JPEG"), "a.png": OTHER, "a.cls": b"1"})}
    )
    assert release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("cls",))).problems == {}
    assert set(members_of(tmp_path / "out" / "s.tar")) == {"a.png", "a.png.png", "a.cls"}
    assert verified(tmp_path / "out") == []


def test_a_member_that_occurs_twice_is_reported(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for data in (PNG, OTHER):
            info = tarfile.TarInfo("b.png")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    ran = release(plant(tmp_path / "in", {"s.tar": file.getvalue()}), tmp_path / "out")
    assert "more than once" in ran.problems["s.tar: b.png"]
    assert spent().releases == 1


def test_an_image_with_absurd_offsets_does_not_affect_the_others(tmp_path: Path) -> None:
    absurd = b"II+\0\x08\0\0\0" + b"\xff" * 64  # a BigTIFF that begins far behind every file's end
    source = plant(tmp_path / "in", {"s.tar": shard({"a.png": PNG, "b.tif": absurd, "c.png": OTHER})})
    ran = release(source, tmp_path / "out")
    assert ran.problems == {"s.tar: b.tif": "is cut off before its end"}
    assert spent().releases == 2


NOT_KEPT = {
    "flv": b"FLV\x01\x05" + bytes(300),
    "wmv": b"\x30\x26\xb2\x75\x8e\x66\xcf\x11" + bytes(300),
    "clip": b"RIFF\x10\0\0\0AVI LIST" + bytes(300),
    "stream": (b"G" + bytes(187)) * 6,
    "mpv": b"\0\0\x01\xba" + bytes(300),
    "paint": bytes((10, 5, 1, 8)) + bytes(300),
    "silicon": b"\x01\xda\x01\x01\0\3" + bytes(300),
    "page": b"%PDF-1.7\n" + bytes(300),
    "ts": (b"G" + bytes(187)) * 6,
    "pcx": b"what its ending says",
}


@pytest.mark.parametrize("ending", NOT_KEPT)
def test_videos_and_rare_image_types_are_not_kept(ending: str, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"s.tar": shard({"a.png": PNG, f"a.{ending}": NOT_KEPT[ending]})})
    release(source, tmp_path / "out", ReleaseSettings(5.0, keep=(ending,)))
    assert not any(NOT_KEPT[ending] in data for data in outputs(tmp_path / "out").values())


@pytest.mark.parametrize(
    "data",
    [
        b"RIFF\x10\0\0\0WAVEfmt ",
        b"OggS vorbis",
        b"Good words",
        b'{"a": 1}',
        b"G" * 200,
        b"%",
        b"DDS student",
        b"RIFF Raff sings",
        b"icns",
    ],
)
def test_sound_and_text_are_kept(data: bytes, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"s.tar": shard({"a.png": PNG, "a.more": data})})
    assert release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("more",))).problems == {}
    assert members_of(tmp_path / "out" / "s.tar")["a.more"] == data


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return the header of a member. Sizes that are negative are written as GNU tar writes them."""
    member = tarfile.TarInfo(name)
    member.size, member.type = 0, kind
    made = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    made[124:136] = b"%011o\0" % size if 0 <= size < 8**11 else (size % (1 << 96) | 0xFF << 88).to_bytes(12, "big")
    made[148:156] = b" " * 8
    made[148:156] = b"%06o\0 " % sum(made)
    return bytes(made)


def extended(record: bytes) -> bytes:
    """Return a PAX header of one record, such as b"size=1"."""
    body = b"%d %s\n" % (len(record) + 4 + (len(record) + 4 > 9), record)
    return header("PaxHeader", len(body), tarfile.XHDTYPE) + body + bytes(-len(body) % 512)


END = bytes(1024)
HOSTILE = {
    "a size that leads back": header("a.txt", 0) + header("b.txt", -512) + END,
    "an extended size that leads back": header("a.txt", 0) + extended(b"size=-1536") + header("b.txt", 0) + END,
    "a size before the file": header("a.txt", -100_000) + END,
    "a long header": header("a.txt", 1 << 17, tarfile.XHDTYPE) + bytes(1 << 17) + header("b.txt", 0) + END,
    "a long name": header("a.txt", 1 << 17, tarfile.GNUTYPE_LONGNAME) + bytes(1 << 17) + header("b.txt", 0) + END,
    "headers of headers": (header("x", 512, tarfile.GNUTYPE_LONGNAME) + b"x".ljust(512, b"\0")) * 5000 + END,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("keep", [(), ("cls",)])
def test_hostile_headers_are_refused_at_once(name: str, keep: tuple[str, ...]) -> None:
    with pytest.raises(ImageError, match=r"is damaged|to keep"):
        list(tar.read(io.BytesIO(HOSTILE[name]), Options(keep=keep)))


def test_large_members_and_samples_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar, "MOST_BYTES", len(PNG) + 50)
    members = {"a.jpg": bytes(len(PNG) + 51), "b.png": PNG, "b.cls": b"7", "b.jpg": PNG, "c.png": OTHER}
    source = plant(tmp_path / "in", {"s.tar": shard(members)})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("cls",)))
    most = f"{len(PNG) + 50:,} bytes"
    assert ran.problems == {
        "s.tar: a.jpg": f"has more than {most}",
        "s.tar: b.jpg": f"is in a sample of more than {most}",
    }
    assert list(members_of(tmp_path / "out" / "s.tar")) == ["b.png", "b.cls", "c.png"]


@pytest.mark.parametrize(
    ("ending", "data"),
    [
        ("nii", b"text"),
        ("scan", b"\x5c\1\0\0" + bytes(340) + b"n+1\0" + bytes(100)),
        ("scan", b"NRRD0004\ntype: uchar\n"),
        ("scan", b"ObjectType = Image\nNDims = 3\n"),
        ("raw", b"FUJIFILMCCD-RAW 0201"),
    ],
)
def test_medical_and_raw_images_cannot_be_kept(ending: str, data: bytes, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"s.tar": shard({"a.png": PNG, f"a.{ending}": data, "a.cls": b"1"})})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("cls", ending)))
    assert ran.problems == {f"s.tar: a.{ending}": "is an image or an archive, and cannot be kept without protection"}
    assert list(members_of(tmp_path / "out" / "s.tar")) == ["a.png", "a.cls"]
