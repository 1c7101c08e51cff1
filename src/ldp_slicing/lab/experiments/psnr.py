"""How far releases are from their sources, in dB, over the seven budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ldp_slicing.comparison_sheet import psnr
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.lfw import load_lfw
from ldp_slicing.lab.experiment import BUDGETS, Experiment, Findings, Row, Setting, markdown
from ldp_slicing.plan import Plan
from ldp_slicing.slicer import Slicer
from ldp_slicing.view import Prune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNT = 2000
PAPER = (6.90, 6.91, 6.94, 7.30, 7.62, 8.51, 9.94)
SETS = {"lfw": "LFW, 112 x 112", "cifar10": "CIFAR-10 test set, 32 x 32"}
VIEWS: dict[str, Prune] = {"pruned": "haar", "whole": None}


def measure(setting: Setting) -> Iterator[Row]:
    for name in SETS:
        if not setting.wants_any(f"{name}-{view}-eps{eps:g}" for view in VIEWS for eps in BUDGETS):
            continue
        images = load_lfw(setting.data).images if name == "lfw" else load_cifar(name, setting.data).test.images
        chosen = images[np.linspace(0, len(images) - 1, min(COUNT, len(images))).astype(int)]
        for view, prune in VIEWS.items():
            for eps in BUDGETS:
                if setting.has(f"{name}-{view}-eps{eps:g}") or not setting.wants(f"{name}-{view}-eps{eps:g}"):
                    continue
                if setting.limits.over:
                    setting.left.append(f"{name}-{view}-eps{eps:g}")
                    continue
                plan = Plan.paper(eps)
                releases = np.asarray(Slicer(plan, prune=prune)(chosen))
                values = [psnr(source, release) for source, release in zip(chosen, releases, strict=True)]
                yield {
                    "run": f"{name}-{view}-eps{eps:g}",
                    "seed": 0,
                    "finished": True,
                    "images": len(chosen),
                    "prune": prune,
                    "epsilon_requested": eps,
                    "epsilon_realised_per_release": plan.realised_epsilon,
                    "psnr_mean_db": float(np.mean(values)),
                    "psnr_standard_deviation_db": float(np.std(values)),
                }
                setting.say(f"{name} {view} eps {eps:g}: {np.mean(values):.2f} dB")


def _mean(rows: Sequence[Row], run: str) -> float | None:
    return next((row["psnr_mean_db"] for row in rows if row["run"] == run), None)


def table(rows: Sequence[Row]) -> str:
    columns = [(name, view) for name in SETS for view in VIEWS]
    lines = []
    for eps, paper in zip(BUDGETS, PAPER, strict=True):
        means = [_mean(rows, f"{name}-{view}-eps{eps:g}") for name, view in columns]
        lines.append([f"{eps:g}", *("-" if mean is None else f"{mean:.2f}" for mean in means), f"{paper:.2f}"])
    titles = {"pruned": "pruned", "whole": "not pruned"}
    return markdown(
        [
            "eps of a released pixel",
            *(f"{SETS[name]}, {titles[view]}, dB" for name, view in columns),
            "paper, faces, dB",
        ],
        lines,
    )


def figure(findings: Findings) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, budget_ticks, legend, panels

    drawn, (axis,) = panels(1)
    for (name, title), colour in zip(SETS.items(), COLOURS, strict=False):
        for (view, words), style in zip((("pruned", "pruned"), ("whole", "not pruned")), ("-", ":"), strict=True):
            means = [_mean(findings["psnr"], f"{name}-{view}-eps{eps:g}") for eps in BUDGETS]
            axis.plot(
                BUDGETS, means, color=colour, linestyle=style, marker="o", markersize=3.5, label=f"{title}, {words}"
            )
    axis.plot(BUDGETS, PAPER, color="0.4", linestyle="--", marker="o", markersize=3.5, label="paper, faces, pruned")
    budget_ticks(axis, BUDGETS)
    axis.set(title="Release and source", xlabel="eps of one released pixel, per release (local)", ylabel="PSNR, dB")
    legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "PSNR between an image and its release, the mean over 2,000 images of each set", measure, table, figure
)
