"""Accuracy against leakage: every plan and budget is a point, so that a plan can be chosen by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ldp_slicing.lab.attacks.case import TOGETHER, open_case
from ldp_slicing.lab.attacks.reconstruct import Reconstruction
from ldp_slicing.lab.data import load
from ldp_slicing.lab.experiments import curves
from ldp_slicing.lab.experiments.frame import BUDGETS, Experiment, Findings, Row, Setting, accuracies, markdown, train_all
from ldp_slicing.lab.experiments.leakage import VIEWS, WORDS, blind
from ldp_slicing.lab.recipes import recipe
from ldp_slicing.lab.run import Run
from ldp_slicing.lab.task import Task
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASK = "cifar10"
CHANCE = 0.1
FAMILIES = {"paper": "the paper's plan", "thick": "a few bits as one"}


# One slice, of these bits of Y and of these of Cb and of Cr. Around 128, where a pruned view is, the bits just below the highest repeat it:
# the sign is in bit 7, the size in bits 5 to 3.
THICK: dict[str, tuple[tuple[float, str, str], ...]] = {
    "whole": ((1, "7", ""), (2.4, "7", ""), (2.4, "76", ""), (3.5, "76", ""), (5.2, "765", ""), (5.2, "76", "7"), (12, "76543", "765")),
    "pruned": ((1, "7", ""), (2.4, "7", ""), (2.4, "74", ""), (3.5, "74", ""), (5.2, "754", ""), (5.2, "74", "7"), (12, "765432", "732")),
}


def _thick(epsilon: float, y: str, chroma: str) -> Plan:
    """Some bits of Y, and of Cb and Cr, as one symbol; the others are dropped."""
    return Plan.sliced(epsilon, "+".join(f"{channel}{bit}" for channel, some in (("Y", y), ("Cb", chroma), ("Cr", chroma)) for bit in some))


def _plans() -> dict[str, tuple[Plan, Prune]]:
    plans: dict[str, tuple[Plan, Prune]] = {}
    for view, prune in VIEWS.items():
        plans |= {f"paper-{view}-eps{eps:g}": (Plan.paper(eps), prune) for eps in BUDGETS}
        plans |= {f"thick-{view}-eps{eps:g}-y{y}{'c' * bool(c)}{c}": (_thick(eps, y, c), prune) for eps, y, c in THICK[view]}
    return plans


PLANS = _plans()


@dataclass(frozen=True)
class Point:
    """A plan, what a learner gets from its releases (accuracy) and what an adversary gets (SSIM of its reconstructions)."""

    name: str
    plan: Plan
    prune: Prune
    accuracy: float
    leakage: float

    @property
    def slices(self) -> str:
        """As ``Plan.sliced`` and ``--slices`` take them; "" for the paper's."""
        return "" if self.name.startswith("paper") else ",".join(self.plan.slice_name(part) for part in self.plan.slices)

    @property
    def command(self) -> str:
        slices = f" --slices {self.slices}" * bool(self.slices)
        return f"ldp-slicing privatize SRC DST --epsilon {self.plan.epsilon:g}{slices} --prune {self.prune or 'none'}"

    @property
    def code(self) -> str:
        """How it is used from Python."""
        plan = f'Plan.sliced({self.plan.epsilon:g}, "{self.slices}")' if self.slices else f"Plan.paper({self.plan.epsilon:g})"
        return f"Slicer({plan}, prune={self.prune!r})"


def measure(setting: Setting) -> Iterator[Row]:
    yield from _learners(setting)
    yield from _adversaries(setting)


def _learners(setting: Setting) -> Iterator[Row]:
    images = load(TASK, setting.data)
    held = min(curves.HELD_OUT, len(images.train.labels) // 4)
    tasks = [
        Task(f"{TASK}-{name}-learner", images, recipe("cifar-fast"), plan, prune, validation=held) for name, (plan, prune) in PLANS.items()
    ]
    yield from train_all(tasks, setting)


def _adversaries(setting: Setting) -> Iterator[Row]:
    """One network for all plans of a view, told the flip probability of every bit."""
    how = replace(recipe("white-box-cifar"), name="white-box-cifar, all plans of a view", epochs=40, batch=224)
    runs = {
        f"{TASK}-{view}-adversary": {n: plan for n, (plan, is_like) in PLANS.items() if is_like == prune} for view, prune in VIEWS.items()
    }
    wanted = [run for run, plans in runs.items() if plans and setting.only in run]
    if all(setting.is_done(run, 0, setting.shortened(how)) for run in wanted):
        return
    case = open_case(TASK, setting.data, setting.device)
    tasks = [
        Task(run, case.training_set, how, prune=VIEWS[run.split("-")[1]], release="none", plans=tuple(runs[run].values())) for run in wanted
    ]

    def judge(run: Run) -> Row:
        assert isinstance(run, Reconstruction)  # noqa: S101 - no other is made
        found = []
        for name, plan in runs[run.task.name].items():
            releases = [run.release(part, plan) for part in torch.split(case.sources, TOGETHER)]
            reached = case.judge(torch.cat([run.attack(part, plan) for part in releases]))
            found.append({"plan": name, "epsilon_requested": plan.epsilon, "epsilon_realised_per_release": plan.realised_epsilon} | reached)
        return {"prune": run.task.prune, "steps": run.epoch * run.steps, "found": found}

    yield from train_all(tasks, setting, judge, Reconstruction)


def points(rows: Sequence[Row]) -> list[Point]:
    """Every plan of which both sides were measured, the least leaky first."""
    attacked = [one for row in rows if row["finished"] and row["run"].endswith("-adversary") for one in row["found"]]
    leaks = {one["plan"]: one["ssim"] for one in attacked}
    found = []
    for name, (plan, prune) in PLANS.items():
        learnt, leak = accuracies(rows, f"{TASK}-{name}-learner"), leaks.get(name)
        if learnt and leak is not None:
            found.append(Point(name, plan, prune, sum(learnt) / len(learnt), leak))
    return sorted(found, key=lambda point: point.leakage)


def best(found: Sequence[Point]) -> list[Point]:
    """Those that no other beats: at least as good in accuracy and in leakage, and better in one of them."""

    def beats(other: Point, one: Point) -> bool:
        as_good = other.leakage <= one.leakage and other.accuracy >= one.accuracy
        return as_good and (other.leakage, other.accuracy) != (one.leakage, one.accuracy)

    return [one for one in found if not any(beats(other, one) for other in found)]


def table(rows: Sequence[Row]) -> str:
    found = points(rows)
    winners = best(found)
    lines = [
        [
            one.name,
            f"{one.plan.epsilon:g}",
            "haar" if one.prune else "none",
            f"{100 * one.accuracy:.2f}",
            f"{one.leakage:.3f}",
            "*" if one in winners else "",
        ]
        for one in found
    ]
    return markdown(
        ["plan", "eps of a released pixel", "pruning", "accuracy, %", "SSIM of the reconstruction", "not beaten by another"], lines
    )


def figure(findings: Findings) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, budget_ticks, legend, panels

    drawn, (by_leakage, by_epsilon) = panels(2)
    by_leakage.set_xscale("linear")
    found = points(findings["tradeoff"])
    named = {one.name for one in found if one.name.startswith("paper")} | {one.name for one in best(found)}
    for (family, words), colour, aside in zip(FAMILIES.items(), COLOURS, ((4, -7), (-4, 3)), strict=False):
        for view, marker in (("pruned", "o"), ("whole", "s")):
            some = sorted((one for one in found if one.name.startswith(f"{family}-{view}")), key=lambda one: one.plan.epsilon)
            look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 0.7}
            look |= {"linestyle": "-" if family == "paper" else "", "label": f"{words}, {WORDS[view]}"}
            accuracies_found = [100 * one.accuracy for one in some]
            by_leakage.plot([one.leakage for one in some], accuracies_found, **look)
            by_epsilon.plot([one.plan.epsilon for one in some], accuracies_found, **look)
            for one in (one for one in some if one.name in named):  # all of them would cover one another
                side = "right" if aside[0] < 0 else "left"
                place = {"xytext": aside, "textcoords": "offset points", "ha": side, "fontsize": 6, "color": colour}
                by_leakage.annotate(f"{one.plan.epsilon:g}", (one.leakage, 100 * one.accuracy), **place)
    for guess in blind(findings.get("white-box", ()), TASK):
        by_leakage.axvline(guess["ssim"], color="0.6", linewidth=1, label="no release: the mean of the public images")
    by_leakage.set(
        title="CIFAR-10: what is learnt, what leaks", xlabel="leakage: SSIM of reconstructions (numbers: eps)", ylabel="accuracy, %"
    )
    by_epsilon.set(title="CIFAR-10: what it costs", xlabel="eps of one released pixel (local)", ylabel="accuracy, %")
    budget_ticks(by_epsilon, sorted({one.plan.epsilon for one in found}))
    for axis in (by_leakage, by_epsilon):
        legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "Accuracy of a ResNet-9 trained on one release of each image of CIFAR-10, against the SSIM that the white box reaches: one network for "
    "all plans of a view, told every bit's flip probability, trained with fresh noise to reconstruct sources; a network for one plan alone "
    "sees a little more. The learner is small and has 12 epochs: from the noisiest releases a larger one that trains longer learns more "
    "(`curves`). One seed each. Up and left is better",
    measure,
    table,
    figure,
)
