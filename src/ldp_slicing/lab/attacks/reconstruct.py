"""Training an adversary's network: public sources, released afresh on the device in every step, and what to give back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.bits import to_bits
from ldp_slicing.lab.learners.models.adversaries import NETWORKS, Adversary
from ldp_slicing.lab.learners.models.face_networks import ArcFaceHead
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.learners.training import Splits
from ldp_slicing.lab.metrics.images import ssim
from ldp_slicing.plan import Plan
from ldp_slicing.torch.decode import channel_count
from ldp_slicing.torch.simulate import apply_view, simulate
from ldp_slicing.view import gain_of

ALIKE = 0.5  # what 1 - SSIM weighs beside the mean absolute error


class Reconstruction(TrainingRun):
    """A run whose network gives sources back from releases under the task's plans, an equal share of every batch under each.

    The task's images are the adversary's own, so that it may release them as often as it likes: task.release is "none".
    """

    def __init__(self, task: TrainingTask, device: torch.device, splits: Splits | None = None) -> None:
        self.plans = task.plans
        super().__init__(task, device, splits)
        size = min(task.recipe.batch, len(self.order))
        self.shares = [
            self.plans[i * len(self.plans) // size] for i in range(size)
        ]  # the plan of each image of a batch
        self.known = torch.tensor([self.adversary.knows(plan) for plan in self.shares], device=device)
        worth = 4.0 ** torch.arange(8, device=device).repeat(
            channel_count(self.plans[0])
        )  # of the squared error that a wrong bit makes
        self.worth = (worth / worth.sum()).view(1, -1, 1, 1)

    def _build(self) -> tuple[nn.Module, ArcFaceHead | None]:
        return NETWORKS[self.task.recipe.model](channel_count(self.plans[0]), gain_of(self.task.prune)), None

    @property
    def adversary(self) -> Adversary:
        return cast("Adversary", self.model)

    def release(self, sources: Tensor, plan: Plan | Sequence[Plan]) -> Tensor:
        """uint8 [N, C, H, W] to releases as the adversary sees them."""
        return simulate(sources, plan, self.generator, prune=self.task.prune, output=self.adversary.sees)

    def guess(self, releases: Tensor, known: Tensor) -> tuple[Tensor, Tensor | None]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda", cache_enabled=False):
            return self.adversary(releases.contiguous(memory_format=torch.channels_last), known)

    def _loss(self) -> Tensor:
        """Mean absolute error and 1 - SSIM of the reconstruction; and the cross-entropy of the bits, each by its worth."""
        images = self._cut(self._next())
        guessed, bits = self.guess(self.release(images, self.shares), self.known)
        loss = (guessed - images).abs().mean() / 255 + ALIKE * (1 - ssim(guessed, images).mean())
        if bits is not None:
            truth = to_bits(apply_view(images, self.task.prune, colour=images.shape[1] == 3).to(torch.uint8))
            each = functional.binary_cross_entropy_with_logits(bits, truth.float(), reduction="none")
            loss = loss + (each * self.worth).sum(1).mean()
        return loss

    @torch.no_grad()
    def attack(self, releases: Tensor, plan: Plan) -> Tensor:
        """uint8 [N, C, H, W], releases as ``release`` gives them, to reconstructions: float32 [N, C, H, W], RGB of 0..255."""
        self.model.eval()
        known = torch.tensor([self.adversary.knows(plan)], device=self.device)
        guessed = [self.guess(part, known.expand(len(part), -1))[0] for part in torch.split(releases, 250)]
        self.model.train()
        return torch.cat(guessed).clamp_(0, 255)
