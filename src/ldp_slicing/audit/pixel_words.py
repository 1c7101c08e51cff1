"""Words of sources and of releases: what the mask lies between."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldp_slicing import view
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

Words = NDArray[np.uint32]
Pixels = NDArray[np.unsignedinteger]


def join(planes: list[Pixels]) -> Words:
    """Y, Cb, Cr (or one grey channel) to words."""
    words = planes[0].astype(np.uint32)
    for plane in planes[1:]:
        words = words << np.uint32(8) | plane.astype(np.uint32)
    return words


def highest_value(plan: Plan) -> int:
    """Of a channel."""
    return 255 if plan.is_colour else (1 << plan.word_bits) - 1


def view_words(source: Pixels, plan: Plan, prune: Prune) -> Words:
    """The words of a source, [H, W, 3] or [H, W], after the view: by the reference's arithmetic, whichever path is audited."""
    if not plan.is_colour:
        return join([view.prune_low(source, prune, plan.word_bits)])
    channels = view.to_ycbcr(np.moveaxis(source, -1, 0).astype(np.uint8))
    return join([view.prune_low(channel, prune, 8) for channel in channels])


def release_words(release: Pixels, plan: Plan) -> Words:
    """The words of a release that was made with output="ycbcr", or of a grey one."""
    return join(list(np.moveaxis(release, -1, 0))) if plan.is_colour else join([release])


def masks_of(plan: Plan, release: Pixels, words: Words) -> Words:
    """What was XORed, read off a release (YCbCr or grey) whose view is known; one mask for each pixel, in one row."""
    masks: Words = (release_words(release, plan) ^ words).ravel() & np.uint32(plan.kept_bits)
    return masks


def recover_words(pixels: Pixels) -> tuple[Words, NDArray[np.bool_]]:
    """The words of released pixels, RGB [..., 3] or grey [...], and where they are certain.

    Where no colour is 0 or 255 nothing was clamped, and the word comes back exactly: all 2^24 of them do. At a clamped pixel it may not.
    """
    if pixels.ndim < 2 or pixels.shape[-1] != 3:
        return join([pixels]), np.ones(pixels.shape, np.bool_)
    inside = np.all((pixels > 0) & (pixels < 255), axis=-1, keepdims=True)[..., 0]
    return join(list(view.to_ycbcr(np.moveaxis(pixels, -1, 0).astype(np.uint8)))), inside
