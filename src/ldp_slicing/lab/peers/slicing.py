"""LDP-Slicing itself, through ``Slicer``: the paper's plan at three budgets, and a thick plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ldp_slicing.lab.bits import to_bits
from ldp_slicing.lab.peers.interface import Guarantee, Peer, Release
from ldp_slicing.plan import Plan
from ldp_slicing.randomness import KEY_BYTES, ImageKey, SeededForTests
from ldp_slicing.slicer import Slicer
from ldp_slicing.torch.simulate import simulate, to_rgb
from ldp_slicing.view import Prune, Size


@dataclass(frozen=True, eq=False, kw_only=True)
class Slicing(Peer):
    """A plan and a view. Releases are images: uint8 [N, 3, h, w], Y, Cb, Cr, as large as the sources or smaller."""

    setting: str
    plan: Plan
    prune: Prune = "haar"
    size: Size = None

    @property
    def name(self) -> str:
        return f"ldp-slicing:{self.setting}"

    @property
    def revision(self) -> int:
        return 2

    @property
    def deviations(self) -> tuple[str, ...]:
        return (
            "released as Y, Cb and Cr, from which networks read the bits; the same release in RGB reveals a little "
            "less, because some colours are clamped",
            "image keys are derived from a label, so that the experiment can be repeated",
            "on a GPU, masks come from PyTorch's generator and not from a cipher; their distribution is the same",
        )

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee("released pixel", self.plan.realised_epsilon)

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        """On the CPU the product's own mechanism. On a GPU its simulation, whose masks have the same distribution."""
        if images.is_cuda:
            return simulate(images, self.plan, generators, prune=self.prune, size=self.size, output="ycbcr")
        keys = []
        for generator in generators:
            drawn = torch.randint(256, (KEY_BYTES,), dtype=torch.uint8, generator=generator)
            keys.append(ImageKey(bytes(drawn.tolist()), is_secret=False))
        slicer = Slicer(self.plan, prune=self.prune, size=self.size, output="ycbcr", randomness=SeededForTests(0))
        sources = np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())
        return torch.from_numpy(slicer(sources, keys)).permute(0, 3, 1, 2).contiguous()

    def input_of(self, release: Release) -> Tensor:
        """Every bit that is not dropped, and the three channels."""
        kept = [8 * (2 - bit // 8) + bit % 8 for bit in range(self.plan.word_bits) if self.plan.kept_bits >> bit & 1]
        seen = torch.cat((to_bits(release.values)[:, kept].float(), release.values.float()), 1)
        return functional.interpolate(seen, size=release.shape, mode="nearest")

    def image_of(self, release: Release) -> Tensor:
        shown = to_rgb(release.values.int()).float()
        return functional.interpolate(shown, size=release.shape, mode="nearest")


PEERS = (
    *(Slicing(setting=f"eps{epsilon:g}", plan=Plan.paper(epsilon)) for epsilon in (20.0, 12.0, 5.2)),
    Slicing(setting="thick-eps5.2", plan=Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7")),
    Slicing(setting="small-eps20", plan=Plan.paper(20.0), prune=None, size=28),
)
