"""A small style-based generator of images (Karras et al. 2020) and its discriminator."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

LATENT = 256
WIDTHS = {4: 256, 8: 256, 16: 256, 32: 128, 64: 64}


class _Linear(nn.Module):
    """A linear layer whose weights are drawn with deviation 1 and scaled when they are used: one rate fits all."""

    def __init__(self, inside: int, outside: int, *, bias: float = 0.0, rate: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outside, inside) / rate)
        self.bias = nn.Parameter(torch.full((outside,), bias))
        self.scale, self.rate = rate / math.sqrt(inside), rate

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight * self.scale, self.bias)


class _Conv(nn.Module):
    """The same for a convolution."""

    def __init__(self, inside: int, outside: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outside, inside, size, size))
        self.bias = nn.Parameter(torch.zeros(outside))
        self.scale, self.padding = 1 / math.sqrt(inside * size * size), size // 2

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.weight * self.scale, self.bias, padding=self.padding)


class _StyledConv(nn.Module):
    """A convolution whose inputs a style scales. Outputs are scaled back to deviation 1, unless they are colours."""

    def __init__(self, inside: int, outside: int, size: int = 3) -> None:
        super().__init__()
        self.style = _Linear(LATENT, inside, bias=1.0)
        self.conv = _Conv(inside, outside, size)

    def forward(self, x: Tensor, latent: Tensor) -> Tensor:
        style = self.style(latent).float()
        weight = self.conv.weight * self.conv.scale
        out = functional.conv2d(x * style[:, :, None, None].to(x.dtype), weight, padding=self.conv.padding)
        if len(weight) > 3:
            size = (style.square() @ weight.float().square().sum((2, 3)).T + 1e-8).rsqrt()
            out = out * size[:, :, None, None].to(out.dtype)
        return out + self.conv.bias[:, None, None].to(out.dtype)


class StyleGenerator(nn.Module):
    """float32 [N, layers, 256], one latent for each layer, to float32 [N, 3, 64, 64], about -1..1.

    ``mapping`` turns normal numbers, [N, 256], into latents. widths: channels by side, to make it smaller.
    """

    def __init__(self, widths: dict[int, int] | None = None) -> None:
        super().__init__()
        self.widths = dict(widths or WIDTHS)
        self.normals_to_latents = nn.Sequential(
            *(part for _ in range(4) for part in (_Linear(LATENT, LATENT, rate=0.01), nn.LeakyReLU(0.2)))
        )
        first, *others = self.widths.items()
        self.constant = nn.Parameter(torch.randn(1, first[1], first[0], first[0]))
        self.convs, self.colours = nn.ModuleList([_StyledConv(first[1], first[1])]), nn.ModuleList()
        inside = first[1]
        for _, width in others:
            self.convs.extend((_StyledConv(inside, width), _StyledConv(width, width)))
            inside = width
        self.colours.extend(_StyledConv(width, 3, 1) for width in self.widths.values())

    @property
    def layers(self) -> int:
        return len(self.convs)

    def mapping(self, normals: Tensor) -> Tensor:
        """float32 [N, 256] to latents, the same for every layer: float32 [N, layers, 256]."""
        scaled = normals * (normals.square().mean(1, keepdim=True) + 1e-8).rsqrt()
        latents: Tensor = self.normals_to_latents(scaled)
        return latents[:, None].expand(-1, self.layers, -1)

    def forward(self, latents: Tensor) -> Tensor:
        x = self.constant.expand(len(latents), -1, -1, -1)
        image: Tensor | None = None
        used = 0
        for block, colour in enumerate(self.colours):
            for i in range(2 if block else 1):
                if block and i == 0:
                    x = _enlarge(x)
                x = functional.leaky_relu(self.convs[used](x, latents[:, used]), 0.2) * math.sqrt(2)
                used += 1
            seen = colour(x, latents[:, used - 1])
            image = seen if image is None else _enlarge(image) + seen
        assert image is not None  # noqa: S101 - there is at least one side
        return image.float()


class Discriminator(nn.Module):
    """float32 [N, 3, 64, 64] to float32 [N]: how real the images look. N should be a multiple of 4."""

    def __init__(self, widths: dict[int, int] | None = None) -> None:
        super().__init__()
        sides = list(reversed(list((widths or WIDTHS).values())))
        self.enter = _Conv(3, sides[0], 1)
        self.blocks = nn.ModuleList(_DownBlock(a, b) for a, b in itertools.pairwise(sides))
        last = sides[-1]
        self.last, self.dense, self.out = _Conv(last + 1, last, 3), _Linear(16 * last, last), _Linear(last, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.leaky_relu(self.enter(images), 0.2)
        for block in self.blocks:
            x = block(x)
        group = min(4, len(x))
        spread = x.float().view(group, -1, *x.shape[1:]).var(0, correction=0).add(1e-8).sqrt().mean((1, 2, 3))
        spread = spread.repeat(group)[:, None, None, None].expand(-1, 1, *x.shape[2:])  # of a few images at a time
        x = functional.leaky_relu(self.last(torch.cat((x, spread.to(x.dtype)), 1)), 0.2)
        out: Tensor = self.out(functional.leaky_relu(self.dense(x.flatten(1)), 0.2))
        return out[:, 0].float()


class _DownBlock(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.conv1, self.conv2, self.shortcut = (
            _Conv(inside, inside, 3),
            _Conv(inside, outside, 3),
            _Conv(inside, outside, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        out = functional.leaky_relu(self.conv1(x), 0.2) * math.sqrt(2)
        out = functional.avg_pool2d(functional.leaky_relu(self.conv2(out), 0.2) * math.sqrt(2), 2)
        both: Tensor = out + self.shortcut(functional.avg_pool2d(x, 2))
        return both / math.sqrt(2)


def _enlarge(x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
