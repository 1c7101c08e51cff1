"""Reconstruction by a trained network: the black box and the white box."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ldp_slicing.lab.attacks.attack_target import TOGETHER, AttackTarget
from ldp_slicing.lab.attacks.outcome import Outcome, example_sources
from ldp_slicing.lab.bits import float_rgb
from ldp_slicing.lab.learners.models.adversaries import Adversary
from ldp_slicing.lab.learners.objectives import ReconstructionObjective
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.rows import Measurement
from ldp_slicing.plan import Plan


class Reconstruction(TrainingRun):
    """A run with the objective ``ReconstructionObjective``."""

    @property
    def _reconstruction(self) -> ReconstructionObjective:
        assert isinstance(self.objective, ReconstructionObjective)  # noqa: S101 - the recipe's loss is "source"
        return self.objective

    @property
    def plans(self) -> tuple[Plan, ...]:
        return self.task.plans

    @property
    def adversary(self) -> Adversary:
        return self._reconstruction.adversary

    def release(self, sources: Tensor, plan: Plan | Sequence[Plan]) -> Tensor:
        return self._reconstruction.release(sources, plan)

    def attack(self, releases: Tensor, plan: Plan) -> Tensor:
        return self._reconstruction.reconstruct(releases, plan)


def judge_reconstruction(run: Reconstruction, target: AttackTarget) -> Outcome:
    """Every plan that the network was trained for: the releases of the attacked sources, and their reconstructions."""
    found, examples = list[Measurement](), {}
    for plan in run.plans:
        seen = [run.release(some, plan) for some in (example_sources(target), *torch.split(target.sources, TOGETHER))]
        shown = [float_rgb(part.float()).clamp_(0, 255) if run.adversary.sees == "ycbcr" else part for part in seen]
        guesses = torch.cat([run.attack(part, plan) for part in seen[1:]])
        reached = {"release": target.judge(torch.cat(shown[1:])), "reconstruction": target.judge(guesses)}
        found.append(Measurement(reached, plan))
        examples[plan.epsilon] = (shown[0], run.attack(seen[0], plan))
    return Outcome(tuple(found), examples)
