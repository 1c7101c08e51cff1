"""Every attack from data to page, at a size that says nothing about privacy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.lab import results
from ldp_slicing.lab.attacks import averaging, bayes
from ldp_slicing.lab.experiment import ExperimentContext
from ldp_slicing.lab.experiments import attack_pages, reconstruction_pages, sizes
from ldp_slicing.lab.experiments import averaging as averaging_experiment
from ldp_slicing.lab.learners.models import EMBEDDERS
from ldp_slicing.lab.learners.models import adversaries as networks
from ldp_slicing.lab.learners.models.adversaries import BitUNet, BlackBox, WhiteBox
from ldp_slicing.lab.reproduce import reproduce
from ldp_slicing.lab.rows import plan_name, read_rows
from tests.lab.datasets import tiny, write_both, write_lfw

ROWS = {  # two data sets, two views, two budgets; or networks for all budgets, for one, and for thick slices
    "averaging": 8,
    "bayes": 8,
    "black-box": 7,
    "white-box": 7 + 3,
    "bit-unet": 7,
}
SMALL = (14, 7)  # sizes of releases


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(networks.NETWORKS, "unet", lambda channels, gain: BlackBox(channels, width=4, scales=2))
    monkeypatch.setitem(
        networks.NETWORKS, "two-stage", lambda channels, gain: WhiteBox(channels, gain, width=4, scales=2)
    )
    monkeypatch.setitem(networks.NETWORKS, "bit-unet", lambda channels, gain: BitUNet(channels, width=4, scales=2))
    monkeypatch.setitem(EMBEDDERS, "dlib", (lambda: tiny(128), 128))
    for module in (attack_pages, reconstruction_pages):
        monkeypatch.setattr(module, "TARGETS", (20.0, 200.0))
    monkeypatch.setattr(sizes, "SIZES", SMALL)
    for module in (averaging, averaging_experiment):
        monkeypatch.setattr(module, "COUNTS", (1, 3))
    monkeypatch.setattr(bayes, "STRENGTHS", (0.0, 1.0))
    monkeypatch.setattr(bayes, "REACH", 1)
    monkeypatch.setattr(ExperimentContext, "shortened", lambda _, how: replace(how, epochs=1, batch=16))


@pytest.mark.parametrize("name", ROWS)
def test_an_attack_runs_from_data_to_page(name: str, tmp_path: Path) -> None:
    write_both(tmp_path / "data")
    options = {"data": tmp_path / "data", "results": tmp_path / "results", "work": tmp_path / "work"}
    done, path = reproduce(name, **options, device="cpu", say=lambda _: None)
    rows = read_rows(path)
    assert done
    blind = [row for row in rows if row.method == attack_pages.MEAN_IMAGE]
    assert [row.dataset for row in blind] == ["cifar10", "lfw"]
    assert len(rows) == ROWS[name] + len(blind)
    assert all(0 < row.metrics["reconstruction"]["psnr_db"] < 30 for row in blind)
    for row in rows:
        assert bool(row.measurements) == (row not in blind)
        for one in row.measurements:
            assert one.plan is not None
            assert one.plan.realised_epsilon <= one.plan.epsilon
            for part in ("release", "reconstruction"):
                assert -1 <= one.metrics[part]["ssim"] <= 1
                assert ("rank_1" in one.metrics[part]) == (row.dataset == "lfw")
                shares = one.metrics[part]["success"].values()
                assert all(0 <= share["low_95"] <= share["share"] <= share["high_95"] for share in shares)
    whole = [one for row in rows if row.dataset == "cifar10" and row.prune is None for one in row.measurements]
    ssim = {
        eps: [one.metrics["release"]["ssim"] for one in whole if one.plan and one.plan.epsilon == eps]
        for eps in (20, 200)
    }
    assert min(ssim[200]) > max(ssim[20])
    page = path.with_suffix(".md").read_text()
    assert "200 (easy target)" in page
    assert f"`ldp-slicing lab reproduce {name}`" in page
    assert "On the sources themselves" in page
    assert "| none | " in page
    for file in {file for row in rows for file in row.files}:
        assert f"({file})" in page
        with Image.open(path.parent / file) as image:
            assert image.width > 4 * 64
    said: list[str] = []
    again, _ = reproduce(name, **options, device="cpu", say=said.append)
    assert again
    assert [line.split(":")[0] for line in said] == ["nothing was measured"]
    assert read_rows(path) == rows
    assert f"## {name}" in results.write_summary(tmp_path / "results").read_text()


def test_the_white_box_attacks_releases_of_every_size(tmp_path: Path) -> None:
    write_lfw(tmp_path / "data")
    options = {"data": tmp_path / "data", "results": tmp_path / "results", "work": tmp_path / "work", "device": "cpu"}
    done, path = reproduce("sizes", **options, say=lambda _: None)
    rows = [row for row in read_rows(path) if row.measurements]
    assert done
    plans = {(row.options["size"], plan_name(row.plans[0]), row.epsilon, row.prune) for row in rows}
    assert plans == {
        *((size, "Y7+Y6+Cb7+Cr7", 5.2, None) for size in SMALL),
        (7, "Y7+Y6+Y5+Cb7+Cb6+Cr7+Cr6", 8.0, None),
    }
    for row in rows:
        assert all("rank_1" in row.measurements[0].metrics[part] for part in ("release", "reconstruction"))
        assert sizes.image_epsilon(row) <= row.options["size"] ** 2 * row.epsilon
    page = path.with_suffix(".md").read_text()
    assert "| 14 x 14 | Y7+Y6+Cb7+Cr7, not pruned | 5.2 | 1,019 | release |" in page
    assert "| none | " in page
    with Image.open(path.parent / "sizes-lfw-7.png") as image:
        assert image.width > 3 * 112  # the view and two plans
    said: list[str] = []
    again, _ = reproduce("sizes", **options, say=said.append)
    assert again
    assert [line.split(":")[0] for line in said] == ["nothing was measured"]
    _, path = reproduce(
        "sizes", **(options | {"results": tmp_path / "one"}), only="size=7 epsilon=8", say=lambda _: None
    )
    assert [row.options["size"] for row in read_rows(path)] == [7]


@pytest.mark.parametrize("name", ["averaging", "bayes"])
def test_when_the_time_is_up_the_page_says_so_and_the_next_call_resumes(name: str, tmp_path: Path) -> None:
    write_both(tmp_path / "data")
    options = {"data": tmp_path / "data", "results": tmp_path / "results", "work": tmp_path / "work", "device": "cpu"}
    done, path = reproduce(name, **options, minutes=0.0, only="dataset=cifar10", say=lambda _: None)
    assert not done
    assert "Not finished: cifar10, paper, eps 20, prune haar" in path.with_suffix(".md").read_text()
    done, path = reproduce(name, **options, only="dataset=cifar10 prune=none", say=lambda _: None)
    assert done
    found = [row for row in read_rows(path) if row.finished and row.plan]
    assert {(row.dataset, row.prune, row.epsilon) for row in found} == {
        ("cifar10", None, 20.0),
        ("cifar10", None, 200.0),
    }


def test_reproduce_on_the_command_line(tmp_path: Path) -> None:
    write_both(tmp_path / "data")
    places = [
        "--data",
        str(tmp_path / "data"),
        "--results",
        str(tmp_path / "results"),
        "--work",
        str(tmp_path / "work"),
    ]
    only = "dataset=cifar10 prune=none epsilon=200"
    done = CliRunner().invoke(app, ["lab", "reproduce", "averaging", *places, "--only", only, "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "averaging.json" in done.output
    refused = CliRunner().invoke(app, ["lab", "reproduce", "nothing", *places])
    assert refused.exit_code == 2
    assert "white-box" in refused.output
