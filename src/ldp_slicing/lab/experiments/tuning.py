"""How the recipe for decoded releases was chosen: on held-out training images, without the test set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, train_all
from ldp_slicing.lab.experiments.curves import HELD_OUT
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.rows import Row, select
from ldp_slicing.lab.tables import markdown, percent
from ldp_slicing.plan import Plan

TRIED = ((0.1, 5e-4), (0.1, 1e-3), (0.1, 2e-3), (0.2, 5e-4), (0.2, 1e-3), (0.3, 1e-3))  # learning rate and weight decay


def measure(context: ExperimentContext) -> Iterator[Row]:
    images, trials = load_cifar("cifar10", context.data), []
    for rate, decay in TRIED:
        how = replace(
            recipe("cifar-decoded"),
            name="cifar-decoded-tuning",
            source="a candidate for cifar-decoded",
            learning_rate=rate,
            weight_decay=decay,
        )
        options = {"learning_rate": rate, "weight_decay": decay}
        plans = (Plan.paper(20.0),)
        row = Row("tuning", "cifar10", plans=plans, prune="haar", release="once", mode="decoded", options=options)
        trials.append(context.trial(row, images, how, validation=HELD_OUT))
    yield from train_all(trials, context, validation_accuracy)


def validation_accuracy(run: TrainingRun, row: Row) -> Row:
    """The row with the accuracy on held-out images."""
    return replace(row, metrics={"validation_accuracy": run.validation_accuracy()})


def best(rows: Sequence[Row]) -> Row | None:
    """The finished row with the highest validation accuracy."""
    return max(select(rows), key=lambda row: float(row.metrics["validation_accuracy"]), default=None)


def table(rows: Sequence[Row]) -> str:
    lines = []
    for rate, decay in TRIED:
        found = select(rows, learning_rate=rate, weight_decay=decay)
        shown = percent(found[0].metrics["validation_accuracy"] if found else None)
        is_best = bool(found) and found[0] is best(rows)
        lines.append([f"{rate:g}", f"{decay:g}", f"**{shown}**" if is_best else shown])
    return markdown(["learning rate", "weight decay", "validation accuracy, %"], lines)


EXPERIMENT = Experiment(
    "tuning",
    """
This table shows how the recipe `cifar-decoded` was chosen: ResNet-56 on CIFAR-10 at eps 20, one decoded release of each
image, one run for each pair of learning rate and weight decay. The epoch and the pair are chosen on 5,000 held-out
training images; the test set is not used. An accuracy of 78 % on 5,000 images has a standard error of 0.6 points, so
most of these pairs may be equally good.
""",
    measure,
    table,
)
