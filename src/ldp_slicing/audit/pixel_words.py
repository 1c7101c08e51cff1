"""Words of sources and of releases. Their XOR is the mask."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldp_slicing import view
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

Words = NDArray[np.uint32]
Pixels = NDArray[np.unsignedinteger]


def join_channels(channels: list[Pixels]) -> Words:
    """Join Y, Cb and Cr, or one grey channel, to words: uint32 in the shape of a channel."""
    words = channels[0].astype(np.uint32)
    for channel in channels[1:]:
        words = words << np.uint32(8) | channel.astype(np.uint32)
    return words


def highest_value(plan: Plan) -> int:
    """The highest value of a channel."""
    return 255 if plan.is_colour else (1 << plan.word_bits) - 1


def view_words(source: Pixels, plan: Plan, prune: Prune) -> Words:
    """The words of a source, [H, W, 3] or [H, W], after the view: uint32 [H, W].

    Uses the reference's arithmetic, whichever backend is audited.
    """
    if not plan.is_colour:
        return join_channels([view.prune_low(source, prune, plan.word_bits)])
    channels = view.to_ycbcr(np.moveaxis(source, -1, 0).astype(np.uint8))
    return join_channels([view.prune_low(channel, prune, 8) for channel in channels])


def release_words(release: Pixels, plan: Plan) -> Words:
    """The words of a grey release, or of one that was made with output="ycbcr"."""
    return join_channels(list(np.moveaxis(release, -1, 0)) if plan.is_colour else [release])


def masks_of(plan: Plan, release: Pixels, words: Words) -> Words:
    """The masks of a release (YCbCr or grey) whose view has the given ``words``: one per pixel, flattened."""
    masks: Words = (release_words(release, plan) ^ words).ravel() & np.uint32(plan.kept_bits)
    return masks


def recover_words(pixels: Pixels) -> tuple[Words, NDArray[np.bool_]]:
    """The words of released pixels, RGB [..., 3] or grey [...], and where they are certain.

    Where no colour is 0 or 255, nothing was clamped and the word is recovered exactly: this holds for all 2^24 words. A
    clamped pixel may give another word.
    """
    if pixels.ndim < 2 or pixels.shape[-1] != 3:
        return join_channels([pixels]), np.ones(pixels.shape, np.bool_)
    unclamped = np.all((pixels > 0) & (pixels < 255), axis=-1, keepdims=True)[..., 0]
    return join_channels(list(view.to_ycbcr(np.moveaxis(pixels, -1, 0).astype(np.uint8)))), unclamped
