"""The interfaces of the lab: a mechanism protects images, an attack reads them, a metric scores, a learner learns.

Whatever has these methods is measured like LDP-Slicing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor


class Mechanism(Protocol):
    """A mechanism that randomises images, with the probability of what it releases."""

    @property
    def epsilon(self) -> float:
        """The eps of one released pixel."""
        ...

    def protect(self, sources: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return a release of each of the uint8 [N, C, H, W] sources, on their device."""
        ...

    def log_likelihood(self, released: Tensor, sources: Tensor) -> Tensor:
        """Return float64 [N]: ln P(release | source) of each pair. sources: uint8 [N, C, H, W]."""
        ...

    def to_rgb(self, released: Tensor) -> Tensor:
        """Return float [N, C, H, W], 0 to 255: the releases as images."""
        ...


class Metric(Protocol):
    """How close reconstructions come to their sources. ``metrics.images.image_quality`` is one."""

    def __call__(self, images: Tensor, sources: Tensor) -> Mapping[str, Any]:
        """Two [N, C, H, W], 0 to 255, image i made from a release of source i, to numbers by name."""
        ...


Target = TypeVar("Target", contravariant=True)
SomeMechanism = TypeVar("SomeMechanism", bound=Mechanism, contravariant=True)
Result = TypeVar("Result", covariant=True)


class Attack(Protocol[Target, SomeMechanism, Result]):
    """A way to learn about sources from their releases. ``attacks.bayes.attack_by_posterior`` is one."""

    def __call__(self, target: Target, mechanism: SomeMechanism, /) -> Result: ...


class Learner(Protocol):
    """Something that learns in steps and can be stopped and resumed."""

    @property
    def device(self) -> torch.device: ...

    @property
    def finished(self) -> bool: ...

    def advance(self) -> bool:
        """Start another step if there is one; return whether there was."""
        ...

    def test_accuracy(self) -> Any:  # noqa: ANN401 - a share, or one for each of several models
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to continue."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
