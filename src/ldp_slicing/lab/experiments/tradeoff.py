"""Accuracy against leakage: every plan and budget is a point, so that a plan can be chosen by it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ldp_slicing.lab.attacks.case import TOGETHER, open_case
from ldp_slicing.lab.attacks.reconstruct import Reconstruction
from ldp_slicing.lab.data import load
from ldp_slicing.lab.experiments import curves, leakage
from ldp_slicing.lab.experiments.frame import BUDGETS, Experiment, Findings, Row, Setting, accuracies, markdown, train_all
from ldp_slicing.lab.experiments.leakage import blind
from ldp_slicing.lab.recipes import Recipe, recipe
from ldp_slicing.lab.run import Run
from ldp_slicing.lab.task import Task
from ldp_slicing.plan import CHANNELS, PAPER_WEIGHTS, Plan
from ldp_slicing.view import Prune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASK = "cifar10"
CHANCE = 0.1
VIEWS: dict[str, Prune] = leakage.VIEWS | {"raised": "haar4"}
WORDS = leakage.WORDS | {"raised": "pruned, detail x 4"}
FAMILIES = {"paper": "the paper's plan", "thick": "a few bits as one", "single": "a few bits one by one"}

# One slice, of these bits of Y and of these of Cb and of Cr. Around 128, where a pruned view is, the bits just below the highest repeat it:
# the sign is in bit 7, the size in bits 5 to 3.
THICK: dict[str, tuple[tuple[float, str, str], ...]] = {
    "whole": ((1, "7", ""), (2.4, "7", ""), (2.4, "76", ""), (3.5, "76", ""), (5.2, "765", ""), (5.2, "76", "7"), (12, "76543", "765")),
    "pruned": ((1, "7", ""), (2.4, "7", ""), (2.4, "74", ""), (3.5, "74", ""), (5.2, "754", ""), (5.2, "74", "7"), (12, "765432", "732")),
    "raised": ((1, "7", ""), (2.4, "76", ""), (3.5, "76", ""), (5.2, "76", "7"), (12, "7654", "765")),
}
# The same bits with the paper's shares: what is gained by dropping the others, and what by joining these.
SINGLE: dict[str, tuple[tuple[float, str, str], ...]] = {"whole": ((5.2, "765", ""),), "pruned": ((3.5, "74", ""), (5.2, "74", "7"))}
ALONE = (  # these are also attacked by networks that know no other plan
    "paper-pruned-eps20",
    "thick-pruned-eps3.5-y74",
    "paper-pruned-eps32",
    "thick-pruned-eps5.2-y74c7",
    "paper-whole-eps32",
    "thick-whole-eps5.2-y765",
    "single-pruned-eps5.2-y74c7",
    "paper-raised-eps20",
    "thick-raised-eps5.2-y76c7",
)


def _thick(y: str, chroma: str) -> str:
    """Some bits of Y, and of Cb and Cr, as one symbol; the others are dropped."""
    return "+".join(name for name, _ in _bits(y, chroma))


def _single(y: str, chroma: str) -> str:
    return ",".join(f"{name}={math.sqrt(importance):.3f}" for name, importance in _bits(y, chroma))


def _bits(y: str, chroma: str) -> list[tuple[str, float]]:
    """Names, and the paper's importance."""
    channels = zip(CHANNELS, (y, chroma, chroma), PAPER_WEIGHTS, strict=True)
    return [(f"{channel}{bit}", weight * 2 ** int(bit)) for channel, some, weight in channels for bit in some]


def _plans() -> dict[str, tuple[Plan, Prune, str]]:
    """A plan, a view, and the slices by their names where the plan is not the paper's."""
    plans: dict[str, tuple[Plan, Prune, str]] = {}
    for view, prune in VIEWS.items():
        plans |= {f"paper-{view}-eps{eps:g}": (Plan.paper(eps), prune, "") for eps in BUDGETS}
        for family, some, make in (("thick", THICK, _thick), ("single", SINGLE, _single)):
            for eps, y, c in some.get(view, ()):
                slices = make(y, c)
                plans[f"{family}-{view}-eps{eps:g}-y{y}{'c' * bool(c)}{c}"] = Plan.sliced(eps, slices), prune, slices
    return plans


PLANS = _plans()


@dataclass(frozen=True)
class Point:
    """A plan, what a learner gets from its releases (accuracy) and what an adversary gets (SSIM of its reconstructions)."""

    name: str
    plan: Plan
    prune: Prune
    slices: str  # as ``Plan.sliced`` and ``--slices`` take them; "" for the paper's
    accuracy: float
    leakage: float
    alone: float | None = None  # what a network for this plan alone gets

    @property
    def worst(self) -> float:
        """What the stronger of the networks that were tried gets."""
        return max(self.leakage, self.alone or 0.0)

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
        Task(f"{TASK}-{name}-learner-decoded", images, recipe("cifar-fast"), plan, prune, validation=held, decode=True)
        for name, (plan, prune, _) in PLANS.items()
    ]
    yield from train_all(tasks, setting)


def _adversaries(setting: Setting) -> Iterator[Row]:
    """One network for all plans of a view, told the flip probability of every bit; and one for each of some plans."""
    alone, runs, recipes = recipe("white-box-cifar"), dict[str, dict[str, Plan]](), dict[str, Recipe]()
    for view, prune in VIEWS.items():
        if plans := {name: plan for name, (plan, is_like, _) in PLANS.items() if is_like == prune}:
            runs[f"{TASK}-{view}-adversary"] = plans
            recipes[f"{TASK}-{view}-adversary"] = replace(  # as many steps for each view, and as many images for each plan
                alone, name=f"{alone.name}, {len(plans)} plans of a view", epochs=3 * len(plans), batch=16 * len(plans)
            )
    for name in (name for name in ALONE if name in PLANS):
        runs[f"{TASK}-{name}-alone"], recipes[f"{TASK}-{name}-alone"] = {name: PLANS[name][0]}, alone
    wanted = [run for run in runs if setting.only in run]
    if all(setting.is_done(run, 0, setting.shortened(recipes[run])) for run in wanted):
        return
    case = open_case(TASK, setting.data, setting.device)
    tasks = [
        Task(run, case.training_set, recipes[run], prune=PLANS[next(iter(runs[run]))][1], release="none", plans=tuple(runs[run].values()))
        for run in wanted
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
    leaks, alone = (
        {one["plan"]: one["ssim"] for row in rows if row["finished"] and row["run"].endswith(kind) for one in row["found"]}
        for kind in ("-adversary", "-alone")
    )
    found, way = [], "-decoded" if decoded(rows) else ""
    for name, (plan, prune, slices) in PLANS.items():
        learnt, leak = accuracies(rows, f"{TASK}-{name}-learner{way}"), leaks.get(name)
        if learnt and leak is not None:
            found.append(Point(name, plan, prune, slices, sum(learnt) / len(learnt), leak, alone.get(name)))
    return sorted(found, key=lambda point: point.leakage)


def decoded(rows: Sequence[Row]) -> bool:
    """Whether to show the learners that decoded the releases: as soon as there is one for each plan that has one that did not."""
    learners = {row["run"] for row in rows if row["finished"] and "-learner" in row["run"]}
    plain = {run for run in learners if run.endswith("-learner")}
    return {f"{run}-decoded" for run in plain} <= learners


def best(found: Sequence[Point]) -> list[Point]:
    """Those that no other beats: at least as good in accuracy and in leakage, and better in one of them."""

    def beats(other: Point, one: Point) -> bool:
        as_good = other.leakage <= one.leakage and other.accuracy >= one.accuracy
        return as_good and (other.leakage, other.accuracy) != (one.leakage, one.accuracy)

    return [one for one in found if not any(beats(other, one) for other in found)]


def table(rows: Sequence[Row]) -> str:
    found = points(rows)
    winners, compared = best(found), any(one.alone is not None for one in found)
    raised = "\nRaised: pruned, and what is left four times as strong (`--prune haar4`).\n" * any(one.prune == "haar4" for one in found)
    lines = [
        [
            one.name,
            f"{one.plan.epsilon:g}",
            one.prune or "none",
            f"{100 * one.accuracy:.2f}",
            f"{one.leakage:.3f}",
            *(["-" if one.alone is None else f"{one.alone:.3f}"] if compared else []),
            "*" if one in winners else "",
        ]
        for one in found
    ]
    return (
        markdown(
            [
                "plan",
                "eps of a released pixel",
                "pruning",
                f"accuracy, {'decoded' if decoded(rows) else 'as it comes'}, %",
                "SSIM of the reconstruction",
                *(["by a network for this plan alone"] if compared else []),
                "not beaten by another",
            ],
            lines,
        )
        + raised
    )


def figure(findings: Findings) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, budget_ticks, label_points, legend, panels

    drawn, (by_leakage, by_epsilon) = panels(2, width=5.4)
    by_leakage.set_xscale("linear")
    found = points(findings["tradeoff"])
    colours = dict(zip(FAMILIES, COLOURS, strict=False))
    for family, words in FAMILIES.items():
        for view, marker in zip(VIEWS, ("s", "o", "^"), strict=True):
            some = sorted((one for one in found if one.name.startswith(f"{family}-{view}")), key=lambda one: one.plan.epsilon)
            if not some:
                continue
            look: dict[str, Any] = {"color": colours[family], "marker": marker, "markersize": 4, "linewidth": 0.7}
            look |= {"linestyle": "-" if family == "paper" else "", "label": f"{words}, {WORDS[view]}"}
            accuracies_found = [100 * one.accuracy for one in some]
            by_leakage.plot([one.leakage for one in some], accuracies_found, **look)
            by_epsilon.plot([one.plan.epsilon for one in some], accuracies_found, **look)
    for guess in blind(findings.get("white-box", ()), TASK):
        by_leakage.axvline(guess["ssim"], color="0.6", linewidth=1, label="no release: the mean of the public images")
    by_leakage.set(
        title="CIFAR-10: what is learnt, what leaks", xlabel="leakage: SSIM of reconstructions (numbers: eps)", ylabel="accuracy, %"
    )
    by_epsilon.set(title="CIFAR-10: what it costs", xlabel="eps of one released pixel (local)", ylabel="accuracy, %")
    budget_ticks(by_epsilon, sorted({one.plan.epsilon for one in found}))
    for axis in (by_leakage, by_epsilon):
        legend(axis)
    winners = best(found)
    named = [*winners, *(one for one in found if one not in winners and one.name.startswith("paper"))]  # room goes to those first
    label_points(
        by_leakage,
        [(one.leakage, 100 * one.accuracy, f"{one.plan.epsilon:g}", colours[one.name.partition("-")[0]]) for one in named],
    )
    return drawn


EXPERIMENT = Experiment(
    "Accuracy of a ResNet-9 trained on one release of each image of CIFAR-10, against the SSIM that the white box reaches: one network for "
    "all plans of a view, told every bit's flip probability, trained with fresh noise to reconstruct sources; a network for eps 20 "
    "alone sees a little more (`white-box`). The learner is small and has 12 epochs: from the noisiest releases a larger one that trains "
    "longer learns more (`curves`). Where it says so, the learner decoded the releases first; the adversary is told the plan, but has to "
    "learn by itself what follows from it. One seed each. Up and left is better",
    measure,
    table,
    figure,
)
