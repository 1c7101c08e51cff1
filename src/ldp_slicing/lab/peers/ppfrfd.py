"""A stand-in for PPFR-FD (Wang et al., AAAI 2022), of which no code is public: 36 frequencies, shuffled and mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor, nn

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.peers.dct import FREQUENCIES, channels_of, fill_maps, from_maps, invert_kept, to_maps
from ldp_slicing.lab.peers.duetface import CLIENT
from ldp_slicing.lab.peers.interface import BATCH, Peer, Release

FREQUENCIES_KEPT = 36
MAPS_KEPT = 3 * FREQUENCIES_KEPT
Choice = Literal["strong", "weak"]


@dataclass(frozen=True, eq=False, kw_only=True)
class PpfrFd(Peer):
    """Releases are 108 maps, each with mean 0 and deviation 1: float32 [N, 108, H, W]. There is no randomness.

    choice: "strong" keeps the 36 frequencies with the largest energy but DC; "weak" leaves out DuetFace's ten as well.
    frequencies: the kept ones. mean, deviation: float32 [108, 1, 1] of the mixed maps over public images.
    """

    choice: Choice
    seed: int = 0
    frequencies: tuple[int, ...] = ()
    mean: Tensor | None = None
    deviation: Tensor | None = None

    @property
    def name(self) -> str:
        return f"ppfr-fd-like:{self.choice}"

    @property
    def deviations(self) -> tuple[str, ...]:
        return (
            "a stand-in: the paper's masking constants are not public",
            "frequencies are chosen by their energy instead of by a trained network",
            "the shuffling is public and the same for all images",
        )

    def train(self, public: Tensor, people: Tensor, teacher: nn.Module) -> Self:
        energy = torch.zeros(FREQUENCIES, dtype=torch.float64, device=public.device)
        for part in torch.split(public, BATCH):
            energy += to_maps(part)[:, :FREQUENCIES].double().square().sum((0, 2, 3))
        left_out = (0,) if self.choice == "strong" else CLIENT
        ranked = [one for one in energy.argsort(descending=True).tolist() if one not in left_out]
        peer = replace(self, frequencies=tuple(ranked[:FREQUENCIES_KEPT]))
        deviation, mean = torch.std_mean(peer.mixed_maps(public[: 4 * BATCH]), (0, 2, 3), keepdim=True)
        return replace(peer, mean=mean[0], deviation=deviation[0])

    def mixing(self) -> Tensor:
        """float64 [108, 108]: shuffle, the mean of each map and the next, shuffle again."""
        generator = torch.Generator().manual_seed(self.seed)
        eye = torch.eye(MAPS_KEPT, dtype=torch.float64)
        first, second = (eye[torch.randperm(MAPS_KEPT, generator=generator)] for _ in range(2))
        return second @ ((eye + eye.roll(1, 1)) / 2) @ first

    def mixed_maps(self, images: Tensor) -> Tensor:
        """float32 [N, 108, H, W], before each map is normalised."""
        if not self.frequencies:
            raise LdpSlicingError(f"{self.name} has no frequencies yet: call fit(public, people, teacher) first")
        return _combine(self.mixing(), to_maps(images)[:, channels_of(self.frequencies)])

    @property
    def is_random(self) -> bool:
        return False

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        deviation, mean = torch.std_mean(mixed := self.mixed_maps(images), (2, 3), keepdim=True)
        return (mixed - mean) / deviation.clamp_min(1e-12)

    def image_of(self, release: Release) -> Tensor:
        """As if the maps were neither shuffled nor mixed."""
        return from_maps(fill_maps(self._rescaled(release.values), channels_of(self.frequencies)))

    def decode(self, release: Release) -> Tensor:
        """Means and deviations of public images, the mixing undone but for one direction, then least squares."""
        maps = _combine(torch.linalg.pinv(self.mixing()), self._rescaled(release.values))
        return invert_kept(maps, channels_of(self.frequencies), self.mean_image, scales=self._errors()).images

    def _rescaled(self, values: Tensor) -> Tensor:
        if self.mean is None or self.deviation is None:
            raise LdpSlicingError(f"{self.name} has no statistics: call fit(public, people, teacher) first")
        return values * self.deviation + self.mean

    def _errors(self) -> Tensor:
        """float64 [108]: how far each map may be off, taken as its typical size, because its own scale is unknown."""
        if self.deviation is None:
            raise LdpSlicingError(f"{self.name} has no statistics: call fit(public, people, teacher) first")
        typical = self.deviation.flatten().double().cpu()
        unmixing: Tensor = torch.linalg.pinv(self.mixing())
        return (unmixing.square() @ typical.square()).sqrt().clamp_min(1e-6) / 4


def _combine(matrix: Tensor, maps: Tensor) -> Tensor:
    return torch.einsum("ij,njhw->nihw", matrix.to(maps), maps)


PEERS = (PpfrFd(choice="strong"), PpfrFd(choice="weak"))
