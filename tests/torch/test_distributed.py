"""Processes that train together share the releases that one of them makes."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from ldp_slicing import Plan, Slicer
from ldp_slicing.errors import ReleaseError
from ldp_slicing.torch import ReleasedDataset, distributed

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12 on

SOURCES = TensorDataset(torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8), torch.arange(6))
SLICER = Slicer(Plan.paper(2.0))
SCRIPT = """
import hashlib, json, os, sys
import torch
from torch import distributed
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from ldp_slicing import Plan, Slicer
from ldp_slicing.errors import ReleaseError
from ldp_slicing.torch import ReleasedDataset

distributed.init_process_group("gloo")
sources, slicer = TensorDataset(torch.zeros(8, 3, 8, 8, dtype=torch.uint8), torch.arange(8)), Slicer(Plan.paper(2.0))
try:
    ReleasedDataset(sources, slicer)
    refused = False
except ReleaseError:
    refused = True
released = ReleasedDataset(sources, slicer, store=sys.argv[1] + "/store")
digest = hashlib.sha256(b"".join(released[i][0].numpy().tobytes() for i in range(8))).hexdigest()
seen = [int(label) for _, labels in DataLoader(released, 2, sampler=DistributedSampler(released)) for label in labels]
with open(f"{sys.argv[1]}/{distributed.get_rank()}.json", "w") as file:
    json.dump([refused, digest, seen], file)
distributed.destroy_process_group()
"""


def test_torchrun_releases_once_for_all_processes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "train.py",
        str(tmp_path),
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first[:2] == second[:2]
    assert first[0]
    assert sorted(first[2] + second[2]) == list(range(8))


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")


@pytest.mark.usefixtures("two")
def test_the_second_process_waits_and_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "WARN_AFTER_SECONDS", 0.05)
    goes_on, made = threading.Event(), list[ReleasedDataset]()

    def first() -> None:
        made.append(
            ReleasedDataset(SOURCES, SLICER, store=tmp_path / "store", progress=lambda *_: goes_on.wait(10) and None)
        )

    thread = threading.Thread(target=first)
    thread.start()
    while not (tmp_path / "store.partial").exists():
        pass
    threading.Timer(0.5, goes_on.set).start()
    with pytest.warns(
        UserWarning,
        match=r"waiting for another process that releases to .*store; if there is none, remove .*store.partial",
    ):
        second = ReleasedDataset(SOURCES, SLICER, store=tmp_path / "store")
    thread.join()
    assert torch.equal(second[3][0], made[0][3][0])


@pytest.mark.usefixtures("two")
def test_if_the_releasing_process_fails_the_others_fail(tmp_path: Path) -> None:
    (tmp_path / "store.partial").mkdir()
    threading.Timer(0.3, (tmp_path / "store.partial").rmdir).start()
    with pytest.raises(ReleaseError, match=r"another process failed to release to .*store: see its error message"):
        ReleasedDataset(SOURCES, SLICER, store=tmp_path / "store")


@pytest.mark.usefixtures("two")
def test_a_store_of_other_releases_is_refused(tmp_path: Path) -> None:
    made = ReleasedDataset(SOURCES, SLICER, store=tmp_path / "store")
    again = ReleasedDataset(SOURCES, SLICER, store=tmp_path / "store")  # as after a restart
    assert torch.equal(again[3][0], made[3][0])
    images, labels = SOURCES.tensors
    for others, slicer in (
        (SOURCES, Slicer(Plan.paper(3.0))),
        (SOURCES, Slicer(Plan.paper(2.0), prune=None)),
        (SOURCES, Slicer(Plan.paper(2.0), output="ycbcr")),
        (SOURCES, Slicer(Plan.paper(2.0), size=2)),
        (TensorDataset(images[:5], labels[:5]), SLICER),
        (TensorDataset(images, labels + 6), SLICER),
        (TensorDataset(images[..., :4], labels), SLICER),
        (TensorDataset(images), SLICER),
    ):
        with pytest.raises(
            ReleaseError,
            match="holds releases of other sources, or by another plan or view, than this process was to make",
        ):
            ReleasedDataset(others, slicer, store=tmp_path / "store")
    grey = TensorDataset(images[:, :1].contiguous(), labels)
    for _ in range(2):
        ReleasedDataset(grey, Slicer(Plan.grey(2.0), output="ycbcr"), store=tmp_path / "grey")
    arrays = [(image, np.array(i), np.array([i], ">i4")) for i, image in enumerate(images)]
    for _ in range(2):
        ReleasedDataset(arrays, SLICER, store=tmp_path / "arrays")
    with pytest.raises(ReleaseError, match="holds releases of other sources"):
        ReleasedDataset([(image, label, label) for image, label, _ in arrays], SLICER, store=tmp_path / "arrays")
    with pytest.raises(ReleaseError, match=r"2 processes train together; .* that costs 2 x eps"):
        ReleasedDataset(SOURCES, SLICER)


def test_a_single_process_does_not_open_an_existing_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ReleasedDataset(SOURCES, SLICER, store=tmp_path / "store")
    for announced in ("1", "", "many", "-1"):
        monkeypatch.setenv("WORLD_SIZE", announced)
        with pytest.raises(ReleaseError, match="is already released"):
            ReleasedDataset(SOURCES, SLICER, store=tmp_path / "store")
        ReleasedDataset(SOURCES, SLICER)


def count_up(count: distributed.SharedCounter, times: int) -> None:
    for _ in range(times):
        count.add(1)


def test_processes_and_threads_share_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    count = distributed.SharedCounter()
    children = [
        multiprocessing.get_context(kind).Process(target=count_up, args=(count, 2000))
        for kind in ("fork", "fork", "spawn")
    ]
    threads = [threading.Thread(target=count_up, args=(count, 2000)) for _ in range(2)]
    for one in (*children, *threads):
        one.start()
    for one in (*children, *threads):
        one.join()
    assert count.value == 10_000
    for other in (copy.copy(count), copy.deepcopy(count), pickle.loads(pickle.dumps(count))):
        assert other.add(1) == 10_001
    assert count.value == 10_000

    class NoMemory:
        def Value(self, kind: str, value: int) -> None:  # noqa: N802 - as it is called there
            raise OSError("no shared memory")

    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: NoMemory())
    alone = distributed.SharedCounter(3)
    assert (alone.add(2), alone.value, copy.copy(alone).value) == (5, 5, 5)


@pytest.mark.usefixtures("two")
def test_a_store_that_another_process_just_completed_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process finishes just before this one begins: its releases are not made again."""
    mkdir, made = Path.mkdir, list[ReleasedDataset]()

    def later(path: Path, *args: Any, **kwargs: Any) -> None:
        if path.name == "store.partial" and not made:
            monkeypatch.undo()
            monkeypatch.setenv("WORLD_SIZE", "2")
            made.append(ReleasedDataset(SOURCES, SLICER, store=tmp_path / "store"))
        mkdir(path, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", later)
    mine = ReleasedDataset(SOURCES, SLICER, store=tmp_path / "store")
    assert torch.equal(mine[2][0], made[0][2][0])
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
