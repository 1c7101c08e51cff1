"""How the recipe for decoded releases was chosen: on images held out of the training set. The test set is not looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ldp_slicing.lab.data import load
from ldp_slicing.lab.experiments.curves import HELD_OUT
from ldp_slicing.lab.experiments.frame import Experiment, Row, Setting, markdown, percent, train_all
from ldp_slicing.lab.recipes import Recipe, recipe
from ldp_slicing.lab.run import Run
from ldp_slicing.lab.task import Task
from ldp_slicing.plan import Plan

SHORT, LONG = 50, 120
TRIED = {  # epochs: pairs of learning rate and weight decay
    LONG: ((0.1, 5e-4), (0.1, 1e-3)),
    SHORT: ((0.05, 2e-3), (0.1, 5e-4), (0.1, 1e-3), (0.1, 2e-3), (0.2, 5e-4), (0.2, 1e-3)),
}


def measure(setting: Setting) -> Iterator[Row]:
    images = load("cifar10", setting.data)
    tasks = [
        Task(_name(epochs, rate, decay), images, _variant(epochs, rate, decay), Plan.paper(20.0), validation=HELD_OUT, decode=True)
        for epochs, pairs in TRIED.items()  # the long ones first, so that they do not train alone at the end
        for rate, decay in pairs
    ]
    yield from train_all(tasks, setting, _held_out)


def _name(epochs: int, rate: float, decay: float) -> str:
    return f"cifar10-eps20-epochs{epochs}-rate{rate:g}-decay{decay:g}"


def _variant(epochs: int, rate: float, decay: float) -> Recipe:
    return replace(recipe("cifar-decoded"), name="cifar-decoded, tried", epochs=epochs, learning_rate=rate, weight_decay=decay)


def _held_out(run: Run) -> Row:
    return {"held_out_accuracy": run.accuracy(*run.validation)}


def best(rows: Sequence[Row], epochs: int) -> Row | None:
    """Of the finished runs of so many epochs, the one that is right most often on the images held out."""
    names = [_name(epochs, *pair) for pair in TRIED[epochs]]
    done = [row for row in rows if row["finished"] and row["run"] in names]
    return max(done, key=lambda row: float(row["held_out_accuracy"]), default=None)


def table(rows: Sequence[Row]) -> str:
    lines = []
    for epochs, pairs in sorted(TRIED.items()):
        top = best(rows, epochs)
        for rate, decay in pairs:
            found = [row for row in rows if row["finished"] and row["run"] == _name(epochs, rate, decay)]
            shown = [f"**{percent(row['held_out_accuracy'])}**" if row is top else percent(row["held_out_accuracy"]) for row in found]
            lines.append([str(epochs), f"{rate:g}", f"{decay:g}", *(shown or ["-"])])
    return markdown(["epochs", "learning rate", "weight decay", "accuracy on 5,000 training images held out, %"], lines)


EXPERIMENT = Experiment(
    "How the recipe `cifar-decoded` was chosen: CIFAR-10 at eps 20, ResNet-56, each image released once and decoded; one run for each "
    "pair of learning rate and weight decay, the epoch chosen on the images held out, too. The test set was not looked at",
    measure,
    table,
)
