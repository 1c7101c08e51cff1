from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ldp_slicing import Plan
from ldp_slicing.cli import app
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab import experiments, results
from ldp_slicing.lab.data import ImageSet, Split
from ldp_slicing.lab.models import MODELS, build
from ldp_slicing.lab.recipes import recipe
from ldp_slicing.lab.reproduce import reproduce
from ldp_slicing.lab.training import Epoch, Limits, Run, Task, train

CPU = torch.device("cpu")
TINY = replace(recipe("cifar-authors"), model="resnet9", epochs=3, batch=16, learning_rate=0.01, milestones=(2,))


def bright_or_dark(count: int = 64) -> ImageSet:
    """Two classes that anything can tell apart, also through noise: bright and dark upper halves."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    images = rng.integers(100, 156, (count, 32, 32, 3), dtype=np.uint8)
    images[labels == 1, :16] += 90
    split = Split(images, labels.astype(np.int64))
    return ImageSet("halves", 2, split, Split(images[:20], labels[:20].astype(np.int64)))


def silent(_run: Run, _epoch: Epoch) -> None:
    pass


def test_the_networks_are_the_ones_they_are_named_after() -> None:
    assert {"resnet56", "resnet9", "wrn28", "resnet50-grey", "ir50"} == set(MODELS)
    assert sum(p.numel() for p in build("resnet56", 10).parameters()) == 853_018  # 0.85 million, no parameters in the shortcuts
    for name in ("resnet56", "resnet9"):
        assert build(name, 7)(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    with pytest.raises(LdpSlicingError, match="vgg"):
        build("vgg", 10)


def test_recipes_name_their_deviations_and_differ_where_paper_and_code_do() -> None:
    code, paper = recipe("cifar-authors"), recipe("cifar-paper")
    assert (code.factor, paper.factor) == (0.5, 0.1)
    assert code.deviations
    assert [round(code.learning_rate_at(epoch), 6) for epoch in (0, 79, 80, 160, 200, 249)] == [0.1, 0.1, 0.05, 0.025, 0.0125, 0.0125]
    with pytest.raises(LdpSlicingError, match="cifar-authors"):
        recipe("nothing")


@pytest.mark.parametrize(("release", "plan"), [("none", None), ("once", Plan.paper(58.0)), ("every-epoch", Plan.paper(58.0))])
def test_each_way_of_releasing_learns_something_easy(release: str, plan: Plan | None, tmp_path: Path) -> None:
    longer = replace(TINY, epochs=10, milestones=(8,))  # until the running means have settled
    run = Run(Task("easy", bright_or_dark(), longer, plan, None, release), CPU)
    assert train([run], tmp_path, Limits(test_every=1), silent)
    assert run.history[-1].test_accuracy is not None
    assert run.history[-1].test_accuracy >= 0.9
    assert run.history[-1].loss < run.history[0].loss


def test_what_is_spent_is_told() -> None:
    once, every = (Task("t", bright_or_dark(), TINY, Plan.paper(20.0), release=mode) for mode in ("once", "every-epoch"))
    assert once.epsilon_per_source == pytest.approx(20.0)
    assert every.epsilon_per_source == pytest.approx(60.0)
    for plan, release in ((None, "once"), (Plan.paper(1.0), "none")):
        with pytest.raises(LdpSlicingError, match=release):
            Task("t", bright_or_dark(), TINY, plan, release=release)


def test_once_means_that_training_sees_the_same_release_in_every_epoch() -> None:
    run = Run(Task("t", bright_or_dark(), TINY, Plan.paper(20.0)), CPU)
    before = run.padded.clone()
    assert not torch.equal(run.padded[:, 4:-4, 4:-4], torch.from_numpy(bright_or_dark().train.images))
    run.begin_epoch()()
    assert torch.equal(run.padded, before)


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    task = Task("t", bright_or_dark(), TINY, Plan.paper(20.0), release="every-epoch")
    straight = Run(task, CPU)
    train([straight], tmp_path / "straight", Limits(), silent)
    first = Run(replace(task, recipe=replace(TINY, epochs=1)), CPU)
    train([first], tmp_path / "parts", Limits(), silent)
    second = Run(task, CPU)
    assert train([second], tmp_path / "parts", Limits(), silent)
    assert [epoch.loss for epoch in second.history] == [epoch.loss for epoch in straight.history]
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters, second.parameters, strict=True))


def test_when_the_time_is_up_it_stops_and_can_be_resumed(tmp_path: Path) -> None:
    run = Run(Task("t", bright_or_dark(), TINY, release="none"), CPU)
    assert not train([run], tmp_path, Limits(seconds=-1.0), silent)
    assert run.epoch == 0
    assert (tmp_path / "t.pt").is_file()


def test_an_experiment_writes_its_numbers_beside_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [Task("easy", bright_or_dark(), TINY, Plan.paper(58.0), None)]
    monkeypatch.setitem(experiments.EXPERIMENTS, "easy", experiments.Experiment("an easy one", lambda _: tasks, {"easy": 77.7}))
    lines: list[str] = []
    done, path = reproduce("easy", tmp_path, tmp_path / "results", tmp_path / "work", epochs=2, device="cpu", say=lines.append)
    content = json.loads(path.read_text())
    (run,) = content["runs"]
    assert done
    assert (run["epochs_done"], run["seed"], run["paper"], run["epsilon_requested"]) == (2, 0, 77.7, 58.0)
    assert run["test_accuracy_last_epoch"] == run["history"][-1]["test_accuracy"]
    assert "77.7" in path.with_suffix(".md").read_text()
    assert len(lines) == 2
    assert results.table(content) == path.with_suffix(".md").read_text()
    ran = CliRunner().invoke(app, ["lab", "results", str(path.parent)])
    assert ran.exit_code == 0
    assert "## easy" in (path.parent / "README.md").read_text()
    with pytest.raises(LdpSlicingError, match="fidelity"):
        reproduce("nothing", tmp_path, tmp_path, tmp_path)


def test_on_the_command_line_a_missing_data_set_is_a_refusal(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["lab", "reproduce", "fidelity", "--data", str(tmp_path), "--results", str(tmp_path / "r")])
    assert ran.exit_code == 2
    assert "cifar-10-batches-py" in ran.output
    assert not (tmp_path / "r").exists()
