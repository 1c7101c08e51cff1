"""Images as arrays: what the mechanism takes, and why it refuses the rest.

Tests: tests/test_slicer.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import ImageError
from ldp_slicing.plan import COLOUR_BITS, Plan

if TYPE_CHECKING:
    from PIL import Image

Array = NDArray[np.unsignedinteger]


def pixels_of(image: Array | Image.Image) -> Array:
    """Return an array as it is, or the pixels of a PIL image. Otherwise raise an ImageError that says what to do."""
    if isinstance(image, np.ndarray):
        return image
    from PIL import Image  # not above: arrays need no Pillow

    if not isinstance(image, Image.Image):
        raise ImageError(f"an image must be a NumPy array or a PIL image; got {type(image).__name__}: {_advice(image)}")
    if image.mode not in ("RGB", "L", "I;16", "I;16L", "I;16B"):
        raise ImageError(
            f"a PIL image must have mode RGB, L or I;16; got {image.mode!r}: convert it first, "
            'for example with image.convert("RGB")'
        )
    return np.asarray(image)


def _advice(image: object) -> str:
    """Return how to turn an object that is not an image into one."""
    if isinstance(image, str | os.PathLike):
        return "open it first with PIL.Image.open(path); `ldp-slicing privatize` does that and keeps a ledger"
    if hasattr(image, "detach"):
        return "use ldp_slicing.torch.Privatize for tensors"
    return "convert it with np.asarray(image)"


def as_batch(array: Array, plan: Plan) -> Array:
    """Return ``array`` as [N, H, W, C], or raise an ImageError that says how to make it fit the plan."""
    if array.dtype.kind == "f":
        raise ImageError(
            f"an image of dtype {array.dtype} has no fixed range; "
            "for values in 0..1 use np.round(image * 255).astype(np.uint8)"
        )
    if array.dtype.kind != "u" or array.dtype.itemsize > 2:
        raise ImageError(
            f"an image must have dtype uint8, or uint16 for deep grey; got {array.dtype}: "
            "check its range and convert it with astype"
        )
    images = _with_four_axes(array)
    kind = "colour" if images.shape[-1] == 3 else "grey"
    if plan.is_colour != (kind == "colour"):
        grey = f"a grey plan, such as Plan.grey(20.0, bits={8 * array.dtype.itemsize})"
        wanted = "a colour plan, such as Plan.paper(20.0)" if kind == "colour" else grey
        raise ImageError(
            f"a {kind} image of shape {array.shape} needs {wanted}; this plan's word has {plan.word_bits} bits"
        )
    if plan.is_colour and array.dtype.itemsize == 2:
        raise ImageError("a colour image has 8 bits per channel; for 16-bit colour use (image >> 8).astype(np.uint8)")
    if not plan.is_colour:
        _check_depth(images, plan)
    return images


def _with_four_axes(array: Array) -> Array:
    if array.ndim == 2:
        images = array[None, :, :, None]
    elif array.ndim in (3, 4) and array.shape[-1] in (1, 3):
        images = array if array.ndim == 4 else array[None]
    else:
        raise ImageError(
            f"an image must have shape H x W x 3 or H x W, a batch N x H x W x 3 or N x H x W x 1; got {array.shape}"
        )
    if 0 in images.shape[1:]:
        raise ImageError(f"an image must have at least one pixel; got shape {array.shape}")
    return images


def _check_depth(images: Array, plan: Plan) -> None:
    if images.dtype.itemsize == 1 and plan.word_bits > 8:
        raise ImageError(
            f"a uint8 image has 8-bit words, but this plan has {plan.word_bits}-bit words: "
            "use Plan.grey(epsilon, bits=8)"
        )
    if images.dtype.itemsize == 2 and plan.word_bits <= 8:
        raise ImageError(
            f"a uint16 image needs words of 9 to 16 bits, but this plan's words have {plan.word_bits} bits: "
            "use Plan.grey(epsilon, bits=16)"
        )
    full = plan.word_bits == 8 * images.dtype.itemsize
    if not full and images.size and (highest := int(images.max())) >> plan.word_bits:
        raise ImageError(
            f"the image has the value {highest}, but this plan's {plan.word_bits}-bit words hold only 0 to "
            f"{(1 << plan.word_bits) - 1}"
        )


def word_bits_of(pixels: Array) -> int:
    """Return the bits per word of an image: 24 for [H, W, 3]; 8 or 16, as its dtype has, for [H, W]."""
    return COLOUR_BITS if pixels.ndim == 3 else 8 * pixels.dtype.itemsize


def has_equal_channels(pixels: Array) -> bool:
    """Return whether the three channels are equal. A few rows decide for most images, and are compared first."""
    for part in (pixels[:: 1 + len(pixels) // 8], pixels):
        red, green, blue = (part[..., channel] for channel in range(3))
        if not ((red == green).all() and (green == blue).all()):
            return False
    return True
