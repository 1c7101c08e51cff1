"""The mechanism on the device, for research: noise per epoch, adversaries that query. NOT FOR RELEASE: its generator is an ordinary one.

The view is the same to the bit; masks have the distribution of the same tables, but come from torch's generator, which is not secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldp_slicing.errors import ImageError
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune, block_of, gain_of


def simulate(
    batch: Tensor,
    plan: Plan | Sequence[Plan],
    generator: torch.Generator | None = None,
    *,
    prune: Prune = "haar",
    output: str = "rgb",
) -> Tensor:
    """What releases of ``batch`` would look like: uint8 [N, 3, H, W] (or [N, 1, H, W] for a grey plan), same shape back.

    >>> simulate(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), Plan.paper(20.0)).shape
    torch.Size([2, 3, 4, 4])

    ``plan``: one for all images, or one for each. Every random number is drawn on the batch's device and nothing depends on the data's
    values, so that it can be part of a CUDA graph, after a first call with the same plans outside of it.
    """
    plans = (plan,) if isinstance(plan, Plan) else tuple(plan)
    bits, colour = {one.word_bits for one in plans}, batch.ndim == 4 and batch.shape[1] == 3
    if batch.dtype != torch.uint8 or batch.ndim != 4 or batch.shape[1] not in (1, 3) or bits != {24 if colour else 8}:
        raise ImageError(
            f"simulate takes uint8 [N, C, H, W] and plans of 24-bit (colour) or 8-bit (grey) words; got {batch.dtype} {tuple(batch.shape)} "
            f"and words of {', '.join(map(str, sorted(bits)))} bits"
        )
    if len(plans) not in (1, len(batch)):
        raise ImageError(f"simulate takes one plan, or one for each image; got {len(plans)} for {len(batch)} images")
    apart = {id(one): one for one in plans}  # mostly the same few objects, and cheaper to tell apart than plans
    known = _on_device(frozenset(apart.values()), str(batch.device))
    places = {identity: known.places[one] for identity, one in apart.items()}
    place = _numbers(tuple(places[id(one)] for one in plans), str(batch.device))
    if batch.is_cuda and torch.cuda.is_current_stream_capturing():
        _IN_GRAPHS.update((known, place))
    seen = see(batch, prune, colour=colour)
    masks = _draw_masks(known, place, len(batch), batch.shape[2] * batch.shape[3], generator).view(
        len(batch), 1, *batch.shape[2:]
    )
    out = ((seen ^ (masks >> known.shifts)) & known.kept[place]) | known.dropped[place]
    return (to_rgb(out) if output == "rgb" and colour else out).to(torch.uint8)


def see(batch: Tensor, prune: Prune, *, colour: bool) -> Tensor:
    """The view of uint8 [N, C, H, W], as int32: ldp_slicing.view on tensors, equal to it."""
    x = batch.to(torch.int32)
    if colour:
        r, g, b = x.unbind(1)
        y = (19595 * r + 38470 * g + 7471 * b + 32768) >> 16
        cb = (-11059 * r - 21709 * g + 32768 * b + ((128 << 16) + 32767)) >> 16
        cr = (32768 * r - 27439 * g - 5329 * b + ((128 << 16) + 32767)) >> 16
        x = torch.stack((y, cb, cr), dim=1)
    block = block_of(prune)
    if block == 1:
        return x
    height, width = x.shape[2:]
    rows = torch.arange(-(-height // block) * block, device=x.device).clamp_(max=height - 1)
    columns = torch.arange(-(-width // block) * block, device=x.device).clamp_(max=width - 1)
    whole = x[:, :, rows][:, :, :, columns]  # the last rows and columns are repeated to fill a block
    tiles = whole.reshape(*x.shape[:2], len(rows) // block, block, len(columns) // block, block)
    area = block * block
    detail = (area * tiles - tiles.sum((3, 5), keepdim=True, dtype=torch.int32)) * gain_of(prune)
    pruned = (detail + area * 128 + area // 2) >> (area.bit_length() - 1)
    return pruned.clamp_(0, 255).reshape(whole.shape)[:, :, :height, :width]


def to_rgb(ycbcr: Tensor) -> Tensor:
    """int32 [N, 3, H, W] Y, Cb, Cr to R, G, B, clamped."""
    y, cb, cr = ycbcr.unbind(1)
    cb, cr = cb - 128, cr - 128
    r = y + ((91881 * cr + 32768) >> 16)
    g = y + ((-22554 * cb - 46802 * cr + 32768) >> 16)
    b = y + ((116130 * cb + 32768) >> 16)
    return torch.stack((r, g, b), dim=1).clamp_(0, 255)


@dataclass(frozen=True, eq=False)
class _Tables:
    """The tables of P different plans, one after the other; those of a plan with fewer groups than another are filled with zeros.

    places: the number of each plan. cells [P G 2^16], the ties negative. rest [P G 2^8], the last 48 bits of the thresholds. words
    [P G 2 2^8], the outcomes of a column. certain [P G]: 0 where uniform bits decide, else all ones. shifts: int32 [1, C, 1, 1], kept,
    dropped: int32 [P, C, 1, 1], of each channel in the word.
    """

    places: dict[Plan, int]
    cells: Tensor
    rest: Tensor
    words: Tensor
    certain: Tensor
    uniform: tuple[bool, ...]  # for each group, whether any plan has uniform bits there
    shifts: Tensor
    kept: Tensor
    dropped: Tensor


_IN_GRAPHS = set[_Tables | Tensor]()  # kept for good: a CUDA graph reads them where they are


def _draw_masks(known: _Tables, place: Tensor, images: int, pixels: int, generator: torch.Generator | None) -> Tensor:
    """int32 [images, pixels]: mask words, exactly distributed as the tables of each image's plan say if the generator's bits are uniform.

    place: int32 [images or 1], the numbers of their plans.
    """
    shape, device = (images, pixels), known.cells.device
    first = len(known.uniform) * place[:, None]
    masks = torch.zeros(shape, dtype=torch.int32, device=device)
    for group, uniform in enumerate(known.uniform):
        table = first + group
        draws = torch.randint(1 << 16, shape, device=device, generator=generator, dtype=torch.int32)
        more = torch.randint(
            1 << 48, shape, device=device, generator=generator
        )  # settles the ties; elsewhere it is not used
        column = draws >> 8
        other = (more >= known.rest[(table << 8) + column]).to(torch.int32)
        chosen = known.cells[(table << 16) + draws]
        chosen = torch.where(chosen < 0, known.words[(table << 9) + (other << 8) + column], chosen)
        if uniform:
            chosen = chosen & (
                torch.randint(1 << 24, shape, device=device, generator=generator, dtype=torch.int32)
                | known.certain[table]
            )
        masks ^= chosen
    return masks


@lru_cache(maxsize=64)
def _numbers(numbers: tuple[int, ...], device: str) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device=device)


@lru_cache(maxsize=16)  # some MiB each
def _on_device(plans: frozenset[Plan], device: str) -> _Tables:
    different = list(plans)
    groups = max(one.tables.groups for one in different)
    bits = different[0].word_bits

    def stacked(parts: list[NDArray[Any]], kind: str) -> Tensor:
        """Arrays [groups of a plan, ...] to one flat tensor, every plan with as many groups as the largest."""
        whole = [np.concatenate([part, np.zeros((groups - len(part), *part.shape[1:]), part.dtype)]) for part in parts]
        return torch.from_numpy(np.stack(whole).astype(kind).reshape(-1)).to(device)

    def of_channels(words: list[int]) -> Tensor:
        parts = [[word >> shift & 255 for shift in shifts] for word in words]
        return torch.tensor(parts, dtype=torch.int32, device=device)[:, :, None, None]

    shifts, tables = range(bits - 8, -1, -8), [one.tables for one in different]
    return _Tables(
        {one: number for number, one in enumerate(different)},
        stacked([one.cells.view(np.int32) for one in tables], "int32"),
        stacked([one.rest for one in tables], "int64"),
        stacked([one.outcome_words for one in tables], "int32"),
        stacked([np.where(one.uniform, 0, (1 << 24) - 1) for one in tables], "int32"),
        tuple(any(group < one.groups and bool(one.uniform[group]) for one in tables) for group in range(groups)),
        torch.tensor(shifts, dtype=torch.int32, device=device)[None, :, None, None],
        of_channels([one.kept_bits for one in different]),
        of_channels([one.dropped_value for one in different]),
    )
