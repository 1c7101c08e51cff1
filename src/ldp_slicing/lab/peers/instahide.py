"""InstaHide (Huang et al., ICML 2020): a mixture of k images, and a random sign for every pixel and channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.peers.interface import BATCH, Peer, Release, draw

MAX_COEFFICIENT = 0.65
TRIES = 96  # the last one fails with a probability below 2^-60


@dataclass(frozen=True, eq=False, kw_only=True)
class InstaHide(Peer):
    """Releases are mixtures with random signs: float32 [N, 3, H, W], about -2..2.

    public: uint8 [M, 3, H, W], where the k - 1 partners of an image come from. center, spread: float32 [3, 1, 1], which
    images are normalised with, on a scale of 0..1.
    """

    mixed: int
    public: Tensor | None = None
    center: Tensor | None = None
    spread: Tensor | None = None

    @property
    def name(self) -> str:
        return f"instahide:k{self.mixed}"

    @property
    def revision(self) -> int:
        return 2

    @property
    def deviations(self) -> tuple[str, ...]:
        return (
            "partners are public images; the paper permutes the whole private set, or adds public images to two "
            "private ones",
            "the embedding of the image itself is the target, whatever its coefficient; labels are not mixed",
            "one release per image; the paper encodes the set anew in every epoch",
        )

    def train(self, public: Tensor, people: Tensor, teacher: nn.Module) -> Self:
        total = torch.zeros(2, 3, dtype=torch.float64, device=public.device)
        for part in torch.split(public, BATCH):
            x = part.double() / 255
            total += torch.stack((x.sum((0, 2, 3)), x.square().sum((0, 2, 3))))
        mean, square = total / (public.numel() / 3)
        center, spread = (one.float()[:, None, None] for one in (mean, (square - mean**2).sqrt()))
        return replace(self, public=public, center=center, spread=spread)

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        signs = draw(generators, tuple(images.shape[1:]), "uniform", images.device) < 0.5
        mixtures = self.mixtures(images, generators)
        return torch.where(signs, -mixtures, mixtures)

    def mixtures(self, images: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """float32 [N, 3, H, W]: images and their partners, before the signs. The first coefficient is the image's."""
        public, _, _ = self._fitted()
        drawn = draw(generators, (TRIES, self.mixed), "normal", images.device)
        coefficients = mixing_coefficients(drawn)[:, :, None, None, None]
        chosen = (draw(generators, (self.mixed - 1,), "uniform", images.device) * len(public)).long()
        mixed = coefficients[:, 0] * self.normalise(images)
        for i, partners in enumerate(chosen.unbind(1)):
            mixed = mixed + coefficients[:, i + 1] * self.normalise(public[partners])
        return mixed

    def normalise(self, images: Tensor) -> Tensor:
        """[N, 3, H, W] of 0..255 to mean 0 and deviation 1 per channel, on public images."""
        _, center, spread = self._fitted()
        return (images.float() / 255 - center) / spread

    def input_of(self, release: Release) -> Tensor:
        """The absolute values: the signs are random and tell nothing."""
        return release.values.abs()

    def image_of(self, release: Release) -> Tensor:
        _, center, spread = self._fitted()
        return 255 * (release.values * spread + center)

    def decode(self, release: Release) -> Tensor:
        """The absolute value: without the random signs, up to the sign of the mixture itself."""
        _, center, spread = self._fitted()
        return 255 * (release.values.abs() * spread + center)

    def _fitted(self) -> tuple[Tensor, Tensor, Tensor]:
        if self.public is None or self.center is None or self.spread is None:
            raise LdpSlicingError(f"{self.name} has no partners to mix: call fit(public, people, teacher) first")
        return self.public, self.center, self.spread


def mixing_coefficients(normal: Tensor) -> Tensor:
    """float [N, tries, k], normal numbers, to float [N, k] that sum to 1: the sizes of the first try that fits.

    It fits if no coefficient is above 0.65, which more than a third of the tries do.
    """
    tried = normal.abs() / normal.abs().sum(2, keepdim=True)
    first = (tried.amax(2) <= MAX_COEFFICIENT).byte().argmax(1)
    return tried.gather(1, first[:, None, None].expand(-1, -1, tried.shape[2]))[:, 0]


PEERS = tuple(InstaHide(mixed=k) for k in (2, 4, 6))
