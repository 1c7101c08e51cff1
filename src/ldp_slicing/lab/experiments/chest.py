"""Pneumonia on chest X-rays, grey at 224 x 224: seven budgets, the view alone, and no privacy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from ldp_slicing.lab.experiments.frame import BUDGETS, Experiment, Findings, Row, Setting, accuracies, markdown, percent, spread, train_all
from ldp_slicing.lab.folders import load_chest
from ldp_slicing.lab.recipes import recipe
from ldp_slicing.lab.run import Run
from ldp_slicing.lab.task import Task
from ldp_slicing.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = (76.60, 88.94, 90.54, 91.99, 92.15, 92.95, 93.43)


def measure(setting: Setting) -> Iterator[Row]:
    images, how = load_chest(setting.data), recipe("chest")
    held = len(images.train.labels) // 10
    tasks = [Task(f"chest-eps{eps:g}", images, how, Plan.grey(eps, 8), validation=held) for eps in reversed(BUDGETS)]
    tasks.append(Task("chest-view", images, how, release="view", validation=held))
    tasks.append(Task("chest-clean", images, how, release="none", validation=held))
    yield from train_all(tasks, setting, judge)


@torch.no_grad()
def judge(run: Run) -> Row:
    """Accuracy, and the mean of the two classes' accuracies, which is 1/2 for a network that always gives one answer."""
    images, labels = run.test
    shares = [run.accuracy(images[labels == kind], labels[labels == kind]) for kind in range(run.task.data.classes)]
    return {"accuracy": run.accuracy(images, labels), "balanced_accuracy": sum(shares) / len(shares)}


def table(rows: Sequence[Row]) -> str:
    def line(name: str, title: str, paper: str) -> list[str]:
        balanced = [row.get("balanced_accuracy") for row in rows if row["run"] == f"chest-{name}" and row["finished"]]
        return [title, spread(accuracies(rows, f"chest-{name}")), percent(balanced[0]) if balanced else "-", paper]

    lines = [line(f"eps{eps:g}", f"{eps:g}", f"{paper:.2f}") for eps, paper in zip(BUDGETS, PAPER, strict=True)]
    lines += [line("view", "pruned, no noise (not private)", "-"), line("clean", "no privacy", "-")]
    return markdown(["eps of a released pixel", "accuracy, one release, %", "mean of both classes, %", "paper, accuracy, %"], lines)


def figure(findings: Findings) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, line, panels

    drawn, (axis,) = panels(1)
    rows = findings["chest"]
    line(axis, {eps: accuracies(rows, f"chest-eps{eps:g}") for eps in BUDGETS}, "one release of each image (ours)", COLOURS[0])
    line(axis, {eps: [value / 100] for eps, value in zip(BUDGETS, PAPER, strict=True)}, "paper", COLOURS[1], "--")
    axis.axhline(62.5, color="0.6", linewidth=1, label="always 'pneumonia'")
    axis.set(title="Chest X-ray, ResNet-50", xlabel="eps of one released pixel, per release (local)", ylabel="test accuracy, %")
    axis.legend(fontsize=7)
    return drawn


EXPERIMENT = Experiment(
    "Pneumonia or not on chest X-rays (Kermany et al. 2018), ResNet-50 from random weights, grey plan without colour weights; "
    "390 of the 624 test images show pneumonia, so that one fixed answer is right for 62.5 %",
    measure,
    table,
    figure,
)
