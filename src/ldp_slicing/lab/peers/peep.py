"""PEEP (Chamikara et al., Computers & Security 2020): eigenface coefficients with Laplace noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.peers.interface import BATCH, Guarantee, Peer, Release, draw

SMALL = 2  # images are reduced by this factor before the principal components are computed
MIN_SPREAD = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class Peep(Peer):
    """Releases are coefficients, each scaled to 0..1 and with noise of scale 1 / eps: float32 [N, k].

    There are fewer than ``components`` if there are fewer public images. mean: float32 [P] of the reduced grey public
    images. basis: float32 [k, P]. low, high: float32 [k], the range of each coefficient over the public images.
    """

    components: int
    epsilon: float = 5.0
    mean: Tensor | None = None
    basis: Tensor | None = None
    low: Tensor | None = None
    high: Tensor | None = None

    @property
    def name(self) -> str:
        return f"peep:k{self.components}"

    @property
    def deviations(self) -> tuple[str, ...]:
        return (
            "as the paper describes it; how others made it verify faces at 98 % is not documented anywhere",
            "each coefficient is scaled by its own range over public images and clipped to it",
            "floating-point Laplace noise",
        )

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee("coefficient", self.epsilon)

    def train(self, public: Tensor, people: Tensor, teacher: nn.Module) -> Self:
        flat = torch.cat([_flat_grey(part) for part in torch.split(public, BATCH)])
        mean = flat.mean(0)
        centred = (flat - mean).double()
        if len(centred) < centred.shape[1]:
            vectors = torch.linalg.svd(centred, full_matrices=False).Vh
        else:
            vectors = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1).T
        basis = vectors[: min(self.components, len(public) - 1)].float()
        found = (flat - mean) @ basis.T
        low, high = found.amin(0), found.amax(0)
        return replace(self, mean=mean, basis=basis, low=low, high=torch.maximum(high, low + MIN_SPREAD))

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        mean, basis, low, high = self._fitted()
        scaled = ((_flat_grey(images) - mean) @ basis.T - low) / (high - low)
        noise = draw(generators, (len(basis),), "laplace", images.device)
        return scaled.clamp(0, 1) + noise / self.epsilon

    def input_of(self, release: Release) -> Tensor:
        """float32 [N, 1, H, W]: the grey image that the coefficients stand for."""
        mean, basis, low, high = self._fitted()
        flat = (release.values * (high - low) + low) @ basis + mean
        height, width = release.shape
        small = flat.view(-1, 1, -(-height // SMALL), -(-width // SMALL))
        return functional.interpolate(small, size=release.shape, mode="bilinear", align_corners=False)

    def image_of(self, release: Release) -> Tensor:
        return self.input_of(release).expand(-1, 3, -1, -1)

    def decode(self, release: Release) -> Tensor:
        """The same with coefficients clipped to the range that they can have."""
        return self.image_of(replace(release, values=release.values.clamp(0, 1)))

    def _fitted(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self.mean is None or self.basis is None or self.low is None or self.high is None:
            raise LdpSlicingError(f"{self.name} has no components: call fit(public, people, teacher) first")
        return self.mean, self.basis, self.low, self.high


def _flat_grey(images: Tensor) -> Tensor:
    """uint8 [N, 3, H, W] to float32 [N, P]: luma, reduced."""
    red, green, blue = images.float().unbind(1)
    grey = (0.299 * red + 0.587 * green + 0.114 * blue)[:, None]
    return functional.avg_pool2d(grey, SMALL, ceil_mode=True).flatten(1)


PEERS = (Peep(components=64), Peep(components=256))
