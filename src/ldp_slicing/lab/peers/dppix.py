"""DP-Pix (Fan 2018): the mean of each block of pixels, with Laplace noise. Not among the systems of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.peers.interface import Guarantee, Peer, Release, draw


@dataclass(frozen=True, eq=False, kw_only=True)
class DpPix(Peer):
    """Releases are noisy block means, clipped: float32 [N, 3, H // block, W // block], 0..255.

    pixels: in how many source pixels neighbouring images may differ, wherever those are.
    """

    block: int
    pixels: int
    epsilon: float

    @property
    def name(self) -> str:
        return f"dp-pix:b{self.block}-m{self.pixels}-eps{self.epsilon:g}"

    @property
    def deviations(self) -> tuple[str, ...]:
        return (
            "an image whose sides are no multiple of the block is cropped, not padded",
            "floating-point Laplace noise, as in the public code: an exact sampler would be needed for the promise",
        )

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee("source pixel" if self.pixels == 1 else f"{self.pixels} source pixels", self.epsilon)

    @property
    def scale(self) -> float:
        """Of the noise: a pixel changes three block means by up to 255 / block^2 each."""
        return 255 * self.pixels * 3 / (self.block**2 * self.epsilon)

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        if min(images.shape[2:]) < self.block:
            raise LdpSlicingError(f"images of {tuple(images.shape[2:])} pixels have no block of {self.block}")
        means = functional.avg_pool2d(images.float(), self.block)
        noise = draw(generators, tuple(means.shape[1:]), "laplace", images.device)
        return (means + self.scale * noise).clamp(0, 255)

    def input_of(self, release: Release) -> Tensor:
        large = functional.interpolate(release.values, scale_factor=float(self.block), mode="nearest")
        missing = (release.shape[1] - large.shape[3], release.shape[0] - large.shape[2])
        return functional.pad(large, (0, missing[0], 0, missing[1]), mode="replicate")

    def image_of(self, release: Release) -> Tensor:
        return self.input_of(release)


# eps 20.8 and 80 for a source pixel are what LDP-Slicing promises with Haar pruning at eps 5.2 and 20.
PEERS = (
    DpPix(block=4, pixels=1, epsilon=80.0),
    DpPix(block=4, pixels=1, epsilon=20.8),
    DpPix(block=16, pixels=16, epsilon=0.5),
)
