"""What an adversary knows about faces in general: generators of faces, learned from public images alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.learners.models.style import LATENT, Discriminator, StyleGenerator
from ldp_slicing.lab.peers.training import channels_last, frozen, half_precision, seeded

SIDE = 64  # of generated images
COMPONENTS = 256
BATCH = 128
RATE, R1_EVERY, R1_WEIGHT, HALF_LIFE = 0.002, 16, 1.0, 10_000
SHOWN = 500_000  # images that the discriminator is shown


class FacePrior(Protocol):
    """Latents and the faces that they stand for."""

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """float32 [count, ...]: latents of random faces. The generator is the CPU's."""
        ...

    def render(self, latents: Tensor, *, precise: bool = False) -> Tensor:
        """Latents to float32 [N, 3, 64, 64], 0..255 up to rounding, with gradients. precise: in full precision."""
        ...


def reduce_images(images: Tensor) -> Tensor:
    """uint8 [N, 3, H, W] to float32 [N, 3, 64, 64], 0..255."""
    return functional.interpolate(images.float(), size=(SIDE, SIDE), mode="bilinear", antialias=True)


def enlarge_images(images: Tensor, size: tuple[int, int]) -> Tensor:
    """float32 [N, 3, 64, 64] to the size of sources."""
    return functional.interpolate(images, size=size, mode="bilinear", align_corners=False)


@dataclass(frozen=True, eq=False)
class PcaPrior:
    """The mean face and principal components with normal coefficients: the floor that a generator must exceed."""

    mean: Tensor
    basis: Tensor

    @classmethod
    def fit(cls, public: Tensor, components: int = COMPONENTS) -> PcaPrior:
        """public: uint8 [N, 3, H, W]."""
        flat = torch.cat([reduce_images(part).flatten(1) for part in torch.split(public, BATCH)])
        mean = flat.mean(0)
        count = min(components, len(flat) - 1)
        start = torch.randn(flat.shape[1], count, generator=torch.Generator().manual_seed(0)).to(flat.device)
        for _ in range(6):  # the dominant subspace, by power iterations
            start = torch.linalg.qr((flat - mean).T @ ((flat - mean) @ start)).Q
        _, sizes, directions = torch.linalg.svd((flat - mean) @ start, full_matrices=False)
        basis = (directions @ start.T) * (sizes / len(flat) ** 0.5)[:, None]
        return cls(mean, basis)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.randn(count, len(self.basis), generator=generator).to(self.mean.device)

    def render(self, latents: Tensor, *, precise: bool = False) -> Tensor:
        del precise  # it always is
        return (self.mean + latents @ self.basis).view(-1, 3, SIDE, SIDE)


@dataclass(frozen=True, eq=False)
class StylePrior:
    """A style generator."""

    network: StyleGenerator

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        device = self.network.constant.device
        with torch.no_grad():
            return self.network.mapping(torch.randn(count, LATENT, generator=generator).to(device)).clone()

    def render(self, latents: Tensor, *, precise: bool = False) -> Tensor:
        with half_precision(latents.device, enabled=not precise):
            out: Tensor = self.network(latents)
        return 127.5 * (out + 1)


def train_style_prior(
    public: Tensor,
    *,
    shown: int = SHOWN,
    batch: int = BATCH,
    widths: dict[int, int] | None = None,
    seed: int = 0,
    log: Callable[[str], None] = lambda _: None,
) -> StylePrior:
    """Train on uint8 [N, 3, H, W] public images, against a discriminator, until it was shown so many images.

    Non-saturating losses, a penalty on the discriminator's gradient every 16 steps, differentiable augmentation and
    mirroring. The result is a moving average of the weights.
    """
    device = public.device
    real = torch.cat([(reduce_images(part) / 127.5 - 1).clamp(-1, 1).half() for part in torch.split(public, BATCH)])
    with seeded(seed):
        network = channels_last(StyleGenerator(widths).to(device))
        judge = channels_last(Discriminator(widths).to(device))
    average = copy.deepcopy(network).requires_grad_(False)
    generator = torch.Generator(device).manual_seed(seed)
    fused = device.type == "cuda" or None
    makers, judges = (
        torch.optim.Adam(one.parameters(), lr=RATE, betas=(0.0, 0.99), fused=fused) for one in (network, judge)
    )

    def made() -> Tensor:
        with half_precision(device):
            normals = torch.randn(batch, LATENT, generator=generator, device=device)
            out: Tensor = network(network.mapping(normals))
            return out

    def judged(images: Tensor) -> Tensor:
        with half_precision(device):
            out: Tensor = judge(augment(images, generator))
            return out

    last: tuple[Tensor, Tensor] | None = None
    for step in range(shown // batch):
        chosen = real[torch.randint(len(real), (batch,), generator=generator, device=device)].float()
        mirrored = torch.rand(batch, 1, 1, 1, generator=generator, device=device) < 0.5
        chosen = torch.where(mirrored, chosen.flip(-1), chosen)
        with torch.no_grad():
            fake = made()
        loss = functional.softplus(judged(fake)).mean() + functional.softplus(-judged(chosen)).mean()
        if step % R1_EVERY == 0:
            loss = loss + R1_EVERY * R1_WEIGHT / 2 * _gradient_size(judge, chosen)
        _step(judges, loss)
        judge.requires_grad_(False)
        deceived = functional.softplus(-judged(made())).mean()
        _step(makers, deceived)
        judge.requires_grad_(True)
        with torch.no_grad():
            share = 0.5 ** (batch / min(HALF_LIFE, 0.05 * (step + 1) * batch))
            torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), 1 - share)
        last = loss.detach(), deceived.detach()
        if step % 500 == 499:
            log(f"prior: {(step + 1) * batch:,} images, losses {float(last[0]):.3f}, {float(last[1]):.3f}")
    return StylePrior(_frozen(average))


def _frozen(network: StyleGenerator) -> StyleGenerator:
    copied = frozen(network)
    assert isinstance(copied, StyleGenerator)  # noqa: S101 - a copy has the same type
    return copied


def _step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def _gradient_size(judge: nn.Module, images: Tensor) -> Tensor:
    """The mean squared gradient of the judgement, in full precision: half precision makes it noisy."""
    images = images.detach().requires_grad_(True)
    (slope,) = torch.autograd.grad(judge(images).sum(), images, create_graph=True)
    return slope.square().sum((1, 2, 3)).mean()


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """DiffAugment (Zhao et al. 2020): colours, a shift by up to an eighth, a square of half the side cut out."""
    count, _, height, width = images.shape

    def random(*shape: int) -> Tensor:
        return torch.rand(count, *shape, generator=generator, device=images.device)

    x = images + random(1, 1, 1) - 0.5
    grey = x.mean(1, keepdim=True)
    x = grey + (x - grey) * 2 * random(1, 1, 1)
    level = x.mean((1, 2, 3), keepdim=True)
    x = level + (x - level) * (0.5 + random(1, 1, 1))
    reach = (height // 8, width // 8)
    down, across = ((random(1) * (2 * one + 1)).long() - one for one in reach)
    rows, columns = (torch.arange(side, device=images.device)[None] for side in (height, width))
    rows, columns = rows + down, columns + across
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]
    index = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None]
    x = (
        x.flatten(2).gather(2, index.flatten(1)[:, None].expand(-1, x.shape[1], -1)).view(images.shape)
        * inside[:, None]
    )
    top, left = ((random(1) * side).long() - side // 4 for side in (height, width))
    rows, columns = (torch.arange(side, device=images.device)[None] for side in (height, width))
    cut = ((rows >= top) & (rows < top + height // 2))[:, :, None] & (
        (columns >= left) & (columns < left + width // 2)
    )[:, None]
    return x * ~cut[:, None]


@torch.no_grad()
def nearest_public(prior: FacePrior, recogniser: nn.Module, public: Tensor, count: int = 500) -> dict[str, float]:
    """How near generated faces are to public ones: medians of the squared distance to the nearest, by a recogniser.

    "between_public" is the same for public faces and their nearest other one. A prior that only repeats its training
    images has a much smaller "generated".
    """
    size = (public.shape[2], public.shape[3])
    latents = prior.sample(count, torch.Generator().manual_seed(0))
    images = torch.cat([enlarge_images(prior.render(part), size).clamp(0, 255) for part in torch.split(latents, BATCH)])
    made, known = (embed(recogniser, one, prepare=lambda x: x.float(), batch=BATCH) for one in (images, public))
    own = 2 - 2 * known[: 4 * count] @ known.T
    own[:, : len(own)].fill_diagonal_(torch.inf)
    generated = (2 - 2 * made @ known.T).min(1).values.median()
    return {"generated": float(generated), "between_public": float(own.min(1).values.median())}
