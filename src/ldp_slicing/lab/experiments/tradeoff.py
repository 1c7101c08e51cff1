"""Accuracy against leakage: every plan and budget is a point, so that a plan can be chosen by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ldp_slicing.lab.attacks.attack_target import TOGETHER, open_target
from ldp_slicing.lab.attacks.reconstruct import Reconstruction
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.experiment import Experiment, Findings, Row, Setting, listed, markdown, spread, train_all
from ldp_slicing.lab.experiments import curves, leakage
from ldp_slicing.lab.experiments.leakage import blind
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.plans import (
    ALONE,
    PLANS,
    TASK,
    VIEWS,
    Point,
    best,
    decoded,
    leakages,
    learners_of,
    of_the_paper,
    points,
)
from ldp_slicing.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAMILIES = {"paper": "the paper's plan", "thick": "a few bits as one", "single": "a few bits one by one"}
WORDS = leakage.WORDS | {"raised": "pruned, detail x 4"}


def measure(setting: Setting) -> Iterator[Row]:
    yield from _learners(setting)
    yield from _adversaries(setting)


def _learners(setting: Setting) -> Iterator[Row]:
    images = load_cifar(TASK, setting.data)
    held = min(curves.HELD_OUT, len(images.train.labels) // 4)
    tasks = [
        TrainingTask(
            f"{TASK}-{name}-learner-decoded", images, recipe("cifar-fast"), plan, prune, validation=held, decode=True
        )
        for name, (plan, prune, _) in PLANS.items()
    ]
    yield from train_all(tasks, setting)


def _adversaries(setting: Setting) -> Iterator[Row]:
    """One network for all plans of a view, told the flip probability of every bit; and one for each of some plans."""
    alone, runs, recipes = recipe("white-box-cifar"), dict[str, dict[str, Plan]](), dict[str, Recipe]()
    for view, prune in VIEWS.items():
        if plans := {name: plan for name, (plan, is_like, _) in PLANS.items() if is_like == prune}:
            runs[f"{TASK}-{view}-adversary"] = plans
            recipes[f"{TASK}-{view}-adversary"] = (
                replace(  # as many steps for each view, and as many images for each plan
                    alone,
                    name=f"{alone.name}, {len(plans)} plans of a view",
                    epochs=3 * len(plans),
                    batch=16 * len(plans),
                )
            )
    for name in (name for name in ALONE if name in PLANS):
        runs[f"{TASK}-{name}-alone"], recipes[f"{TASK}-{name}-alone"] = {name: PLANS[name][0]}, alone
    wanted = [run for run in runs if setting.wants(run)]
    if all(
        setting.is_done(run, 0, setting.shortened(recipes[run]), {"plans": listed([*runs[run].values()])})
        for run in wanted
    ):
        return
    case = open_target(TASK, setting.data, setting.device)
    tasks = [
        TrainingTask(
            run,
            case.training_set,
            recipes[run],
            prune=PLANS[next(iter(runs[run]))][1],
            release="none",
            plans=tuple(runs[run].values()),
        )
        for run in wanted
    ]

    def judge(run: TrainingRun) -> Row:
        assert isinstance(run, Reconstruction)  # noqa: S101 - no other is made
        found = []
        for name, plan in runs[run.task.name].items():
            releases = [run.release(part, plan) for part in torch.split(case.sources, TOGETHER)]
            reached = case.judge(torch.cat([run.attack(part, plan) for part in releases]))
            found.append(
                {"plan": name, "epsilon_requested": plan.epsilon, "epsilon_realised_per_release": plan.realised_epsilon}
                | reached
            )
        return {"prune": run.task.prune, "steps": run.epoch * run.steps, "found": found}

    yield from train_all(tasks, setting, judge, Reconstruction)


def table(rows: Sequence[Row]) -> str:
    found = points(rows)
    winners, compared = best(found), any(one.alone is not None for one in found)
    lines = [
        [
            one.name,
            f"{one.plan.epsilon:g}",
            one.prune or "none",
            f"{100 * one.accuracy:.2f}",
            f"{100 * one.held_out:.2f}",
            f"{one.leakage:.3f}",
            *([_three(one.alone)] if compared else []),
            _of_the_paper(one, found),
            "*" if one in winners else "",
        ]
        for one in found
    ]
    return markdown(
        [
            "plan",
            "eps of a released pixel",
            "pruning",
            f"test accuracy, {_way(rows)}, %",
            "accuracy on images held out, %",
            "SSIM of the reconstruction",
            *(["by a network for this plan alone"] if compared else []),
            "the paper's plan where it leaks as much: eps, accuracy, %",
            "not beaten by another, held out",
        ],
        lines,
    ) + _others(rows, [one.name for one in found])


def _of_the_paper(one: Point, found: Sequence[Point]) -> str:
    there = of_the_paper(one, found) if one.slices else None
    return "-" if there is None else f"{there[0]:.0f}, {100 * there[1]:.0f}"


def _others(rows: Sequence[Row], shown: Sequence[str]) -> str:
    """Plans that the network for all plans of a view was not trained for."""
    alone = leakages(rows, "-alone")
    learners = {name: learners_of(name, rows) for name in PLANS if name not in shown}
    lines = [
        [
            name,
            f"{PLANS[name][0].epsilon:g}",
            PLANS[name][1] or "none",
            spread([row["accuracy"] for row in some]),
            _three(alone.get(name)),
        ]
        for name, some in learners.items()
        if some
    ]
    heads = [
        "plan",
        "eps of a released pixel",
        "pruning",
        f"test accuracy, {_way(rows)}, %",
        "SSIM of the reconstruction, by a network for this plan alone",
    ]
    words = "Not attacked by the network for all plans of a view. Raised: pruned, and what is left four times as strong (`--prune haar4`)."
    words += " Single: the bits of a thick plan one by one, with the paper's shares, and no others."
    return f"\n{words}\n\n{markdown(heads, lines)}" if lines else ""


def _way(rows: Sequence[Row]) -> str:
    return "decoded" if decoded(rows) else "as it comes"


def _three(leakage: float | None) -> str:
    return "-" if leakage is None else f"{leakage:.3f}"


def figure(findings: Findings) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, budget_ticks, label_points, legend, panels

    drawn, (by_leakage, by_epsilon) = panels(2, width=5.4)
    by_leakage.set_xscale("linear")
    found = points(findings["tradeoff"])
    colours = dict(zip(FAMILIES, COLOURS, strict=False))
    for family, words in FAMILIES.items():
        for view, marker in zip(VIEWS, ("s", "o", "^"), strict=True):
            some = sorted(
                (one for one in found if one.name.startswith(f"{family}-{view}")), key=lambda one: one.plan.epsilon
            )
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
        title="CIFAR-10: what is learnt, what leaks",
        xlabel="leakage: SSIM of reconstructions (numbers: eps)",
        ylabel="accuracy, %",
    )
    by_epsilon.set(title="CIFAR-10: what it costs", xlabel="eps of one released pixel (local)", ylabel="accuracy, %")
    budget_ticks(by_epsilon, sorted({one.plan.epsilon for one in found}))
    for axis in (by_leakage, by_epsilon):
        legend(axis)
    winners = best(found)
    named = [
        *winners,
        *(one for one in found if one not in winners and one.name.startswith("paper")),
    ]  # room goes to those first
    label_points(
        by_leakage,
        [
            (one.leakage, 100 * one.accuracy, f"{one.plan.epsilon:g}", colours[one.name.partition("-")[0]])
            for one in named
        ],
    )
    return drawn


EXPERIMENT = Experiment(
    "Accuracy of a ResNet-9 trained on one release of each image of CIFAR-10, against the SSIM that the white box reaches: one network "
    "for all plans of a view, told every bit's flip probability, trained with fresh noise to reconstruct sources; networks for one plan "
    "alone see a little more. The learner decodes releases first (`ldp_slicing.torch.Decoder`); it is small and has 12 epochs: a larger "
    "one that trains longer learns more (`curves`). The adversary is told how often each bit flips, not which bits flip together where a "
    "slice has several. One seed each. Up and left is better; which plans are not beaten is told by images held out of training, so that "
    "the test set chooses none. Where the paper's plan leaks as much as another is read off straight lines between its points, and "
    "adversaries of one plan differ by 0.008 to 0.019. The bits of thick plans are those that tell most of a view of CIFAR-10, by its own "
    "pixels",
    measure,
    table,
    figure,
)
