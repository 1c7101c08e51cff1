"""Image quality: how close a reconstruction is to its source, and when it counts as a success."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldp_slicing.lab.metrics.shares import share_within

BATCH = 250
WINDOW, SIGMA = 11, 1.5  # of SSIM (Wang et al. 2004)


def psnr(a: Tensor, b: Tensor) -> Tensor:
    """Two [N, C, H, W] of 0..255 to float32 [N]: the peak signal-to-noise ratio of each image in dB, at most 100."""
    return (20 * torch.log10(255 / rmse(a, b).clamp_min(1e-12))).clamp_max(100)


def rmse(a: Tensor, b: Tensor) -> Tensor:
    """Two [N, C, H, W] of 0..255 to float32 [N], 0..255: the root mean squared error of each image."""
    return (a.float() - b.float()).square().mean((1, 2, 3)).sqrt()


def ssim(a: Tensor, b: Tensor, *, peak: float = 255.0) -> Tensor:
    """Two [N, C, H, W] of 0..peak, 11 x 11 or larger, to float32 [N]: the structural similarity, a mean over channels.

    As in Wang et al. 2004: a Gaussian window of 11 x 11 pixels, sigma 1.5, only where it lies inside the image.
    """
    a, b = a.float(), b.float()
    rows, columns = (_windows(side, a.device) for side in a.shape[2:])
    # Matrix products, because convolutions may round to 10 bits on a GPU and variances are small differences.
    mean_a, mean_b, square_a, square_b, product = (rows @ torch.stack((a, b, a * a, b * b, a * b)) @ columns.T).unbind(
        0
    )
    var_a, var_b, covariance = square_a - mean_a**2, square_b - mean_b**2, product - mean_a * mean_b
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    alike = (2 * mean_a * mean_b + c1) * (2 * covariance + c2) / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    return alike.mean((1, 2, 3))


def _windows(side: int, device: torch.device) -> Tensor:
    """float32 [side - 10, side]: row i has the Gaussian window at i..i + 10."""
    places = torch.arange(side, device=device) - torch.arange(side - WINDOW + 1, device=device)[:, None]
    window = torch.exp(-(places - WINDOW // 2).square() / (2 * SIGMA**2)) * ((places >= 0) & (places < WINDOW))
    return window / window.sum(1, keepdim=True)


@dataclass(frozen=True)
class Criterion:
    """Success as in the paper's supplement: d(x*, x) <= r, where x is the source that was attacked."""

    name: str
    radius: float
    distance: Callable[[Tensor, Tensor], Tensor]


CRITERIA = (
    Criterion("rmse_at_most_0.1", 25.5, rmse),
    Criterion("ssim_at_least_0.7", 0.3, lambda a, b: 1 - ssim(a, b)),
)


@torch.no_grad()
def image_quality(images: Tensor, sources: Tensor) -> dict[str, Any]:
    """Two [N, C, H, W] of 0..255 to mean PSNR and SSIM, and the share of successes by each criterion."""
    pairs = list(zip(torch.split(images, BATCH), torch.split(sources, BATCH), strict=True))

    def over(measure: Callable[[Tensor, Tensor], Tensor]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = torch.cat([measure(a, b) for a, b in pairs]).double().cpu().numpy()
        return values

    successes = {one.name: share_within(over(one.distance), one.radius).row() for one in CRITERIA}
    return {"psnr_db": float(over(psnr).mean()), "ssim": float(over(ssim).mean()), "success": successes}
