"""Scattering features (Bruna and Mallat 2013; filters as in Kymatio). Nothing is learnt, so they cost no privacy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

SCALES, ANGLES = 2, 8  # J and L
STRIDE = 2**SCALES  # pixels between neighbouring coefficients
CHANNELS = 1 + SCALES * ANGLES + ANGLES**2  # of orders 0, 1 and 2 together: 81
MARGIN = STRIDE  # pixels of reflection on each side: one coefficient, cut off again at the end


@dataclass(frozen=True)
class Filters:
    """Filters for n x n planes.

    wavelets: one [8, n, n] tensor per scale, in Fourier space, where it is real.
    averages: per scale the [n / 4 - 2, n / 2^j] matrix that convolves an axis with the Gaussian, keeps every fourth
        pixel of the original grid and cuts off the margin. A Gaussian is separable, so it is applied to each axis.
    """

    wavelets: tuple[Tensor, ...]
    averages: tuple[Tensor, ...]


def _gabor(n: int, sigma: float, angle: float, frequency: float, slant: float) -> NDArray[np.complex128]:
    """A Gaussian of width sigma (sigma / slant across) times a plane wave, wrapped round an n x n torus."""
    span = np.arange(-2 * n, 3 * n)
    along = np.cos(angle) * span[:, None] + np.sin(angle) * span[None, :]
    across = -np.sin(angle) * span[:, None] + np.cos(angle) * span[None, :]
    wave = (
        np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2) + 1j * frequency * along)
        * slant
        / (2 * np.pi * sigma**2)
    )
    return np.asarray(wave.reshape(5, n, 5, n).sum((0, 2)))


def _morlet(n: int, scale: int, turn: int) -> NDArray[np.float64]:
    """A Morlet wavelet in Fourier space. Its response to a constant is 0."""
    shape = {"sigma": 0.8 * 2**scale, "angle": (ANGLES // 2 - 1 - turn) * np.pi / ANGLES, "slant": 4 / ANGLES}
    wave, envelope = (_gabor(n, frequency=frequency, **shape) for frequency in (0.75 * np.pi / 2**scale, 0.0))
    return np.asarray(np.fft.fft2(wave - envelope * (wave.sum() / envelope.sum())).real)


def _average(n: int, scale: int) -> NDArray[np.float64]:
    """The matrix of the low-pass filter along an axis of n / 2^scale pixels."""
    sigma, span = 0.8 * 2 ** (SCALES - 1), np.arange(-2 * n, 3 * n)
    response = np.fft.fft(
        (np.exp(-(span**2) / (2 * sigma**2)) / np.sqrt(2 * np.pi * sigma**2)).reshape(5, n).sum(0)
    ).real
    size = n >> scale
    represented = np.concatenate([response[: size // 2], response[n - size // 2 :]])  # frequencies of size pixels
    kernel = np.fft.ifft(represented).real
    kept = np.arange(0, size, STRIDE >> scale)[1:-1]
    return np.asarray(kernel[(kept[:, None] - np.arange(size)[None, :]) % size])


@cache
def filters(n: int, device: torch.device) -> Filters:
    """The filters for planes of n x n pixels, margins included."""
    wavelets = [np.stack([_morlet(n, scale, turn) for turn in range(ANGLES)]) for scale in range(SCALES)]
    averages = [_average(n, scale) for scale in range(SCALES)]
    return Filters(
        tuple(torch.tensor(array, dtype=torch.complex64, device=device) for array in wavelets),
        tuple(torch.tensor(array, dtype=torch.float32, device=device) for array in averages),
    )


def _halved(spectrum: Tensor, wavelets: Tensor) -> Tensor:
    """[B, n, n] and [8, n, n] to [B, 8, n/2, n/2]: the spectrum after the wavelets, at every second pixel."""
    n = spectrum.shape[-1] // 2
    low, high = slice(n), slice(n, None)
    quarters = ((low, low), (low, high), (high, low), (high, high))
    return torch.stack([spectrum[:, None, *at] * wavelets[:, *at] for at in quarters]).mean(0)


def scatter(planes: Tensor) -> Tensor:
    """float32 [B, n, n], n a multiple of 4, to float32 [B, 81, n/4, n/4]: orders 0, 1 (16 paths) and 2 (64 paths)."""
    padded = functional.pad(planes[None], (MARGIN,) * 4, mode="reflect")[0]
    bank = filters(padded.shape[-1], planes.device)
    (fine, coarse), (average_fine, average_coarse) = bank.wavelets, bank.averages
    spectrum = torch.fft.fft2(padded)
    first = torch.fft.ifft2(spectrum[:, None] * fine).abs()
    found = [average_fine @ plane @ average_fine.T for plane in (padded[:, None], first)]
    for onward in (spectrum, *torch.fft.fft2(first).unbind(1)):  # coarse wavelets of the plane, then of each fine path
        found.append(average_coarse @ torch.fft.ifft2(_halved(onward, coarse)).abs() @ average_coarse.T)
    return torch.cat(found, 1)
