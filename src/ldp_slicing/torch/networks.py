"""The network of ``Reconstructor``."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

SCALES = 3


class SmallUNet(nn.Module):
    """[N, inside, H, W] of any size to [N, outside, H, W] (Ronneberger et al. 2015). At first, all outputs are 0."""

    def __init__(self, inside: int, outside: int, *, width: int) -> None:
        super().__init__()
        widths = [width << scale for scale in range(SCALES)]
        self.down = nn.ModuleList(_Block(a, b) for a, b in zip([inside, *widths], widths, strict=False))
        self.up = nn.ModuleList(_Block(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.head = nn.Conv2d(width, outside, 1)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        multiple, kept = 1 << SCALES - 1, list[Tensor]()
        x = functional.pad(x, (0, -width % multiple, 0, -height % multiple))
        for scale, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if scale else x)
            kept.append(x)
        for block, skipped in zip(self.up, kept[-2::-1], strict=True):
            x = block(torch.cat((functional.interpolate(x, scale_factor=2.0, mode="nearest"), skipped), 1))
        outputs: Tensor = self.head(x)
        return outputs[:, :, :height, :width]


class _Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(inside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut = nn.Conv2d(inside, outside, 1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.convolutions(x) + self.shortcut(x))
