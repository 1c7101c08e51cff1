"""The training-free baseline: each pixel's posterior under a public prior, then non-local means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch

from ldp_slicing.lab.attacks.attack_target import SETS, TOGETHER, AttackTarget
from ldp_slicing.lab.attacks.bayes import prepare
from ldp_slicing.lab.bits import float_rgb
from ldp_slicing.lab.experiment import Experiment, Row, Setting
from ldp_slicing.lab.experiments.leakage import (
    VIEWS,
    Record,
    Tiles,
    attack_all,
    figure_of,
    record,
    sheet,
    shown,
    table_of,
)
from ldp_slicing.plan import Plan
from ldp_slicing.torch.simulate import simulate
from ldp_slicing.view import Prune

PUBLIC, PIXELS = (
    500,
    500 * 112 * 112,
)  # public images that prior, strength and lines come from, and their pixels, at most


def measure(setting: Setting) -> Iterator[Row]:
    def one(case: AttackTarget, run: str, plan: Plan, prune: Prune) -> Row:
        found, tiles, fitted = attack(case, plan, prune)
        return fitted | {
            "found": found,
            "pictures": sheet(setting, case, f"bayes-{run.rpartition('-')[0]}", prune, tiles),
        }

    return attack_all(setting, one)


def attack(case: AttackTarget, plan: Plan, prune: Prune) -> tuple[list[Record], Tiles, Row]:
    """What the posterior gives away, and what was fitted to public images for it."""
    device = case.sources.device
    generator = torch.Generator(device).manual_seed(0)
    count, height, width = case.public.shape[:3]
    chosen = np.linspace(0, count - 1, min(count, PUBLIC, -(-PIXELS // (height * width)))).astype(int)
    ready = prepare(torch.from_numpy(case.public[chosen]).permute(0, 3, 1, 2).to(device), plan, generator, prune=prune)
    releases, guesses = [], []
    for some in (shown(case), *torch.split(case.sources, TOGETHER)):
        words = simulate(some, plan, generator, prune=prune, output="ycbcr")
        releases.append(float_rgb(words.float()).clamp_(0, 255))
        guesses.append(ready.reconstruct(words))
    found = record(plan, case.judge(torch.cat(releases[1:])), case.judge(torch.cat(guesses[1:])))
    fitted: Row = {"public_images": len(chosen), "strength": ready.strength, "lines": ready.lines.tolist()}
    return [found], {f"eps {plan.epsilon:g}": (releases[0], guesses[0])}, fitted


def table(rows: Sequence[Row]) -> str:
    return "\n".join(table_of(rows, name, view, what="Bayes") for name in SETS for view in VIEWS)


EXPERIMENT = Experiment(
    "No training: the posterior mean of each pixel under the histogram of public views and the plan's exact flip probabilities, then "
    "non-local means (patches of 5 x 5 up to 7 pixels away) and a line per channel, strength and line fitted to 500 public images. "
    "Of a pruned view it reconstructs the detail only, and is compared with the whole source all the same",
    measure,
    table,
    partial(figure_of, "bayes"),
)
