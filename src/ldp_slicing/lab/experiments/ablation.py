"""What each part of the mechanism contributes: the paper's ablation and its colour weights, on CIFAR-10."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment, train_all
from ldp_slicing.lab.experiments.curves import HELD_OUT
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.rows import Row, select
from ldp_slicing.lab.tables import epochs_of, markdown, metric, spread
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune, block_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPS = 20.0
EPOCHS = 30
SEEDS = 3


@dataclass(frozen=True)
class Variant:
    """A variant of the mechanism, and the paper's accuracies (%) on CIFAR-10 and LFW."""

    title: str
    plan: Plan
    prune: Prune
    paper_cifar10: float | None
    paper_lfw: float


VARIANTS = (  # the paper's ablation A to D is on faces only
    Variant("A: without pruning", Plan.paper(EPS), None, None, 99.77),
    Variant("B: uniform budget", Plan.uniform(EPS), "haar", None, 99.35),
    Variant("B as in the authors' code: eps 20 for each of the 24 bits", Plan.uniform(24 * EPS), "haar", None, 99.35),
    Variant("C: DC of 8 x 8 blocks pruned", Plan.paper(EPS), "dct", None, 99.53),
    Variant("D: the paper's mechanism, weights 4:1:1", Plan.paper(EPS), "haar", 80.36, 99.75),
    Variant("weights 2:1:1", Plan.paper(EPS, (2, 1, 1)), "haar", 78.44, 99.63),
    Variant("weights 1:1:1", Plan.paper(EPS, (1, 1, 1)), "haar", 74.92, 99.47),
)


def measure(context: ExperimentContext) -> Iterator[Row]:
    images = load_cifar("cifar10", context.data)
    how = replace(recipe("cifar-decoded"), name="cifar-decoded-short").lasting(EPOCHS)
    rows = [
        Row("ablation", "cifar10", plans=(one.plan,), prune=one.prune, release="once", mode="decoded", seed=seed)
        for seed in range(SEEDS)
        for one in VARIANTS
    ]
    yield from train_all([context.trial(row, images, how, validation=HELD_OUT) for row in rows], context)


def accuracies(rows: Sequence[Row], variant: Variant) -> list[float]:
    return metric(select(rows, plan=variant.plan, prune=variant.prune), "test_accuracy")


def table(rows: Sequence[Row]) -> str:
    lines = [
        [
            one.title,
            f"{one.plan.epsilon:g}",
            f"{block_of(one.prune) ** 2} x {one.plan.epsilon:g}",
            spread(values),
            "-" if one.paper_cifar10 is None else f"{one.paper_cifar10:.2f}",
        ]
        for one in VARIANTS
        if (values := accuracies(rows, one))
    ]
    trained = ", ".join(filter(None, ("decoded", epochs_of(select(rows)))))
    heads = [
        "variant",
        "eps per released pixel",
        "eps per source pixel",
        f"test accuracy, {trained}, %",
        "paper, % (250 x eps, best test epoch)",
    ]
    return markdown(heads, lines)


def figure(rows: RowsByExperiment) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, bars, legend, panels

    drawn, (axis,) = panels(1, logarithmic=False, width=8)
    found = {one: values for one in VARIANTS if (values := accuracies(rows["ablation"], one))}
    means = {one.title: 100 * sum(values) / len(values) for one, values in found.items()}
    bars(axis, means, "one release per image, decoded (ours)")
    paper = {one.title: one.paper_cifar10 for one in found if one.paper_cifar10 is not None}
    label = "paper: 250 releases per image, best test epoch"
    axis.plot(list(paper.values()), list(paper), "D", color=COLOURS[1], label=label)
    axis.set(title="CIFAR-10 at eps 20, ResNet-56", xlabel="test accuracy, %", xlim=(0, 100))
    legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "ablation",
    """
This repeats the paper's ablation and its comparison of colour weights at eps 20: ResNet-56 on CIFAR-10, one decoded
release of each image, fewer epochs than in `curves`. Differences as small as those between seeds mean nothing.

Where this contradicts the paper:

- **DC pruning (C) gives a higher accuracy than Haar pruning (D).** The paper reports the opposite on faces; we find the
  same on LFW as here (`faces`). DC pruning keeps more of the image, and its eps per source pixel is 64 x 20 instead of
  4 x 20.
- **The uniform budget (B) gives a far lower accuracy than D.** The paper reports 99.35 % on LFW, 0.4 points below D.
  Its published code gives each of the 24 bits the whole eps, which spends 24 x eps; ours divides eps by 24.
""",
    measure,
    table,
    figure,
)
