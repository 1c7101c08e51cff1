"""PSNR between releases and their sources over the seven budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.lfw import load_lfw
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment
from ldp_slicing.lab.metrics.images import psnr
from ldp_slicing.lab.plans import VIEW_NAMES
from ldp_slicing.lab.rows import Row, select
from ldp_slicing.lab.tables import markdown
from ldp_slicing.plan import BUDGETS, Plan
from ldp_slicing.slicer import Slicer
from ldp_slicing.view import Prune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNT = 2000
PAPER = (6.90, 6.91, 6.94, 7.30, 7.62, 8.51, 9.94)
SETS = {"lfw": "LFW, 112 x 112", "cifar10": "CIFAR-10 test set, 32 x 32"}
PRUNED: tuple[Prune, ...] = ("haar", None)


def measure(context: ExperimentContext) -> Iterator[Row]:
    for name in SETS:
        rows = [
            Row("psnr", name, plans=(Plan.paper(eps),), prune=prune, release="once")
            for prune in PRUNED
            for eps in BUDGETS
        ]
        pending = [row for row in rows if context.pending(row)]
        if not pending:
            continue
        images = load_lfw(context.data).images if name == "lfw" else load_cifar(name, context.data).test.images
        chosen = images[np.linspace(0, len(images) - 1, min(COUNT, len(images))).astype(int)]
        for row in pending:
            slicer = Slicer(row.plans[0], prune=row.prune)
            pairs = (torch.from_numpy(np.stack((image, np.asarray(slicer(image))))).float() for image in chosen)
            values = [float(psnr(source[None], release[None])) for source, release in pairs]
            context.log(f"{row.label}: {np.mean(values):.2f} dB")
            metrics = {"images": len(chosen), "psnr_db": float(np.mean(values)), "psnr_std_db": float(np.std(values))}
            yield replace(row, metrics=metrics)


def _mean(rows: Sequence[Row], name: str, prune: Prune, eps: float) -> float | None:
    found = select(rows, dataset=name, prune=prune, plan=Plan.paper(eps))
    return found[0].metrics["psnr_db"] if found else None


def table(rows: Sequence[Row]) -> str:
    columns = [(name, prune) for name in SETS for prune in PRUNED]
    lines = []
    for eps, paper in zip(BUDGETS, PAPER, strict=True):
        means = [_mean(rows, name, prune, eps) for name, prune in columns]
        lines.append([f"{eps:g}", *("-" if mean is None else f"{mean:.2f}" for mean in means), f"{paper:.2f}"])
    titles = [f"{SETS[name]}, {VIEW_NAMES[prune]}, dB" for name, prune in columns]
    return markdown(["eps per released pixel", *titles, "paper, faces, dB"], lines)


def figure(rows: RowsByExperiment) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, budget_ticks, legend, panels

    drawn, (axis,) = panels(1)
    for (name, title), colour in zip(SETS.items(), COLOURS, strict=False):
        for prune, style in zip(PRUNED, ("-", ":"), strict=True):
            means = [_mean(rows["psnr"], name, prune, eps) for eps in BUDGETS]
            look = {"color": colour, "linestyle": style, "marker": "o", "markersize": 3.5}
            axis.plot(BUDGETS, means, label=f"{title}, {VIEW_NAMES[prune]}", **look)
    axis.plot(BUDGETS, PAPER, color="0.4", linestyle="--", marker="o", markersize=3.5, label="paper, faces, pruned")
    budget_ticks(axis, BUDGETS)
    axis.set(title="Release and source", xlabel="eps per released pixel", ylabel="PSNR, dB")
    legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "psnr", "PSNR between a source and its release, mean over 2,000 images of each data set.", measure, table, figure
)
