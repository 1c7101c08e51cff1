"""The network of ``Reconstructor``, and moving averages in short training."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

SCALES = 3
FORGETTING = 5.0  # a moving average keeps at most about e^-5 of what it began with


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


def share_of_newest(steps: int) -> float:
    """Return the share that the newest value needs in a moving average over so many steps, from 0 to 1.

    With a smaller share, the average would still be near its initial value after the last step.
    """
    return min(1.0, FORGETTING / max(1, steps))


def track_statistics(network: nn.Module, steps: int) -> None:
    """Let batch norms forget their initial statistics within so many steps of training. From 50 on, nothing changes."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.momentum is not None:
            module.momentum = max(module.momentum, share_of_newest(steps))
