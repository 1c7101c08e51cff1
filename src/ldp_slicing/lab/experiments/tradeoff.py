"""Accuracy against leakage for every plan and budget, to choose a plan by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ldp_slicing.lab.attacks.attack_target import open_target
from ldp_slicing.lab.attacks.reconstruct import reconstruct_sources
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment, train_all, with_recipe
from ldp_slicing.lab.experiments.attack_pages import mean_image
from ldp_slicing.lab.experiments.curves import HELD_OUT
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.plans import (
    CANDIDATES,
    DEDICATED,
    TASK,
    VIEW_NAMES,
    VIEWS,
    Family,
    Point,
    best,
    leakage_of,
    learners_of,
    paper_at_equal_leakage,
    points,
)
from ldp_slicing.lab.rows import Measurement, Row, plan_name
from ldp_slicing.lab.tables import markdown, metric, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAMILIES: dict[Family, str] = {
    "paper": "paper's plan",
    "thick": "one thick slice",
    "single": "the same bits as one-bit slices",
}


def measure(context: ExperimentContext) -> Iterator[Row]:
    yield from _learners(context)
    yield from _adversaries(context)


def _learners(context: ExperimentContext) -> Iterator[Row]:
    images, how = load_cifar(TASK, context.data), recipe("cifar-fast")
    held_out = min(HELD_OUT, len(images.train.labels) // 4)
    rows = [
        Row("tradeoff", TASK, "learner", plans=(one.plan,), prune=one.prune, release="once", mode="decoded")
        for one in CANDIDATES
    ]
    yield from train_all([context.trial(row, images, how, validation=held_out) for row in rows], context)


def _adversaries(context: ExperimentContext) -> Iterator[Row]:
    """One network for all plans of a view, told the flip probability of every bit; and one for each of some plans."""
    alone, wanted = recipe("white-box-cifar"), list[tuple[Row, Recipe]]()
    for prune in VIEWS:
        if plans := tuple(one.plan for one in CANDIDATES if one.prune == prune):
            how = replace(  # the same number of steps for each view, and of images for each plan
                alone, name=f"{alone.name}-{len(plans)}-plans", epochs=3 * len(plans), batch=16 * len(plans)
            )
            wanted.append((Row("tradeoff", TASK, "adversary", plans=plans, prune=prune), how))
    for one in DEDICATED:
        if one in CANDIDATES:
            wanted.append((Row("tradeoff", TASK, "adversary", plans=(one.plan,), prune=one.prune), alone))
    rows = [with_recipe(row, context.shortened(how)) for row, how in wanted]
    if all(context.is_done(row) for row in rows if context.wants(row)):
        return
    target = open_target(TASK, context.data, context.device)

    def finish(run: TrainingRun, row: Row) -> Row:
        found = []
        for plan in row.plans:
            found.append(Measurement(target.score(reconstruct_sources(run, target.sources, plan)), plan))
        return replace(row, measurements=tuple(found))

    trials = [context.trial(row, target.training_set, how) for row, (_, how) in zip(rows, wanted, strict=True)]
    yield from train_all(trials, context, finish)


def table(rows: Sequence[Row]) -> str:
    found = points(rows)
    front = best(found)
    lines = [
        [
            plan_name(one.candidate.plan),
            f"{one.epsilon:g}",
            VIEW_NAMES[one.candidate.prune],
            f"{100 * one.test_accuracy:.2f}",
            f"{100 * one.validation_accuracy:.2f}",
            f"{one.leakage:.3f}",
            _three(one.dedicated_leakage),
            _paper(one, found),
            "*" if one in front else "",
        ]
        for one in found
    ]
    heads = [
        "plan",
        "eps per released pixel",
        "view",
        "test accuracy, %",
        "validation accuracy, %",
        "leakage (SSIM)",
        "leakage, dedicated network",
        "paper's plan at equal leakage: eps, test accuracy (%)",
        "Pareto front",
    ]
    apart = [one.dedicated_leakage - one.leakage for one in found if one.dedicated_leakage is not None]
    gain = f"\nA dedicated network raises the SSIM by {min(apart):.3f} to {max(apart):.3f}.\n" if apart else ""
    return markdown(heads, lines) + gain + _not_attacked(rows, found)


def _paper(one: Point, found: Sequence[Point]) -> str:
    there = paper_at_equal_leakage(one, found) if one.candidate.slices else None
    return "-" if there is None else f"{there[0]:.0f}, {100 * there[1]:.0f}"


def _not_attacked(rows: Sequence[Row], found: Sequence[Point]) -> str:
    """Plans that no network for several plans was trained for."""
    shown = [one.candidate for one in found]
    lines = [
        [
            plan_name(one.plan),
            f"{one.plan.epsilon:g}",
            VIEW_NAMES[one.prune],
            spread(metric(learners, "test_accuracy")),
            _three(leakage_of(one, rows, dedicated=True)),
        ]
        for one in CANDIDATES
        if one not in shown and (learners := learners_of(one, rows))
    ]
    if not lines:
        return ""
    heads = ["plan", "eps per released pixel", "view", "test accuracy, %", "leakage, dedicated network"]
    note = "These plans were not attacked by the network for all plans of a view. Detail x 4: `--prune haar4`."
    return f"\n{note}\n\n{markdown(heads, lines)}"


def _three(leakage: float | None) -> str:
    return "-" if leakage is None else f"{leakage:.3f}"


def figure(rows: RowsByExperiment) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, budget_ticks, label_points, legend, panels

    drawn, (by_leakage, by_epsilon) = panels(2, width=5.4)
    by_leakage.set_xscale("linear")
    found = points(rows["tradeoff"])
    colours = dict(zip(FAMILIES, COLOURS, strict=False))
    for family, words in FAMILIES.items():
        for prune, marker in zip(VIEWS, ("s", "o", "^"), strict=True):
            kind = (family, prune)
            some = [one for one in found if (one.candidate.family, one.candidate.prune) == kind]
            some.sort(key=lambda one: one.epsilon)
            if not some:
                continue
            look: dict[str, Any] = {"color": colours[family], "marker": marker, "markersize": 4, "linewidth": 0.7}
            look |= {"linestyle": "-" if family == "paper" else "", "label": f"{words}, {VIEW_NAMES[prune]}"}
            accuracies = [100 * one.test_accuracy for one in some]
            by_leakage.plot([one.leakage for one in some], accuracies, **look)
            by_epsilon.plot([one.epsilon for one in some], accuracies, **look)
    for guess in mean_image(rows.get("white-box", ()), TASK):
        by_leakage.axvline(guess["ssim"], color="0.6", linewidth=1, label="no release: mean of the public images")
    xlabel = "leakage: SSIM of reconstructions (labels: eps)"
    by_leakage.set(title="CIFAR-10: accuracy and leakage, one seed", xlabel=xlabel, ylabel="test accuracy, %")
    xlabel = "eps per released pixel"
    by_epsilon.set(title="CIFAR-10: accuracy and eps, one seed", xlabel=xlabel, ylabel="test accuracy, %")
    budget_ticks(by_epsilon, sorted({one.epsilon for one in found}))
    for axis in (by_leakage, by_epsilon):
        legend(axis)
    front = best(found)  # labelled first, while there is room
    named = [*front, *(one for one in found if one not in front and one.candidate.family == "paper")]
    label_points(
        by_leakage,
        [(one.leakage, 100 * one.test_accuracy, f"{one.epsilon:g}", colours[one.candidate.family]) for one in named],
    )
    return drawn


EXPERIMENT = Experiment(
    "tradeoff",
    """
For each plan, the test accuracy of a ResNet-9 trained on one decoded release of each CIFAR-10 image is compared with
its leakage: the SSIM of the reconstructions by the white-box attack. In the figure, up and to the left is better. One
seed each.

- The learner is small and trained for 12 epochs. A larger network learns more (`curves`).
- One attack network serves all plans of a view. It is told how often each bit flips, but not which bits of a thick
  slice flip together. Some plans were also attacked by a network dedicated to that plan, which is a little stronger.
- `lab choose` compares plans by validation accuracy, so the test set has no influence on the choice.
- The bits of the thick slices were chosen from the pixels of CIFAR-10.
- The column for the paper's plan at equal leakage interpolates between its measured budgets.
""",
    measure,
    table,
    figure,
)
