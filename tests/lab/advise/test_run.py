"""The whole run on a small set: it measures, stops, resumes, answers and writes nothing but its report and its work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from ldp_slicing.lab.advise import budget, networks, run
from ldp_slicing.lab.advise.findings import make_rules
from ldp_slicing.lab.advise.report import summary, to_dict, write_report
from ldp_slicing.lab.advise.request import Request, Talk
from ldp_slicing.lab.advise.run import advise
from ldp_slicing.lab.advise.work import MARK
from tests.lab.advise.images import write_folder

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks and steps so few that a run takes seconds."""
    effort = networks.Effort(width=4, batch=16, pixels=16_384, attacked=8, tested=100)
    monkeypatch.setattr(networks.Effort, "on", classmethod(lambda cls, device: effort))
    for module in (budget, run):
        monkeypatch.setattr(module, "MOST", 6)
        monkeypatch.setattr(module, "FEWEST", 4)


def request(tmp_path: Path, **changes: object) -> Request:
    source = tmp_path / "sources"
    if not source.exists():
        write_folder(source)
    options = {"sizes": (16,), "families": ("thick",), "views": (None,), "groups": "name:g[0-9]+", "minutes": 5.0}
    return Request(source, tmp_path / "advice", **(options | changes))  # type: ignore[arg-type]


def test_a_run(tmp_path: Path) -> None:
    said: list[str] = []
    result = advise(request(tmp_path, rules=make_rules(max_ssim=0.99, min_accuracy=0.01)), Talk(said.append))
    assert result.finished
    print(*said, *summary(result), sep="\n")
    print(write_report(result))
    print(json.dumps(to_dict(result), indent=1)[:3000])
    assert {one.name for one in tmp_path.iterdir()} == {"sources", "advice", "advice.owner"}
    assert (tmp_path / "advice.owner" / MARK).is_file()
