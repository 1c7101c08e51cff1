"""Every attack from data to page, at a size that says nothing about privacy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.lab import results
from ldp_slicing.lab.attacks import bayes
from ldp_slicing.lab.experiment import Setting
from ldp_slicing.lab.experiments import averaging, leakage, reconstruction
from ldp_slicing.lab.learners.models import EMBEDDERS
from ldp_slicing.lab.learners.models import adversaries as networks
from ldp_slicing.lab.learners.models.adversaries import BlackBox, WhiteBox
from ldp_slicing.lab.reproduce import reproduce
from tests.lab.test_experiments import tiny, write_both

RUNS = {
    "averaging": 8,
    "bayes": 8,
    "black-box": 7,
    "white-box": 7,
}  # two sets, two views, two budgets; or all budgets and some alone
BLIND = {"cifar10-blind", "lfw-blind"}  # and two that see no release


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(networks.NETWORKS, "unet", lambda channels, gain: BlackBox(channels, width=4, scales=2))
    monkeypatch.setitem(
        networks.NETWORKS, "two-stage", lambda channels, gain: WhiteBox(channels, gain, width=4, scales=2)
    )
    monkeypatch.setitem(EMBEDDERS, "dlib", (lambda: tiny(128), 128))
    for module in (leakage, reconstruction):
        monkeypatch.setattr(module, "TARGETS", (20.0, 200.0))
    monkeypatch.setattr(averaging, "COUNTS", (1, 3))
    monkeypatch.setattr(bayes, "STRENGTHS", (0.0, 1.0))
    monkeypatch.setattr(bayes, "REACH", 1)
    monkeypatch.setattr(Setting, "shortened", lambda _, how: replace(how, epochs=1, batch=16))


@pytest.mark.parametrize("name", RUNS)
def test_an_attack_runs_from_data_to_page(name: str, tmp_path: Path) -> None:
    write_both(tmp_path / "data")
    options = {"data": tmp_path / "data", "results": tmp_path / "results", "work": tmp_path / "work"}
    done, path = reproduce(name, **options, device="cpu", say=lambda _: None)
    rows = results.read(name, tmp_path / "results")
    assert done
    assert {row["run"] for row in rows} > BLIND
    assert len(rows) == RUNS[name] + len(BLIND)
    assert all(0 < row["guess"]["psnr_db"] < 30 for row in rows if row["run"] in BLIND)
    for row in rows:
        if row["run"] in BLIND:
            continue
        assert row["found"]
        for one in row["found"]:
            assert one["epsilon_realised_per_release"] <= one["epsilon_requested"]
            for part in ("release", "reconstruction"):
                assert -1 <= one[part]["ssim"] <= 1
                assert ("rank_1" in one[part]) == row["run"].startswith("lfw")
                assert all(
                    0 <= share["low_95"] <= share["share"] <= share["high_95"]
                    for share in one[part]["success"].values()
                )
    whole = [one for row in rows for one in row["found"] if row["run"].startswith("cifar10-whole")]
    easy = [one["release"]["ssim"] for one in whole if one["epsilon_requested"] == leakage.EASY]
    assert easy
    assert min(easy) > max(one["release"]["ssim"] for one in whole if one["epsilon_requested"] == 20.0)
    page = path.with_suffix(".md").read_text()
    assert "200 (the easy target)" in page
    assert f"`ldp-slicing lab reproduce {name}`" in page
    assert "The originals themselves" in page
    assert "| none | " in page
    for picture in {picture for row in rows for picture in row.get("pictures", ())}:
        assert f"({picture})" in page
        with Image.open(path.parent / picture) as image:
            assert image.width > 4 * 64
    again, _ = reproduce(name, **options, device="cpu", say=lambda line: pytest.fail(f"made again: {line}"))
    assert again
    assert results.read(name, tmp_path / "results") == rows
    assert f"## {name}" in results.summarise(tmp_path / "results").read_text()


@pytest.mark.parametrize("name", ["averaging", "bayes"])
def test_when_the_time_is_up_it_says_so_and_goes_on_later(name: str, tmp_path: Path) -> None:
    write_both(tmp_path / "data")
    options = {"data": tmp_path / "data", "results": tmp_path / "results", "work": tmp_path / "work", "device": "cpu"}
    done, path = reproduce(name, **options, minutes=0.0, only="cifar10", say=lambda _: None)
    assert not done
    assert "Not finished: cifar10-pruned-eps20" in path.with_suffix(".md").read_text()
    done, path = reproduce(name, **options, only="cifar10-whole", say=lambda _: None)
    assert done
    assert {row["run"] for row in results.read(name, tmp_path / "results") if row["finished"]} - BLIND == {
        "cifar10-whole-eps20",
        "cifar10-whole-eps200",
    }


def test_on_the_command_line(tmp_path: Path) -> None:
    write_both(tmp_path / "data")
    places = [
        "--data",
        str(tmp_path / "data"),
        "--results",
        str(tmp_path / "results"),
        "--work",
        str(tmp_path / "work"),
    ]
    done = CliRunner().invoke(
        app, ["lab", "reproduce", "averaging", *places, "--only", "cifar10-whole-eps200", "--device", "cpu"]
    )
    assert done.exit_code == 0, done.output
    assert "averaging.json" in done.output
    refused = CliRunner().invoke(app, ["lab", "reproduce", "nothing", *places])
    assert refused.exit_code == 2
    assert "white-box" in refused.output
