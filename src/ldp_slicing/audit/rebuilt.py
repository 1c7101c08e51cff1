"""What ``rebuild`` can return for a plan: which values a released pixel can have, and which bits of its word they tell.

Proofs: docs/proofs.md, 14.6 and 14.7. Tests: tests/audit/test_rebuilt.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ldp_slicing import view
from ldp_slicing.audit.pixel_words import Pixels, Words, join_channels, recover_words
from ldp_slicing.plan import COLOUR_BITS, Plan
from ldp_slicing.tables import submasks

ALL_BITS = np.uint32(0xFFFFFFFF)
_FEW_WORDS = 1 << 16  # up to so many words, every released colour is looked up in a table
_ROUNDING = 1e-5  # more than single precision loses in ``clamped_shares``


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """The released values of one plan."""

    plan: Plan

    def impossible(self, pixels: Pixels) -> NDArray[np.bool_]:
        """Where pixels, uint8 [N, 3] or grey [N], have a value that no release of the plan has: exact."""
        if self.plan.is_colour:
            keys = _keys(pixels)
            missing: NDArray[np.bool_] = self._colours[keys >> 3] << (keys & 7).astype(np.uint8) & np.uint8(0x80) == 0
            return missing
        dropped: NDArray[np.bool_] = pixels.astype(np.uint32) & ~np.uint32(self.plan.kept_bits) != np.uint32(
            self.plan.dropped_value
        )
        return dropped

    def words(self, pixels: Pixels) -> tuple[Words, Words]:
        """The words of released pixels, uint8 [N, 3] or grey [N], and the bits of each that are certain.

        A colour that was not clamped has one word. A clamped one may have several: what they share is certain if the
        plan has few words, and otherwise nothing is.
        """
        words, unclamped = recover_words(pixels)
        if not self.plan.is_colour or 1 << self.plan.kept_bits.bit_count() > _FEW_WORDS:
            return words, np.where(unclamped, ALL_BITS, np.uint32(0))
        keys, known_words, known_bits = self._table
        keys_here = _keys(pixels)
        at = np.minimum(np.searchsorted(keys, keys_here), len(keys) - 1)
        found = keys[at] == keys_here
        return np.where(found, known_words[at], words), np.where(found, known_bits[at], np.uint32(0))

    @cached_property
    def mean_clamped_share(self) -> float:
        """The share of the plan's words that are clamped. Noise does not change this mean over all words."""
        return float(np.mean(self._clamped))

    @cached_property
    def clamped_shares(self) -> tuple[float, float]:
        """The least and the largest probability, over all words of the view, that the released pixel is clamped.

        Rounded outwards.
        """
        share = self._clamped.astype(np.float32)
        bits = [bit for bit in range(COLOUR_BITS) if self.plan.kept_bits >> bit & 1]
        for part in self.plan.slices:
            if channel_of(part.bits) is None:  # a slice that crosses channels
                mean = share
                for position in (i for i, bit in enumerate(bits) if part.bits >> bit & 1):
                    mean = np.repeat(mean.reshape(-1, 2, 1 << position).mean(axis=1, keepdims=True), 2, axis=1).ravel()
                miss = np.float32(self.plan.tables.miss_probability(part.bits))
                share = miss * share + (1 - miss) * mean
        for shift in (16, 8, 0):  # slices of one channel: a matrix of the probabilities to change each value to another
            kernel = channel_kernel(self.plan, shift, crossing=False).astype(np.float32)
            low = 1 << (self.plan.kept_bits & (1 << shift) - 1).bit_count()
            if low == 1:
                share = (share.reshape(-1, len(kernel)) @ kernel).ravel()  # the kernel is symmetric
            else:
                share = np.matmul(kernel, share.reshape(-1, len(kernel), low)).ravel()
        return max(0.0, float(share.min()) - _ROUNDING), min(1.0, float(share.max()) + _ROUNDING)

    @cached_property
    def _clamped(self) -> NDArray[np.bool_]:
        """Whether each word of the plan is clamped. Position i has the bits of i at the places of kept bits."""
        return np.concatenate([_is_clamped(rgb) for _, rgb in _rebuilt_colours(self.plan)])

    @cached_property
    def _colours(self) -> NDArray[np.uint8]:
        """2^24 bits: whether a release can have the colour."""
        possible = np.zeros(1 << COLOUR_BITS, np.bool_)
        for _, rgb in _rebuilt_colours(self.plan):
            possible[_keys(rgb)] = True
        return np.packbits(possible)

    @cached_property
    def _table(self) -> tuple[NDArray[np.uint32], Words, Words]:
        """The colours of a plan with few words, a word of each, and the bits that all its words share."""
        words, keys = (
            np.concatenate(parts)
            for parts in zip(*((words, _keys(rgb)) for words, rgb in _rebuilt_colours(self.plan)), strict=True)
        )
        order = np.argsort(keys, kind="stable")
        colours, starts = np.unique(keys[order], return_index=True)
        ones: Words = np.bitwise_and.reduceat(words[order], starts)
        some: Words = np.bitwise_or.reduceat(words[order], starts)
        return colours, ones, ~(ones ^ some)


@lru_cache(maxsize=8)
def rebuilt(plan: Plan) -> Rebuilt:
    return Rebuilt(plan)


def channel_of(bits: int) -> int | None:
    """The shift of the only channel of a colour word that has all these bits, or None."""
    return next((shift for shift in (16, 8, 0) if bits >> shift << shift == bits and not bits >> shift + 8), None)


def channel_kernel(plan: Plan, shift: int, *, crossing: bool = True) -> NDArray[np.float64]:
    """P(released value | value of the view) for the bits ``shift`` to ``shift + 7`` of a word, dropped bits left out.

    Values are in ascending order. ``crossing``: whether slices that also have other bits count.
    """
    kept = plan.kept_bits >> shift & 0xFF
    values = np.array(submasks(kept))
    masks = np.zeros(len(values))
    masks[0] = 1.0
    for part in plan.slices:
        here = part.bits >> shift & 0xFF
        if not here or (not crossing and channel_of(part.bits) is None):
            continue
        hit = masks
        for bit in submasks(here):
            if bit and bit & bit - 1 == 0:
                hit = (hit + hit[np.searchsorted(values, values ^ bit)]) / 2
        miss = float(plan.tables.miss_probability(part.bits))
        masks = miss * masks + (1 - miss) * hit
    kernel: NDArray[np.float64] = masks[np.searchsorted(values, values[:, None] ^ values)]
    return kernel


def is_clamped(pixels: Pixels) -> NDArray[np.bool_]:
    """Where a colour of released pixels, [N, 3], is 0 or 255. Grey pixels, [N], are never clamped."""
    return _is_clamped(pixels) if pixels.ndim == 2 else np.zeros(pixels.shape, np.bool_)


def _is_clamped(rgb: Pixels) -> NDArray[np.bool_]:
    clamped: NDArray[np.bool_] = ((rgb == 0) | (rgb == 255)).any(axis=-1)
    return clamped


def _keys(rgb: Pixels) -> NDArray[np.uint32]:
    """Colours, uint8 [N, 3], as numbers."""
    red, green, blue = (rgb[:, channel].astype(np.uint32) for channel in range(3))
    return red << np.uint32(16) | green << np.uint32(8) | blue


def _rebuilt_colours(plan: Plan) -> Iterator[tuple[Words, Pixels]]:
    """Yield all words of the plan in ascending order, uint32 [N], and their colours, uint8 [N, 3]; one Y at a time."""
    luma, *chroma = (
        np.array(submasks(plan.kept_bits >> shift & 0xFF), np.uint8) | np.uint8(plan.dropped_value >> shift & 0xFF)
        for shift in (16, 8, 0)
    )
    blue, red = (grid.ravel() for grid in np.meshgrid(*chroma, indexing="ij"))
    for y in luma:
        ycbcr = np.stack([np.full_like(blue, y), blue, red])
        yield join_channels(list(ycbcr)), np.moveaxis(view.to_rgb(ycbcr), 0, -1)
