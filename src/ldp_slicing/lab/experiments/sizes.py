"""What shrinking before the noise hides: the white box on releases that are smaller than their sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from ldp_slicing.lab.attacks.attack_target import SETS, open_target
from ldp_slicing.lab.attacks.reconstruct import attack_with_network
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment, train_all, with_recipe
from ldp_slicing.lab.experiments.attack_pages import (
    mean_image,
    mean_image_rows,
    originals_note,
    with_outcome,
    write_sheet,
)
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.plans import VIEW_NAMES, Candidate, thick
from ldp_slicing.lab.rows import Metrics, Row, plan_name, select
from ldp_slicing.lab.tables import attack_cells, attack_heads, markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (56, 28, 14)  # of releases of 112 x 112 sources, in pixels
THICK = thick(None, 5.2, "76", "7")
SMALLEST = thick(None, 8.0, "765", "76")  # with three bits of luma and two of each chroma, for the smallest size


def _candidates() -> list[tuple[int, Candidate]]:
    return [*((size, THICK) for size in SIZES), (SIZES[-1], SMALLEST)]


def measure(context: ExperimentContext) -> Iterator[Row]:
    """A network for each size and plan, and the mean of the public images as the baseline without a release."""
    how = recipe("white-box-faces")
    base = with_recipe(Row("sizes", "lfw"), context.shortened(how))
    rows = [replace(base, plans=(one.plan,), prune=one.prune, options={"size": size}) for size, one in _candidates()]
    yield from mean_image_rows("sizes", context, ("lfw",))
    if all(context.is_done(row) for row in rows if context.wants(row)):
        return
    target = open_target("lfw", context.data, context.device)
    trials = [context.trial(row, target.training_set, how, size=int(row.options["size"])) for row in rows]

    def finish(run: TrainingRun, row: Row) -> Row:
        outcome = attack_with_network(run, target)
        done = with_outcome(row, outcome, target)
        name = f"sizes-lfw-{row.options['size']}"
        return replace(done, files=write_sheet(context, target, name, None, outcome.examples, size=run.task.size))

    yield from train_all(trials, context, finish)


def image_epsilon(row: Row) -> float:
    """The realised eps of a whole release, which is the bound for everything that it shows."""
    side = int(row.options["size"])
    return side * side * row.plans[0].realised_epsilon


def table(rows: Sequence[Row]) -> str:
    lines = [["none", "", "", "", "mean of the public images", *attack_cells(one)] for one in mean_image(rows, "lfw")]
    measured = [row for row in select(rows, dataset="lfw") if row.measurements]
    for row in sorted(measured, key=lambda row: (-int(row.options["size"]), row.plans[0].epsilon)):
        side, (plan,), (one,) = row.options["size"], row.plans, row.measurements
        what = f"{plan_name(plan)}, {VIEW_NAMES[row.prune]}"
        told = [f"{side} x {side}", what, f"{plan.epsilon:g}", f"{image_epsilon(row):,.0f}"]
        lines.append([*told, "release", *attack_cells(one.metrics["release"])])
        lines.append(["", "", "", "", "reconstruction", *attack_cells(one.metrics["reconstruction"])])
    heads = ["size", "plan", "eps per released pixel", "eps per image", "image", *attack_heads(faces=True)]
    return f"**{SETS['lfw']}, shrunk before the noise**\n\n{markdown(heads, lines)}{originals_note(rows, 'lfw')}"


def _ends(metric: str, found: Metrics) -> tuple[float, float]:
    """The ends of the error bar of a metric of the recogniser: its 95 % interval, or two standard errors."""
    if metric == "rank_1":
        return found["low_95"], found["high_95"]
    return found["accuracy"] - 2 * found["standard_error"], found["accuracy"] + 2 * found["standard_error"]


def figure(rows: RowsByExperiment) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, legend, panels

    drawn, axes = panels(2)
    shown = (
        ("rank_1", "share", "rank-1 identification, %", "95 % intervals"),
        ("verification", "accuracy", "verification accuracy, %", "± 2 standard errors"),
    )
    for axis, (metric, field, words, errors) in zip(axes, shown, strict=True):
        for (size, one), colour in zip(_candidates(), cycle(COLOURS), strict=False):
            measured = select(rows["sizes"], size=size, plan=one.plan, prune=one.prune)
            found = [row.measurements[0].metrics["reconstruction"][metric] for row in measured]
            values = np.array([one[field] for one in found])
            low, high = np.array([_ends(metric, one) for one in found]).reshape(-1, 2).T
            axis.errorbar(
                [image_epsilon(row) for row in measured],
                100 * values,
                yerr=(100 * (values - low), 100 * (high - values)),
                color=colour,
                linestyle="",
                marker="o",
                markersize=3.5,
                capsize=2,
                label=f"{size} x {size}, {plan_name(one.plan)}, eps {one.plan.epsilon:g}",
            )
        for guess in mean_image(rows["sizes"], "lfw"):
            axis.axhline(100 * guess[metric][field], color="0.6", linewidth=1, label="no release")
        axis.set(title=f"LFW, white box, {errors}", xlabel="eps per image", ylabel=words)
        legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "sizes",
    """
Faces of 112 x 112 pixels are shrunk before the noise (`--max-side`), and the white-box attack reconstructs them at
112 x 112. A released pixel is repeated for each source pixel that it stands for; otherwise network, public images and
attacked people are those of `white-box`. Each network is trained for one size and plan.
""",
    measure,
    table,
    figure,
)
