"""The bits of releases, and the evidence that each gives to somebody who knows the plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldp_slicing.plan import Plan
from ldp_slicing.torch.likelihood import channel_count

MAX_LOG_ODDS = 12.0  # beyond this a bit is practically certain


def flip_probabilities(plan: Plan) -> NDArray[np.float64]:
    """float64 [C, 8]: the probability that bit b of channel c (Y, Cb, Cr) is flipped; 1/2 if it is dropped."""
    channels = channel_count(plan)
    flips = np.full((channels, 8), 0.5)
    for part in plan.slices:
        for bit in range(plan.word_bits):
            if part.bits >> bit & 1:
                flips[channels - 1 - bit // 8, bit % 8] = float((1 - plan.tables.miss_probability(part.bits)) / 2)
    return flips


def log_odds(plan: Plan) -> NDArray[np.float64]:
    """float64 [C, 8], 0..12: ln P(unchanged) / P(flipped)."""
    flips = flip_probabilities(plan)
    odds: NDArray[np.float64] = np.minimum(np.log1p(-flips) - np.log(flips), MAX_LOG_ODDS)
    return odds


def to_bits(words: Tensor) -> Tensor:
    """uint8 [N, C, H, W] to uint8 [N, 8 C, H, W] of 0 and 1: plane 8 c + b is bit b of channel c."""
    shifts = torch.arange(8, device=words.device, dtype=torch.uint8).view(1, 1, 8, 1, 1)
    return (words.unsqueeze(2) >> shifts & 1).flatten(1, 2)


def evidence(words: Tensor, odds: Tensor) -> Tensor:
    """What each released bit says, for a network that serves all plans of a view.

    words: uint8 [N, C, H, W]. odds: float32 [N, 8 C], the log-odds that a bit is unchanged. Returns float32
    [N, 16 C, H, W]: the expected bit (-1 to 1) given its release, and the released bit, 0 where it is dropped.
    """
    sign = 2.0 * to_bits(words).float() - 1
    odds = odds[:, :, None, None]
    return torch.cat((sign * torch.tanh(odds / 2), sign * (odds > 0)), 1)


def mean_words(likely: Tensor) -> Tensor:
    """[N, 8 C, H, W] bits, or probabilities that they are 1, to float32 [N, C, H, W]: the channels' means, 0..255."""
    count, planes, height, width = likely.shape
    values = torch.exp2(torch.arange(8.0, device=likely.device)).view(1, 1, 8, 1, 1)
    return (likely.float().reshape(count, planes // 8, 8, height, width) * values).sum(2)


def undo_gain(words: Tensor, gain: int) -> Tensor:
    """float [N, C, H, W] of a view whose detail was amplified by ``gain``, at its original amplitude."""
    return 128 + (words - 128) / gain


def float_rgb(ycbcr: Tensor) -> Tensor:
    """float [N, 3, H, W] Y, Cb, Cr to R, G, B of the same range, not clamped; [N, 1, H, W] is unchanged."""
    if ycbcr.shape[1] == 1:
        return ycbcr
    y, cb, cr = ycbcr.unbind(1)
    cb, cr = cb - 128, cr - 128
    return torch.stack((y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb), 1)


def repeat_pixels(small: Tensor, shape: Sequence[int]) -> Tensor:
    """[N, C, h, w] to [N, C, H, W], ``shape`` being (H, W): each pixel is where the source pixels are that it averages.

    It undoes the partition of ``view.shrink_rows``, for views that keep all of the source.
    """
    if tuple(small.shape[2:]) == tuple(shape):
        return small
    for axis, length in zip((2, 3), shape, strict=True):
        places = torch.arange(1, length + 1, device=small.device) * small.shape[axis]
        small = small.index_select(axis, (places - 1) // length)
    return small
