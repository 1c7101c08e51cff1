"""DuetFace (Mi et al., ACM MM 2022): the client keeps ten frequencies of each colour, the server gets the other 54."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ldp_slicing.lab.peers.dct import FREQUENCIES, channels_of, fill_maps, from_maps, invert_kept, to_maps
from ldp_slicing.lab.peers.interface import Peer, Release

CLIENT = (0, 1, 2, 3, 4, 5, 8, 9, 16, 24)
SERVER = tuple(one for one in range(FREQUENCIES) if one not in CLIENT)


@dataclass(frozen=True, eq=False, kw_only=True)
class DuetFace(Peer):
    """Releases are 54 frequencies of three colours: float32 [N, 162, H, W]. There is no randomness."""

    @property
    def name(self) -> str:
        return "duetface"

    @property
    def deviations(self) -> tuple[str, ...]:
        return (
            "without the client's attention: its feature maps and landmark mask are neither sent nor counted, "
            "which costs accuracy and reveals less",
        )

    @property
    def is_random(self) -> bool:
        return False

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        return to_maps(images)[:, channels_of(SERVER)]

    def image_of(self, release: Release) -> Tensor:
        return from_maps(fill_maps(release.values, channels_of(SERVER)))

    def decode(self, release: Release) -> Tensor:
        """By least squares from the mean image, if that is known."""
        return invert_kept(release.values, channels_of(SERVER), self.mean_image).images


PEERS = (DuetFace(),)
