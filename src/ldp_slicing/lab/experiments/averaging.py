"""Many releases of one source, and the majority of each bit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ldp_slicing.lab.attacks.attack_target import SETS, TOGETHER, AttackTarget
from ldp_slicing.lab.attacks.averaging import average
from ldp_slicing.lab.experiment import Experiment, Findings, Row, Setting, markdown
from ldp_slicing.lab.experiments.leakage import (
    EASY,
    VIEWS,
    WORDS,
    Record,
    Tiles,
    attack_all,
    blind,
    ceiling,
    heads,
    judged,
    record,
    records,
    sheet,
    shown,
    title_of,
)
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTS = (1, 4, 16, 64)
DRAWN = (1.0, 5.2, 20.0, 58.0)
SHOWN = 20.0


def measure(setting: Setting) -> Iterator[Row]:
    def one(case: AttackTarget, run: str, plan: Plan, prune: Prune) -> Row:
        found, tiles = attack(case, plan, prune)
        if plan.epsilon != SHOWN:
            return {"found": found}
        return {"found": found, "pictures": sheet(setting, case, f"averaging-{run}", prune, tiles)}

    return attack_all(setting, one)


def attack(case: AttackTarget, plan: Plan, prune: Prune) -> tuple[list[Record], Tiles]:
    """What t releases of each source give away, for each t of ``COUNTS``."""
    generator, found = torch.Generator(case.sources.device).manual_seed(0), list[Record]()
    for count, images in _many(case.sources, plan, prune, generator).items():
        value = case.judge(images)
        one = record(
            plan, found[0]["release"] if found else value, value
        )  # the majority of one release is that release
        found.append(one | {"releases": count, "epsilon_spent_per_released_pixel": count * plan.realised_epsilon})
    example = _many(shown(case), plan, prune, generator)
    return found, {f"t = {count}": (example[COUNTS[0]], images) for count, images in example.items()}


def _many(sources: Tensor, plan: Plan, prune: Prune, generator: torch.Generator) -> dict[int, Tensor]:
    """For each number of releases, what they give away."""
    parts = defaultdict[int, list[Tensor]](list)
    for some in torch.split(sources, TOGETHER):
        for count, images in average(some, plan, COUNTS, generator, prune=prune):
            parts[count].append(images)
    return {count: torch.cat(images) for count, images in parts.items()}


def table(rows: Sequence[Row]) -> str:
    parts = []
    for name, title in SETS.items():
        for view in VIEWS:
            nothing = [
                ["none", "0", "0", *judged(guess)] for guess in blind(rows, name)
            ]  # the mean of the public images
            lines = [
                [
                    title_of(one["epsilon_requested"], view),
                    str(one["releases"]),
                    f"{one['epsilon_spent_per_released_pixel']:.6g}",
                    *judged(one["reconstruction"]),
                ]
                for one in records(rows, f"{name}-{view}")
            ]
            top = [
                "eps of one release, per pixel",
                "releases",
                "eps spent, per released pixel",
                *heads(faces=name == "lfw"),
            ]
            parts += (
                [f"**{title}, {WORDS[view]}**\n\n{markdown(top, nothing + lines)}{ceiling(rows, name)}"]
                if lines
                else []
            )
    return "\n".join(parts)


def figure(findings: Findings) -> Figure:
    """SSIM over the number of releases."""
    from ldp_slicing.lab.figures import COLOURS, legend, panels

    drawn, axes = panels(len(SETS) * len(VIEWS))
    places = [(name, view) for name in SETS for view in VIEWS]
    for axis, (name, view) in zip(axes, places, strict=True):
        found = records(findings["averaging"], f"{name}-{view}")
        for eps, colour in ((EASY, "0.6"), *zip(reversed(DRAWN), COLOURS, strict=True)):
            points = {
                one["releases"]: one["reconstruction"]["ssim"] for one in found if one["epsilon_requested"] == eps
            }
            axis.plot(
                list(points), list(points.values()), color=colour, marker="o", markersize=3.5, label=f"eps {eps:g} each"
            )
        axis.set_xticks(COUNTS, [str(count) for count in COUNTS])
        axis.minorticks_off()
        axis.set(
            title=f"{SETS[name]}, {WORDS[view]}", xlabel="releases of one source", ylabel="SSIM", ylim=(-0.02, 1.02)
        )
        legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "t releases of each source, the majority of each bit: what is left of a promise of eps per release when there are many. "
    "With pruning the vote tends to the view without noise, and no number of releases brings the low band back. "
    "Without a release the mean of the public images is guessed",
    measure,
    table,
    figure,
)
