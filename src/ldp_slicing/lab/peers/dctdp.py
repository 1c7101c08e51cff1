"""DCTDP (Ji et al., ECCV 2022): 63 frequencies of each colour, with Laplace noise on every coefficient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.peers.dct import FREQUENCIES, channels_of, fill_maps, from_maps, invert_kept, to_maps
from ldp_slicing.lab.peers.fusing import fused
from ldp_slicing.lab.peers.interface import BATCH, Guarantee, Peer, Release, draw, laplace
from ldp_slicing.lab.peers.training import (
    TrainingSchedule,
    cosine_loss,
    embeddings_of,
    half_precision,
    minimise,
    student_of,
)

KEPT = channels_of(range(1, FREQUENCIES))
MIN_SPREAD = 1e-3  # of a coefficient: where public images do not differ, the sensitivity would be 0
SCHEDULE = TrainingSchedule(epochs=8)
FIRST_NOISE = 0.003  # of the noise is there when budgets begin to be learned; all of it from the middle of the training
Sensitivity = Literal["code", "range"]
KINDS: tuple[Sensitivity, ...] = ("code", "range")


@dataclass(frozen=True, eq=False, kw_only=True)
class Dctdp(Peer):
    """Releases are 189 maps with noise of scale sensitivity / eps per coefficient: float32 [N, 189, H, W].

    sensitivity: "code" is 1 for every coefficient, as in the public code. "range" is max - min of the coefficient over
    the public images, as the paper has it; coefficients are clipped to that range, so that the noise covers it.

    learned: whether the budget is shared out by training, with the mean that was given. low, high: float32
    [189, H, W], the range. shares: float32 [189, H, W], each coefficient's eps divided by the mean. variance: float32
    [189, 1, 1], of the maps of public images, without noise.
    """

    epsilon: float
    sensitivity: Sensitivity
    learned: bool = False
    schedule: TrainingSchedule = SCHEDULE
    low: Tensor | None = None
    high: Tensor | None = None
    shares: Tensor | None = None
    variance: Tensor | None = None

    @property
    def name(self) -> str:
        return f"dctdp:{self.sensitivity}{'-learned' if self.learned else ''}-eps{self.epsilon:g}"

    @property
    def deviations(self) -> tuple[str, ...]:
        ours = {
            "code": "sensitivity 1 for every coefficient, as in the public code, which adds little noise",
            "range": "max - min over our public images and not over VGGFace2 and MS1MV2; clipped to it",
        }[self.sensitivity]
        budget = (
            f"budgets learned with a student of the recogniser instead of ArcFace, in {self.schedule.epochs} epochs of "
            "our public images instead of 24 of millions; the noise, which is centred, grows to full strength in the "
            "first half, and the coefficients of a map also share a parameter"
            if self.learned
            else "a uniform budget; the paper learns how to share it out"
        )
        return ours, budget, "one noise tensor per image; the public code draws one per batch"

    @property
    def revision(self) -> int:
        if not self.learned:
            return 2
        return 4 if self.sensitivity == "range" else 3  # its largest eps is recorded since

    @property
    def guarantee(self) -> Guarantee | None:
        """With sensitivity 1 there is none: coefficients differ by up to hundreds."""
        if self.sensitivity == "code":
            return None
        if not self.learned:
            return Guarantee("coefficient", self.epsilon)
        largest = None if self.shares is None else self.epsilon * float(self.shares.max())
        return Guarantee("coefficient, on average", self.epsilon, largest)

    def train(self, public: Tensor, people: Tensor, teacher: nn.Module) -> Self:
        low, high = _range_of(public) if self.sensitivity == "range" else (None, None)
        peer = replace(self, low=low, high=high)
        if not self.learned:
            return peer
        peer = replace(peer, variance=peer._clipped_maps(public[:BATCH]).var((0, 2, 3))[:, None, None])
        return replace(peer, shares=peer._learn_shares(public, teacher))

    def scale(self) -> Tensor:
        """float32 [189, H, W] or []: the scale of the noise of each coefficient."""
        spread = torch.ones(()) if self.low is None or self.high is None else self.high - self.low
        return spread / self.epsilon if self.shares is None else spread / (self.epsilon * self.shares)

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        maps = self._clipped_maps(images)
        uniform = draw(generators, tuple(maps.shape[1:]), "uniform", images.device)
        return _with_noise(maps, self.scale().to(images.device), uniform)

    def image_of(self, release: Release) -> Tensor:
        return from_maps(fill_maps(release.values, KEPT))

    @property
    def input_weights(self) -> Tensor:
        """The share of each map's variance that is not noise, relative to the clearest map. Most are noise alone.

        Learned budgets differ within a map, so there each coefficient has a weight, and a scale, of its own.
        """
        variance = self.public_statistics.deviation.square()
        if self.variance is not None:
            clear, scales = _clearness(self.variance, self.scale().to(variance))
            return clear / clear.max() * self.public_statistics.deviation / scales
        noise = 2 * self._scales_of_maps().square().to(variance)[:, None, None]
        signal = (1 - noise / variance).clamp_min(0)
        return signal / signal.max().clamp_min(1e-6)

    def decode(self, release: Release) -> Tensor:
        """By least squares, each map weighted by its mean variance.

        The mean precision would trust a whole map as much as its few quiet coefficients.
        """
        return invert_kept(release.values, KEPT, self.mean_image, scales=self._scales_of_maps()).images

    def _scales_of_maps(self) -> Tensor:
        """float64 [189]: the scale of each map's noise, the root mean square over its coefficients."""
        squared = self.scale().double().square()
        return (squared.mean((1, 2)) if squared.ndim else squared).sqrt().expand(len(KEPT))

    def _clipped_maps(self, images: Tensor) -> Tensor:
        maps = to_maps(images)[:, KEPT]
        if self.sensitivity == "code":
            return maps
        if self.low is None or self.high is None:
            raise LdpSlicingError(f"{self.name} has no ranges: call fit(public, people, teacher) first")
        return maps.clamp(self.low, self.high)

    def _learn_shares(self, public: Tensor, teacher: nn.Module) -> Tensor:
        """float32 [189, H, W]: softmax of what was learned, times the number of coefficients, so that the mean is 1.

        Under all of the noise the student would learn nothing from a uniform budget, and the budget nothing from it.
        The gradient of one coefficient is mostly noise, so those of a map have a logit in common, and each its own.
        """
        assert self.variance is not None  # noqa: S101 - set by train
        wanted = embeddings_of(teacher, public)
        wanted = wanted - wanted.mean(0)
        student = student_of(teacher, len(KEPT), public, seed=self.schedule.seed).train()
        generator = torch.Generator(public.device).manual_seed(self.schedule.seed)
        mean = self._clipped_maps(public[:BATCH]).mean((0, 2, 3))[:, None, None]
        shape = (len(KEPT), *public.shape[2:])
        logits, own = (
            torch.zeros(size, device=public.device, requires_grad=True) for size in ((len(KEPT), 1, 1), shape)
        )
        scale, variance, step = self.scale().to(public.device), self.variance, 0
        half = self.schedule.epochs * len(public) / min(self.schedule.batch, len(public)) / 2  # of the steps

        def loss(indices: Tensor, _epoch: int) -> Tensor:
            nonlocal step
            indices, strength = indices.to(public.device), FIRST_NOISE ** max(0.0, 1 - step / half)
            step += 1
            maps = self._clipped_maps(public[indices])
            noise = laplace(torch.rand(maps.shape, generator=generator, device=maps.device))
            scales = strength * scale / _to_shares(logits + own)
            clear, total = _clearness(variance, scales)
            inputs = (maps + scales * noise - mean) / total * (clear / clear.max().detach())
            with half_precision(public.device):
                return cosine_loss(student(inputs), wanted[indices])

        groups: list[dict[str, Any]] = [{"params": student.parameters()}, {"params": [logits, own], "lr": 0.1}]
        minimise(loss, groups, len(public), self.schedule, public.device)
        return _to_shares((logits + own).detach())


@fused
def _with_noise(maps: Tensor, scale: Tensor, uniform: Tensor) -> Tensor:
    return maps + scale * laplace(uniform)


def _clearness(variance: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """The share of the variance of noisy coefficients that is not noise, and their standard deviation."""
    total = variance + 2 * scales.square()
    return variance / total, total.sqrt()


def _to_shares(logits: Tensor) -> Tensor:
    return logits.flatten().softmax(0).view(logits.shape) * logits.numel()


def _range_of(public: Tensor) -> tuple[Tensor, Tensor]:
    """float32 [189, H, W] twice: the least and the largest value of each coefficient over uint8 images."""
    low = torch.full((len(KEPT), *public.shape[2:]), torch.inf, device=public.device)
    high = -low
    for part in torch.split(public, BATCH):
        maps = to_maps(part)[:, KEPT]
        low, high = torch.minimum(low, maps.amin(0)), torch.maximum(high, maps.amax(0))
    middle, half = (high + low) / 2, ((high - low) / 2).clamp_min(MIN_SPREAD / 2)
    return middle - half, middle + half


PEERS = (
    *(Dctdp(epsilon=0.5, sensitivity=kind, learned=learned) for kind in KINDS for learned in (False, True)),
    *(Dctdp(epsilon=epsilon, sensitivity=kind) for kind in KINDS for epsilon in (1.0, 4.0)),
)
