"""Small smooth images in place of faces, and a small network in place of the recogniser."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.peers.interface import Peer, derive_keys
from ldp_slicing.lab.peers.training import TrainingSchedule
from tests.lab.datasets import tiny

SIDE = 16
SomePeer = TypeVar("SomePeer", bound=Peer)


def smooth_images(count: int, side: int = SIDE, seed: int = 0) -> Tensor:
    """uint8 [count, 3, side, side]: coarse random colours, enlarged."""
    coarse = torch.rand(count, 3, 5, 5, generator=torch.Generator().manual_seed(seed))
    large = functional.interpolate(coarse, size=(side, side), mode="bicubic", align_corners=True)
    return (255 * large).round().clamp(0, 255).to(torch.uint8)


def people(count: int) -> Tensor:
    """Two images of each person."""
    return torch.arange(count) // 2


def teacher() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return tiny(8).eval()


def quick(peer: SomePeer) -> SomePeer:
    """The same peer with a short training and, where it has a network of its own, a narrow one."""
    values = {field.name: getattr(peer, field.name) for field in fields(peer)}
    short = {name: replace(one, epochs=1, batch=4) for name, one in values.items() if isinstance(one, TrainingSchedule)}
    narrow = {"width": 4} if "width" in values else {}
    return replace(peer, **short, **narrow)


def fitted(peer: SomePeer, count: int = 8, side: int = SIDE) -> SomePeer:
    return peer.fit(smooth_images(count, side, seed=99), people(count), teacher())


def keys(count: int, label: str = "test") -> list[bytes]:
    return derive_keys(label, count)
