"""A stand-in for AdvFace (Wang et al., CVPR 2023), of which no code is public: features that a decoder misreads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.learners.models.face_networks import DlibInput, DlibOfCrop
from ldp_slicing.lab.peers.interface import BATCH, Peer, Release
from ldp_slicing.lab.peers.training import TrainingSchedule, channels_last, frozen, half_precision, minimise, seeded

SCHEDULE = TrainingSchedule(epochs=8)
STEPS = 40


@dataclass(frozen=True, eq=False, kw_only=True)
class AdvFace(Peer):
    """Releases are the features of the recogniser's first layers, changed within a bound: float32 [N, C, h, w].

    bound: of the change, in deviations of each feature. stem, rest: the two parts of the recogniser. decoder: features
    to images. spread: float32 [C, 1, 1]. There is no randomness.
    """

    bound: float = 0.5
    schedule: TrainingSchedule = SCHEDULE
    stem: nn.Module | None = None
    rest: nn.Module | None = None
    decoder: nn.Module | None = None
    spread: Tensor | None = None

    @property
    def name(self) -> str:
        return "advface-like"

    @property
    def deviations(self) -> tuple[str, ...]:
        return (
            "a stand-in: the paper's loss, bound and number of steps were not available",
            "features of our recogniser's first layers instead of 64 x 56 x 56",
            f"a decoder trained for {self.schedule.epochs} epochs of our public images; the paper's number was not "
            "available",
        )

    @property
    def hidden_from(self) -> str:
        return "thieves of the server's database; the server sees unprotected features"

    def train(self, public: Tensor, people: Tensor, teacher: nn.Module) -> Self:
        """Train the decoder that the features are to mislead."""
        stem, rest = split_recogniser(teacher)
        with torch.no_grad():
            some = torch.cat([stem(part.float()) for part in torch.split(public[: 8 * BATCH], BATCH)])
        spread = some.std((0, 2, 3))[:, None, None].clamp_min(1e-6)
        with seeded(self.schedule.seed):
            decoder = channels_last(_decoder(some.shape[1], tuple(public.shape[2:])).to(public.device))

        def loss(indices: Tensor, _epoch: int) -> Tensor:
            images = public[indices.to(public.device)].float()
            with half_precision(public.device):
                decoded = decoder(stem(images) / spread)
            return functional.l1_loss(decoded.float(), images / 255)

        minimise(loss, decoder.parameters(), len(public), self.schedule, public.device)
        return replace(self, stem=stem, rest=rest, decoder=frozen(decoder), spread=spread)

    @property
    def is_random(self) -> bool:
        return False

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        """Steps along the sign of the gradient drive the decoder's image from the source, and from its own echo."""
        stem, decoder, spread = self._fitted()
        sources = images.float()
        features = stem(sources)
        change = torch.full_like(features, 0.01 * self.bound)  # not 0, where the echo's gradient may vanish
        for _ in range(STEPS):
            with torch.enable_grad():
                change.requires_grad_(True)
                with half_precision(images.device):
                    shadow = decoder(features / spread + change).float()
                    echo = decoder(stem(255 * shadow) / spread).float()
                distance = (shadow - echo).abs().mean((1, 2, 3)) + (shadow - sources / 255).abs().mean((1, 2, 3))
                (slope,) = torch.autograd.grad(distance.sum(), change)
            change = (change.detach() + self.bound / 10 * slope.sign()).clamp(-self.bound, self.bound)
        released: Tensor = features + change * spread
        return released

    def recognise(self, release: Release) -> Tensor:
        """float32 [N, D]: what the rest of the recogniser makes of the features, as the server does."""
        self._fitted()
        assert self.rest is not None  # noqa: S101 - fitted together
        out: Tensor = self.rest(release.values)
        return out

    def input_of(self, release: Release) -> Tensor:
        return functional.interpolate(release.values, size=release.shape, mode="bilinear", align_corners=False)

    def image_of(self, release: Release) -> Tensor:
        """The mean over all features, in grey."""
        _, _, spread = self._fitted()
        mean = (self.input_of(replace(release, values=release.values / spread))).mean(1, keepdim=True)
        low, high = mean.amin((2, 3), keepdim=True), mean.amax((2, 3), keepdim=True)
        return (255 * (mean - low) / (high - low).clamp_min(1e-12)).expand(-1, 3, -1, -1)

    def _fitted(self) -> tuple[nn.Module, nn.Module, Tensor]:
        if self.stem is None or self.decoder is None or self.spread is None:
            raise LdpSlicingError(f"{self.name} has no decoder: call fit(public, people, teacher) first")
        return self.stem, self.decoder, self.spread


def split_recogniser(teacher: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The first convolution with its norm and activation (dlib: its pooling too), and the rest."""
    whole = frozen(teacher)
    if isinstance(whole, DlibOfCrop):
        network = whole.network
        stem = nn.Sequential(DlibInput(), network.conv, network.affine, nn.ReLU(), nn.MaxPool2d(3, 2))
        return stem, nn.Sequential(network.blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), network.head)
    if isinstance(whole, nn.Sequential):
        return whole[:3], whole[3:]
    raise LdpSlicingError(f"cannot split a {type(teacher).__name__}: give dlib's recogniser or an nn.Sequential")


def _decoder(features: int, size: tuple[int, ...]) -> nn.Module:
    """[N, features, h, w] to [N, 3, *size], 0..1: convolutions before and after two enlargements."""
    width, half = 64, tuple(-(-side // 2) for side in size)
    layers: list[nn.Module] = [nn.Conv2d(features, width, 3, padding=1), nn.ReLU()]
    for target in (half, size):
        layers += [nn.Upsample(target, mode="bilinear"), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(width, 3, 1), nn.Sigmoid())


PEERS = (AdvFace(),)
