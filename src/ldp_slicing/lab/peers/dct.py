"""The frequency maps that DuetFace, PartialFace, DCTDP, MinusFace and PPFR-FD start from, and two ways back.

The systems enlarge an image 8 times (bilinear, corners aligned), convert it to YCbCr, subtract 128, and take the
orthonormal DCT of each 8 x 8 block. Coefficient (u, v) of all blocks together is a map as large as the image. All of
that is linear, so it is two matrix products for each colour plane X:

    Z = K X K^T        with K = blockdiag(D) U, where U interpolates and D is the DCT of 8 values
    map (u, v) = Z[u::8, v::8]

The maps are overcomplete: 64 numbers are made of each pixel. So a least-squares solution returns the image from a part
of the maps, with no training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ldp_slicing.lab.bits import float_rgb

FREQUENCIES = 64
MAPS = 3 * FREQUENCIES
NO_NOISE = 0.01  # the scale to assume for maps without noise: as small as the rounding of half precision
STEPS = 60  # of conjugate gradients: the residual is then some 1e-8 of the target for DuetFace's maps, less for others
# Inverse variances of the gradient of a face minus the mean face, for Y, Cb, Cr (measured on LFW).
SMOOTHNESS = (1 / 10.3**2, 1 / 1.2**2, 1 / 1.2**2)


def to_maps(images: Tensor) -> Tensor:
    """[N, 3, H, W] of 0..255, RGB, to float32 [N, 192, H, W]: map 64 c + 8 u + v is frequency (u, v) of colour c."""
    rows, columns = (_sorted_operator(side, images.device) for side in images.shape[2:])
    with torch.autocast(images.device.type, enabled=False):
        spectrum = rows @ _centred_planes(images) @ columns.T
    count, _, height, width = images.shape
    return spectrum.view(count, 3, 8, height, 8, width).transpose(3, 4).reshape(count, MAPS, height, width)


def from_maps(maps: Tensor) -> Tensor:
    """[N, 192, H, W] to float32 [N, 3, H, W], RGB, clamped to 0..255: the inverse that the systems use.

    It is the inverse DCT of each block, then a bilinear reduction. The round trip has some 55 dB. Zeros give grey 128.
    """
    rows, columns = (_reducer(side, maps.device) for side in maps.shape[2:])
    with torch.autocast(maps.device.type, enabled=False):
        return float_rgb(rows @ _fold(maps.float()) @ columns.T + 128).clamp(0, 255)


def channels_of(frequencies: Sequence[int]) -> list[int]:
    """The maps of these frequencies (8 u + v) of all three colours."""
    return [FREQUENCIES * colour + one for colour in range(3) for one in frequencies]


def fill_maps(kept: Tensor, channels: Sequence[int]) -> Tensor:
    """[N, len(channels), H, W] to [N, 192, H, W]: the other maps are 0."""
    maps = kept.new_zeros(len(kept), MAPS, *kept.shape[2:])
    maps[:, list(channels)] = kept
    return maps


def invert_kept(
    kept: Tensor,
    channels: Sequence[int],
    prior: Tensor | None = None,
    *,
    scales: Tensor | None = None,
    steps: int = STEPS,
) -> LinearInverse:
    """``invert_linearly`` for [N, len(channels), H, W], where the other maps are unknown. scales: [len(channels)]."""
    every = torch.full((MAPS,), torch.inf, dtype=torch.float64)
    every[list(channels)] = NO_NOISE if scales is None else scales.double().cpu()
    return invert_linearly(fill_maps(kept, channels), every, prior, steps=steps)


@dataclass(frozen=True, eq=False)
class LinearInverse:
    """Images by least squares. images: float64 [N, 3, H, W], RGB, not clamped. residual: float64 [N]."""

    images: Tensor
    residual: Tensor


@torch.no_grad()
def invert_linearly(maps: Tensor, scales: Tensor, prior: Tensor | None = None, *, steps: int = STEPS) -> LinearInverse:
    """Reconstruct images from maps with Laplace noise, by conjugate gradients in float64 from the prior.

    Minimises, for each colour plane X, sum |map(X) - observed|^2 / (2 scale^2) + |gradient of (X - prior)|^2 /
    variance.

    maps: [N, 192, H, W]. scales: [192], the noise of each map; infinity for a map that is not there; some small number
    without noise. prior: [3, H, W] RGB of 0..255, such as the mean image; grey by default.
    The residual is the root mean square of the first term, relative to that of the observed maps.
    """
    device, (height, width) = maps.device, maps.shape[2:]
    weights = (0.5 / scales.double().to(device).square()).view(3, 8, 8)
    factor = torch.tensor(SMOOTHNESS, dtype=torch.float64, device=device).view(3, 1, 1)
    rows, columns = (_operator(side, device, torch.float64) for side in (height, width))
    steep, across = (_laplacian(side, device) for side in (height, width))
    ups, sides = (torch.stack([one[u::8].T @ one[u::8] for u in range(8)]) for one in (rows, columns))
    products = ups.transpose(0, 1).reshape(8 * height, height)
    weighted = torch.einsum("cuv,vij->cuij", weights, sides).reshape(3, 8 * width, width)
    tall, wide = (_dct(side).to(device) for side in (height, width))
    eigenvalues = torch.einsum("cuv,ui,vj->cij", weights, _diagonal(ups, tall), _diagonal(sides, wide))
    eigenvalues = eigenvalues + factor * (_diagonal(steep, tall)[:, None] + _diagonal(across, wide))
    # Maps without the frequency 0 do not depend on the mean of a plane: that of the prior is kept.
    eigenvalues = torch.where(eigenvalues > 1e-9 * eigenvalues.amax((1, 2), keepdim=True), eigenvalues, torch.inf)
    mean = torch.full((1, 3, height, width), 128.0) if prior is None else prior[None]
    start = _centred_planes(mean.to(device).double()).expand(len(maps), -1, -1, -1)

    def smooth(x: Tensor) -> Tensor:
        return factor * (steep @ x + x @ across)

    def apply(x: Tensor) -> Tensor:
        each = (products @ x).view(len(x), 3, height, 8 * width)  # the sum over u is a part of the second product
        return smooth(x) + each @ weighted

    def precondition(x: Tensor) -> Tensor:  # a DCT of the whole plane nearly diagonalises ``apply``
        return tall.T @ (tall @ x @ wide.T / eigenvalues) @ wide

    tiled = weights.repeat(1, height, width)  # [3, 8 H, 8 W]
    observed = _fold(torch.where(torch.isfinite(scales).to(device)[:, None, None], maps.double(), 0.0))
    target = rows.T @ (tiled * observed) @ columns + smooth(start)
    planes = _conjugate_gradients(apply, precondition, target, start, steps)
    missed = (tiled * (rows @ planes @ columns.T - observed).square()).sum((1, 2, 3))
    residual = (missed / (tiled * observed.square()).sum((1, 2, 3)).clamp_min(1e-300)).sqrt()
    return LinearInverse(float_rgb(planes + 128), residual)


def _conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    precondition: Callable[[Tensor], Tensor],
    target: Tensor,
    start: Tensor,
    steps: int,
) -> Tensor:
    """Solve apply(x) = target for each plane of [N, 3, H, W] by itself.

    Both functions are linear, symmetric and not negative.

    precondition: about the inverse of ``apply``; the nearer, the fewer steps are needed.
    """

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum((2, 3), keepdim=True)

    x, left = start.clone(), target - apply(start)
    direction = precondition(left)
    size = dot(left, direction)
    enough = 1e-24 * dot(target, target)
    for _ in range(steps):
        unsolved = dot(left, left) > enough
        if not unsolved.any():
            break
        forward = apply(direction)
        rate = torch.where(unsolved, size / dot(direction, forward).clamp_min(1e-300), 0.0)
        x, left = x + rate * direction, left - rate * forward
        closer = precondition(left)
        now = dot(left, closer)
        direction, size = closer + now / size.clamp_min(1e-300) * direction, now
    return x


def _diagonal(matrices: Tensor, basis: Tensor) -> Tensor:
    """The diagonals of [..., n, n] matrices in another basis, the rows of [n, n]."""
    return (basis @ matrices @ basis.T).diagonal(dim1=-2, dim2=-1)


def _centred_planes(images: Tensor) -> Tensor:
    """RGB of 0..255 to Y - 128, Cb - 128, Cr - 128 (full-range JFIF), in float32 or float64."""
    x = images if images.is_floating_point() else images.float()
    red, green, blue = x.unbind(1)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    return torch.stack((luma - 128, (blue - luma) / 1.772, (red - luma) / 1.402), 1)


def _fold(maps: Tensor) -> Tensor:
    """[N, 192, H, W] to [N, 3, 8 H, 8 W]: coefficient (u, v) of block (i, j) at (8 i + u, 8 j + v)."""
    count, _, height, width = maps.shape
    blocks = maps.view(count, 3, 8, 8, height, width)
    return blocks.permute(0, 1, 4, 2, 5, 3).reshape(count, 3, 8 * height, 8 * width)


def _dct(side: int = 8) -> Tensor:
    """float64 [side, side]: the orthonormal DCT-II."""
    places = torch.arange(side, dtype=torch.float64)
    basis = torch.cos(math.pi / side * (places + 0.5) * places[:, None]) * math.sqrt(2 / side)
    basis[0] /= math.sqrt(2)
    return basis


def _interpolation(outputs: int, inputs: int) -> Tensor:
    """float64 [outputs, inputs]: bilinear resizing with aligned corners."""
    places = torch.arange(outputs, dtype=torch.float64) * ((inputs - 1) / (outputs - 1))
    distances = (places[:, None] - torch.arange(inputs, dtype=torch.float64)).abs()
    return (1 - distances).clamp_min(0)


@lru_cache(maxsize=16)
def _operator(side: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """[8 side, side]: K of the module's docstring."""
    enlarged = _interpolation(8 * side, side).view(side, 8, side)
    return (_dct() @ enlarged).reshape(8 * side, side).to(device, dtype)


@lru_cache(maxsize=16)
def _sorted_operator(side: int, device: torch.device) -> Tensor:
    """[8 side, side]: the rows of K by frequency, not by block. Maps then lie together in the product."""
    return _operator(side, device).view(side, 8, side).transpose(0, 1).reshape(8 * side, side)


@lru_cache(maxsize=16)
def _reducer(side: int, device: torch.device) -> Tensor:
    """float32 [side, 8 side]: the inverse DCT of each block, then the reduction."""
    reduced = _interpolation(side, 8 * side).view(side, side, 8)
    return (reduced @ _dct().T).reshape(side, 8 * side).to(device, torch.float32)


@lru_cache(maxsize=16)
def _laplacian(side: int, device: torch.device) -> Tensor:
    """float64 [side, side]: the gradient of differences, transposed, times itself."""
    gradient = torch.diff(torch.eye(side, dtype=torch.float64), dim=0)
    return (gradient.T @ gradient).to(device)
