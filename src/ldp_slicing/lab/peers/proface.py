"""PRO-Face (Yuan et al., ACM MM 2022): a blurred or pixelated face that a recogniser still takes for the person."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.metrics.images import ssim
from ldp_slicing.lab.peers.interface import Peer, Release
from ldp_slicing.lab.peers.training import TrainingSchedule, channels_last, frozen, half_precision, minimise, seeded

Obfuscation = Literal["blur", "pixelate"]
SCHEDULE = TrainingSchedule(epochs=12)
BLUR, BLURS = 5.0, (2.0, 8.0)  # sigma at test, and its range in training
BLOCK, BLOCKS = 7, (4, 10)  # of pixels
RADIUS = 15  # of the blur's kernel
FEATURES, GROWTH, LAYERS, DOWN = 16, 4, 3, 3


class _Dense(nn.Module):
    """Three convolutions, each of which sees what all before it gave; then one of 1 x 1."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(inside + GROWTH * i, GROWTH, 3, padding=1) for i in range(LAYERS))
        self.join = nn.Conv2d(inside + GROWTH * LAYERS, outside, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat((x, functional.relu(layer(x))), 1)
        out: Tensor = self.join(x)
        return out


class ImageFusion(nn.Module):
    """Two [N, 3, H, W] of -1..1, the source and its obfuscation, to [N, 3, H, W]: a dense U-Net with two encoders."""

    def __init__(self, features: int = FEATURES) -> None:
        super().__init__()
        widths = [features * (i + 1) for i in range(DOWN + 1)]
        steps = list(itertools.pairwise(widths))
        self.enter = nn.ModuleList(nn.Conv2d(3, features, 3, padding=1) for _ in range(2))
        self.down = nn.ModuleList(nn.ModuleList(_Dense(a, b) for a, b in steps) for _ in range(2))
        self.up = nn.ModuleList(_Dense(a + b, a) for a, b in reversed(steps))
        self.head = nn.Conv2d(features, 3, 1)

    def forward(self, source: Tensor, obfuscated: Tensor) -> Tensor:
        sums: list[Tensor] = []
        for image, enter, blocks in zip((source, obfuscated), self.enter, self.down, strict=True):
            assert isinstance(blocks, nn.ModuleList)  # noqa: S101 - a ModuleList forgets the type
            x = enter(image)
            scales = [x]
            for block in blocks:
                x = block(functional.max_pool2d(x, 2))
                scales.append(x)
            sums = [a + b for a, b in zip(sums, scales, strict=True)] if sums else scales
        x = sums[-1]
        for block, skipped in zip(self.up, sums[-2::-1], strict=True):
            x = block(torch.cat((functional.interpolate(x, size=skipped.shape[2:], mode="nearest"), skipped), 1))
        return torch.tanh(self.head(x))


@dataclass(frozen=True, eq=False, kw_only=True)
class ProFace(Peer):
    """Releases are images that look obfuscated: float32 [N, 3, H, W], -1..1. There is no randomness."""

    obfuscation: Obfuscation
    schedule: TrainingSchedule = SCHEDULE
    fusion: nn.Module | None = None

    @property
    def name(self) -> str:
        return f"pro-face:{self.obfuscation}"

    @property
    def deviations(self) -> tuple[str, ...]:
        return (
            "1 - SSIM instead of LPIPS, whose weights are not available",
            "without face swaps: blurred and pixelated images alone",
            "one decoder for both encoders; no dropout; releases are not rounded to 8 bits",
            f"trained for {self.schedule.epochs} epochs on our public images in batches of {self.schedule.batch}; the "
            "public code trains for up to 50 epochs of CelebA in batches of 8",
        )

    @property
    def hidden_from(self) -> str:
        return "people who look at it, not programs"

    def train(self, public: Tensor, people: Tensor, teacher: nn.Module) -> Self:
        """To look like the obfuscation, and to be recognised as the source: triplets of embeddings, margin 1."""
        judge, device = frozen(teacher), public.device
        with seeded(self.schedule.seed):
            fusion = channels_last(ImageFusion().to(device))
        generator = torch.Generator().manual_seed(self.schedule.seed)
        partner, other = _triplets(people.cpu(), generator)
        anchors = torch.nonzero(partner >= 0).flatten()  # people with one image have no partner
        triplet = nn.TripletMarginLoss(margin=1.0)

        def loss(chosen: Tensor, _epoch: int) -> Tensor:
            anchor = anchors[chosen]
            three = torch.cat((anchor, partner[anchor], other[anchor])).to(device)
            sources = public[three].float()
            strength = float(torch.rand((), generator=generator))
            looks = obfuscate(sources, self.obfuscation, strength)
            with half_precision(device):
                released = fusion(_scaled(sources), _scaled(looks)).float()
                seen = judge(127.5 * (released + 1)).float().chunk(3)
                real = judge(sources[: len(anchor)]).float()
            unlike = 1 - ssim(127.5 * (released + 1), looks).mean()
            far = functional.l1_loss(released, _scaled(looks))
            triplets: Tensor = 0.5 * triplet(*seen) + 0.1 * triplet(seen[0], real, seen[2])
            return 2 * unlike + far + triplets

        minimise(loss, fusion.parameters(), len(anchors), self.schedule, device)
        return replace(self, fusion=frozen(fusion))

    @property
    def is_random(self) -> bool:
        return False

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        if self.fusion is None:
            raise LdpSlicingError(f"{self.name} has no network: call fit(public, people, teacher) first")
        sources = images.float()
        out: Tensor = self.fusion(_scaled(sources), _scaled(obfuscate(sources, self.obfuscation)))
        return out

    def image_of(self, release: Release) -> Tensor:
        return 127.5 * (release.values + 1)


def obfuscate(images: Tensor, kind: Obfuscation, strength: float | None = None) -> Tensor:
    """float [N, 3, H, W] to the same, blurred or pixelated. strength: 0..1 over the range used in training."""
    if kind == "blur":
        return _blur(images, BLUR if strength is None else BLURS[0] + strength * (BLURS[1] - BLURS[0]))
    block = BLOCK if strength is None else round(BLOCKS[0] + strength * (BLOCKS[1] - BLOCKS[0]))
    small = functional.adaptive_avg_pool2d(images, (max(1, images.shape[2] // block), max(1, images.shape[3] // block)))
    return functional.interpolate(small, size=images.shape[2:], mode="nearest")


def _blur(images: Tensor, sigma: float) -> Tensor:
    """Matrix products, one per axis, with the border repeated."""
    out = images
    for axis in (2, 3):
        side = images.shape[axis]
        places = torch.arange(-RADIUS, RADIUS + 1, device=images.device)
        weights = torch.exp(-places.square() / (2 * sigma**2))
        rows = torch.arange(side, device=images.device)[:, None].expand(-1, len(places))
        columns = (rows + places).clamp(0, side - 1)
        kernel = torch.zeros(side, side, device=images.device)
        kernel.index_put_((rows, columns), (weights / weights.sum()).expand(side, -1), accumulate=True)
        out = kernel @ out if axis == 2 else out @ kernel.T
    return out


def _scaled(images: Tensor) -> Tensor:
    return images / 127.5 - 1


def _triplets(people: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """int64 [N] twice: for each image another image of the person (-1 if there is none), and one of somebody else."""
    count = len(people)
    partner = torch.full((count,), -1)
    order = torch.randperm(count, generator=generator)
    groups: dict[int, list[int]] = {}
    for i in order.tolist():
        groups.setdefault(int(people[i]), []).append(i)
    for members in groups.values():
        if len(members) > 1:
            for one, following in zip(members, members[1:] + members[:1], strict=True):
                partner[one] = following
    other = torch.randint(count, (count,), generator=generator)
    for i in torch.nonzero(people[other] == people).flatten().tolist():
        strangers = torch.nonzero(people != people[i]).flatten()
        other[i] = strangers[int(torch.randint(len(strangers), (), generator=generator))]
    return partner, other


PEERS = (ProFace(obfuscation="blur"), ProFace(obfuscation="pixelate"))
