"""The interface of a privacy mechanism for research: what it does to images, and with which probabilities.

Experiments and attacks that use this interface work for any mechanism. For releases use ``ldp_slicing.Slicer``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ldp_slicing.card import number
from ldp_slicing.plan import Plan
from ldp_slicing.torch.decode import likelihood
from ldp_slicing.torch.simulate import apply_view, simulate
from ldp_slicing.view import Prune


class Mechanism(Protocol):
    """A randomised map of images, pixel by pixel after a deterministic view."""

    @property
    def name(self) -> str:
        """The name of the mechanism with its parameters."""

    @property
    def epsilon(self) -> float:
        """The eps of one released pixel."""

    def view(self, images: Tensor) -> Tensor:
        """Return int32 [N, C, H, W], 0 to 255: the values that are randomised, of uint8 [N, C, H, W] images."""

    def protect(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return uint8 [N, C, H, W], 0 to 255: randomised values, of uint8 [N, C, H, W] images."""

    def likelihood(self, channel: int, device: torch.device) -> Tensor:
        """Return float64 [256, 256]: the probability of each randomised value (row) given each value of the view."""


@dataclass(frozen=True)
class Slicing:
    """The mechanism of this package as a ``Mechanism``. NOT FOR RELEASE: see ``simulate``.

    >>> mechanism = Slicing(Plan.paper(20.0))
    >>> mechanism.protect(torch.zeros(2, 3, 4, 4, dtype=torch.uint8)).shape
    torch.Size([2, 3, 4, 4])

    Values are Y, Cb, Cr for colour plans, and grey for plans of 8-bit words.
    """

    plan: Plan
    prune: Prune = "haar"

    @property
    def name(self) -> str:
        return (
            f"LDP-Slicing, {len(self.plan.slices)} slices, eps {number(self.epsilon)}, pruning {self.prune or 'none'}"
        )

    @property
    def epsilon(self) -> float:
        return self.plan.realised_epsilon

    def view(self, images: Tensor) -> Tensor:
        return apply_view(images, self.prune, colour=self.plan.is_colour)

    def protect(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return simulate(images, self.plan, generator, prune=self.prune, output="ycbcr")

    def likelihood(self, channel: int, device: torch.device) -> Tensor:
        return likelihood(self.plan, channel, device)
