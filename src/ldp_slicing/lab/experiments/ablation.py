"""What each part of the mechanism contributes: the paper's ablation and its colour weights, on CIFAR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment, train_all, with_recipe
from ldp_slicing.lab.experiments.curves import HELD_OUT, SETS
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
    """A variant of the mechanism, and the paper's accuracies (%) on LFW and, for the colour weights, on CIFAR."""

    title: str
    plan: Plan
    prune: Prune
    paper_lfw: float
    paper_cifar10: float | None = None
    paper_cifar100: float | None = None

    @property
    def per_source_pixel(self) -> str:
        """The eps per source pixel as a product, such as "4 x 20"."""
        return f"{block_of(self.prune) ** 2} x {self.plan.epsilon:g}"

    def paper(self, name: str) -> float | None:
        return {"cifar10": self.paper_cifar10, "cifar100": self.paper_cifar100}[name]


VARIANTS = (  # the paper's ablation A to D is on faces only
    Variant("A: without pruning", Plan.paper(EPS), None, 99.77),
    Variant("B: uniform budget", Plan.uniform(EPS), "haar", 99.35),
    Variant("B as in the authors' code: eps 20 for each of the 24 bits", Plan.uniform(24 * EPS), "haar", 99.35),
    Variant("C: DC of 8 x 8 blocks pruned", Plan.paper(EPS), "dct", 99.53),
    Variant("D: the paper's mechanism, weights 4:1:1", Plan.paper(EPS), "haar", 99.75, 80.36, 53.55),
    Variant("weights 2:1:1", Plan.paper(EPS, (2, 1, 1)), "haar", 99.63, 78.44, 50.63),
    Variant("weights 1:1:1", Plan.paper(EPS, (1, 1, 1)), "haar", 99.47, 74.92, 45.16),
)


def measure(context: ExperimentContext) -> Iterator[Row]:
    how, trials = replace(recipe("cifar-decoded"), name="cifar-decoded-short").lasting(EPOCHS), []
    for name in SETS:
        rows = [
            Row("ablation", name, plans=(one.plan,), prune=one.prune, release="once", mode="decoded", seed=seed)
            for seed in range(SEEDS)
            for one in VARIANTS
        ]
        if context.wants_any(with_recipe(row, how) for row in rows):
            images = load_cifar(name, context.data)
            trials += [context.trial(row, images, how, validation=HELD_OUT) for row in rows]
    yield from train_all(trials, context)


def accuracies(rows: Sequence[Row], variant: Variant, name: str) -> list[float]:
    """Test accuracies on the data set ``name``, one for each seed."""
    return metric(select(rows, dataset=name, plan=variant.plan, prune=variant.prune), "test_accuracy")


def table(rows: Sequence[Row]) -> str:
    measured = [name for name in SETS if select(rows, dataset=name)] or ["cifar10"]
    lines = []
    for one in VARIANTS:
        cells = []
        for name in measured:
            values, paper = accuracies(rows, one, name), one.paper(name)
            cells += [spread(values), "-" if paper is None else f"{paper:.2f}"]
        if set(cells) != {"-"}:
            lines.append([one.title, f"{one.plan.epsilon:g}", one.per_source_pixel, *cells])
    trained = ", ".join(filter(None, ("decoded", epochs_of(select(rows)))))
    heads = ["variant", "eps per released pixel", "eps per source pixel"]
    for name in measured:
        heads += [f"{SETS[name]}, test accuracy, {trained}, %", "paper, % (250 x eps, best test epoch)"]
    return markdown(heads, lines)


def figure(rows: RowsByExperiment) -> Figure:
    """Mean test accuracy over seeds, from the lowest to the highest, beside the eps per source pixel."""
    from ldp_slicing.lab.figures import COLOURS, bars, legend, panels

    measured = [name for name in SETS if select(rows["ablation"], dataset=name)] or ["cifar10"]
    drawn, axes = panels(len(measured), logarithmic=False, width=8 if len(measured) == 1 else 5.5)
    for axis, name in zip(axes, measured, strict=True):
        found = {one: values for one in VARIANTS if (values := accuracies(rows["ablation"], one, name))}
        titles = {one: f"{one.title}\neps {one.per_source_pixel} per source pixel" for one in found}
        axis.set(
            title=f"{SETS[name]}, ResNet-56, nominal eps 20",
            xlabel="test accuracy, %",
            xlim=(0, 100),
        )
        shares = {titles[one]: [100 * value for value in values] for one, values in found.items()}
        bars(axis, shares, "one release per image, decoded (ours); lowest to highest seed")
        paper = {titles[one]: value for one in found if (value := one.paper(name)) is not None}
        label = "paper: 250 releases per image, best test epoch"
        axis.plot(list(paper.values()), list(paper), "D", color=COLOURS[1], label=label)
        beside_labels = [one.get_text() for one in axes[0].get_yticklabels()] == list(titles.values())
        axis.tick_params(axis="y", labelsize=8, labelleft=axis is axes[0] or not beside_labels)
        legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "ablation",
    """
This repeats the paper's ablation and its comparison of colour weights at eps 20: ResNet-56 on the data sets in the
table, one decoded release of each image, fewer epochs than in `curves`. Differences as small as those between seeds
mean nothing.

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
