"""Processes that train together take the same releases, which one of them has made."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from ldp_slicing import Plan, Slicer
from ldp_slicing.errors import ReleaseError
from ldp_slicing.torch import ReleasedDataset, ranks

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


def test_under_torchrun_one_releases_and_all_see_the_same(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first[:2] == second[:2]
    assert first[0]
    assert sorted(first[2] + second[2]) == list(range(8))


def test_a_rank_waits_for_the_first_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "SAY_AFTER", 0.05)
    made: list[ReleasedDataset] = []
    later = threading.Timer(0.5, lambda: made.append(ReleasedDataset(SOURCES, SLICER, store=tmp_path / "store")))
    later.start()
    with pytest.warns(UserWarning, match=r"rank 1 waits for rank 0 to release into .*store, which both must see"):
        ranks.wait_for_first(tmp_path / "store", ranks.Place(1, 2))
    later.join()
    assert len(made) == 1


def test_a_rank_that_wants_other_releases_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ReleasedDataset(SOURCES, SLICER, store=tmp_path / "store")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    same = ReleasedDataset(SOURCES, SLICER, store=tmp_path / "store")
    assert torch.equal(same[3][0], made[3][0])
    for slicer in (Slicer(Plan.paper(3.0)), Slicer(Plan.paper(2.0), prune=None)):
        with pytest.raises(ReleaseError, match="holds other releases than this process was to make"):
            ReleasedDataset(SOURCES, slicer, store=tmp_path / "store")
    with pytest.raises(ReleaseError, match=r"2 processes train together, .* adds up to 2 x eps"):
        ReleasedDataset(SOURCES, SLICER)
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert ranks.place() == (0, 1)
