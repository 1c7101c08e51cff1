"""Keeping data beside the images."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from ldp_slicing.release import records
from ldp_slicing.release.run import on_this_machine, prepare
from ldp_slicing.release.settings import ReleaseSettings
from tests.formats.parquet_files import table
from tests.formats.shards import OTHER, SAMPLES, shard
from tests.release.helpers import PNG, plant, release, spent


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


def test_data_that_is_left_out_is_reported(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"s.tar": shard(SAMPLES), "a.parquet": table([OTHER])})
    run = prepare(source, tmp_path / "out", ReleaseSettings(5.0, keep=("cls", "label")))
    list(run.run(on_this_machine(1)))
    notices = {one.source: one.notice for one in records.notices(run.state)}
    run.close()
    assert notices == {
        name: f"left out: {what} (--keep NAME keeps them)"
        for name, what in (("s.tar", "json, txt"), ("a.parquet", "text"))
    }
