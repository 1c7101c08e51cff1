"""How the recipe for decoded releases was chosen: on images held out of the training set. The test set is not looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.experiment import Experiment, Row, Setting, markdown, percent, train_all
from ldp_slicing.lab.experiments.curves import HELD_OUT
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.plan import Plan

TRIED = ((0.1, 5e-4), (0.1, 1e-3), (0.1, 2e-3), (0.2, 5e-4), (0.2, 1e-3), (0.3, 1e-3))  # learning rate and weight decay


def measure(setting: Setting) -> Iterator[Row]:
    images = load_cifar("cifar10", setting.data)
    tasks = [
        TrainingTask(_name(*pair), images, _variant(*pair), Plan.paper(20.0), validation=HELD_OUT, decode=True)
        for pair in TRIED
    ]
    yield from train_all(tasks, setting, _held_out)


def _name(rate: float, decay: float) -> str:
    return f"cifar10-eps20-rate{rate:g}-decay{decay:g}"


def _variant(rate: float, decay: float) -> Recipe:
    return replace(
        recipe("cifar-decoded"),
        name="cifar-decoded, tried",
        source="tried on the way to cifar-decoded",
        learning_rate=rate,
        weight_decay=decay,
    )


def _held_out(run: TrainingRun) -> Row:
    return {"held_out_accuracy": run.accuracy(*run.validation)}


def best(rows: Sequence[Row]) -> Row | None:
    """Of the finished runs, the one that is right most often on the images held out."""
    return max((row for row in rows if row["finished"]), key=lambda row: float(row["held_out_accuracy"]), default=None)


def table(rows: Sequence[Row]) -> str:
    lines = []
    for pair in TRIED:
        row = next((row for row in rows if row["finished"] and row["run"] == _name(*pair)), None)
        shown = percent(row["held_out_accuracy"] if row else None)
        lines.append([*(f"{number:g}" for number in pair), f"**{shown}**" if row and row is best(rows) else shown])
    return markdown(["learning rate", "weight decay", "accuracy on 5,000 training images held out, %"], lines)


EXPERIMENT = Experiment(
    "How the recipe `cifar-decoded` was chosen: CIFAR-10 at eps 20, ResNet-56, each image released once and decoded; one run for each "
    "pair of learning rate and weight decay, the epoch chosen on the images held out, too. The test set was not looked at. 78 % of "
    "5,000 images have a standard error of 0.6 points, so that most of these pairs may be as good as the one that was taken",
    measure,
    table,
)
