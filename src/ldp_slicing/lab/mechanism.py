"""LDP-Slicing as the lab's ``Mechanism``: releases simulated on a device, and their likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ldp_slicing.lab.bits import float_rgb
from ldp_slicing.lab.interfaces import Mechanism
from ldp_slicing.plan import Plan
from ldp_slicing.torch.simulate import apply_view, simulate
from ldp_slicing.view import Prune


@dataclass(frozen=True)
class SlicingMechanism(Mechanism):
    """A plan and a view. Releases are words: uint8 [N, C, H, W], Y, Cb, Cr or grey.

    >>> mechanism = SlicingMechanism(Plan.paper(20.0))
    >>> mechanism.protect(torch.zeros(1, 3, 4, 4, dtype=torch.uint8)).shape
    torch.Size([1, 3, 4, 4])
    """

    plan: Plan
    prune: Prune = "haar"

    @property
    def epsilon(self) -> float:
        return self.plan.realised_epsilon

    def protect(self, sources: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return simulate(sources, self.plan, generator, prune=self.prune, output="ycbcr")

    def log_likelihood(self, released: Tensor, sources: Tensor) -> Tensor:
        """From the plan's tables. Dropped bits say nothing about the source and do not count.

        Slices are independent but for the rounding of packed tables, which is below 1e-15 of each probability.
        """
        masks = _words(released) ^ _words(apply_view(sources, self.prune, colour=self.plan.is_colour))
        total = torch.zeros(len(released), dtype=torch.float64, device=released.device)
        for part in self.plan.slices:
            symbols = 1 << part.bits.bit_count()
            missed = float(self.plan.tables.miss_probability(part.bits))
            unchanged, other = missed + (1 - missed) / symbols, (1 - missed) / symbols
            unchanged_pixels = (masks & part.bits == 0).sum((1, 2)).double()
            pixels = masks[0].numel()
            total += unchanged_pixels * math.log(unchanged) + (pixels - unchanged_pixels) * math.log(other)
        return total

    def to_rgb(self, released: Tensor) -> Tensor:
        return float_rgb(released.float()).clamp_(0, 255)


def _words(channels: Tensor) -> Tensor:
    """[N, C, H, W] channels to int64 [N, H, W] words, the first channel highest."""
    words = torch.zeros_like(channels[:, 0], dtype=torch.int64)
    for channel in channels.unbind(1):
        words = words << 8 | channel.long()
    return words
