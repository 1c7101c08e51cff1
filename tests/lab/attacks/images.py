"""Small synthetic images: smooth colours and a few discs, so that neighbouring pixels are similar."""

from __future__ import annotations

import torch
from torch import Tensor


def disc_images(count: int, height: int = 24, width: int = 24, *, seed: int = 0) -> Tensor:
    """uint8 [count, 3, height, width]."""
    draw = torch.Generator().manual_seed(seed)
    rows, columns = torch.linspace(0, 1, height).view(1, 1, -1, 1), torch.linspace(0, 1, width).view(1, 1, 1, -1)
    slopes = 120 * torch.rand(count, 3, 2, generator=draw)
    images = 60 + slopes[..., :1, None] * rows + slopes[..., 1:, None] * columns
    for _ in range(3):
        place, colour = torch.rand(2, count, 1, 1, 1, generator=draw), 255 * torch.rand(count, 3, 1, 1, generator=draw)
        images = torch.where((rows - place[0]) ** 2 + (columns - place[1]) ** 2 < 0.04, colour, images)
    return images.clamp(0, 255).to(torch.uint8)
