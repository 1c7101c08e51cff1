"""Keeping data beside the images."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.cli.exit_status import ExitStatus
from ldp_slicing.errors import Reason, ReleaseError
from ldp_slicing.release import records
from ldp_slicing.release.opening import prepare
from ldp_slicing.release.run import on_this_machine
from ldp_slicing.release.settings import ReleaseSettings
from tests.formats.dicom_files import dicom, saved
from tests.formats.parquet_files import table
from tests.formats.shards import OTHER, SAMPLES, shard
from tests.release.helpers import PNG, plant, release, spent

CIFAR = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]})
SCAN = saved(dicom(np.zeros((8, 8), np.uint16), 12))


@pytest.mark.parametrize(
    ("name", "data", "keep", "there"),
    [
        ("s.tar", shard(SAMPLES), "clss", "cls, json, txt"),
        ("test_batch", CIFAR, "coarse_labels", "labels"),
    ],
)
def test_a_file_without_the_data_is_refused_before_anything_is_spent(
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


@pytest.mark.parametrize(
    ("files", "right", "wrong", "there"),
    [
        ({"a.parquet": table([PNG]), "b.jpg": PNG}, "label", "labels", "these can be kept: label, text"),
        ({"a.parquet": table([PNG])}, "label", "image", "these can be kept: label, text"),
        ({"test_batch": CIFAR}, "labels", "label", "these can be kept: coarse_labels, fine_labels, labels"),
        ({"IM1": SCAN}, "Modality", "PixelSpacng", "these can be kept: AcquisitionNumber, "),
        ({"IM1": SCAN}, "Modality", "PatientName", "these can be kept: AcquisitionNumber, "),
        ({"a.png": PNG}, "", "label", "they hold only images"),
    ],
)
def test_a_name_that_no_source_can_have_stops_the_run(
    files: dict[str, bytes], right: str, wrong: str, there: str, tmp_path: Path
) -> None:
    source, keep = plant(tmp_path / "in", files), [name for name in (right, wrong) if name]
    with pytest.raises(ReleaseError, match=f"^--keep {wrong}: .*; {there}") as refused:
        prepare(source, tmp_path / "out", ReleaseSettings(5.0, keep=tuple(keep)))
    assert refused.value.reason is Reason.KEEP
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_a_damaged_table_is_refused_as_damaged(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.parquet": table([PNG])[:100]})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("labels",)))
    assert "is not a Parquet file, or is damaged" in ran.problems["a.parquet"]
    assert "\n" not in ran.problems["a.parquet"]


def test_a_misspelt_ending_beside_a_correct_one_is_noticed(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"s.tar": shard(SAMPLES)})
    options = ["-e", "5", "--keep", "cls", "--keep", "jsn", "--json"]
    for target in ("out", "out"):  # and when the run is repeated
        ran = CliRunner().invoke(app, ["privatize", str(source), str(tmp_path / target), *options])
        found = json.loads(ran.stdout)
        assert (ran.exit_code, found["released"], found["not_kept"]) == (ExitStatus.SKIPPED, 1, ["jsn"])
        assert "--keep jsn: no released file has it" in [one["notice"] for one in found["notices"]]


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
