from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from typer.testing import CliRunner

from ldp_slicing import Plan
from ldp_slicing.cli import app
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab import experiments, results
from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment, train_all
from ldp_slicing.lab.learners.models import MODELS
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.training import Limits
from ldp_slicing.lab.provenance import provenance
from ldp_slicing.lab.reproduce import reproduce
from ldp_slicing.lab.rows import Row, Training, read_rows
from ldp_slicing.lab.tables import markdown, metric, spread
from tests.lab.datasets import tiny

TINY = replace(recipe("cifar-authors"), model="tiny", epochs=3, batch=16, learning_rate=0.01, milestones=(2,))
ROW = Row("easy", "halves", plans=(Plan.paper(58.0),), release="once", mode="raw")


def halves(count: int = 64) -> ImageSet:
    """Two classes that differ in the brightness of the upper half."""
    labels = np.arange(count) % 2
    images = np.random.default_rng(0).integers(100, 156, (count, 16, 16, 3), dtype=np.uint8)
    images[labels == 1, :8] += 90
    split = Split(images, labels.astype(np.int64))
    return ImageSet("halves", 2, split, Split(split.images[:20], split.labels[:20]))


def measure(context: ExperimentContext) -> Iterator[Row]:
    yield from train_all([context.trial(ROW, halves(), TINY, validation=16)], context)


def table(rows: Sequence[Row]) -> str:
    found = [row for row in rows if row.finished]
    return markdown(["row", "accuracy"], [["easy", spread(metric(found, "test_accuracy"))]])


def figure(rows: RowsByExperiment) -> Figure:
    from ldp_slicing.lab.figures import line, panels

    drawn, (axis,) = panels(1)
    line(axis, {58.0: metric(rows["easy"], "test_accuracy"), 60.0: []}, "easy", "black")
    return drawn


EXPERIMENT = Experiment("easy", "An easy experiment.", measure, table, figure)


@pytest.fixture(autouse=True)
def _easy(monkeypatch: pytest.MonkeyPatch) -> None:
    """This module as an experiment of the package."""
    monkeypatch.setitem(MODELS, "tiny", tiny)
    monkeypatch.setitem(experiments.MODULES, "easy", "easy")
    load = experiments.load_experiment
    for module in ("ldp_slicing.lab.reproduce", "ldp_slicing.lab.results"):
        monkeypatch.setattr(f"{module}.load_experiment", lambda name: EXPERIMENT if name == "easy" else load(name))


def test_an_experiment_writes_its_rows_a_page_and_a_figure(tmp_path: Path) -> None:
    lines: list[str] = []
    where = (tmp_path, tmp_path / "results", tmp_path / "work")
    done, path = reproduce("easy", *where, epochs=2, device="cpu", say=lines.append)
    (row,) = read_rows(path)
    assert done
    assert (row.seed, row.epsilon, row.key[:-2]) == (0, 58.0, ROW.key[:-2])
    assert row.training is not None
    assert (row.training.epochs, row.training.held_out) == (2, 16)
    assert row.training.history["test_accuracy"] == [None, None]
    assert row.provenance is not None
    assert row.provenance.commit
    assert row.provenance.hardware
    assert f"{100 * row.metrics['test_accuracy']:.2f}" in path.with_suffix(".md").read_text()
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert len(lines) == 3
    assert lines[0] == f"training 1 network: {row.label}"
    assert reproduce("easy", *where, epochs=2, device="cpu", say=lines.append) == (True, path)
    assert len(lines) == 4  # finished rows are not measured again
    assert lines[3].startswith("nothing was measured: the rows that you asked for are finished")
    assert "--results my-results" in lines[3]
    reproduce("easy", *where, epochs=3, device="cpu", say=lines.append)
    assert len(lines) == 8  # by another recipe they are, from the start
    with pytest.raises(LdpSlicingError, match="rows of more than 1 epochs"):
        reproduce("easy", *where, epochs=1, device="cpu", say=lines.append)
    ran = CliRunner().invoke(app, ["lab", "results", str(path.parent)])
    assert ran.exit_code == 0
    assert "## easy" in (path.parent / "README.md").read_text()
    with pytest.raises(LdpSlicingError, match="fidelity"):
        reproduce("nothing", *where)


def test_the_page_lists_unfinished_rows(tmp_path: Path) -> None:
    unfinished = replace(ROW, finished=False, provenance=provenance(torch.device("cpu")))
    for _ in range(2):
        path = results.keep_row(unfinished, tmp_path)
    assert len(read_rows(path)) == 1
    (page,) = results.write_page(replace(EXPERIMENT, figure=None), tmp_path)
    assert f"Not finished: {ROW.label}" in page.read_text()


def test_a_row_measured_otherwise_is_measured_again(tmp_path: Path) -> None:
    context = ExperimentContext(tmp_path, tmp_path, torch.device("cpu"), Limits())
    trial = context.trial(ROW, halves(), TINY, validation=16)
    task = trial.task
    training = Training(
        images=48, epochs=3, held_out_by="image", data_digest=task.data.digest, started_from=task.start_digest
    )
    done = replace(trial.row, finished=True, training=training)

    def is_done(row: Row) -> bool:
        return replace(context, done=(row,)).is_done(trial.row, task)

    assert is_done(done)
    assert is_done(replace(done, training=replace(training, data_digest=None, started_from=None)))  # not recorded
    assert is_done(replace(done, recipe={**done.recipe, "source": "another description"}))
    assert not is_done(replace(done, finished=False))
    assert not is_done(replace(done, prune="haar"))
    assert not is_done(replace(done, recipe={**done.recipe, "batch": 17}))
    for change in ({"data_digest": "other"}, {"started_from": "other"}, {"held_out_by": "group"}):
        assert not is_done(replace(done, training=replace(training, **change))), change  # type: ignore[arg-type]
