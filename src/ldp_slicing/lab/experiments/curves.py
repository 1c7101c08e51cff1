"""The honest curves: each image released once, every budget, ResNet-56; the epoch chosen on images held out of the training set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ldp_slicing.lab.data import ImageSet, load
from ldp_slicing.lab.experiments.dpsgd import PAPER as PAPER_DP_SGD
from ldp_slicing.lab.experiments.frame import BUDGETS, Experiment, Findings, Row, Setting, accuracies, markdown, spread, train_all
from ldp_slicing.lab.recipes import Recipe, recipe
from ldp_slicing.lab.task import Task
from ldp_slicing.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
HELD_OUT = 5000
SEEDS = {5.2: 3, 12.0: 3, 20.0: 3}
THICK = {3.5: "Y7+Y4", 5.2: "Y7+Y4+Cb7+Cr7"}  # one slice of these bits: what `tradeoff` found with a smaller network, by this one
LONG = 120  # epochs, or twice the recipe's if that is more, of the run that shows what the schedule costs
PAPER = {  # read off the authors' figures: noise per epoch (250 x eps), best epoch on the test set
    "cifar10": (12, 21, 45.5, 75, 80.4, 86, 88.6),
    "cifar100": (2, 6, 20, 44, 53.6, 58, 62.3),
}
PAPER_CLEAN = {"cifar10": 92.3, "cifar100": 70.9}


WAYS = {"-decoded": "decoded", "": "as it comes"}  # what the learner does with a release


def measure(setting: Setting) -> Iterator[Row]:
    sets = {name: load(name, setting.data) for name in SETS}
    tasks = []
    for way in WAYS:
        short = recipe("cifar-decoded" if way else "cifar-once")
        long = replace(short, name=f"{short.name}, longer", epochs=max(LONG, 2 * short.epochs))
        tasks.append(_task(f"cifar10-eps20-longer{way}", sets["cifar10"], long, Plan.paper(20.0)))  # first: the longest
        for name, images in sets.items():
            for eps in sorted(BUDGETS, key=lambda e: abs(e - 20)):
                tasks += [_task(f"{name}-eps{eps:g}{way}", images, short, Plan.paper(eps), seed) for seed in (0, 1, 2)[: SEEDS.get(eps, 1)]]
    short = recipe("cifar-decoded")
    tasks += [_task(f"cifar10-thick{eps:g}-decoded", sets["cifar10"], short, Plan.sliced(eps, slices)) for eps, slices in THICK.items()]
    for name, images in sets.items():
        tasks.append(Task(f"{name}-clean", images, recipe("cifar-once"), release="none", validation=HELD_OUT))
    yield from train_all(tasks, setting)


def _task(name: str, images: ImageSet, how: Recipe, plan: Plan, seed: int = 0) -> Task:
    return Task(name, images, how, plan, seed=seed, validation=HELD_OUT, decode=name.endswith("-decoded"))


def table(rows: Sequence[Row]) -> str:
    done = [row["run"] for row in rows if row["finished"]]
    ways = {way: words for way, words in WAYS.items() if any(run.endswith("-decoded") == bool(way) for run in done)} or WAYS
    parts = []
    for name, title in SETS.items():

        def line(words: str, run: str, paper: str = "-") -> list[str]:
            found = [spread(accuracies(rows, run + way)) for way in ways]
            epochs = {str(row["epochs_done"]) for row in rows if row["run"] in [run + way for way in ways] and row["finished"]}
            return [words, ", ".join(sorted(epochs)) or "-", *found, paper]

        lines = [line(f"{eps:g}", f"{name}-eps{eps:g}", str(paper)) for eps, paper in zip(BUDGETS, PAPER[name], strict=True)]
        lines += [line("20, longer", f"{name}-eps20-longer")]
        lines += [line(f"{eps:g}, {slices} as one", f"{name}-thick{eps:g}") for eps, slices in THICK.items()]
        lines = [cells for cells in lines if cells[0] in map("{:g}".format, BUDGETS) or set(cells[2:-1]) != {"-"}]
        lines.append(line("no privacy", f"{name}-clean", str(PAPER_CLEAN[name])))
        heads = ["eps of a released pixel", "epochs", *(f"{title}, one release, {words}, %" for words in ways.values())]
        parts.append(markdown([*heads, "paper, % (250 releases: 250 x eps, best test epoch)"], lines))
    return "\n".join(parts)


def figure(findings: Findings) -> Figure:
    """One panel per unit of eps: a released pixel for ours, a whole image for DP-SGD."""
    from ldp_slicing.lab.figures import COLOURS, legend, line, panels

    rows, central = findings["curves"], findings.get("dp-sgd", ())
    drawn, axes = panels(3 if central else 2)
    for axis, (name, title) in zip(axes, SETS.items(), strict=False):
        for (way, words), colour in zip(WAYS.items(), (COLOURS[0], COLOURS[3]), strict=True):
            found = {eps: accuracies(rows, f"{name}-eps{eps:g}{way}") for eps in BUDGETS}
            if any(found.values()):
                line(axis, found, f"one release of each image, {words} (ours)", colour)
        line(
            axis,
            {eps: [value / 100] for eps, value in zip(BUDGETS, PAPER[name], strict=True)},
            "paper: 250 releases, best test epoch",
            COLOURS[1],
            "--",
        )
        for clean in accuracies(rows, f"{name}-clean"):
            axis.axhline(100 * clean, color="0.6", linewidth=1, label="no privacy (ours)")
        axis.set(title=f"{title}, ResNet-56", xlabel="eps of one released pixel, per release (local)")
    if central:
        axis = axes[2]
        line(axis, {eps: accuracies(central, f"cifar10-eps{eps:g}") for eps in BUDGETS}, "DP-SGD on scattering features (ours)", COLOURS[2])
        line(axis, {eps: [value / 100] for eps, value in zip(BUDGETS, PAPER_DP_SGD, strict=True)}, "DP-SGD in the paper", COLOURS[1], "--")
        axis.set(title="CIFAR-10, DP-SGD", xlabel="eps of one whole image (central, delta 1e-10)")
    for axis in axes:
        axis.set(ylabel="test accuracy, %", ylim=(0, 100))
        legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "Each image released once, all seven budgets, ResNet-56; 5,000 training images are held out to choose the epoch, "
    "the test set (released once, too) is looked at once. The row called longer shows what the schedule costs. Decoded: the learner knows "
    "the plan and learns from the values to expect "
    "(`ldp_slicing.torch.Decoder`), which needs nothing but the releases",
    measure,
    table,
    figure,
)
