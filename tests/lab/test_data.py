from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ldp_slicing import Plan, Slicer
from ldp_slicing.errors import DataError
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.folders import load_folder
from ldp_slicing.lab.data.lfw import load_lfw
from ldp_slicing.lab.data.sets import ImageSet
from ldp_slicing.pickles import unpickle_data


def write(path: Path, content: Any, protocol: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=protocol))


def rows(count: int, first: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return (np.arange(first, first + count)[:, None] + np.arange(3072)[None] // 1024 * 50).astype(np.uint8)


def make_cifar(folder: Path) -> None:
    for i in range(1, 6):
        write(folder / "cifar-10-batches-py" / f"data_batch_{i}", {b"data": rows(4, 4 * i), b"labels": [0, 1, 2, 3]})
    write(folder / "cifar-10-batches-py" / "test_batch", {"data": rows(3), "labels": [9, 8, 7]}, protocol=4)
    for name, count in (("train", 6), ("test", 2)):
        write(
            folder / "cifar-100-python" / name,
            {"data": rows(count), "fine_labels": list(range(count)), "coarse_labels": [0] * count},
        )


def test_cifar_in_its_published_layout(tmp_path: Path) -> None:
    make_cifar(tmp_path)
    ten = load_cifar("cifar10", tmp_path)
    assert (ten.classes, ten.train.images.shape, ten.test.images.shape) == (10, (20, 32, 32, 3), (3, 32, 32, 3))
    assert ten.train.labels.tolist() == [0, 1, 2, 3] * 5
    assert ten.train.images[0, 5, 6].tolist() == [4, 54, 104]  # planes of red, green, blue
    assert load_cifar("cifar100", tmp_path).train.labels.tolist() == list(range(6))


def test_a_missing_set_is_named_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cifar-10-batches-py.*--data"):
        load_cifar("cifar10", tmp_path)
    make_cifar(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(DataError, match="data_batch_3"):
        load_cifar("cifar10", tmp_path)
    with pytest.raises(DataError, match="mnist"):
        load_cifar("mnist", tmp_path)


def test_rows_of_another_size_are_refused(tmp_path: Path) -> None:
    make_cifar(tmp_path)
    write(tmp_path / "cifar-100-python" / "test", {"data": rows(2)[:, :100], "fine_labels": [0, 1]})
    with pytest.raises(DataError, match="3072"):
        load_cifar("cifar100", tmp_path)


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch it-ran",)


def test_a_pickle_with_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "evil", {"data": Runs()})
    with pytest.raises(DataError, match="system"):
        unpickle_data((tmp_path / "evil").read_bytes())
    assert not (tmp_path / "it-ran").exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    make_cifar(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(
        DataError, match=r"data_batch_3 does not exist: it should be one of the files of the set's python version"
    ):
        load_cifar("cifar10", tmp_path)
    with pytest.raises(
        DataError, match=r"cifar-100-python does not exist: put the unpacked CIFAR-100 python version \(www"
    ):
        load_cifar("cifar100", tmp_path / "elsewhere")
    Image.new("RGB", (8, 8)).save(tmp_path / "one.png")
    (tmp_path / "train.txt").write_text("one.png 0\n")
    with pytest.raises(DataError, match=r"nowhere does not exist: put a folder with this name into .*--data"):
        load_folder(tmp_path / "nowhere")
    (tmp_path / "unlabelled").mkdir()
    with pytest.raises(DataError, match=r"neither train/ and test/, .* nor train.txt"):
        load_folder(tmp_path / "unlabelled")
    (tmp_path / "unlabelled" / "card.json").write_text(Slicer(Plan.paper(5.2)).card(8, 8).to_json())
    beside = rf"{tmp_path}/train.txt and test.txt .* `unlabelled/NAME.png 0`, and train on the set {tmp_path.name} with"
    with pytest.raises(DataError, match=f"{beside} --data {tmp_path.parent}$"):
        load_folder(tmp_path / "unlabelled")
    with pytest.raises(DataError, match=r"test.txt does not exist: it should be a list of images and classes"):
        load_folder(tmp_path)
    (tmp_path / "lfw112" / "A_B").mkdir(parents=True)
    Image.new("RGB", (112, 112)).save(tmp_path / "lfw112" / "A_B" / "A_B_0001.png")
    with pytest.raises(DataError, match=r"pairs.txt does not exist: it should be LFW's list of pairs"):
        load_lfw(tmp_path)


def test_a_set_from_arrays() -> None:
    rng = np.random.default_rng(0)
    colour, labels = rng.integers(0, 256, (6, 4, 5, 3), dtype=np.uint8), [0, 1, 2, 0, 1, 2]
    found = ImageSet.from_arrays("mine", (colour, labels), (colour[:2], [0, 3]), groups=([0, 0, 1, 1, 2, 2], [7, 8]))
    assert (found.name, found.classes, found.is_grey, found.holds) == ("mine", 4, False, "sources")
    assert found.train.groups is not None
    assert found.test.labels.dtype == np.int64
    grey = ImageSet.from_arrays("grey", (colour[..., 0], labels), (colour[..., 1], labels))
    assert (grey.is_grey, grey.train.images.shape) == (True, (6, 4, 5, 1))
    for images, numbers, why in (
        (colour.astype(np.float32), labels, "images must be uint8"),
        (colour, labels[:5], "as many labels"),
        (colour, np.array(labels) - 1, "whole numbers from 0"),
        (colour[:, :3], labels, "one shape"),
    ):
        with pytest.raises(DataError, match=why):
            ImageSet.from_arrays("mine", (images, numbers), (colour, labels))  # type: ignore[arg-type]
