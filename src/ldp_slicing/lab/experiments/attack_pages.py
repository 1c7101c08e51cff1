"""What the experiments with reconstruction attacks share: targets, rows, contact sheets, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ldp_slicing.lab.attacks.attack_target import SETS, AttackTarget, open_target
from ldp_slicing.lab.attacks.contact_sheet import contact_sheet, view_of
from ldp_slicing.lab.attacks.outcome import Examples, Outcome, example_columns, example_sources
from ldp_slicing.lab.experiment import ExperimentContext, RowsByExperiment
from ldp_slicing.lab.interfaces import Attack
from ldp_slicing.lab.mechanism import SlicingMechanism
from ldp_slicing.lab.plans import VIEW_NAMES
from ldp_slicing.lab.rows import Measurement, Row, measurements, plan_name, select
from ldp_slicing.lab.tables import attack_cells, attack_heads, markdown
from ldp_slicing.plan import BUDGETS, Plan
from ldp_slicing.view import Prune, Size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EASY = 200.0  # an attack that fails here, without pruning, is not credible anywhere
TARGETS = (*BUDGETS, EASY)
PRUNED: tuple[Prune, ...] = (None, "haar")
MEAN_IMAGE = "mean-image"  # the method of rows that use no release


def mean_image_rows(experiment: str, context: ExperimentContext, names: Iterable[str] = SETS) -> Iterator[Row]:
    """For each data set, the baseline without a release: the mean of the public images as every reconstruction."""
    for name in names:
        row = Row(experiment, name, MEAN_IMAGE)
        if context.wants(row) and not context.is_done(row):
            target = open_target(name, context.data, context.device)
            found = {"reconstruction": target.score_mean_image(), "originals": target.originals}
            yield replace(row, metrics={key: value for key, value in found.items() if value})


def attack_all(
    experiment: str,
    context: ExperimentContext,
    attack: Attack[AttackTarget, SlicingMechanism, Outcome],
    sheet: Callable[[AttackTarget, Row, Outcome], tuple[str, ...]],
) -> Iterator[Row]:
    """Rows of all data sets, views and budgets for an attack without training; unfinished when the time is up."""
    yield from mean_image_rows(experiment, context)
    for name in SETS:
        rows = [
            Row(experiment, name, plans=(Plan.paper(eps),), prune=prune) for prune in PRUNED for eps in TARGETS[::-1]
        ]
        target = None
        for row in [row for row in rows if context.wants(row) and not context.is_done(row)]:
            if context.limits.reached:
                yield replace(row, finished=False)
                continue
            target = target or open_target(name, context.data, context.device)
            outcome = attack(target, SlicingMechanism(row.plans[0], row.prune))
            done = with_outcome(row, outcome, target)
            context.log(f"{row.label}: SSIM {done.measurements[-1].metrics['reconstruction']['ssim']:.3f}")
            yield replace(done, files=sheet(target, row, outcome))


def with_outcome(row: Row, outcome: Outcome, target: AttackTarget) -> Row:
    """The row with what an attack measured, and for faces with what is recognised on the sources themselves."""
    originals = {"originals": target.originals} if target.originals else {}
    return replace(row, measurements=outcome.measurements, metrics={**outcome.metrics, **originals})


def write_sheet(
    context: ExperimentContext,
    target: AttackTarget,
    name: str,
    prune: Prune,
    examples: Examples,
    unit: str = "eps",
    size: Size = None,
    *,
    low_band: bool = False,
) -> tuple[str, ...]:
    """Add examples to the contact sheet ``name`` and return its file. The work folder keeps earlier examples."""
    context.work.mkdir(parents=True, exist_ok=True)
    context.results.mkdir(parents=True, exist_ok=True)
    kept = context.work / f"{name}.examples.pt"
    known: dict[float, Sequence[Tensor]] = (
        torch.load(kept, map_location="cpu", weights_only=True) if kept.is_file() else {}
    )
    known |= {key: [image.cpu() for image in images] for key, images in examples.items()}
    torch.save(known, kept)
    sources = example_sources(target)
    columns = example_columns(sources, view_of(sources, prune, size), known, unit, low_band=low_band)
    contact_sheet(columns).save(context.results / f"{name}.png")
    return (f"{name}.png",)


def sheet_name(experiment: str, row: Row) -> str:
    """A file name for the contact sheet of a data set and view."""
    return f"{experiment}-{row.dataset}-{'pruned' if row.prune else 'whole'}"


def budget_title(eps: float, prune: Prune) -> str:
    return f"{eps:g} (easy target)" if eps == EASY and prune is None else f"{eps:g}"


def table_of(rows: Sequence[Row], name: str, prune: Prune, by: Callable[[Row], str]) -> str:
    """One data set and view: the baseline without a release, then each budget's release and reconstruction."""
    lines = [["none", "mean of the public images", *attack_cells(guess)] for guess in mean_image(rows, name)]
    found = measurements(rows, dataset=name, prune=prune)
    for row, one in found:
        lines.append([_title(one, prune), "release", *attack_cells(one.metrics["release"])])
        lines.append(["", by(row), *attack_cells(one.metrics["reconstruction"])])
    if not found:
        return ""
    heads = ["eps per released pixel", "image", *attack_heads(faces=name == "lfw")]
    return f"**{SETS[name]}, {VIEW_NAMES[prune]}**\n\n{markdown(heads, lines)}{originals_note(rows, name)}"


def _title(one: Measurement, prune: Prune) -> str:
    return budget_title(one.plan.epsilon, prune) if one.plan else "-"


def mean_image(rows: Sequence[Row], name: str) -> list[Any]:
    """Metrics of the baseline that uses no release, where they were measured."""
    return [row.metrics["reconstruction"] for row in select(rows, dataset=name, method=MEAN_IMAGE)]


def originals_note(rows: Sequence[Row], name: str) -> str:
    """What the recogniser finds on the sources themselves."""
    found = next((row.metrics["originals"] for row in select(rows, dataset=name) if "originals" in row.metrics), None)
    if not found:
        return "\n"
    verified, first = found["verification"], found["rank_1"]
    return (
        f"\nOn the sources themselves, rank-1 identification is {100 * first['share']:.1f} % in a gallery of "
        f"{found['gallery']} people (chance: {100 / found['gallery']:.2f} %) and verification accuracy "
        f"{100 * verified['accuracy']:.2f} %. Same person: the squared distance between the embeddings of source and "
        f"reconstruction is at most {found['same_person']['radius']:.3f}, the recogniser's threshold for sources. "
        "Cosine distance: the mean of 1 - cosine between these embeddings; 0 for the source itself.\n\n"
    )


def _over_eps(
    rows: Sequence[Row], name: str, prune: Prune, part: str, metric: str
) -> dict[float, tuple[float, float, float]]:
    """eps of the paper's plan to a metric of the release or the reconstruction, by the network for most plans.

    The second and third number are the ends of its 95 % interval, if it is a share; if not, they repeat the first.
    """
    found = measurements(rows, dataset=name, prune=prune)
    points: dict[float, tuple[float, float, float]] = {}
    for _, one in sorted(found, key=lambda pair: (-len(pair[0].plans), pair[1].releases)):
        value = one.metrics[part].get(metric)
        if one.plan and plan_name(one.plan) == "paper":
            ends = [value[end] for end in ("share", "low_95", "high_95")] if isinstance(value, dict) else 3 * [value]
            points.setdefault(one.plan.epsilon, (ends[0], ends[1], ends[2]))
    return dict(sorted(points.items()))


SHOWN = (
    ("cifar10", "ssim", "SSIM", SETS["cifar10"]),
    ("lfw", "ssim", "SSIM", SETS["lfw"]),
    ("lfw", "rank_1", "rank-1 identification, %", f"{SETS['lfw']}, 95 % intervals"),
)


def figure_of(name: str, rows: RowsByExperiment) -> Figure:
    """SSIM on both data sets and rank-1 identification on LFW over eps. Dotted: releases. Solid: reconstructions.

    A data set that was not attacked has no panel.
    """
    from ldp_slicing.lab.figures import COLOURS, budget_ticks, legend, panels

    shown = [one for one in SHOWN if measurements(rows[name], dataset=one[0])] or SHOWN
    drawn, axes = panels(len(shown))
    for axis, (dataset, metric, words, title) in zip(axes, shown, strict=True):
        scale = 100 if metric == "rank_1" else 1
        for prune, colour in zip(PRUNED, COLOURS, strict=False):
            for part, style in (("reconstruction", "-"), ("release", ":")):
                points = _over_eps(rows[name], dataset, prune, part, metric)
                if not points:
                    continue
                middle, low, high = scale * np.array(list(points.values())).T
                errors = {"yerr": (middle - low, high - middle), "capsize": 2} if metric == "rank_1" else {}
                look = {"color": colour, "linestyle": style, "marker": "o", "markersize": 3.5}
                axis.errorbar(list(points), middle, label=f"{part}, {VIEW_NAMES[prune]}", **look, **errors)
        for guess in mean_image(rows[name], dataset):
            value = guess[metric]["share"] if isinstance(guess[metric], dict) else guess[metric]
            axis.axhline(scale * value, color="0.6", linewidth=1, label="no release: mean of the public images")
        budget_ticks(axis, TARGETS)
        limits = (-0.02 * scale, 1.02 * scale)
        axis.set(title=title, xlabel="eps per released pixel", ylabel=words, ylim=limits)
        legend(axis)
    return drawn
