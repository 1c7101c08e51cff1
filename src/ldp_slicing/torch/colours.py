"""The colours that a plan can release. Clamping makes several words show the same colour; each colour has a row."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ldp_slicing.errors import ImageError, LdpSlicingError
from ldp_slicing.plan import Plan
from ldp_slicing.torch.likelihood import channel_bits, channel_count, joint_slices, released_values
from ldp_slicing.torch.simulate import to_rgb

WORDS_AT_ONCE = 1 << 16
MAX_TERMS = 1 << 28  # number of words, times two for each slice across channels


def colour_rows(plan: Plan, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return a row number for every colour that can be released.

    First int32 [256^C]: the row of each packed colour, -1 if it is never released. Then int32 [P]: the row of each word
    that can be released.
    """
    channels, terms = channel_count(plan), 1 << plan.kept_bits.bit_count() + len(joint_slices(plan))
    if channels and terms > MAX_TERMS:
        raise LdpSlicingError(
            f"a plan with so many slices across channels cannot be decoded: it needs {terms} terms, and {MAX_TERMS} "
            "are the limit"
        )
    return _cached_colour_rows(channel_bits(plan), device)


@lru_cache(1)  # the same for all plans that drop nothing
def _cached_colour_rows(bits: tuple[tuple[int, int], ...], device: torch.device) -> tuple[Tensor, Tensor]:
    grids = torch.meshgrid([released_values(one, device) for one in bits], indexing="ij")
    colours = []
    for words in torch.split(torch.stack(grids).flatten(1), WORDS_AT_ONCE, dim=1):  # [C, at most WORDS_AT_ONCE]
        shown = to_rgb(words.int()[None, :, :, None])[0, :, :, 0] if len(bits) == 3 else words
        colours.append(_pack(shown).int())
    packed = torch.cat(colours)
    is_released = torch.zeros(1 << 8 * len(bits), dtype=torch.bool, device=device).index_fill_(0, packed.long(), True)
    rows = torch.where(is_released, is_released.cumsum(0) - 1, -1).int()
    return rows, rows[packed]


def look_up_colours(released: Tensor, plan: Plan, rows: Tensor, *, known: bool = False) -> Tensor:
    """Return int32 [N, H, W]: the rows of the colours of uint8 [N, C, H, W].

    Raises an error if the images cannot be releases of the plan. rows: the first result of ``colour_rows``. known: the
    colours were looked up before. Checking them would make the host wait for a GPU.
    """
    channels = channel_count(plan)
    if not isinstance(released, Tensor):
        raise ImageError(f"a release must be a uint8 tensor [N, {channels}, H, W]; got {type(released).__name__}")
    if released.dtype != torch.uint8 or released.ndim != 4 or released.shape[1] != channels:
        raise ImageError(
            f"a release must be a uint8 tensor [N, {channels}, H, W]; got {released.dtype} {tuple(released.shape)}"
        )
    found = rows[_pack(released.transpose(0, 1))]
    if not known and bool((found < 0).any()):
        raise LdpSlicingError(
            f"the images have colours that {plan!r} never releases: they were released by another plan, or changed "
            "after their release"
        )
    return found


def _pack(channels: Tensor) -> Tensor:
    """Return int64 [...]: one number per colour, of integers [C, ...]."""
    packed = channels[0].long()
    for channel in channels[1:]:
        packed = packed << 8 | channel
    return packed


def sum_by_row(rows: Tensor, numbers: Tensor) -> Tensor:
    """Return float64 [R]: the sums of float64 [P] ``numbers`` over the words of each row. rows: int32 [P]."""
    return torch.zeros(int(rows.max()) + 1, dtype=torch.float64, device=rows.device).index_add_(0, rows, numbers)
