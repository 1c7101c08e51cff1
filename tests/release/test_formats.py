"""Shards, tables, pickles and deep grey: what is read, what comes out, and what does not."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.errors import AuditError
from ldp_slicing.formats import parquet
from ldp_slicing.release.inventory import prepare
from ldp_slicing.release.run import on_this_machine
from ldp_slicing.release.settings import ReleaseSettings
from tests.markers import encoded, picture
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

OTHER = encoded(picture(11, 5), "PNG")
GREY = encoded(picture()[..., 1], "PNG")


# WebDataset shards


def shard(members: dict[str, bytes], **about: Any) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname, member.uid = len(data), 1_234_567_890, "anna", 1000
            for attribute, value in about.items():
                setattr(member, attribute, value)
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def test_releases_of_one_stem_have_cards_of_their_own(tmp_path: Path) -> None:
    plant(tmp_path, {"a.png": PNG, "b.tar": shard({"b.jpg": encoded(picture(12, 8), "PNG")})})
    release(tmp_path / "a.png", tmp_path / "out" / "one.png")
    release(tmp_path / "b.tar", tmp_path / "out" / "one.tar")
    assert tree(tmp_path / "out") == ["one.png", "one.png.card.json", "one.tar", "one.tar.card.json"]


def members_of(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


SAMPLES = {
    "train/0001.jpg": encoded(picture(), "JPEG", comment=SECRET),
    "train/0001.cls": b"7",
    "train/0001.json": SECRET,
    "train/0002.cls": b"3",
    "train/0002.left.png": PNG,
    "train/0002.right.png": OTHER,
    "train/0003.txt": SECRET,
    "train/0004.png": GREY,
}


def test_a_shard_becomes_a_shard_with_what_was_named(tmp_path: Path, key: Path) -> None:
    source = plant(
        tmp_path / "in",
        {"a/000.tar": shard(SAMPLES), "b.tar": shard({"x.png": encoded(picture(4, 4), "PNG")}), "c.png": OTHER},
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
        expected("a/000.tar", "train/0004.png", picture()[..., 1], 8, key),
    )
    assert card_of(tmp_path / "out")["kept_beside"] == ["cls"]
    assert [line["member"] for line in manifest_of(tmp_path / "out")[:4]] == [
        name for name in made if name.endswith(".png")
    ]
    assert verified(tmp_path / "out") == []
    assert spent().releases == 5  # c.png equals a picture of the shard, and under an owner's key they are one release


def test_a_single_shard_with_random_names(tmp_path: Path) -> None:
    plant(tmp_path, {"in.tar": shard(SAMPLES)})
    ran = release(tmp_path / "in.tar", tmp_path / "out.tar", ReleaseSettings(5.0, keep=("cls",), names="random"))
    assert ran.complete
    names = list(members_of(tmp_path / "out.tar"))
    assert len(names) == 6
    assert not any("000" in name.split(".")[0][:4] and "train" in name for name in names)
    assert {len(name.split(".")[0]) for name in names} == {32}


def test_damaged_members_are_left_out_and_named(tmp_path: Path) -> None:
    bad = {
        "0.png": PNG,
        "1.png": b"text",
        "1.cls": b"1",
        "2.jpg": encoded(picture(), "JPEG")[:300],
        "3.png": OTHER,
        "../4.png": GREY,
        "/5.png": GREY,
    }
    source = plant(tmp_path / "in", {"a.tar": shard(bad)})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("cls", "png")))
    assert "it cannot be kept as it is" in ran.problems["a.tar: 0.png"]
    ran = release(source, tmp_path / "out2", ReleaseSettings(5.0, keep=("cls",)))
    assert list(members_of(tmp_path / "out2" / "a.tar")) == ["0.png", "3.png"]
    assert set(ran.problems) == {"a.tar: 1.png", "a.tar: 2.jpg", "a.tar: ../4.png", "a.tar: /5.png"}
    assert spent().releases == 2
    assert ran.complete


WHOLE = shard({f"{i}.png": encoded(picture(4 + i, 4), "PNG") for i in range(6)})
TORN = {
    "cut in a member": WHOLE[:1200],
    "cut between members": WHOLE[:1024],
    "a damaged header": WHOLE[:2048] + b"garbage" + WHOLE[2055:],
    "no tar": b"this is no tar" * 100,
    "empty": b"",
    "without a picture": shard({"a.txt": b"hello"}),
    "nothing that can be decoded": shard({"a.png": b"hello"}),
}


@pytest.mark.parametrize("name", TORN)
def test_a_torn_shard_in_the_middle_costs_only_itself(name: str, tmp_path: Path) -> None:
    files = {f"{i}.tar": shard({"x.png": encoded(picture(20 + i, 4), "PNG")}) for i in range(4)} | {
        "1b.tar": TORN[name]
    }
    ran = release(plant(tmp_path / "in", files), tmp_path / "out")
    assert "1b.tar" in ran.problems
    assert list(outputs(tmp_path / "out")) == ["0.tar", "1.tar", "2.tar", "3.tar"]
    assert spent().releases == 4
    assert spent().unfinished == 0
    assert verified(tmp_path / "out") == []


def test_a_grey_member_is_left_out_where_slices_are_of_colour(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.tar": shard({"0.png": PNG, "1.png": GREY}), "grey.tar": shard({"1.png": GREY})})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, slices="Y7+Y6"))
    assert list(members_of(tmp_path / "out" / "a.tar")) == ["0.png"]
    assert set(ran.problems) >= {"a.tar: 1.png", "grey.tar: 1.png"}
    assert all("it is grey" in ran.problems[name] for name in ("a.tar: 1.png", "grey.tar: 1.png"))
    assert (spent().releases, spent().unfinished) == (1, 0)
    assert verified(tmp_path / "out") == []
    with pytest.raises(AuditError, match=r"a\.tar: of releases only PNG files are audited"):
        audit_releases(tmp_path / "out")


def test_a_shard_with_a_source_that_was_released_before_is_refused_whole(tmp_path: Path) -> None:
    release(plant(tmp_path / "first", {"a.png": PNG}), tmp_path / "one")
    source = plant(tmp_path / "in", {"a.tar": shard(SAMPLES), "b.tar": shard({"x.png": encoded(picture(4, 4), "PNG")})})
    ran = release(source, tmp_path / "two")
    assert ran.problems.keys() == {"a.tar"}
    assert "train/0002.left.png was released before" in ran.problems["a.tar"]
    assert list(outputs(tmp_path / "two")) == ["b.tar"]
    assert (spent().releases, spent().unfinished) == (2, 0)
    assert release(source, tmp_path / "two", spend=True).problems == {}
    assert (spent().releases, spent().unfinished) == (6, 0)


def test_copies_within_shards_are_left_out_once(tmp_path: Path) -> None:
    source = plant(
        tmp_path / "in", {"a.tar": shard({"0.png": PNG, "1.png": PNG, "2.png": OTHER}), "b.tar": shard({"0.png": PNG})}
    )
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, duplicates="once"))
    assert list(members_of(tmp_path / "out" / "a.tar")) == ["0.png", "2.png"]
    assert (ran.copies, ran.problems) == (["b.tar", "a.tar: 1.png"], {})
    assert spent().releases == 2


@pytest.mark.parametrize("spoil", ["mtime", "uname", "type"])
def test_verify_looks_into_shards(spoil: str, tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.tar": shard({"0.png": PNG})}), tmp_path / "out")
    about = {
        "mtime": {"mtime": 5},
        "uname": {"uname": "anna"},
        "type": {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
    }[spoil]
    clean: dict[str, Any] = {"mtime": 0, "uname": "", "uid": 0}
    data = shard(members_of(tmp_path / "out" / "a.tar"), **(clean | about))
    (tmp_path / "out" / "a.tar").write_bytes(data)
    line = manifest_of(tmp_path / "out")[0] | {"sha256": hashlib.sha256(data).hexdigest()}
    (tmp_path / "out" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    assert "no release has" in verified(tmp_path / "out")[0][1]
    data = shard({"0.png": OTHER, "0.cls": b"secret"}, **clean)
    (tmp_path / "out" / "a.tar").write_bytes(data)
    line["sha256"] = hashlib.sha256(data).hexdigest()
    (tmp_path / "out" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    assert any(
        "holds more than pixels" in problem or "kept: cls" in problem for _, problem in verified(tmp_path / "out")
    )


# Parquet


FEATURES = {
    "image": {"_type": "Image"},
    "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    "text": {"_type": "Value", "dtype": "string"},
}


def table(images: list[bytes | None], **columns: Any) -> bytes:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    column = pa.array(
        [image and {"bytes": image, "path": f"{SECRET.decode()}{i}.jpg"} for i, image in enumerate(images)], kind
    )
    content = pa.table(
        {
            "image": column,
            "label": pa.array([i % 2 for i in range(len(images))]),
            "text": [SECRET.decode()] * len(images),
            **columns,
        }
    )
    content = content.replace_schema_metadata(
        {b"huggingface": json.dumps({"info": {"features": FEATURES}}).encode(), b"other": SECRET}
    )
    file = io.BytesIO()
    pq.write_table(content, file)
    return file.getvalue()


def test_a_parquet_file_as_hugging_face_has_it(tmp_path: Path, key: Path) -> None:
    images = [encoded(picture(5 + i % 7, 9), "JPEG") for i in range(230)]
    source = plant(tmp_path / "in", {"train.parquet": table(images)})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("label",), names="random"), key=key)
    assert (ran.problems, ran.complete) == ({}, True)
    (name,) = outputs(tmp_path / "out")
    assert SECRET not in (tmp_path / "out" / name).read_bytes()
    made = pq.read_table(tmp_path / "out" / name)
    assert made.column_names == ["image", "label"]
    assert made.column("label").to_pylist() == [i % 2 for i in range(230)]
    features = json.loads(made.schema.metadata[b"huggingface"])["info"]["features"]
    assert features == {name: FEATURES[name] for name in ("image", "label")}
    rows = made.column("image").to_pylist()
    for row in (0, 1, 129, 229):
        np.testing.assert_array_equal(
            np.asarray(Image.open(io.BytesIO(rows[row]["bytes"]))),
            expected("train.parquet", "", np.asarray(Image.open(io.BytesIO(images[row]))), 24, key),
        )
    assert verified(tmp_path / "out") == []
    assert len(manifest_of(tmp_path / "out")) == 230
    assert spent().releases == 7


def test_rows_without_an_image_are_left_out_and_paths_are_names(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.parquet": table([PNG, None, b"text", OTHER])})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("label", "absent")))
    made = pq.read_table(tmp_path / "out" / "a.parquet")
    assert [row["path"] for row in made.column("image").to_pylist()] == [f"{SECRET.decode()}{i}.png" for i in (0, 3)]
    assert made.column("label").to_pylist() == [0, 1]
    assert len(ran.problems) == 2


def parquet_of(**columns: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"no parquet", "not a Parquet file"),
        (table([PNG])[:-20], "not a Parquet file"),
        (parquet_of(a=[1]), "0 columns of images"),
        (table([PNG], more=pa.array([{"bytes": b"", "path": ""}])), "2 columns of images"),
        (table([PNG], thumb=pa.array([PNG])), "thumb may hold pictures"),
        (table([PNG], nested=pa.array([[{"deep": PNG}]])), "nested may hold pictures"),
        (table([None], thumb=pa.array([3])), "nothing that can be released: holds no bytes"),
    ],
)
def test_a_parquet_file_that_is_not_fit(data: bytes, why: str, tmp_path: Path) -> None:
    ran = release(
        plant(tmp_path / "in", {"a.parquet": data}), tmp_path / "out", ReleaseSettings(5.0, keep=("thumb", "nested"))
    )
    assert why in ran.problems["a.parquet"]
    assert outputs(tmp_path / "out") == {}


def test_verify_finds_metadata_in_a_table(tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.parquet": table([PNG])}), tmp_path / "out")
    content = pq.read_table(tmp_path / "out" / "a.parquet").replace_schema_metadata({b"author": b"anna"})
    pq.write_table(content, tmp_path / "out" / "a.parquet")
    line = manifest_of(tmp_path / "out")[0] | {
        "sha256": hashlib.sha256((tmp_path / "out" / "a.parquet").read_bytes()).hexdigest()
    }
    (tmp_path / "out" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    assert verified(tmp_path / "out")[0] == ("a.parquet", "has metadata, author")


# CIFAR


def rows(count: int) -> NDArray[np.uint8]:
    return (np.arange(count)[:, None] * 7 + np.arange(3072)[None] // 1024 * 50).astype(np.uint8)


def test_cifar_pickles_become_shards(tmp_path: Path, key: Path) -> None:
    ten = pickle.dumps({b"data": rows(3), b"labels": [5, 6, 7], b"filenames": [b"secret"] * 3}, protocol=2)
    hundred = pickle.dumps({"data": rows(2) ^ 1, "fine_labels": [55, 66], "coarse_labels": [1, 2]})
    source = plant(tmp_path / "in", {"cifar-10-batches-py/data_batch_1": ten, "cifar-100-python/test": hundred})
    ran = release(
        source, tmp_path / "out", ReleaseSettings(5.0, keep=("labels", "fine_labels", "coarse_labels")), key=key
    )
    assert ran.problems == {}
    made = members_of(tmp_path / "out" / "cifar-10-batches-py" / "data_batch_1.tar")
    assert list(made) == ["00000.png", "00000.cls", "00001.png", "00001.cls", "00002.png", "00002.cls"]
    assert [made[f"0000{i}.cls"] for i in range(3)] == [b"5", b"6", b"7"]
    np.testing.assert_array_equal(
        np.asarray(Image.open(io.BytesIO(made["00002.png"]))),
        expected("", "", rows(3)[2].reshape(3, 32, 32).transpose(1, 2, 0), 24, key),
    )
    assert list(members_of(tmp_path / "out" / "cifar-100-python" / "test.tar"))[:3] == [
        "00000.png",
        "00000.cls",
        "00000.coarse.cls",
    ]
    assert verified(tmp_path / "out") == []


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("open('it-ran', 'w')",)


@pytest.mark.parametrize(
    "content",
    [
        {"data": Runs()},
        {"data": rows(2)[:, :9]},
        {"nothing": 1},
        [1],
        {"data": rows(2), "labels": [1]},
        {"data": rows(2).astype(float)},
    ],
)
def test_a_pickle_that_is_no_cifar_file_runs_nothing(
    content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = plant(tmp_path / "in", {"data_batch_1": pickle.dumps(content), "test_batch": b"\x80\x02garbage"})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("labels",)))
    assert set(ran.problems) == {"data_batch_1", "test_batch"}
    assert all("not an image" not in problem for problem in ran.problems.values())
    assert not (tmp_path / "it-ran").exists()


# 16-bit grey


def test_deep_grey_goes_through_tiff_and_png(tmp_path: Path, key: Path) -> None:
    deep = (picture()[..., 0].astype(np.uint16) << 8) + picture()[..., 2]
    source = plant(
        tmp_path / "in",
        {
            "a.tif": encoded(deep, "TIFF"),
            "b.png": encoded(deep, "PNG"),
            "c.tar": shard({"x.tiff": encoded(deep, "TIFF")}),
        },
    )
    release(source, tmp_path / "out", key=key)
    wanted = expected("", "", deep, 16, key)
    for data in (
        *(outputs(tmp_path / "out")[name] for name in ("a.png", "b.png")),
        members_of(tmp_path / "out" / "c.tar")["x.png"],
    ):
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), wanted)
    assert spent().releases == 1


# What must not slip through, and what must not get mixed up


def test_a_picture_is_not_kept_under_another_ending(tmp_path: Path) -> None:
    jpeg = encoded(picture(), "JPEG")
    members = {
        "a.png": PNG,
        "a.thumb": jpeg,
        "b.png": OTHER,
        "b.thumb": b"BMW, a car",
        "c.png": GREY,
        "c.thumb": encoded(picture(), "BMP"),
    }
    ran = release(
        plant(tmp_path / "in", {"s.tar": shard(members)}), tmp_path / "out", ReleaseSettings(5.0, keep=("thumb",))
    )
    assert set(ran.problems) == {"s.tar: a.thumb", "s.tar: c.thumb"}
    assert set(members_of(tmp_path / "out" / "s.tar")) == {"a.png", "b.png", "b.thumb", "c.png"}
    assert verified(tmp_path / "out") == []


def test_pictures_of_other_kinds_are_not_kept_either(tmp_path: Path) -> None:
    kinds = {
        "jp2": encoded(picture(), "JPEG2000"),
        "one": encoded(picture(), "JPEG2000"),
        "two": encoded(picture(), "PPM"),
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
def test_a_link_in_a_shard_is_named(kind: bytes, tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        first, link = tarfile.TarInfo("a.png"), tarfile.TarInfo("b.png")
        first.size, link.type, link.linkname = len(PNG), kind, "a.png"
        tar.addfile(first, io.BytesIO(PNG))
        tar.addfile(link)
    ran = release(plant(tmp_path / "in", {"s.tar": file.getvalue()}), tmp_path / "out")
    assert ran.problems == {"s.tar: b.png": "is a link to another member; links are not followed"}


def test_verify_finds_a_picture_under_another_ending(tmp_path: Path) -> None:
    release(
        plant(tmp_path / "in", {"s.tar": shard({"a.png": PNG, "a.cls": b"3"})}),
        tmp_path / "out",
        ReleaseSettings(5.0, keep=("cls",)),
    )
    made = members_of(tmp_path / "out" / "s.tar")
    with tarfile.open(tmp_path / "out" / "s.tar", "w") as tar:
        for name, data in {**made, "a.cls": encoded(picture(), "JPEG")}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = (tmp_path / "out" / "s.tar").read_bytes()
    lines = [line | {"sha256": hashlib.sha256(data).hexdigest()} for line in manifest_of(tmp_path / "out")]
    (tmp_path / "out" / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert any("a picture that was not released" in problem for _, problem in verified(tmp_path / "out"))


def test_pictures_that_differ_in_their_endings_stay_two(tmp_path: Path) -> None:
    source = plant(
        tmp_path / "in", {"s.tar": shard({"a.jpg": encoded(picture(), "JPEG"), "a.png": OTHER, "a.cls": b"1"})}
    )
    assert release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("cls",))).problems == {}
    assert set(members_of(tmp_path / "out" / "s.tar")) == {"a.png", "a.png.png", "a.cls"}
    assert verified(tmp_path / "out") == []


def test_a_member_that_occurs_twice_is_named(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for data in (PNG, OTHER):
            info = tarfile.TarInfo("b.png")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    ran = release(plant(tmp_path / "in", {"s.tar": file.getvalue()}), tmp_path / "out")
    assert "more than once" in ran.problems["s.tar: b.png"]
    assert spent().releases == 1


def test_a_column_that_is_kept_tells_nothing_of_rows_that_are_left_out(tmp_path: Path) -> None:
    names = pa.array(["PATIENT-LEFT-OUT", "somebody"]).dictionary_encode()
    source = plant(tmp_path / "in", {"a.parquet": table([b"no picture", PNG], more=names)})
    assert len(release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("more",))).problems) == 1
    written = (tmp_path / "out" / "a.parquet").read_bytes()
    assert b"somebody" in written
    assert b"PATIENT" not in written


def test_what_the_types_of_a_column_tell_does_not_leave(tmp_path: Path) -> None:
    told = {b"patient": b"PATIENT"}
    values = {
        "a": pa.array([{"x": 7}], pa.struct([pa.field("x", pa.int64(), metadata=told)])),
        "b": pa.array([[1.5]], pa.list_(pa.field("item", pa.float64(), metadata=told))),
        "c": pa.array([[1.5]], pa.list_(pa.field("item", pa.float64(), metadata=told), 1)),
        "d": pa.array([[1.5]], pa.large_list(pa.field("item", pa.float64(), metadata=told))),
        "e": pa.array(
            [[("k", [{"x": 7}])]], pa.map_(pa.string(), pa.list_(pa.struct([pa.field("x", pa.int64(), metadata=told)])))
        ),
    }
    source = plant(tmp_path / "in", {"a.parquet": table([PNG], **values)})
    assert release(source, tmp_path / "out", ReleaseSettings(5.0, keep=tuple(values))).problems == {}
    assert b"PATIENT" not in base64.b64decode(
        pq.ParquetFile(tmp_path / "out" / "a.parquet").metadata.metadata[b"ARROW:schema"]
    )
    made = pq.read_table(tmp_path / "out" / "a.parquet")
    assert [made[name][0].as_py() for name in values] == [column[0].as_py() for column in values.values()]
    assert verified(tmp_path / "out") == []
    pq.write_table(made.set_column(1, "a", values["a"]), tmp_path / "b.parquet")
    with (tmp_path / "b.parquet").open("rb") as file:
        assert [seen.problem for seen in parquet.inspect(file) if seen.problem] == ["has metadata, patient"]


def test_tensors_of_a_kind_that_is_not_known_here_are_not_kept(tmp_path: Path) -> None:
    content = pq.read_table(io.BytesIO(table([PNG], more=pa.array([[0.5] * 189]))))
    told = {b"ARROW:extension:name": b"somebody.tensor", b"ARROW:extension:metadata": b"[9, 7, 3]"}
    at = content.schema.get_field_index("more")
    file = io.BytesIO()
    pq.write_table(content.cast(content.schema.set(at, content.schema.field(at).with_metadata(told))), file)
    ran = release(
        plant(tmp_path / "in", {"a.parquet": file.getvalue()}), tmp_path / "out", ReleaseSettings(5.0, keep=("more",))
    )
    assert "may hold pictures" in ran.problems["a.parquet"]


def test_features_that_are_lists_are_no_images(tmp_path: Path) -> None:
    """As older versions of Hugging Face's software wrote them."""
    features = FEATURES | {"ids": [{"dtype": "int64", "_type": "Value"}]}
    content = pq.read_table(io.BytesIO(table([PNG], ids=pa.array([[1, 2]]))))
    content = content.replace_schema_metadata({b"huggingface": json.dumps({"info": {"features": features}}).encode()})
    file = io.BytesIO()
    pq.write_table(content, file)
    assert (
        release(
            plant(tmp_path / "in", {"a.parquet": file.getvalue()}),
            tmp_path / "out",
            ReleaseSettings(5.0, keep=("ids",)),
        ).problems
        == {}
    )
    assert pq.read_table(tmp_path / "out" / "a.parquet")["ids"].to_pylist() == [[1, 2]]


def test_a_picture_with_absurd_offsets_costs_its_shard_nothing_else(tmp_path: Path) -> None:
    absurd = b"II+\0\x08\0\0\0" + b"\xff" * 64  # a BigTIFF that begins far behind every file's end
    source = plant(tmp_path / "in", {"s.tar": shard({"a.png": PNG, "b.tif": absurd, "c.png": OTHER})})
    ran = release(source, tmp_path / "out")
    assert ran.problems == {"s.tar: b.tif": "is cut off before its end"}
    assert spent().releases == 2


FILMS = {
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


@pytest.mark.parametrize("ending", FILMS)
def test_films_and_rarer_pictures_are_not_kept(ending: str, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"s.tar": shard({"a.png": PNG, f"a.{ending}": FILMS[ending]})})
    release(source, tmp_path / "out", ReleaseSettings(5.0, keep=(ending,)))
    assert not any(FILMS[ending] in data for data in outputs(tmp_path / "out").values())


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
def test_sounds_and_words_are_kept(data: bytes, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"s.tar": shard({"a.png": PNG, "a.more": data})})
    assert release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("more",))).problems == {}
    assert members_of(tmp_path / "out" / "s.tar")["a.more"] == data


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (pa.array([3], pa.uint8()), True),
        (pa.array(["cat"]).dictionary_encode(), True),
        (pa.array([[[0.0, 0.5], [1.0, 1.0]]]), True),  # boxes
        (pa.array([{"when": 1.5, "who": ["a", "b"]}]), True),
        (pa.array([PNG]).dictionary_encode(), False),
        (pa.array([PNG], pa.binary_view()), False),
        (pa.array([[1, 2, 3]], pa.list_(pa.uint8())), False),
        (pa.array([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.uint16()))), False),
        (pa.array([[[[1.0]]]]), False),
        (pa.array([{"deep": [[PNG]]}]), False),
        (pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((1, 9, 7, 3), np.float32)), False),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"caption": "a cat"}'])), True),
    ],
)
def test_columns_that_may_hold_pictures_are_not_kept(values: Any, kept: bool, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.parquet": table([PNG], more=values)})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("more",)))
    assert (ran.problems == {}) == kept
    assert kept or "may hold pictures" in ran.problems["a.parquet"]


@pytest.mark.parametrize(
    ("name", "data", "keep", "there"),
    [
        ("s.tar", shard(SAMPLES), "clss", "cls, json, txt"),
        ("a.parquet", table([PNG]), "labels", "label, text"),
        ("test_batch", pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]}), "label", "labels"),
    ],
)
def test_a_misspelt_name_is_refused_before_anything_is_spent(
    name: str, data: bytes, keep: str, there: str, tmp_path: Path
) -> None:
    source = plant(tmp_path / "in", {name: data})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=(keep,)))
    assert ran.problems == {name: f"has no {keep} to keep; it has {there}"}
    assert spent().releases == 0
    assert not (tmp_path / "out").exists()  # nor is the target bound to what was misspelt
    assert not (tmp_path / "out.owner").exists()
    right = there.partition(",")[0]
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=(right,)))
    assert ran.problems == {}
    assert ran.complete


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"s.tar": shard(SAMPLES), "a.parquet": table([OTHER])})
    job = prepare(source, tmp_path / "out", ReleaseSettings(5.0, keep=("cls", "label")))
    list(job.run(on_this_machine(1)))
    notices = dict(job.journal.notices())
    job.close()
    assert notices == {
        name: f"left out: {what} (--keep NAME keeps such things)"
        for name, what in (("s.tar", "json, txt"), ("a.parquet", "text"))
    }
