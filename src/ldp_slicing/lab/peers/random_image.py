"""Releases that do not depend on the source. Every attack must fail here, or the measurement is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ldp_slicing.lab.peers.interface import Guarantee, Peer, Release, draw, to_bytes


@dataclass(frozen=True, eq=False, kw_only=True)
class RandomImage(Peer):
    """Releases are uniformly random images: uint8 [N, 3, H, W]."""

    @property
    def name(self) -> str:
        return "random"

    @property
    def deviations(self) -> tuple[str, ...]:
        return ("no system: releases that do not depend on the source",)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee("image", 0.0)

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        return to_bytes(256 * draw(generators, tuple(images.shape[1:]), "uniform", images.device) - 0.5)

    def image_of(self, release: Release) -> Tensor:
        return release.values.float()

    def decode(self, release: Release) -> Tensor:
        return release.values.float()


PEERS = (RandomImage(),)
