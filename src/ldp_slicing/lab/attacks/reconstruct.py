"""Reconstruction by a trained network: the black box and the white box."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ldp_slicing.lab.learners.models.adversaries import Adversary
from ldp_slicing.lab.learners.objectives import ReconstructionObjective
from ldp_slicing.lab.learners.run import TrainingRun
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
