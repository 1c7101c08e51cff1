"""No protection: the sources themselves. Every attack must succeed here, or the attack is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ldp_slicing.lab.peers.interface import Peer, Release


@dataclass(frozen=True, eq=False, kw_only=True)
class Unprotected(Peer):
    """Releases are the sources: uint8 [N, 3, H, W]."""

    @property
    def name(self) -> str:
        return "none"

    @property
    def deviations(self) -> tuple[str, ...]:
        return ()

    @property
    def hidden_from(self) -> str:
        return "nobody"

    @property
    def is_random(self) -> bool:
        return False

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        return images.clone()

    def image_of(self, release: Release) -> Tensor:
        return release.values.float()

    def decode(self, release: Release) -> Tensor:
        return release.values.float()


PEERS = (Unprotected(),)
