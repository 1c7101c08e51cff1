"""CIFAR pickles are released as shards, and none of their code runs."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.release.settings import ReleaseSettings
from tests.formats.shards import members_of
from tests.release.helpers import expected, plant, release, verified


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


class RunsCode:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("open('it-ran', 'w')",)


@pytest.mark.parametrize(
    "content",
    [
        {"data": RunsCode()},
        {"data": rows(2)[:, :9]},
        {"nothing": 1},
        [1],
        {"data": rows(2), "labels": [1]},
        {"data": rows(2).astype(float)},
    ],
)
def test_other_pickles_are_refused_and_run_no_code(
    content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = plant(tmp_path / "in", {"data_batch_1": pickle.dumps(content), "test_batch": b"\x80\x02garbage"})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("labels",)))
    assert set(ran.problems) == {"data_batch_1", "test_batch"}
    assert all("not an image" not in problem for problem in ran.problems.values())
    assert not (tmp_path / "it-ran").exists()
