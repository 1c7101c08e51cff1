"""Reading sources with labels and groups, and dividing them."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.advise.listing import list_sources
from ldp_slicing.lab.advise.reconstruction import attacked_of
from ldp_slicing.lab.advise.sources import SourceSet, check_enough, read_sources
from ldp_slicing.lab.advise.splits import linkage_test, split
from tests.lab.advise.images import stripes, write_folder


def table_of(folder: Path, path: Path) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "kind", "person"])
        for image in sorted(folder.rglob("*.png")):
            writer.writerow([image.relative_to(folder), image.parent.name, image.name[:3]])
    return path


def parquet_of(folder: Path, path: Path) -> Path:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    images = sorted(folder.rglob("*.png"))
    rows = {
        "image": [{"bytes": one.read_bytes(), "path": one.name} for one in images],
        "kind": [one.parent.name for one in images],
        "person": [int(one.name[1:3]) for one in images],
    }
    pq.write_table(pa.table(rows), path)
    return path


def test_a_folder_a_csv_file_and_parquet_say_the_same(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "sources", groups=6, each=3)
    table = table_of(folder, tmp_path / "labels.csv")
    parquet = parquet_of(folder, tmp_path / "set.parquet")
    ways = [
        list_sources(folder, None, "name:g[0-9]+"),
        list_sources(folder, f"{table}:kind", "person"),
        list_sources(parquet, "kind", "person"),
    ]
    found = [read_sources(items, largest=16) for items in ways]
    for one in found:
        assert one.images.shape == (18, 16, 16, 1)
        assert (one.classes, one.size, one.total) == (("columns", "rows"), (16, 16), 18)
        assert one.groups is not None
        assert len(np.unique(one.groups)) == 6
    keys = [sorted((one.images[i].tobytes(), one.labels[i]) for i in range(18)) for one in found]
    assert keys[0] == keys[1] == keys[2]
    assert found[0].digest == read_sources(ways[0], largest=16).digest


def test_a_parquet_table_of_labels_says_what_a_csv_file_says(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    folder = write_folder(tmp_path / "sources", groups=4, each=2)
    written = table_of(folder, tmp_path / "labels.csv")
    with open(written, newline="") as file:
        rows = list(csv.DictReader(file))
    images = [one.read_bytes() for one in sorted(folder.rglob("*.png"))]
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]} | {"thumbnail": images})
    for path in (tmp_path / "labels.parquet", folder / "labels.parquet"):  # it may lie among the images
        pq.write_table(table, path)
        found = [list_sources(folder, f"{one}:kind", "person") for one in (written, path)]
        expected, same = ([(one.name, one.label, one.group) for one in items] for items in found)
        assert same == expected
        path.unlink()
    pq.write_table(pa.table({"file": ["a.png"], "label": [None]}), tmp_path / "labels.parquet")
    with pytest.raises(LdpSlicingError, match=r"labels.parquet: 'a.png' has no label"):
        list_sources(folder, str(tmp_path / "labels.parquet"))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("labels.xlsx", b"PK\x03\x04\xff\xfe", "labels.xlsx is not a CSV table in UTF-8"),
        ("labels.csv", "file,label\na.png,Stra\u00dfe\n".encode("latin-1"), "labels.csv is not a CSV table in UTF-8"),
        ("labels.csv", b"file,label\n" + b"a" * 200_000 + b",b\n", "labels.csv is not a CSV table in UTF-8"),
        ("labels.csv", b"label,file\na\n", "labels.csv: a row has no file, which is the path of an image"),
        ("labels.parquet", b"file,label\n", "labels.parquet is not a Parquet file, or is damaged"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    folder = write_folder(tmp_path / "sources", groups=2, each=1)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LdpSlicingError, match=problem):
        list_sources(folder, str(tmp_path / name))


def test_images_are_shrunk_to_one_size_and_groups_stay_whole(tmp_path: Path) -> None:
    for number, side in enumerate((40, 30, 50)):
        for group in range(4):
            (tmp_path / "a").mkdir(exist_ok=True)
            Image.fromarray(stripes(0, group, number, side)).convert("RGB").save(tmp_path / f"a/{group}_{number}.png")
    items = list_sources(tmp_path, "none", "name:^[0-9]+")
    found = read_sources(items, largest=24, limit=6)
    assert found.shape == (24, 24)
    assert (found.size, found.is_grey, found.converted, found.total) == (None, True, True, 12)
    assert found.groups is not None
    assert sorted(np.bincount(found.groups)) == [3, 3]
    assert found.classes == ()
    assert found.remarks == ("images differ in size: the centre of each is cut out and shrunk to 24 x 24",)
    assert not found.smallest  # 24 was asked for
    assert read_sources(items, largest=64).smallest.endswith("_1.png")  # of 30 pixels
    Image.fromarray(stripes(0, 0, 0, 9)).save(tmp_path / "a/0_thumb.png")
    with pytest.raises(
        LdpSlicingError, match=r"images of 9 x 9 pixels are too small .*: both .*leave out a/0_thumb\.png"
    ):
        read_sources(list_sources(tmp_path, "none", "name:^[0-9]+"), largest=24)


@pytest.mark.parametrize(
    ("many", "few", "said"), [("L", "RGB", "2 images are in colour"), ("RGB", "L", "2 images are grey")]
)
def test_grey_and_colour_images_together_are_pointed_out(
    tmp_path: Path, many: str, few: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldp_slicing.lab.advise.sources.AT_ONCE", 4)
    colours = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), np.uint8)
    for number, pixels in enumerate(colours):
        Image.fromarray(pixels).convert(few if number > 17 else many).save(tmp_path / f"{number:02d}.png")
    items = list_sources(tmp_path, "none")
    order = np.argsort(np.random.default_rng(0).permutation(20))  # in which they are read: the few come last
    items = [items[i] for i in np.argsort(order)]
    found = read_sources(items, largest=16)
    assert found.is_grey == (many == "L")
    (remark,) = found.remarks
    assert remark.startswith(f"{said}, but measured as ")


@pytest.mark.parametrize(
    ("labels", "groups", "problem"),
    [
        ("nothing.csv", None, "--labels nothing.csv: there is no such file"),
        (None, "name:(", "is not a regular expression"),
        (None, "name:zzz", r"--groups name:zzz matches no file name; the first file name is .*\.png"),
        (None, "person", "'person' is not folder, name:REGEX or a column"),
    ],
)
def test_what_is_not_there_is_refused(tmp_path: Path, labels: str | None, groups: str | None, problem: str) -> None:
    folder = write_folder(tmp_path / "sources", groups=2, each=1)
    with pytest.raises(LdpSlicingError, match=problem):
        list_sources(folder, labels, groups)


def test_a_table_must_stay_in_its_folder_and_have_its_columns(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "sources", groups=2, each=1)
    (tmp_path / "labels.csv").write_text("file,label\n../secret.png,a\n")
    with pytest.raises(LdpSlicingError, match="is outside"):
        list_sources(folder, str(tmp_path / "labels.csv"))
    with pytest.raises(LdpSlicingError, match="has no column 'kind'; it has file, label"):
        list_sources(folder, f"{tmp_path / 'labels.csv'}:kind")
    with pytest.raises(LdpSlicingError, match="is in no class folder"):
        list_sources(folder / "rows")
    parquet = parquet_of(folder, tmp_path / "set.parquet")
    with pytest.raises(LdpSlicingError, match=r"set\.parquet are in Parquet files: name the column of labels"):
        list_sources(parquet)
    with pytest.raises(LdpSlicingError, match="has no column 'age'"):
        list_sources(parquet, "age")


def some(labels: list[int], groups: list[int] | None) -> SourceSet:
    images = np.zeros((len(labels), 16, 16, 1), np.uint8)
    images[:, 0, 0, 0] = np.arange(len(labels))
    found = None if groups is None else np.array(groups)
    return SourceSet(
        images, np.array(labels), ("a", "b")[: len(set(labels))], found, (16, 16), len(labels), len(labels)
    )


def test_too_little_is_refused() -> None:
    with pytest.raises(LdpSlicingError, match="all images are of the class 'a'"):
        check_enough(some([0] * 20, None))
    with pytest.raises(LdpSlicingError, match="2 images of the 22 that were read are of the class 'b'"):
        check_enough(some([0] * 20 + [1] * 2, None))
    with pytest.raises(LdpSlicingError, match=r"4 or more; leave out small classes\. If folders are people and not cl"):
        check_enough(some([0] * 20 + [1] * 2, None))
    with pytest.raises(LdpSlicingError, match=r"4 or more; --images or --minutes reads more"):
        check_enough(replace(some([0] * 20 + [1] * 2, None), total=90))
    with pytest.raises(LdpSlicingError, match="10 images are too few"):
        check_enough(some([0, 1] * 5, None))
    copies = some([0] * 20 + [1] * 20, None)
    copies.images[20:] = 7
    with pytest.raises(LdpSlicingError, match="all images of the class 'b' are equal"):
        check_enough(copies)


def test_no_group_is_in_both_parts_and_impostors_have_the_same_class() -> None:
    labels, groups = [i // 4 % 2 for i in range(200)], [i // 4 for i in range(200)]
    sources = some(labels, groups)
    first, second = split(sources, 0, 100), split(sources, 1, 100)
    assert first.test.tolist() != second.test.tolist()
    for parts in (first, second):
        assert sorted([*parts.train, *parts.test]) == list(range(200))
        assert not set(np.array(groups)[parts.train]) & set(np.array(groups)[parts.test])
        assert 40 <= len(parts.test) <= 70
        assert set(np.array(labels)[parts.test]) == {0, 1}
    held_labels, held_groups = np.array(labels)[first.test], np.array(groups)[first.test]
    test = linkage_test(held_labels, held_groups, 0)
    assert test is not None
    assert (held_groups[test.probes] == held_groups[test.gallery]).all()
    assert (test.probes != test.gallery).all()
    assert len(np.unique(held_groups[test.probes])) == len(test.probes)
    assert ((held_groups[test.first] == held_groups[test.second]) == test.same).all()
    assert (held_labels[test.first] == held_labels[test.second]).all()
    assert test.same.mean() == 0.5
    assert (held_labels[test.probes][:, None] == held_labels[test.gallery])[test.candidates].all()
    assert linkage_test(np.zeros(5, np.int64), np.arange(5), 0) is None


def test_reconstruction_is_tested_on_enough_images_if_few_groups_have_several() -> None:
    labels, groups = [i % 2 for i in range(200)], [i if i < 160 else 160 + i // 2 for i in range(200)]
    sources = some(labels, groups)
    parts = split(sources, 0, 200)
    test = linkage_test(np.array(labels)[parts.test], np.array(groups)[parts.test], 0)
    assert test is not None
    linked = parts.test[test.released].tolist()
    assert len(linked) < 30 < len(parts.test)
    attacked = attacked_of(parts, test, 40).tolist()
    assert attacked[: len(linked)] == linked  # link() takes them from the beginning
    assert len(set(attacked)) == 40
    assert set(attacked) <= set(parts.test.tolist())
    assert attacked_of(parts, test, 2).tolist() == linked
    assert sorted(attacked_of(parts, test, 1000)) == parts.test.tolist()
    assert len(set(attacked_of(parts, None, 40))) == 40


def test_a_split_without_groups_takes_from_every_class() -> None:
    parts = split(some([0] * 90 + [1] * 10, None), 0, 1000)
    assert set((np.arange(100) >= 90)[parts.test]) == {False, True}
    assert 30 <= len(parts.test) <= 36


def test_equal_images_are_on_one_side() -> None:
    sources = some([0] * 60 + [1] * 60, None)
    sources.images[1::2] = sources.images[::2]
    parts = split(sources, 0, 1000)
    assert sorted([*parts.train, *parts.test]) == list(range(120))
    assert not set(parts.train // 2) & set(parts.test // 2)


def test_images_that_cannot_be_read_are_left_out_and_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "sources", groups=2, each=1)
    (folder / "rows" / "bad.png").write_bytes(b"not an image")
    found = read_sources(list_sources(folder), largest=16)
    assert (len(found.labels), found.total, found.tried) == (2, 3, 3)
    assert list(found.problems) == ["rows/bad.png"]
    for image in folder.rglob("g*.png"):
        image.write_bytes(b"")
    with pytest.raises(LdpSlicingError, match="no image can be read; the first one is "):
        read_sources(list_sources(folder), largest=16)
