"""What the tests of noise can still detect: a self-test on unprotected images with Gaussian noise added.

The images are synthetic: their amplitude falls with frequency as 1/f, as that of natural images does. They have no
edges, so neighbours differ more than in photographs, and the self-test does not claim too much. It gives, for each
strength of noise, the number of pixels from which such an image is detected under a plan.

Tests: tests/audit/test_power.py, also with a photograph.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ldp_slicing import view
from ldp_slicing.audit.noise import FAMILIES, count_noise, pair_tests
from ldp_slicing.audit.pixel_words import Pixels, Words, view_words
from ldp_slicing.audit.tails import tail_above
from ldp_slicing.plan import Plan

SIGMAS = (0, 1, 2, 3, 5, 10, 20, 40)  # of the added noise, in levels of 256
MODERATE = {True: 5, False: 3}  # a camera's noise, for colour and for grey
_SIDE = 128
_CONTRAST, _COLOURFULNESS = 55, 12  # standard deviations of Y, and of Cb and Cr
_CENTRES = (118, 116, 144)
_SPREAD = 3  # standard deviations by which a count may fall below its mean and still be detected
_MARGIN = 2  # more pixels than the synthetic image needs: others differ from it
_MOST_PAIRS = 1 << 26


@dataclass(frozen=True)
class Detectable:
    """From how many pixels an unprotected image with noise of ``sigma`` levels is detected; None if never."""

    sigma: int
    pixels: int | None


def normal_numbers(name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard normal numbers (Box-Muller) from a hash of ``name``: no seeded generator is imported on this side."""
    data = hashlib.shake_256(name.encode()).digest(8 * math.prod(shape))
    radius, angle = (np.frombuffer(data, "<u4").reshape(2, -1) + 1.0) / 2**32  # in (0, 1]
    numbers: NDArray[np.float64] = np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)
    return numbers.reshape(shape)


@lru_cache(maxsize=1)
def natural_channels() -> NDArray[np.float64]:
    """Y, Cb and Cr of a synthetic image with a 1/f spectrum: [3, 128, 128], not rounded."""
    across = np.fft.fftfreq(_SIDE)
    frequency = np.hypot(across[:, None], across)
    frequency[0, 0] = np.inf  # no mean
    fields = np.fft.ifft2(np.fft.fft2(normal_numbers("natural image", (3, _SIDE, _SIDE))) / frequency).real
    fields /= fields.std(axis=(1, 2), keepdims=True)
    scale = np.array((_CONTRAST, _COLOURFULNESS, _COLOURFULNESS))
    return np.array(_CENTRES)[:, None, None] + scale[:, None, None] * fields


def unprotected_image(plan: Plan, sigma: float) -> Pixels:
    """A synthetic image with noise, in the values that a release of the plan can have, so that only statistics tell."""
    name = f"noise of sigma {sigma:g}"
    if not plan.is_colour:
        levels = natural_channels()[0] + sigma * normal_numbers(name, (_SIDE, _SIDE))
        grey = np.clip(levels * 2.0 ** (plan.word_bits - 8), 0, (1 << plan.word_bits) - 1).astype(np.uint32)
        words: Words = grey & np.uint32(plan.kept_bits) | np.uint32(plan.dropped_value)
        return words.astype(plan.dtype)
    rgb = view.to_rgb(np.clip(np.rint(natural_channels()), 0, 255).astype(np.uint8)).astype(np.float64)
    rgb = np.clip(np.rint(rgb + sigma * normal_numbers(name, rgb.shape)), 0, 255)
    words = view_words(np.moveaxis(rgb, 0, -1).astype(np.uint8), plan, None)
    kept = words & np.uint32(plan.kept_bits) | np.uint32(plan.dropped_value)
    channels = np.stack([kept >> np.uint32(shift) & np.uint32(255) for shift in (16, 8, 0)]).astype(np.uint8)
    return np.moveaxis(view.to_rgb(channels), 0, -1)


@lru_cache(maxsize=64)
def detectable(plan: Plan, limit: float) -> tuple[Detectable, ...]:
    """What tests with p-values below ``limit`` detect, for each strength of noise."""
    return tuple(Detectable(sigma, _pixels_needed(plan, sigma, limit)) for sigma in SIGMAS)


def _pixels_needed(plan: Plan, sigma: int, limit: float) -> int | None:
    counts = count_noise(unprotected_image(plan, sigma), plan)
    beside = np.array([test.family == FAMILIES[0] for test in pair_tests(plan)], np.bool_)  # with the most power
    shares = counts.agreeing[beside] / counts.pairs[beside]
    probabilities = np.array([test.probability for test in pair_tests(plan)])[beside]
    promising = shares > probabilities
    if not promising.any():
        return None
    shares, probabilities = shares[promising], probabilities[promising]

    def is_detected(pairs: int) -> bool:
        expected = np.floor(pairs * shares - _SPREAD * np.sqrt(pairs * shares * (1 - shares)))
        return bool((tail_above(np.maximum(expected, 0), pairs, probabilities) < limit).any())

    pairs = 1
    while not is_detected(pairs):
        pairs *= 2
        if pairs > _MOST_PAIRS:
            return None
    low, high = pairs // 2, pairs
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (low, middle) if is_detected(middle) else (middle, high)
    return _MARGIN * 2 * high


def detected_sigma(found: tuple[Detectable, ...], pixels: int) -> int | None:
    """The strongest noise up to which every unprotected image of so many pixels is detected; None if none is."""
    strongest = None
    for each in found:
        if each.pixels is None or each.pixels > pixels:
            break
        strongest = each.sigma
    return strongest
