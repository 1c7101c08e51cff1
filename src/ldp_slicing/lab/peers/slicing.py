"""LDP-Slicing itself, through ``Slicer``: the paper's plan at three budgets, and a thick plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ldp_slicing.lab.peers.interface import Guarantee, Peer, Release
from ldp_slicing.plan import Plan
from ldp_slicing.randomness import KEY_BYTES, ImageKey, SeededForTests
from ldp_slicing.slicer import Slicer
from ldp_slicing.view import Prune


@dataclass(frozen=True, eq=False, kw_only=True)
class Slicing(Peer):
    """A plan and a view. Releases are images: uint8 [N, 3, H, W], RGB."""

    setting: str
    plan: Plan
    prune: Prune = "haar"

    @property
    def name(self) -> str:
        return f"ldp-slicing:{self.setting}"

    @property
    def deviations(self) -> tuple[str, ...]:
        return ("image keys are derived from a label, so that the experiment can be repeated",)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee("released pixel", self.plan.realised_epsilon)

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        """On the CPU, whatever the device: it is the product's own mechanism that is compared."""
        keys = []
        for generator in generators:
            drawn = torch.randint(256, (KEY_BYTES,), dtype=torch.uint8, generator=generator, device=generator.device)
            keys.append(ImageKey(bytes(drawn.tolist()), is_secret=False))
        slicer = Slicer(self.plan, prune=self.prune, randomness=SeededForTests(0))
        sources = np.ascontiguousarray(images.permute(0, 2, 3, 1).cpu().numpy())
        return torch.from_numpy(slicer(sources, keys)).permute(0, 3, 1, 2).contiguous().to(images.device)

    def image_of(self, release: Release) -> Tensor:
        return release.values.float()


PEERS = (
    *(Slicing(setting=f"eps{epsilon:g}", plan=Plan.paper(epsilon)) for epsilon in (20.0, 12.0, 5.2)),
    Slicing(setting="thick-eps5.2", plan=Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7")),
)
