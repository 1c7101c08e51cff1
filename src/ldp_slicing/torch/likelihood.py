"""P(r | v): how likely each word is released, given the word of the view, from the plan's exact tables.

Slice s has m_s bits and is hit with probability h_s. A slice that is hit is replaced by a uniform value. Hence

    P(r | v) = prod_s [ (1 - h_s) 1{r and v agree on the bits of s} + h_s / 2^m_s ]

and 0 if a dropped bit of r differs from its constant. A slice with bits of several channels couples them. The bracket
of each such slice is expanded into its two terms, missed and hit, so that P(r | v) is a sum of 2^j products over
channels for j such slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.plan import Plan


def channel_count(plan: Plan) -> int:
    """Return 3 for a colour plan and 1 for a plan of 8-bit grey words; raise LdpSlicingError for other plans."""
    if plan.word_bits not in (8, 24):
        raise LdpSlicingError(
            f"decoding and attacks take plans of 24-bit (colour) or 8-bit (grey) words; got {plan.word_bits} bits"
        )
    return plan.word_bits // 8


@lru_cache(16)  # of half a megabyte each; a decoder needs them a dozen times
def likelihood(plan: Plan, channel: int, device: torch.device, *, exclusive: bool = False) -> Tensor:
    """Return float64 [256, 256]: P(r_c | v_c) of each released value (row) and each value of the view (column).

    exclusive: use only the slices whose bits are all in this channel, and do not require dropped bits to be constant.
    """
    values = torch.arange(256, device=device)
    chances = torch.ones(256, 256, dtype=torch.float64, device=device)
    for part in plan.slices:
        mask = _split_word(plan, part.bits)[channel]
        if mask and not (exclusive and mask.bit_count() < part.bits.bit_count()):
            hit = 1 - plan.tables.miss_probability(part.bits)  # a fraction, so that the smallest stays above 0
            chances *= float(1 - hit) * _agree(mask, device) + float(hit / (1 << mask.bit_count()))
    if not exclusive:
        kept, dropped = channel_bits(plan)[channel]
        chances *= (values & ~kept == dropped)[:, None]
    return chances


def likelihood_terms(plan: Plan, device: torch.device) -> Iterator[tuple[float, list[Tensor]]]:
    """Yield the 2^j terms of P(r | v) for j joint slices: a weight, and per channel a float64 [256, 256].

    The table of a channel is indexed by the released value and the value of the view; dropped bits are not checked. A
    joint slice was missed, and then its bits agree in every channel, or hit, and then they are uniform.
    """
    joint, channels = joint_slices(plan), range(channel_count(plan))
    exclusive = [likelihood(plan, c, device, exclusive=True) for c in channels]
    for missed in product((False, True), repeat=len(joint)):
        weight, tables = 1.0, exclusive
        for bits, is_missed in zip(joint, missed, strict=True):
            miss = plan.tables.miss_probability(bits)
            weight *= float(miss if is_missed else (1 - miss) / (1 << bits.bit_count()))
            if is_missed:
                masks = _split_word(plan, bits)
                tables = [table * _agree(mask, device) for table, mask in zip(tables, masks, strict=True)]
        yield weight, tables


def channel_bits(plan: Plan) -> tuple[tuple[int, int], ...]:
    """Return the kept bits of each channel, and the released value of its dropped bits."""
    return tuple(zip(_split_word(plan, plan.kept_bits), _split_word(plan, plan.dropped_value), strict=True))


def joint_slices(plan: Plan) -> list[int]:
    """Return the bits of the slices that have bits of several channels."""
    return [part.bits for part in plan.slices if sum(map(bool, _split_word(plan, part.bits))) > 1]


def released_values(bits: tuple[int, int], device: torch.device) -> Tensor:
    """Return int64: the values that a channel can be released with. bits: see ``channel_bits``."""
    kept, dropped = bits
    return torch.tensor([value for value in range(256) if value & ~kept == dropped], device=device)


def _split_word(plan: Plan, word: int) -> list[int]:
    """Return the bits of a word in each channel."""
    return [word >> shift & 255 for shift in range(plan.word_bits - 8, -1, -8)]


def _agree(mask: int, device: torch.device) -> Tensor:
    """Return float64 [256, 256]: 1 where two values agree on the bits of the mask."""
    values = torch.arange(256, device=device)
    return ((values[:, None] ^ values) & mask == 0).double()
