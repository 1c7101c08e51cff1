"""The functions that are compared. Each takes a uint8 image [H, W, 3] or a batch [N, H, W, 3]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pywt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from ldp_slicing import Plan, Slicer
from ldp_slicing.kernel import VARIANTS, Kernel

Image = NDArray[np.uint8]
PLAN = Plan.paper(20.0)
CHUNK = bytes(1 << 20)


def each(function: Callable[[Image], Any]) -> Callable[[Image], Any]:
    """Return ``function`` applied to an image or to each image of a batch."""
    return lambda images: [function(image) for image in images] if images.ndim == 4 else function(images)


def paper_in_float(rgb: Image, kind: type[np.float64 | np.float32] = np.float64) -> Image:
    """Run the pipeline of the paper: float YCbCr, Haar with LL = 0, 24 uniform draws per pixel, back to RGB."""
    generator = np.random.default_rng()
    r, g, b = (rgb[..., c].astype(kind) for c in range(3))
    channels = [
        0.299 * r + 0.587 * g + 0.114 * b,
        128 - 0.168736 * r - 0.331264 * g + 0.5 * b,
        128 + 0.5 * r - 0.418688 * g - 0.081312 * b,
    ]
    released = []
    for c, channel in enumerate(channels):
        low, details = pywt.dwt2(channel - 128, "haar", mode="periodization")
        pruned = (
            pywt.idwt2((np.zeros_like(low), details), "haar", mode="periodization")[: rgb.shape[0], : rgb.shape[1]]
            + 128
        )
        value = np.clip(np.rint(pruned), 0, 255).astype(np.uint8)
        total = np.zeros(value.shape, kind)
        for bit in range(8):
            epsilon = PLAN.slices[8 * c + 7 - bit].epsilon
            keep = generator.random(value.shape, dtype=kind) < np.exp(epsilon) / (np.exp(epsilon) + 1)
            plane = value >> bit & 1
            total += np.where(keep, plane, 1 - plane) * kind(2**bit)
        released.append(total)
    y, cb, cr = released[0], released[1] - 128, released[2] - 128
    back = np.stack([y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb], axis=-1)
    return np.clip(np.rint(back), 0, 255).astype(np.uint8)


def keystream_alone(image: Image) -> None:
    """Generate AES-256-CTR keystream: 6 bytes per pixel, in chunks of 1 MiB, with a new cipher context."""
    encryptor = Cipher(AES256(bytes(32)), CTR(bytes(16))).encryptor()
    left = image.shape[0] * image.shape[1] * 6
    buffer = bytearray(min(left, len(CHUNK)) + 15)
    while left > 0:
        size = min(left, len(CHUNK))
        encryptor.update_into(memoryview(CHUNK)[:size], buffer)
        left -= size


def opencv_round_trip(image: Image) -> Image:
    return cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2YCrCb), cv2.COLOR_YCrCb2RGB)


def contenders() -> dict[str, Callable[[Image], Any]]:
    cv2.setNumThreads(1)
    return {
        "paper, float64": each(paper_in_float),
        "paper, float32": each(lambda rgb: paper_in_float(rgb, np.float32)),
        "reference": Slicer(PLAN, backend="reference"),
        "kernel": Slicer(PLAN, backend="kernel"),
        **{f"kernel, {name} only": Slicer(PLAN, backend=Kernel(name)) for name in VARIANTS[:-1]},
        "OpenCV RGB-YCrCb-RGB": each(opencv_round_trip),
        "keystream alone": each(keystream_alone),
    }
