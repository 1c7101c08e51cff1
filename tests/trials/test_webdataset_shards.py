"""WebDataset shards: released with their labels, and read back by ``webdataset``."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from tests.formats.shards import shard
from tests.release.helpers import SECRET, outputs, plant, small_images, snapshot
from tests.trials.command_line import check, ldp_slicing

SHARDS, SAMPLES = 3, 20


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset leaves files to the garbage collector
def test_webdataset_shards(tmp_path: Path) -> None:
    images = iter(small_images(SHARDS * SAMPLES, 16, 12).values())
    files = {}
    for number in range(SHARDS):
        members = {}
        for sample in range(SAMPLES):
            members[f"{sample:04}.png"] = next(images)
            members[f"{sample:04}.cls"] = str(sample % 10).encode()
            members[f"{sample:04}.json"] = SECRET
        files[f"train-{number:06}.tar"] = shard(members)
    source, target = plant(tmp_path / "shards", files), tmp_path / "releases"
    ran = ldp_slicing("privatize", source, target, "--epsilon", 20, "--keep", "cls")
    assert ran.status == 0
    assert "left out: json (--keep NAME keeps them)" in ran.err
    assert list(outputs(target)) == [*files]
    assert not any(SECRET in data for data in snapshot(target).values())
    check(target)

    webdataset = pytest.importorskip("webdataset")
    urls = [str(target / name) for name in files]
    read = webdataset.WebDataset(urls, shardshuffle=False).decode("rgb8").to_tuple("__key__", "png", "cls")
    samples = list(read)
    del read
    gc.collect()
    assert [(Path(key).name, label) for key, _, label in samples] == [
        (f"{sample:04}", sample % 10) for _ in range(SHARDS) for sample in range(SAMPLES)
    ]
    assert {(image.shape, image.dtype) for _, image, _ in samples} == {((16, 12, 3), np.dtype(np.uint8))}
    assert len({image.tobytes() for _, image, _ in samples}) == SHARDS * SAMPLES
