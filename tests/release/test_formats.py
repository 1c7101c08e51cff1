"""Shards, tables, pickles, medical images and films: what is read, what comes out, and what does not."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import re
import tarfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import gdcm
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pydicom
import pytest
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset

from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.errors import AuditError
from ldp_slicing.keys import ForOneImage, Secret, new_key_file, read_key_file, source_digest
from ldp_slicing.release.manifest import verify
from ldp_slicing.release.places import Folder
from ldp_slicing.release.prepare import prepare
from ldp_slicing.release.recipe import Recipe
from ldp_slicing.release.run import on_this_machine
from tests.markers import encoded, picture
from tests.release.helpers import PNG, RECIPE, card_of, manifest_of, outputs, plant, release, spent, verified

SECRET = b"the-secret-marker"
OTHER = encoded(picture(11, 5), "PNG")
GREY = encoded(picture()[..., 1], "PNG")


def expected(path: str, entry: str, pixels: NDArray[Any], bits: int, key: Path, *, recipe: Recipe = RECIPE) -> NDArray[Any]:
    """What a run under an owner's key must release for these pixels."""
    slicer, secret = recipe.slicer(bits), Secret(read_key_file(key), is_owners=True)
    name = f"{path}\0{entry}".encode()
    slicer.randomness = ForOneImage(secret.image_key(name, source_digest(pixels, 8 if bits == 24 else bits), slicer.plan, slicer.prune))
    return slicer(pixels)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    new_key_file(tmp_path / "key")
    return tmp_path / "key"


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
    source = plant(tmp_path / "in", {"a/000.tar": shard(SAMPLES), "b.tar": shard({"x.png": encoded(picture(4, 4), "PNG")}), "c.png": OTHER})
    ran = release(source, tmp_path / "out", Recipe(5.0, keep=("cls",)), key=key)
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
    assert [line["member"] for line in manifest_of(tmp_path / "out")[:4]] == [name for name in made if name.endswith(".png")]
    assert verified(tmp_path / "out") == []
    assert spent().releases == 5  # c.png equals a picture of the shard, and under an owner's key they are one release


def test_a_single_shard_with_random_names(tmp_path: Path) -> None:
    plant(tmp_path, {"in.tar": shard(SAMPLES)})
    ran = release(tmp_path / "in.tar", tmp_path / "out.tar", Recipe(5.0, keep=("cls",), names="random"))
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
    ran = release(source, tmp_path / "out", Recipe(5.0, keep=("cls", "png")))
    assert "it cannot be kept as it is" in ran.problems["a.tar: 0.png"]
    ran = release(source, tmp_path / "out2", Recipe(5.0, keep=("cls",)))
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
    files = {f"{i}.tar": shard({"x.png": encoded(picture(20 + i, 4), "PNG")}) for i in range(4)} | {"1b.tar": TORN[name]}
    ran = release(plant(tmp_path / "in", files), tmp_path / "out")
    assert "1b.tar" in ran.problems
    assert list(outputs(tmp_path / "out")) == ["0.tar", "1.tar", "2.tar", "3.tar"]
    assert spent().releases == 4
    assert spent().unfinished == 0
    assert verified(tmp_path / "out") == []


def test_a_grey_member_is_left_out_where_slices_are_of_colour(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.tar": shard({"0.png": PNG, "1.png": GREY}), "grey.tar": shard({"1.png": GREY})})
    ran = release(source, tmp_path / "out", Recipe(5.0, slices="Y7+Y6"))
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
    source = plant(tmp_path / "in", {"a.tar": shard({"0.png": PNG, "1.png": PNG, "2.png": OTHER}), "b.tar": shard({"0.png": PNG})})
    ran = release(source, tmp_path / "out", Recipe(5.0, duplicates="once"))
    assert list(members_of(tmp_path / "out" / "a.tar")) == ["0.png", "2.png"]
    assert (ran.copies, ran.problems) == (["b.tar", "a.tar: 1.png"], {})
    assert spent().releases == 2


@pytest.mark.parametrize("spoil", ["mtime", "uname", "type"])
def test_verify_looks_into_shards(spoil: str, tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.tar": shard({"0.png": PNG})}), tmp_path / "out")
    about = {"mtime": {"mtime": 5}, "uname": {"uname": "anna"}, "type": {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}}[spoil]
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
    assert any("holds more than pixels" in problem or "kept: cls" in problem for _, problem in verified(tmp_path / "out"))


# Parquet


FEATURES = {
    "image": {"_type": "Image"},
    "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    "text": {"_type": "Value", "dtype": "string"},
}


def table(images: list[bytes | None], **columns: Any) -> bytes:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    column = pa.array([image and {"bytes": image, "path": f"{SECRET.decode()}{i}.jpg"} for i, image in enumerate(images)], kind)
    content = pa.table(
        {"image": column, "label": pa.array([i % 2 for i in range(len(images))]), "text": [SECRET.decode()] * len(images), **columns}
    )
    content = content.replace_schema_metadata({b"huggingface": json.dumps({"info": {"features": FEATURES}}).encode(), b"other": SECRET})
    file = io.BytesIO()
    pq.write_table(content, file)
    return file.getvalue()


def test_a_parquet_file_as_hugging_face_has_it(tmp_path: Path, key: Path) -> None:
    images = [encoded(picture(5 + i % 7, 9), "JPEG") for i in range(230)]
    source = plant(tmp_path / "in", {"train.parquet": table(images)})
    ran = release(source, tmp_path / "out", Recipe(5.0, keep=("label",), names="random"), key=key)
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
    ran = release(source, tmp_path / "out", Recipe(5.0, keep=("label", "absent")))
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
    ran = release(plant(tmp_path / "in", {"a.parquet": data}), tmp_path / "out", Recipe(5.0, keep=("thumb", "nested")))
    assert why in ran.problems["a.parquet"]
    assert outputs(tmp_path / "out") == {}


def test_verify_finds_metadata_in_a_table(tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.parquet": table([PNG])}), tmp_path / "out")
    content = pq.read_table(tmp_path / "out" / "a.parquet").replace_schema_metadata({b"author": b"anna"})
    pq.write_table(content, tmp_path / "out" / "a.parquet")
    line = manifest_of(tmp_path / "out")[0] | {"sha256": hashlib.sha256((tmp_path / "out" / "a.parquet").read_bytes()).hexdigest()}
    (tmp_path / "out" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    assert verified(tmp_path / "out")[0] == ("a.parquet", "has metadata, author")


# CIFAR


def rows(count: int) -> NDArray[np.uint8]:
    return (np.arange(count)[:, None] * 7 + np.arange(3072)[None] // 1024 * 50).astype(np.uint8)


def test_cifar_pickles_become_shards(tmp_path: Path, key: Path) -> None:
    ten = pickle.dumps({b"data": rows(3), b"labels": [5, 6, 7], b"filenames": [b"secret"] * 3}, protocol=2)
    hundred = pickle.dumps({"data": rows(2) ^ 1, "fine_labels": [55, 66], "coarse_labels": [1, 2]})
    source = plant(tmp_path / "in", {"cifar-10-batches-py/data_batch_1": ten, "cifar-100-python/test": hundred})
    ran = release(source, tmp_path / "out", Recipe(5.0, keep=("labels", "fine_labels", "coarse_labels")), key=key)
    assert ran.problems == {}
    made = members_of(tmp_path / "out" / "cifar-10-batches-py" / "data_batch_1.tar")
    assert list(made) == ["00000.png", "00000.cls", "00001.png", "00001.cls", "00002.png", "00002.cls"]
    assert [made[f"0000{i}.cls"] for i in range(3)] == [b"5", b"6", b"7"]
    np.testing.assert_array_equal(
        np.asarray(Image.open(io.BytesIO(made["00002.png"]))), expected("", "", rows(3)[2].reshape(3, 32, 32).transpose(1, 2, 0), 24, key)
    )
    assert list(members_of(tmp_path / "out" / "cifar-100-python" / "test.tar"))[:3] == ["00000.png", "00000.cls", "00000.coarse.cls"]
    assert verified(tmp_path / "out") == []


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("open('it-ran', 'w')",)


@pytest.mark.parametrize(
    "content",
    [{"data": Runs()}, {"data": rows(2)[:, :9]}, {"nothing": 1}, [1], {"data": rows(2), "labels": [1]}, {"data": rows(2).astype(float)}],
)
def test_a_pickle_that_is_no_cifar_file_runs_nothing(content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = plant(tmp_path / "in", {"data_batch_1": pickle.dumps(content), "test_batch": b"\x80\x02garbage"})
    ran = release(source, tmp_path / "out", Recipe(5.0, keep=("labels",)))
    assert set(ran.problems) == {"data_batch_1", "test_batch"}
    assert all("not an image" not in problem for problem in ran.problems.values())
    assert not (tmp_path / "it-ran").exists()


# 16-bit grey


def test_deep_grey_goes_through_tiff_and_png(tmp_path: Path, key: Path) -> None:
    deep = (picture()[..., 0].astype(np.uint16) << 8) + picture()[..., 2]
    source = plant(
        tmp_path / "in", {"a.tif": encoded(deep, "TIFF"), "b.png": encoded(deep, "PNG"), "c.tar": shard({"x.tiff": encoded(deep, "TIFF")})}
    )
    release(source, tmp_path / "out", key=key)
    wanted = expected("", "", deep, 16, key)
    for data in (*(outputs(tmp_path / "out")[name] for name in ("a.png", "b.png")), members_of(tmp_path / "out" / "c.tar")["x.png"]):
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), wanted)
    assert spent().releases == 1


# DICOM


def dicom(pixels: NDArray[Any], bits: int, **about: Any) -> Dataset:
    """A scan with the marker in every place that a scan has: names, icon, overlay, private tags, window."""
    made = Dataset()
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    made.SOPClassUID = made.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.2"
    made.SOPInstanceUID = made.file_meta.MediaStorageSOPInstanceUID = "1.2.3.4.5"
    made.StudyInstanceUID, made.SeriesInstanceUID, made.Modality = "1.2.3", "1.2.3.4", "CT"
    made.PatientName = made.PatientID = made.InstitutionName = made.StudyDescription = SECRET.decode()
    made.PatientBirthDate, made.StudyDate = "19700101", "20200101"
    made.WindowCenter, made.WindowWidth, made.RescaleSlope, made.RescaleIntercept = 40, 400, 1, -1024
    made.SmallestImagePixelValue, made.LargestImagePixelValue = int(pixels.min()), int(pixels.max())
    icon = Dataset()
    icon.Rows, icon.Columns, icon.BitsAllocated, icon.PixelData = 2, 2, 8, SECRET + b"\0"
    made.IconImageSequence = [icon]
    made.add_new(0x60003000, "OW", SECRET + b"\0")
    made.private_block(0x0009, "ACME", create=True).add_new(1, "LO", SECRET.decode())
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    if pixels.ndim == 3:
        made.NumberOfFrames = len(pixels)
    made.Rows, made.Columns = pixels.shape[-2:]
    made.BitsAllocated, made.BitsStored, made.HighBit, made.PixelRepresentation = 8 * pixels.dtype.itemsize, bits, bits - 1, 0
    made.PixelData = pixels.tobytes() + b"\0" * (pixels.nbytes % 2)
    made["PixelData"].VR = "OB" if pixels.dtype.itemsize == 1 else "OW"
    for name, value in about.items():
        setattr(made, name, value)
    return made


def saved(dataset: Dataset) -> bytes:
    file = io.BytesIO()
    dataset.save_as(file, enforce_file_format=True)
    return file.getvalue()


SLICE = (np.arange(12 * 15).reshape(12, 15) * 37 % 4096).astype(np.uint16)
STACK = np.stack([SLICE, SLICE + 1, SLICE + 2]) & 4095


def released(tmp_path: Path, data: bytes, key: Path, name: str = "a.dcm") -> Dataset:
    ran = release(plant(tmp_path / "in", {name: data}), tmp_path / "out", key=key)
    assert ran.problems == {}
    assert verified(tmp_path / "out") == []
    (path,) = outputs(tmp_path / "out")
    raw = (tmp_path / "out" / path).read_bytes()
    assert SECRET not in raw
    return pydicom.dcmread(io.BytesIO(raw))


def test_a_scan_is_released_with_nothing_but_its_pixels(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, saved(dicom(SLICE, 12, BurnedInAnnotation="NO")), key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))
    assert (made.BitsStored, made.HighBit, made.PixelRepresentation, made.PhotometricInterpretation) == (12, 11, 0, "MONOCHROME2")
    assert (made.PatientName, made.PatientID, made.StudyDate, made.Modality) == ("", "", "", "OT")
    assert (made.PatientIdentityRemoved, made.BurnedInAnnotation) == ("YES", "NO")
    assert all(len(value) <= 64 for value in made.DeidentificationMethod)
    assert not {"1.2.3", "1.2.3.4", "1.2.3.4.5"} & {made.SOPInstanceUID, made.StudyInstanceUID, made.SeriesInstanceUID}
    assert len({made.SOPInstanceUID, made.StudyInstanceUID, made.SeriesInstanceUID}) == 3
    for gone in ("WindowCenter", "SmallestImagePixelValue", "IconImageSequence", "InstitutionName", "NumberOfFrames"):
        assert gone not in made
    assert not [item for item in made if item.tag.is_private or item.tag.group == 0x6000]
    assert card_of(tmp_path / "out")["statements"][0]["plan"]["word_bits"] == 12


def test_signed_pixels_keep_their_order_and_shift_back(tmp_path: Path, key: Path) -> None:
    signed = (SLICE.astype(np.int32) - 2048).astype(np.int16)
    made = released(tmp_path, saved(dicom(signed, 12, PixelRepresentation=1, SmallestImagePixelValue=0, LargestImagePixelValue=1)), key)
    words = expected("a.dcm", "", SLICE, 12, key)
    np.testing.assert_array_equal(made.pixel_array, words)
    assert (made.RescaleIntercept, made.RescaleSlope, made.PixelRepresentation) == (-2048, 1, 0)
    assert made.PatientIdentityRemoved == "NO"
    assert "BurnedInAnnotation" not in made


def test_white_is_zero_becomes_black_is_zero(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, saved(dicom(4095 - SLICE, 12, PhotometricInterpretation="MONOCHROME1")), key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))
    assert made.PhotometricInterpretation == "MONOCHROME2"


def test_what_lies_above_the_stored_bits_is_gone(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, saved(dicom(SLICE | 0x8000, 12)), key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))


@pytest.mark.parametrize("bits", [8, 10, 16])
def test_every_depth_and_a_file_without_an_ending(bits: int, tmp_path: Path, key: Path) -> None:
    pixels = (SLICE & ((1 << bits) - 1)).astype(np.uint8 if bits == 8 else np.uint16)
    made = released(tmp_path, saved(dicom(pixels[:, :-2], bits)), key, "IM0001")
    np.testing.assert_array_equal(made.pixel_array, expected("IM0001", "", pixels[:, :-2], bits, key))


SYNTAXES = ["JPEGLosslessProcess14_1", "JPEGLosslessProcess14", "JPEG2000Lossless", "JPEGLSLossless", "RLELossless"]


def packed(tmp_path: Path, pixels: NDArray[Any], syntax: str) -> bytes:
    plant(tmp_path, {"plain.dcm": saved(dicom(pixels, 12))})
    reader, change, writer = gdcm.ImageReader(), gdcm.ImageChangeTransferSyntax(), gdcm.ImageWriter()
    reader.SetFileName(str(tmp_path / "plain.dcm"))
    assert reader.Read()
    change.SetTransferSyntax(gdcm.TransferSyntax(getattr(gdcm.TransferSyntax, syntax)))
    change.SetInput(reader.GetImage())
    assert change.Change()
    writer.SetFileName(str(tmp_path / "packed.dcm"))
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    assert writer.Write()
    return (tmp_path / "packed.dcm").read_bytes()


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_compressed_scans_are_decoded(syntax: str, tmp_path: Path, key: Path) -> None:
    data = packed(tmp_path, SLICE, syntax)
    assert pydicom.dcmread(io.BytesIO(data)).file_meta.TransferSyntaxUID.is_compressed
    made = released(tmp_path, data, key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_compressed_frames_are_as_many_as_are_stated(syntax: str, tmp_path: Path) -> None:
    scan = pydicom.dcmread(io.BytesIO(packed(tmp_path, STACK, syntax)))
    files = {}
    for frames in (1, 2, 3, 4):
        scan.NumberOfFrames = frames
        files[f"{frames}.dcm"] = saved(scan)
    ran = release(plant(tmp_path / "in", files), tmp_path / "out")
    assert ran.problems == {f"{n}.dcm": f"cannot be decoded: holds 3 compressed frames and says {n}" for n in (1, 2, 4)}
    assert pydicom.dcmread(tmp_path / "out" / "3.dcm").NumberOfFrames == spent().releases == 3


def test_a_compressed_frame_may_lie_in_pieces(tmp_path: Path) -> None:
    scan = pydicom.dcmread(io.BytesIO(packed(tmp_path, SLICE, "JPEG2000Lossless")))
    (frame,) = pydicom.encaps.generate_frames(scan.PixelData, number_of_frames=1)
    scan.PixelData = pydicom.encaps.encapsulate([frame], fragments_per_frame=3, has_bot=False)
    assert release(plant(tmp_path / "in", {"a.dcm": saved(scan)}), tmp_path / "out").problems == {}


@pytest.mark.parametrize("bits", [8, 12])
def test_every_frame_is_a_release(bits: int, tmp_path: Path) -> None:
    frames = np.stack([(SLICE + i) % (1 << bits) for i in range(5)]).astype(np.uint8 if bits == 8 else np.uint16)
    source = plant(tmp_path / "in", {"a.dcm": saved(dicom(frames, bits))})
    assert release(source, tmp_path / "out").problems == {}
    made = pydicom.dcmread(tmp_path / "out" / "a.dcm")
    assert made.NumberOfFrames == 5
    assert made.pixel_array.shape == frames.shape
    assert spent().releases == 5
    statement = card_of(tmp_path / "out")["statements"][0]
    assert (statement["releases"], statement["most_releases_of_one_source"]) == (5, 5)
    assert manifest_of(tmp_path / "out")[0]["frames"] == 5
    assert verified(tmp_path / "out") == []
    assert "5 times" in release(source, tmp_path / "out2").problems["a.dcm"]


def test_frames_that_two_files_share_add_up(tmp_path: Path) -> None:
    frames = np.stack([SLICE + np.uint16(i) for i in range(10)])
    scans = {f"{who}.dcm": saved(dicom(frames, 12, PatientName=who)) for who in ("anna", "bert")}
    release(plant(tmp_path / "in", scans), tmp_path / "out")
    (statement,) = card_of(tmp_path / "out")["statements"]
    assert statement["releases"] == statement["most_releases_of_one_source"] == spent().releases == 20
    assert statement["most_spent_on_one_source"]["released_pixel"] == pytest.approx(20 * 5.0)
    assert verified(tmp_path / "out") == []
    again = release(plant(tmp_path / "third", {"c.dcm": saved(dicom(frames, 12, PatientName="carl"))}), tmp_path / "out3")
    assert "at least 2 times" in again.problems["c.dcm"]


def test_many_scans_share_a_batch_and_are_whole(tmp_path: Path) -> None:
    scans = {f"{i:03}.dcm": saved(dicom((SLICE + 7 * i) & 4095, 12)) for i in range(80)}
    ran = release(plant(tmp_path / "in", scans | {"010b.dcm": saved(dicom(STACK ^ 5, 12)), "x.dcm": b"bad"}), tmp_path / "out")
    assert set(ran.problems) == {"x.dcm"}
    assert len(outputs(tmp_path / "out")) == 81
    assert pydicom.dcmread(tmp_path / "out" / "010b.dcm").NumberOfFrames == 3
    assert verified(tmp_path / "out") == []
    assert (spent().releases, spent().unfinished) == (83, 0)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (
            saved(dicom(np.zeros((4, 4, 3), np.uint8), 8, SamplesPerPixel=3, PhotometricInterpretation="RGB", Rows=4, Columns=4)),
            "only grey",
        ),
        (saved(dicom(SLICE, 12, HighBit=15)), "12 bits stored below bit 16"),
        (saved(dicom(SLICE.astype(np.uint8), 8, BitsStored=6, HighBit=5)), "6 bits"),
        (saved(dicom(SLICE, 12))[:-40], "cannot be decoded: 320 bytes of pixels where its 1 frames have 360"),
        (saved(dicom(STACK, 12, NumberOfFrames=2)), "1080 bytes of pixels where its 2 frames have 720"),
        (saved(dicom(STACK, 12, NumberOfFrames=1)), "1080 bytes of pixels where its 1 frames have 360"),
        (saved(dicom(STACK, 12, NumberOfFrames=4)), "1080 bytes of pixels where its 4 frames have 1440"),
        (b"\0" * 128 + b"DICM" + b"garbage" * 9, "cannot be decoded|no pixels"),
        (b"text", "cannot be decoded"),
    ],
)
def test_scans_that_are_not_fit(data: bytes, why: str, tmp_path: Path) -> None:
    ran = release(plant(tmp_path / "in", {"a.dcm": data}), tmp_path / "out")
    assert re.search(why, ran.problems["a.dcm"]), ran.problems
    assert outputs(tmp_path / "out") == {}
    assert spent().releases == 0


def test_a_scan_without_pixels(tmp_path: Path) -> None:
    dataset = dicom(SLICE, 12)
    del dataset.PixelData
    assert "no pixels" in release(plant(tmp_path / "in", {"a.dcm": saved(dataset)}), tmp_path / "out").problems["a.dcm"]


@pytest.mark.parametrize("name", ["PatientName", "InstitutionName", "preamble"])
def test_verify_finds_what_a_scan_should_not_hold(name: str, tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.dcm": saved(dicom(SLICE, 12))}), tmp_path / "out")
    made = pydicom.dcmread(tmp_path / "out" / "a.dcm")
    if name == "preamble":
        made.preamble = SECRET.ljust(128)
    else:
        setattr(made, name, "Anna")
    made.save_as(tmp_path / "out" / "a.dcm")
    line = manifest_of(tmp_path / "out")[0] | {"sha256": hashlib.sha256((tmp_path / "out" / "a.dcm").read_bytes()).hexdigest()}
    (tmp_path / "out" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    assert "more than pixels" in verified(tmp_path / "out")[0][1]


# Video


def film(frames: list[NDArray[np.uint8]], *, sound: bool = True, codec: str = "ffv1", rate: int = 12) -> bytes:
    file = io.BytesIO()
    with av.open(file, mode="w", format="matroska") as container:
        container.metadata["title"] = SECRET.decode()
        stream = container.add_stream(codec, rate=rate)
        grey = frames[0].ndim == 2
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "gray" if grey else "bgr0"
        voice = container.add_stream("pcm_s16le", rate=8000) if sound else None
        for pixels in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="gray" if grey else "rgb24")))
        container.mux(stream.encode(None))
        if voice is not None:
            noise = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
            noise.sample_rate = 8000
            container.mux(voice.encode(noise))
            container.mux(voice.encode(None))
    return file.getvalue()


FRAMES = [np.roll(picture(24, 32), i, axis=1) for i in range(7)]


def frames_of(path: Path) -> list[NDArray[np.uint8]]:
    with av.open(path) as container:
        return [frame.to_ndarray(format="gray" if frame.format.name == "gray" else "rgb24") for frame in container.decode(video=0)]


@pytest.mark.parametrize("kind", ["colour", "grey"])
def test_a_film_is_released_frame_by_frame_without_loss_or_sound(kind: str, tmp_path: Path, key: Path) -> None:
    frames = FRAMES if kind == "colour" else [np.ascontiguousarray(frame[..., 0]) for frame in FRAMES]
    source = plant(tmp_path / "in", {"a.mp4": film(frames)})
    ran = release(source, tmp_path / "out", key=key)
    assert ran.problems == {}
    assert ran.outcomes["a.mp4"].notices == ("1 other stream (sound, subtitles) left out",)
    data = (tmp_path / "out" / "a.mkv").read_bytes()
    assert SECRET not in data
    for got, pixels in zip(frames_of(tmp_path / "out" / "a.mkv"), frames, strict=True):
        np.testing.assert_array_equal(got, expected("a.mp4", "", pixels, 24 if kind == "colour" else 8, key))
    with av.open(tmp_path / "out" / "a.mkv") as container:
        assert [stream.type for stream in container.streams] == ["video"]
        assert container.streams.video[0].average_rate == Fraction(12)
    statement = card_of(tmp_path / "out")["statements"][0]
    assert (statement["releases"], statement["most_releases_of_one_source"]) == (7, 7)
    assert statement["levels"][-2]["unit"] == "source pixel, 7 releases"
    assert spent().releases == 7
    assert manifest_of(tmp_path / "out")[0]["frames"] == 7
    assert verify(Folder(tmp_path / "out")).releases == 7
    assert verified(tmp_path / "out") == []
    (tmp_path / "out" / "a.mkv").unlink()
    release(source, tmp_path / "out", key=key)
    assert (tmp_path / "out" / "a.mkv").read_bytes() == data


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"no film", "cannot be decoded"), (film(FRAMES)[:900], "is cut off: 900 of"), (b"", "cannot be decoded")],
)
def test_films_that_are_not_fit(data: bytes, why: str, tmp_path: Path) -> None:
    ran = release(plant(tmp_path / "in", {"a.avi": data}), tmp_path / "out")
    assert re.search(why, ran.problems["a.avi"]), ran.problems
    assert outputs(tmp_path / "out") == {}
    assert spent().releases == 0


def in_container(kind: str, codec: str, *, rate: Fraction = Fraction(25), **options: str) -> bytes:
    file = io.BytesIO()
    with av.open(file, mode="w", format=kind, options=options) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        for pixels in FRAMES * 6:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "codec"), [("matroska", "mpeg4"), ("webm", "libvpx"), ("avi", "mpeg4"), ("mp4", "mpeg4"), ("mov", "mpeg4"), ("3gp", "mpeg4")]
)
def test_a_film_that_was_cut_off_is_refused(kind: str, codec: str, tmp_path: Path) -> None:
    data = in_container(kind, codec)
    ran = release(plant(tmp_path / "in", {"a.mkv": data[: len(data) * 6 // 10], "b.mkv": data}), tmp_path / "out")
    assert re.search("is cut off|cannot be decoded|no pictures", ran.problems.pop("a.mkv"))
    assert ran.problems == {}
    assert ran.outcomes["b.mkv"].notices == ()
    assert len(frames_of(tmp_path / "out" / "b.mkv")) == spent().releases == 42


@pytest.mark.parametrize(("kind", "codec", "options"), [("mpegts", "mpeg2video", {}), ("matroska", "mpeg4", {"live": "1"})])
def test_where_nobody_can_tell_a_cut_it_is_said(kind: str, codec: str, options: dict[str, str], tmp_path: Path) -> None:
    data = in_container(kind, codec, **options)
    ran = release(plant(tmp_path / "in", {"a.ts": data}), tmp_path / "out")
    assert ran.problems == {}
    assert ran.outcomes["a.ts"].notices == ("may have been cut off: that cannot be told of this kind of film file",)


@pytest.mark.parametrize(
    ("rate", "usual"),
    [
        ("27699/923", "30"),
        ("29.9", "30000/1001"),
        ("30000/1001", "30000/1001"),
        ("24000/1001", "24000/1001"),
        ("12", "12"),
        ("1/10", "1"),
    ],
)
def test_a_release_runs_at_a_usual_rate(rate: str, usual: str, tmp_path: Path) -> None:
    """The exact average of a camera's own intervals would be close to a fingerprint of the source."""
    data = in_container("mp4", "mpeg4", rate=Fraction(rate))
    with av.open(io.BytesIO(data)) as container:
        assert container.streams.video[0].average_rate == Fraction(rate)
    release(plant(tmp_path / "in", {"a.mp4": data}), tmp_path / "out")
    with av.open(tmp_path / "out" / "a.mkv") as container:
        assert container.streams.video[0].average_rate == Fraction(usual)
        assert len([*container.decode(video=0)]) == 42


def test_verify_finds_sound_in_a_film(tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.mkv": film(FRAMES)}), tmp_path / "out")
    (tmp_path / "out" / "a.mkv").write_bytes(film(FRAMES))
    line = manifest_of(tmp_path / "out")[0] | {"sha256": hashlib.sha256((tmp_path / "out" / "a.mkv").read_bytes()).hexdigest()}
    (tmp_path / "out" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    assert "2 streams, title" in verified(tmp_path / "out")[0][1]


# What must not slip through, and what must not get mixed up


def test_a_picture_is_not_kept_under_another_ending(tmp_path: Path) -> None:
    jpeg = encoded(picture(), "JPEG")
    members = {"a.png": PNG, "a.thumb": jpeg, "b.png": OTHER, "b.thumb": b"BMW, a car", "c.png": GREY, "c.thumb": encoded(picture(), "BMP")}
    ran = release(plant(tmp_path / "in", {"s.tar": shard(members)}), tmp_path / "out", Recipe(5.0, keep=("thumb",)))
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
    ran = release(plant(tmp_path / "in", {"s.tar": shard(members)}), tmp_path / "out", Recipe(5.0, keep=(*kinds, *words)))
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
    release(plant(tmp_path / "in", {"s.tar": shard({"a.png": PNG, "a.cls": b"3"})}), tmp_path / "out", Recipe(5.0, keep=("cls",)))
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
    source = plant(tmp_path / "in", {"s.tar": shard({"a.jpg": encoded(picture(), "JPEG"), "a.png": OTHER, "a.cls": b"1"})})
    assert release(source, tmp_path / "out", Recipe(5.0, keep=("cls",))).problems == {}
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
    ],
)
def test_columns_that_may_hold_pictures_are_not_kept(values: Any, kept: bool, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.parquet": table([PNG], more=values)})
    ran = release(source, tmp_path / "out", Recipe(5.0, keep=("more",)))
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
def test_a_misspelt_name_is_refused_before_anything_is_spent(name: str, data: bytes, keep: str, there: str, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {name: data})
    ran = release(source, tmp_path / "out", Recipe(5.0, keep=(keep,)))
    assert ran.problems == {name: f"has no {keep} to keep; it has {there}"}
    assert spent().releases == 0
    assert not (tmp_path / "out").exists()  # nor is the target bound to what was misspelt
    assert not (tmp_path / "out.owner").exists()
    right = there.partition(",")[0]
    ran = release(source, tmp_path / "out", Recipe(5.0, keep=(right,)))
    assert ran.problems == {}
    assert ran.complete


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"s.tar": shard(SAMPLES), "a.parquet": table([OTHER])})
    job = prepare(source, tmp_path / "out", Recipe(5.0, keep=("cls", "label")))
    list(job.run(on_this_machine(1)))
    notices = dict(job.journal.notices())
    job.close()
    assert notices == {
        name: f"left out: {what} (--keep NAME keeps such things)" for name, what in (("s.tar", "json, txt"), ("a.parquet", "text"))
    }


def test_under_an_owners_key_other_pixels_have_another_identity(tmp_path: Path, key: Path) -> None:
    """Two patients with the same path, in two runs."""
    made, names = [], []
    for who in range(2):
        scan = saved(dicom(SLICE + np.uint16(who), 12))
        out = tmp_path / f"out{who}"
        release(plant(tmp_path / f"in{who}", {"IM0001.dcm": scan, "a.png": PNG}), out, Recipe(5.0, names="random"), key=key)
        names.append({Path(name).name for name in outputs(out)})
        (path,) = (name for name in outputs(out) if name.endswith(".dcm"))
        made.append(pydicom.dcmread(out / path))
        assert verified(out) == []
    for uid in ("SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID"):
        assert made[0][uid] != made[1][uid]
    assert not names[0] & names[1]


def test_a_film_under_an_owners_key_is_not_taken_for_another_with_its_first_frame(tmp_path: Path, key: Path) -> None:
    black, others = np.zeros_like(SLICE), [SLICE + np.uint16(i) for i in range(5)]
    first, second = saved(dicom(np.stack([black, SLICE + np.uint16(9)]), 12)), saved(dicom(np.stack([black, *others]), 12))
    release(plant(tmp_path / "in1", {"f.dcm": first}), tmp_path / "out1", Recipe(10.0), key=key)
    release(plant(tmp_path / "in2", {"f.dcm": second}), tmp_path / "out2", Recipe(50.0), spend=True)
    release(tmp_path / "in2", tmp_path / "out3", Recipe(10.0), key=key, spend=True)
    (statement,) = card_of(tmp_path / "out3")["statements"]
    assert statement["most_releases_of_one_source"] >= 12
    assert statement["most_spent_on_one_source"]["released_pixel"] >= 6 * 50 + 6 * 10 - 1e-6
    assert verified(tmp_path / "out3") == []


def test_padding_behind_the_pixels_is_left_alone(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, saved(dicom(SLICE, 12, PixelData=SLICE.tobytes() + b"\0\0")), key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))


def test_another_plan_makes_another_object(tmp_path: Path, key: Path) -> None:
    source = plant(tmp_path / "in", {"a.dcm": saved(dicom(SLICE, 12))})
    release(source, tmp_path / "one", Recipe(20.0), key=key)
    release(source, tmp_path / "two", Recipe(5.0), key=key, spend=True)
    made = [pydicom.dcmread(tmp_path / folder / "a.dcm").SOPInstanceUID for folder in ("one", "two")]
    assert made[0] != made[1]
