"""What each part of the mechanism does: ablation A to D and the colour weights, at eps 20, on CIFAR-10."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.experiment import (
    Experiment,
    Findings,
    Row,
    Setting,
    accuracies,
    epochs_of,
    markdown,
    spread,
    train_all,
)
from ldp_slicing.lab.experiments.curves import HELD_OUT
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIANTS: dict[str, tuple[Plan, Prune, str]] = {  # the plan, the pruning, and what it is
    "A": (Plan.paper(20.0), None, "A: without pruning"),
    "B": (Plan.uniform(20.0), "haar", "B: the budget split evenly over the bits"),
    "C": (Plan.paper(20.0), "dct", "C: the DC of 8 x 8 blocks pruned instead"),
    "D": (Plan.paper(20.0), "haar", "D: the paper's mechanism, weights 4:1:1"),
    "2:1:1": (Plan.paper(20.0, (2, 1, 1)), "haar", "weights 2:1:1"),
    "1:1:1": (Plan.paper(20.0, (1, 1, 1)), "haar", "weights 1:1:1"),
}
EPOCHS = 30  # of all variants
PAPER = {"D": 80.36, "2:1:1": 78.44, "1:1:1": 74.92}  # on CIFAR-10; its ablation A to D is on faces only


def measure(setting: Setting) -> Iterator[Row]:
    images, once = (
        load_cifar("cifar10", setting.data),
        replace(recipe("cifar-decoded"), name="cifar-decoded, shorter").lasting(EPOCHS),
    )
    tasks = [
        TrainingTask(f"cifar10-{name}-decoded", images, once, plan, prune, validation=HELD_OUT, decode=True)
        for name, (plan, prune, _) in VARIANTS.items()
    ]
    yield from train_all(tasks, setting)


def table(rows: Sequence[Row]) -> str:
    lines = [
        [
            what,
            {None: "1", "haar": "4", "dct": "64"}[prune] + " x 20",
            spread(accuracies(rows, f"cifar10-{name}-decoded")),
            str(PAPER.get(name, "-")),
        ]
        for name, (_, prune, what) in VARIANTS.items()
    ]
    return markdown(
        [
            "variant, eps 20 per released pixel",
            "eps per source pixel",
            f"CIFAR-10, {_way(rows)}, %",
            "paper, % (250 releases, best test epoch)",
        ],
        lines,
    )


def _way(rows: Sequence[Row]) -> str:
    return ", ".join(
        filter(None, ("one release, decoded", epochs_of(rows, [f"cifar10-{name}-decoded" for name in VARIANTS])))
    )


def figure(findings: Findings) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, bars, legend, panels

    drawn, (axis,) = panels(1, logarithmic=False, width=8)
    found = {
        what: accuracies(findings["ablation"], f"cifar10-{name}-decoded") for name, (_, _, what) in VARIANTS.items()
    }
    bars(
        axis,
        {what: 100 * sum(some) / len(some) for what, some in found.items() if some},
        f"{_way(findings['ablation'])} (ours)",
    )
    said = {VARIANTS[name][2]: value for name, value in PAPER.items() if found[VARIANTS[name][2]]}
    axis.plot(list(said.values()), list(said), "D", color=COLOURS[1], label="paper: 250 releases, best test epoch")
    axis.set(title="CIFAR-10 at eps 20, ResNet-56", xlabel="test accuracy, %", xlim=(0, 100))
    legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "Ablation A to D and colour weights at eps 20, ResNet-56 on CIFAR-10, each image released once and decoded; one run of "
    "each, shorter than in `curves`. Differences as small as those between seeds there say nothing here",
    measure,
    table,
    figure,
)
