"""How near a reconstruction is to its source, and how often that counts as success."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ldp_slicing.audit.tails import lower_bound, upper_bound

WINDOW, SIGMA = 11, 1.5  # of SSIM (Wang et al. 2004)


def psnr(a: Tensor, b: Tensor) -> Tensor:
    """Two [N, C, H, W] of 0..255 to float32 [N]: the peak signal-to-noise ratio of each image, in dB; at most 100, for equal images."""
    return (20 * torch.log10(255 / rmse(a, b).clamp_min(1e-12))).clamp_max(100)


def rmse(a: Tensor, b: Tensor) -> Tensor:
    """Two [N, C, H, W] of 0..255 to float32 [N], 0..255: the root of the mean squared error of each image."""
    return (a.float() - b.float()).square().mean((1, 2, 3)).sqrt()


def ssim(a: Tensor, b: Tensor, *, peak: float = 255.0) -> Tensor:
    """Two [N, C, H, W] of 0..peak, 11 x 11 or larger, to float32 [N]: the structural similarity of each image, a mean over its channels.

    As Wang et al. 2004 have it: Gaussian window of 1.5 pixels, 11 x 11, only where it lies inside the image.
    """
    a, b = a.float(), b.float()
    channels = a.shape[1]
    places = torch.arange(WINDOW, device=a.device) - WINDOW // 2
    window = torch.exp(-places.square() / (2 * SIGMA**2))
    window = window / window.sum()
    down, across = (window.view(shape).expand(channels, 1, *shape[2:]) for shape in ((1, 1, WINDOW, 1), (1, 1, 1, WINDOW)))

    def mean(x: Tensor) -> Tensor:
        return functional.conv2d(functional.conv2d(x, down, groups=channels), across, groups=channels)

    mean_a, mean_b = mean(a), mean(b)
    var_a, var_b, covariance = mean(a * a) - mean_a**2, mean(b * b) - mean_b**2, mean(a * b) - mean_a * mean_b
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    alike = (2 * mean_a * mean_b + c1) * (2 * covariance + c2) / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    return alike.mean((1, 2, 3))


@dataclass(frozen=True)
class Criterion:
    """Success in the sense of the paper's supplement: d(x*, x) <= r, with x the very source that was attacked."""

    name: str
    radius: float
    distance: Callable[[Tensor, Tensor], Tensor]


CRITERIA = (
    Criterion("root mean squared error <= 0.1 of the range (20 dB)", 25.5, rmse),
    Criterion("1 - SSIM <= 0.3", 0.3, lambda a, b: 1 - ssim(a, b)),
)


@dataclass(frozen=True)
class Share:
    """How many of how many, and Clopper and Pearson's interval around the share, which holds the true one in 95 % of cases at least."""

    hits: int
    count: int

    @property
    def value(self) -> float:
        return self.hits / self.count

    @property
    def interval(self) -> tuple[float, float]:
        low, high = (bound(self.hits, self.count, 0.025).item() for bound in (lower_bound, upper_bound))
        return low, high

    def row(self) -> dict[str, float | int]:
        low, high = self.interval
        return {"share": self.value, "low_95": low, "high_95": high, "count": self.count}


def share_within(distances: NDArray[np.float64], radius: float) -> Share:
    """float64 [N] to how many are at most ``radius``."""
    return Share(int((distances <= radius).sum()), len(distances))
