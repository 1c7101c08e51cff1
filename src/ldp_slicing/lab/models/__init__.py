"""The networks of the experiments, by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.models.cifar import resnet9, resnet56
from ldp_slicing.lab.models.classify import resnet50_grey, wide_resnet28
from ldp_slicing.lab.models.faces import ir50

MODELS: dict[str, Callable[[int], nn.Module]] = {
    "resnet56": resnet56,
    "resnet9": resnet9,
    "wrn28": wide_resnet28,
    "resnet50-grey": resnet50_grey,
    "ir50": ir50,
}


def build(name: str, classes: int) -> nn.Module:
    """A new network from images to [N, classes]: [N, 3, 32, 32], for ir50 [N, 3, 112, 112], for resnet50-grey [N, 1, H, W]."""
    if name not in MODELS:
        raise LdpSlicingError(f"no model {name!r}; there are {', '.join(sorted(MODELS))}")
    return MODELS[name](classes)
