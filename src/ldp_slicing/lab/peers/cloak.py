"""Cloak (Mireshghallah et al., WWW 2021): a learned offset and learned noise for every element of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.peers.interface import Peer, Release, draw
from ldp_slicing.lab.peers.training import (
    TrainingSchedule,
    cosine_loss,
    embeddings_of,
    frozen,
    half_precision,
    minimise,
)

MIN_DEVIATION, MAX_DEVIATION = 1e-4, 1.5
NOISE = TrainingSchedule(epochs=3, rate=0.01, constant=True)
ACCURACY = TrainingSchedule(epochs=15, rate=0.005, constant=True)
CYCLES = 4  # of both: in one, the noise is still far from where it settles


@dataclass(frozen=True, eq=False, kw_only=True)
class Cloak(Peer):
    """Releases are images plus an offset plus normal noise: float32 [N, 3, H, W], on a scale where images are -1..1.

    trade_off: how much noise counts against recognition in training. noise, accuracy: the two phases of training, which
    take turns.
    offset, deviation: float32 [3, H, W], the same for all images.
    """

    trade_off: float
    noise: TrainingSchedule = NOISE
    accuracy: TrainingSchedule = ACCURACY
    offset: Tensor | None = None
    deviation: Tensor | None = None

    @property
    def name(self) -> str:
        return f"cloak:{self.trade_off:g}"

    @property
    def revision(self) -> int:
        return 2

    @property
    def deviations(self) -> tuple[str, ...]:
        return (
            "trained for the recogniser's embedding instead of a classifier's label",
            "without the second form, which replaces unimportant elements by constants",
            "one noise tensor per image; the public code draws one per batch",
            f"{CYCLES} times {self.noise.epochs} epochs for the noise and {self.accuracy.epochs} for accuracy, at one "
            "rate each; the public notebook has four times 2 or 3 and 2 to 22, at several rates",
        )

    def train(self, public: Tensor, people: Tensor, teacher: nn.Module) -> Self:
        """Recognition and much noise take turns with recognition alone."""
        wanted, judge = embeddings_of(teacher, public), frozen(teacher)
        shape, device = public.shape[1:], public.device
        offset = torch.zeros(shape, device=device, requires_grad=True)
        spread = torch.full(shape, -4.0, device=device, requires_grad=True)
        generator = torch.Generator(device).manual_seed(self.noise.seed)

        def loss(indices: Tensor, trade_off: float) -> Tensor:
            indices = indices.to(device)
            x, deviation = _scaled(public[indices]), _to_deviation(spread)
            released = x + offset + deviation * torch.randn(x.shape, generator=generator, device=device)
            with half_precision(device):
                seen = judge(_unscaled(released))
            return cosine_loss(seen, wanted[indices]) - trade_off * deviation.mean().log()

        for schedule, trade_off in ((self.noise, self.trade_off), (self.accuracy, 0.0)) * CYCLES:
            minimise(lambda some, _, one=trade_off: loss(some, one), [offset, spread], len(public), schedule, device)  # type: ignore[misc]
        return replace(self, offset=offset.detach(), deviation=_to_deviation(spread.detach()))

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        offset, deviation = self._fitted()
        return _scaled(images) + offset + deviation * draw(generators, tuple(images.shape[1:]), "normal", images.device)

    def image_of(self, release: Release) -> Tensor:
        return _unscaled(release.values)

    def decode(self, release: Release) -> Tensor:
        """Without the offset, which anybody learns who has pairs of image and release."""
        return _unscaled(release.values - self._fitted()[0])

    def _fitted(self) -> tuple[Tensor, Tensor]:
        if self.offset is None or self.deviation is None:
            raise LdpSlicingError(f"{self.name} has no noise yet: call fit(public, people, teacher) first")
        return self.offset, self.deviation


def _to_deviation(spread: Tensor) -> Tensor:
    return (1 + torch.tanh(spread)) / 2 * (MAX_DEVIATION - MIN_DEVIATION) + MIN_DEVIATION


def _scaled(images: Tensor) -> Tensor:
    return images.float() / 127.5 - 1


def _unscaled(values: Tensor) -> Tensor:
    return 127.5 * (values + 1)


PEERS = tuple(Cloak(trade_off=trade_off) for trade_off in (100.0, 10.0))  # the first stands for the system
