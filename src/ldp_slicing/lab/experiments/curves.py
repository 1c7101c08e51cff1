"""The honest curves: each image released once, every budget, ResNet-56; the epoch chosen on images held out of the training set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ldp_slicing.lab.data import load
from ldp_slicing.lab.experiments.dpsgd import PAPER as PAPER_DP_SGD
from ldp_slicing.lab.experiments.frame import BUDGETS, Experiment, Findings, Row, Setting, accuracies, markdown, spread, train_all
from ldp_slicing.lab.recipes import recipe
from ldp_slicing.lab.task import Task
from ldp_slicing.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
HELD_OUT = 5000
MORE_SEEDS = (5.2, 12.0, 20.0)
THICK = {3.5: "Y7+Y4", 5.2: "Y7+Y4+Cb7+Cr7"}  # one slice of these bits: what `tradeoff` found with a smaller network, by this one
LONG = 120  # epochs of the run that shows what the schedule costs
PAPER = {  # read off the authors' figures: noise per epoch (250 x eps), best epoch on the test set
    "cifar10": (12, 21, 45.5, 75, 80.4, 86, 88.6),
    "cifar100": (2, 6, 20, 44, 53.6, 58, 62.3),
}
PAPER_CLEAN = {"cifar10": 92.3, "cifar100": 70.9}


def measure(setting: Setting) -> Iterator[Row]:
    short = recipe("cifar-once")
    long = replace(short, name="cifar-once, longer", epochs=LONG)
    sets = {name: load(name, setting.data) for name in SETS}
    tasks = []
    for name, images in sets.items():
        tasks += [
            Task(f"{name}-eps{eps:g}", images, short, Plan.paper(eps), validation=HELD_OUT)
            for eps in sorted(BUDGETS, key=lambda e: abs(e - 20))
        ]
        tasks.append(Task(f"{name}-clean", images, short, release="none", validation=HELD_OUT))
    tasks.append(Task("cifar10-eps20-longer", sets["cifar10"], long, Plan.paper(20.0), validation=HELD_OUT))
    for seed in (1, 2):
        for name, images in sets.items():
            tasks += [Task(f"{name}-eps{eps:g}", images, short, Plan.paper(eps), seed=seed, validation=HELD_OUT) for eps in MORE_SEEDS]
    tasks += [
        Task(f"cifar10-thick{eps:g}", sets["cifar10"], short, Plan.sliced(eps, slices), validation=HELD_OUT)
        for eps, slices in THICK.items()
    ]
    yield from train_all(tasks, setting)


def table(rows: Sequence[Row]) -> str:
    parts = []
    for name, title in SETS.items():
        lines = [
            [f"{eps:g}", _epochs(rows, f"{name}-eps{eps:g}"), spread(accuracies(rows, f"{name}-eps{eps:g}")), str(paper)]
            for eps, paper in zip(BUDGETS, PAPER[name], strict=True)
        ]
        if longer := accuracies(rows, f"{name}-eps20-longer"):
            lines.append(["20", _epochs(rows, f"{name}-eps20-longer"), spread(longer), "-"])
        for eps, slices in THICK.items():
            if thick := accuracies(rows, f"{name}-thick{eps:g}"):
                lines.append([f"{eps:g}, {slices} as one", _epochs(rows, f"{name}-thick{eps:g}"), spread(thick), "-"])
        lines.append(["no privacy", _epochs(rows, f"{name}-clean"), spread(accuracies(rows, f"{name}-clean")), str(PAPER_CLEAN[name])])
        heads = ["eps of a released pixel", "epochs", f"{title}, one release, %", "paper, % (250 releases: 250 x eps, best test epoch)"]
        parts.append(markdown(heads, lines))
    return "\n".join(parts)


def _epochs(rows: Sequence[Row], run: str) -> str:
    """How long the finished runs of that name were trained."""
    return ", ".join(sorted({str(row["epochs_done"]) for row in rows if row["run"] == run and row["finished"]})) or "-"


def figure(findings: Findings) -> Figure:
    """One panel per unit of eps: a released pixel for ours, a whole image for DP-SGD."""
    from ldp_slicing.lab.figures import COLOURS, legend, line, panels

    rows, central = findings["curves"], findings.get("dp-sgd", ())
    drawn, axes = panels(3 if central else 2)
    for axis, (name, title) in zip(axes, SETS.items(), strict=False):
        found = {eps: accuracies(rows, f"{name}-eps{eps:g}") for eps in BUDGETS}
        line(axis, found, "one release of each image (ours)", COLOURS[0])
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
    "the test set (released once, too) is looked at once",
    measure,
    table,
    figure,
)
