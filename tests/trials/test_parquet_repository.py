"""A data set repository in the layout of Hugging Face: released with its labels, and read back by ``datasets``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.formats.parquet_files import table
from tests.release.helpers import outputs, plant, small_images, snapshot
from tests.trials.command_line import check, ldp_slicing

CAPTION = "a caption that nobody may read"
IMAGES = [*small_images(40, 16, 12).values()]
CARD = b"""---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*
---
# Cats and dogs
"""


def test_a_parquet_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = plant(
        tmp_path / "cats-and-dogs",
        {
            "README.md": CARD,
            ".gitattributes": b"*.parquet filter=lfs",
            "data/train-00000-of-00001.parquet": table([*IMAGES], text=[CAPTION] * len(IMAGES)),
        },
    )
    target = tmp_path / "releases"
    ran = ldp_slicing("privatize", source, target, "--epsilon", 20, "--keep", "label")
    assert ran.status == 0
    assert "skipped: 2 files of other formats: .gitattributes, README.md" in ran.err
    assert "left out: text (--keep NAME keeps them)" in ran.err
    assert list(outputs(target)) == ["data/train-00000-of-00001.parquet"]
    assert not any(CAPTION.encode() in data for data in snapshot(target).values())
    check(target)

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    train = datasets.load_dataset(str(target), split="train", cache_dir=str(tmp_path / "cache"))
    assert train.column_names == ["image", "label"]
    assert train.features["label"].names == ["cat", "dog"]
    assert train["label"] == [number % 2 for number in range(40)]
    assert {image.size for image in train["image"]} == {(12, 16)}
    assert len({np.asarray(image).tobytes() for image in train["image"]}) == 40
