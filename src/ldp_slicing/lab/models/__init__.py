"""The networks of the experiments, by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.models.cifar import resnet9, resnet56

MODELS: dict[str, Callable[[int], nn.Module]] = {"resnet56": resnet56, "resnet9": resnet9}


def build(name: str, classes: int) -> nn.Module:
    """A new network that maps [N, 3, 32, 32] to [N, classes]."""
    if name not in MODELS:
        raise LdpSlicingError(f"no model {name!r}; there are {', '.join(sorted(MODELS))}")
    return MODELS[name](classes)
