"""The bits of releases, and what each of them is worth to somebody who knows the plan."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldp_slicing.plan import Plan
from ldp_slicing.torch.decode import channel_count

MOST = 12.0  # log-odds beyond this are as good as certain


def flip_probabilities(plan: Plan) -> NDArray[np.float64]:
    """float64 [C, 8]: how likely bit b of channel c (Y, Cb, Cr) is released flipped, from the tables; 1/2 for a dropped bit."""
    channels = channel_count(plan)
    flips = np.full((channels, 8), 0.5)
    for part in plan.slices:
        for bit in range(plan.word_bits):
            if part.bits >> bit & 1:
                flips[channels - 1 - bit // 8, bit % 8] = float((1 - plan.tables.miss_probability(part.bits)) / 2)
    return flips


def log_odds(plan: Plan) -> NDArray[np.float64]:
    """float64 [C, 8], 0..12: ln of (released as it was / flipped)."""
    flips = flip_probabilities(plan)
    odds: NDArray[np.float64] = np.minimum(np.log1p(-flips) - np.log(flips), MOST)
    return odds


def to_bits(words: Tensor) -> Tensor:
    """uint8 [N, C, H, W] to uint8 [N, 8 C, H, W] of 0 and 1: plane 8 c + b is bit b of channel c."""
    shifts = torch.arange(8, device=words.device, dtype=torch.uint8).view(1, 1, 8, 1, 1)
    return (words.unsqueeze(2) >> shifts & 1).flatten(1, 2)


def mean_words(likely: Tensor) -> Tensor:
    """[N, 8 C, H, W] probabilities (or bits) to float32 [N, C, H, W]: the mean of the channels, 0..255."""
    count, planes, height, width = likely.shape
    worth = torch.exp2(torch.arange(8.0, device=likely.device)).view(1, 1, 8, 1, 1)
    return (likely.float().reshape(count, planes // 8, 8, height, width) * worth).sum(2)


def lowered(words: Tensor, gain: int) -> Tensor:
    """float [N, C, H, W] of a view whose detail was made stronger, as it was before."""
    return 128 + (words - 128) / gain


def float_rgb(ycbcr: Tensor) -> Tensor:
    """float [N, 3, H, W] Y, Cb, Cr to R, G, B of the same range, not clamped; [N, 1, H, W] stays."""
    if ycbcr.shape[1] == 1:
        return ycbcr
    y, cb, cr = ycbcr.unbind(1)
    cb, cr = cb - 128, cr - 128
    return torch.stack((y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb), 1)
