"""Networks that reconstruct sources from releases: black box and white box, one for each view, told the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from ldp_slicing.lab.attacks.attack_target import SETS, TOGETHER, AttackTarget, open_target
from ldp_slicing.lab.attacks.reconstruct import Reconstruction
from ldp_slicing.lab.bits import float_rgb
from ldp_slicing.lab.experiment import Experiment, Row, Setting, listed, train_all
from ldp_slicing.lab.experiments.leakage import (
    TARGETS,
    VIEWS,
    Tiles,
    blind_guesses,
    figure_of,
    record,
    sheet,
    shown,
    table_of,
)
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.plan import Plan

RECIPES = {"lfw": "faces", "cifar10": "cifar"}
DEDICATED = 20.0  # the budget at which a network that knows no other is trained for comparison
COMPARED = {"lfw": ("pruned",), "cifar10": ("whole", "pruned")}  # in these views: faces take ten times as long
LONGER = 2  # times as long as one that knows a single budget is a network trained that has to know eight


def measure(kind: str, setting: Setting) -> Iterator[Row]:
    """One network for all budgets of each set and view, and some for eps 20 alone; ``kind``: "black-box" or "white-box"."""
    tasks, found = list[TrainingTask](), dict[str, AttackTarget]()
    for name in SETS:
        alone = recipe(f"{kind}-{RECIPES[name]}")
        many = for_all_budgets(alone)
        wanted = {
            f"{name}-{view}": (many, prune, tuple(Plan.paper(eps) for eps in TARGETS)) for view, prune in VIEWS.items()
        }
        wanted |= {
            f"{name}-{view}-only{DEDICATED:g}": (alone, VIEWS[view], (Plan.paper(DEDICATED),))
            for view in COMPARED[name]
        }
        asked = {run: some for run, some in wanted.items() if setting.wants(run)}
        if all(
            setting.is_done(run, 0, setting.shortened(how), {"plans": listed(plans)})
            for run, (how, _, plans) in asked.items()
        ):
            continue
        case = found[name] = open_target(name, setting.data, setting.device)
        for run, (how, prune, plans) in wanted.items():
            tasks.append(TrainingTask(run, case.training_set, how, prune=prune, release="none", plans=plans))

    def finish(run: TrainingRun) -> Row:
        assert isinstance(run, Reconstruction)  # noqa: S101 - no other is made
        case = found[run.task.data.name]
        row, tiles = judge(run, case)
        many = len(run.plans) > 1
        return row | {
            "pictures": sheet(setting, case, f"{kind}-{run.task.name}", run.task.prune, tiles) if many else []
        }

    yield from blind_guesses(setting)
    yield from train_all(sorted(tasks, key=lambda task: "only" in task.name), setting, finish, Reconstruction)


def for_all_budgets(alone: Recipe) -> Recipe:
    return replace(alone, name=f"{alone.name}, all budgets", epochs=LONGER * alone.epochs)


def judge(run: Reconstruction, case: AttackTarget) -> tuple[Row, Tiles]:
    """Every budget that the network was trained for: the releases of the attacked sources, and what it makes of them."""
    found, tiles = [], {}
    for plan in run.plans:
        seen = [run.release(some, plan) for some in (shown(case), *torch.split(case.sources, TOGETHER))]
        pictures = [float_rgb(part.float()).clamp_(0, 255) if run.adversary.sees == "ycbcr" else part for part in seen]
        guesses = torch.cat([run.attack(part, plan) for part in seen[1:]])
        found.append(record(plan, case.judge(torch.cat(pictures[1:])), case.judge(guesses)))
        if len(run.plans) == 1:
            found[-1]["by"] = f"reconstruction, a network for eps {plan.epsilon:g} alone"
        tiles[f"eps {plan.epsilon:g}"] = (pictures[0], run.attack(seen[0], plan))
    size = sum(parameter.numel() for parameter in run.parameters)
    row: Row = {
        "prune": run.task.prune,
        "steps": run.epoch * run.steps,
        "parameters": size,
        "found": found,
        "originals": case.originals,
    }
    return row, tiles


def table(rows: Sequence[Row]) -> str:
    trained = {row["run"]: (row["steps"], len(row["found"])) for row in rows if row["finished"] and "steps" in row}
    steps = "; ".join(
        f"{run} {count}, a batch shared by {budgets} budget(s)" for run, (count, budgets) in sorted(trained.items())
    )
    parts = [*(table_of(rows, name, view) for name in SETS for view in VIEWS), f"Steps trained: {steps}.\n"]
    return "\n".join([*parts, *_costs(rows)])


def _costs(rows: Sequence[Row]) -> list[str]:
    """What knowing all budgets costs a network at eps 20, beside one that knows no other."""

    def ssim(run: str) -> float | None:
        found = [one for row in rows if row["finished"] and row["run"] == run for one in row["found"]]
        return next((one["reconstruction"]["ssim"] for one in found if one["epsilon_requested"] == DEDICATED), None)

    compared = [
        (f"{name}-{view}", ssim(f"{name}-{view}"), ssim(f"{name}-{view}-only{DEDICATED:g}"))
        for name in SETS
        for view in VIEWS
    ]
    said = "; ".join(
        f"{run} {many:.3f} and {alone:.3f}" for run, many, alone in compared if many is not None and alone is not None
    )
    return (
        [f"SSIM at eps {DEDICATED:g}, of the network for all budgets and of one for this budget alone: {said}.\n"]
        if said
        else []
    )


def _experiment(kind: str, about: str) -> Experiment:
    return Experiment(about, partial(measure, kind), table, partial(figure_of, kind))


BLACK_BOX = _experiment(
    "black-box",
    "A U-Net from releases (RGB) to sources, trained on public images with fresh noise in every step; it is told eps and nothing else of "
    "the mechanism. The people and pictures that are attacked are not among the public ones, by their names",
)
WHITE_BOX = _experiment(
    "white-box",
    "The paper's two stages, trained on public images with fresh noise in every step and given the released words and the flip "
    "probability of every bit: an autoencoder with eight attention modules, one for each bit-plane, predicts the bits of the view; a "
    "full-scale U-Net adds the low band to them. The people and pictures that are attacked are not among the public ones, by their names",
)
