"""MinusFace (Mi et al., CVPR 2024): an image minus what a generator makes of it, with shuffled frequencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.peers.dct import MAPS, from_maps, to_maps
from ldp_slicing.lab.peers.interface import BATCH, Peer, Release, draw
from ldp_slicing.lab.peers.training import (
    TrainingSchedule,
    channels_last,
    cosine_loss,
    embeddings_of,
    frozen,
    half_precision,
    minimise,
    seeded,
    student_of,
)

SCHEDULE = TrainingSchedule(epochs=12)
IMAGE_WEIGHT, RECOGNITION_WEIGHT = 5.0, 1.0


class MapGenerator(nn.Module):
    """A U-Net from 192 maps to 192 maps, without norms: two 3 x 3 convolutions per scale, four poolings."""

    def __init__(self, width: int = 64, scales: int = 5) -> None:
        super().__init__()
        widths = [width << i for i in range(scales)]
        self.down = nn.ModuleList(_two(a, b) for a, b in zip([MAPS, *widths], widths, strict=False))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(a, b, 3, 2, 1, output_padding=1) for a, b in pairs)
        self.up = nn.ModuleList(_two(2 * b, b) for _, b in pairs)
        self.head = nn.Conv2d(width, MAPS, 1)
        self.multiple = 1 << scales - 1

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        x, kept = functional.pad(x, (0, -width % self.multiple, 0, -height % self.multiple)), list[Tensor]()
        for i, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for grow, block, skipped in zip(self.grow, self.up, kept[-2::-1], strict=True):
            x = block(torch.cat((grow(x), skipped), 1))
        with torch.autocast(x.device.type, enabled=False):
            out: Tensor = self.head(x.float())
        return out[:, :, :height, :width]


@dataclass(frozen=True, eq=False, kw_only=True)
class MinusFace(Peer):
    """Releases are images of shuffled residues: float32 [N, 3, H, W], 0..1. Every image has its own shuffling.

    generator: what a person would recognise, learned in the first stage. center, spread: float32 [192, 1, 1] of the
    public maps. width: of the generator.
    """

    width: int = 64
    schedule: TrainingSchedule = SCHEDULE
    generator: nn.Module | None = None
    center: Tensor | None = None
    spread: Tensor | None = None

    @property
    def name(self) -> str:
        return "minusface"

    @property
    def deviations(self) -> tuple[str, ...]:
        return (
            "the first stage learns from a student of the recogniser and the teacher's embedding instead of ArcFace, "
            "because LFW has too few people",
            "Adam instead of SGD, 12 epochs on some 8,000 images instead of 24 on millions; releases are not rounded "
            "to 8 bits; the generator reads and writes standardised maps, in half "
            "precision on a GPU but for its last layer",
            "one release per test image, without copies under other shufflings; the second stage is the student, and a "
            "redrawn one sees a release of each image in every epoch instead of three in all",
        )

    def train(self, public: Tensor, people: Tensor, teacher: nn.Module) -> Self:
        """The first stage: 5 L1(image, decoded output) + (1 - cosine) of the residue's embedding."""
        spread, center = (part[0] for part in torch.std_mean(to_maps(public[:BATCH]), (0, 2, 3), keepdim=True))
        wanted = embeddings_of(teacher, public)
        wanted = wanted - wanted.mean(0)
        with seeded(self.schedule.seed):
            generator = channels_last(MapGenerator(self.width).to(public.device))
        student = student_of(teacher, MAPS, public, seed=self.schedule.seed).train()
        peer = replace(self, generator=generator, center=center, spread=spread)

        def loss(indices: Tensor, _epoch: int) -> Tensor:
            indices = indices.to(public.device)
            images = public[indices]
            residue = peer.residue(images)
            decoded = from_maps(to_maps(images) - residue)
            likeness = functional.l1_loss(decoded / 255, images.float() / 255)
            with half_precision(public.device):
                recognition = cosine_loss(student(residue / spread), wanted[indices])
            return IMAGE_WEIGHT * likeness + RECOGNITION_WEIGHT * recognition

        groups: list[dict[str, Any]] = [
            {"params": student.parameters()},
            {"params": generator.parameters(), "lr": self.schedule.rate / 2},
        ]
        minimise(loss, groups, len(public), self.schedule, public.device)
        return replace(peer, generator=frozen(generator))

    def residue(self, images: Tensor) -> Tensor:
        """float32 [N, 192, H, W]: the maps minus the generator's. It never leaves the device."""
        if self.generator is None or self.center is None or self.spread is None:
            raise LdpSlicingError(f"{self.name} has no generator: call fit(public, people, teacher) first")
        maps = to_maps(images)
        with half_precision(images.device):
            output: Tensor = self.generator((maps - self.center) / self.spread)
        return maps - (output * self.spread + self.center)

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        residues = self.residue(images)
        orders = draw(generators, (MAPS,), "uniform", images.device).argsort(stable=True, dim=1)
        shuffled = residues.gather(1, orders[:, :, None, None].expand(-1, -1, *residues.shape[2:]))
        return from_maps(shuffled) / 255

    def image_of(self, release: Release) -> Tensor:
        return 255 * release.values


def _two(inside: int, outside: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1),
        nn.ReLU(),
    )


PEERS = (MinusFace(),)
