"""Shapes, plans and images that the tests share."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp_slicing import Plan, Slice
from ldp_slicing.kernel import VARIANTS, Kernel
from ldp_slicing.slicer import Backend, Reference
from ldp_slicing.view import Padded, Prune, Size

SHAPES = [(1, 1), (1, 7), (7, 1), (2, 2), (3, 5), (8, 8), (64, 64), (65, 63), (9, 300), (130, 515)]
PRUNES = ["haar", "haar8", "dct", None]
SIZES: list[Size] = [1, 2, 7, 64, 100, (1, 1), (2, 3), (5, 1), (7, 3), (63, 64), (200, 130)]
SIZES += [Padded(5, 1), Padded(7, 30), Padded(64, 63), Padded(200, 130)]

COLOUR_PLANS = {
    "paper 20": Plan.paper(20.0),
    "paper 1, 1:1:1": Plan.paper(1.0, (1, 1, 1)),
    "paper 200 (eight groups)": Plan.paper(200.0),
    "paper, chroma dropped": Plan.paper(5.2, (4, 0, 0)),
    "uniform": Plan.uniform(20.0),
    "thick, across channels": Plan([Slice(0xC08080, 5.2)]),
    "top planes": Plan([Slice(bit, 1.0) for bit in (0x800000, 0x400000, 0x8000, 0x80)]),
    "wide: 11 bits as one": Plan([Slice(0xF8E0E0, 12.0)]),
    "wide: the whole word": Plan([Slice(0xFFFFFF, 20.0)]),
    "wide and narrow": Plan([Slice(0xF00000, 5.0), Slice(0x0FFF00, 3.0), Slice(0x81, 1.5)]),
}
GREY_PLANS = {
    "grey 20": Plan.grey(20.0),
    "grey, top 4 as one": Plan([Slice(0xF0, 3.0)], 8),
    "grey, 1 bit": Plan([Slice(1, 0.7)], 1),
}
DEEP_PLANS = {
    "grey 16": Plan.grey(20.0, 16),
    "grey 12": Plan.grey(12.0, 12),
    "grey 16, top 12 as one": Plan([Slice(0xFFF0, 5.0)], 16),
    "grey 9, thick": Plan([Slice(0x1F8, 5.0)], 9),
}
PLANS = COLOUR_PLANS | GREY_PLANS | DEEP_PLANS

SHRUNK_VECTORS: list[tuple[Prune, Size, int, int]] = [  # pruning, size, height and width of the source
    ("haar", 7, 9, 20),
    (None, (4, 3), 9, 20),
    ("dct", (9, 10), 19, 11),
    ("haar", Padded(12, 6), 9, 5),  # vectors are appended, so that those before them stay
    (None, Padded(23, 15), 9, 20),
]


def backends() -> list[Backend]:
    """Return the reference and every kernel variant that this processor runs."""
    return [Reference(), *map(Kernel, VARIANTS)]


def random_image(plan: Plan, shape: tuple[int, ...], seed: int = 0) -> NDArray[Any]:
    """Return a random image for the plan: [*shape, 3] or [*shape]."""
    rng = np.random.default_rng(seed)
    if plan.is_colour:
        return rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
    return rng.integers(0, 1 << plan.word_bits, shape).astype(plan.dtype)


def can_shrink(size: Size, shape: tuple[int, ...]) -> bool:
    """Return whether an image of shape (H, W, ...) is large enough for ``size``: a longest side takes any."""
    return not isinstance(size, tuple) or (size[0] <= shape[1] and size[1] <= shape[0])


@cache
def photographs() -> dict[str, NDArray[np.uint8]]:
    """Return the photographs in scikit-image: uint8 H x W x 3."""
    from skimage import data

    return {"astronaut": data.astronaut(), "cat": data.chelsea(), "coffee": data.coffee()}
