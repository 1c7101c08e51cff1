"""The mechanism on the device, for research: noise per epoch, adversaries that query. NOT FOR RELEASE: its generator is an ordinary one.

The view is the same to the bit; masks have the distribution of the same tables, but come from torch's generator, which is not secret.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ldp_slicing.errors import ImageError
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune, block_of


def simulate(batch: Tensor, plan: Plan, generator: torch.Generator | None = None, *, prune: Prune = "haar", output: str = "rgb") -> Tensor:
    """What releases of ``batch`` would look like: uint8 [N, 3, H, W] (or [N, 1, H, W] for a grey plan), same shape back.

    >>> simulate(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), Plan.paper(20.0)).shape
    torch.Size([2, 3, 4, 4])

    Every random number is drawn on the batch's device and nothing depends on the data's values, so that it can be part of a CUDA graph.
    """
    if batch.dtype != torch.uint8 or batch.ndim != 4 or batch.shape[1] != (3 if plan.is_colour else 1) or plan.word_bits not in (8, 24):
        raise ImageError(
            f"simulate takes uint8 [N, C, H, W] that fits the plan; got {batch.dtype} {tuple(batch.shape)} and {plan.word_bits}-bit words"
        )
    seen = see(batch, prune, colour=plan.is_colour)
    words = draw_masks(plan, batch.shape[0] * batch.shape[2] * batch.shape[3], batch.device, generator)
    planes = words.view(batch.shape[0], 1, *batch.shape[2:])
    channels = range(2, -1, -1) if plan.is_colour else (0,)
    released = [
        ((seen[:, i : i + 1] ^ (planes >> 8 * c)) & (plan.kept_bits >> 8 * c & 255)) | (plan.dropped_value >> 8 * c & 255)
        for i, c in enumerate(channels)
    ]
    out = torch.cat(released, dim=1)
    return (to_rgb(out) if output == "rgb" and plan.is_colour else out).to(torch.uint8)


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
    pruned = (area * tiles - tiles.sum((3, 5), keepdim=True, dtype=torch.int32) + area * 128 + area // 2) >> (area.bit_length() - 1)
    return pruned.clamp_(0, 255).reshape(whole.shape)[:, :, :height, :width]


def to_rgb(ycbcr: Tensor) -> Tensor:
    """int32 [N, 3, H, W] Y, Cb, Cr to R, G, B, clamped."""
    y, cb, cr = ycbcr.unbind(1)
    cb, cr = cb - 128, cr - 128
    r = y + ((91881 * cr + 32768) >> 16)
    g = y + ((-22554 * cb - 46802 * cr + 32768) >> 16)
    b = y + ((116130 * cb + 32768) >> 16)
    return torch.stack((r, g, b), dim=1).clamp_(0, 255)


def draw_masks(plan: Plan, pixels: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
    """int32 [pixels]: mask words, exactly distributed as the tables say if the generator's bits are uniform."""
    tables = plan.tables
    cells, rest, words = _on_device(plan, str(device))
    masks = torch.zeros(pixels, dtype=torch.int32, device=device)
    for group in range(tables.groups):
        draws = torch.randint(1 << 16, (pixels,), device=device, generator=generator, dtype=torch.int32)
        more = torch.randint(1 << 48, (pixels,), device=device, generator=generator)  # settles the ties; elsewhere it is not used
        column = draws >> 8
        settled = torch.where(more < rest[group][column], words[group, 0][column], words[group, 1][column])
        chosen = cells[group][draws]
        chosen = torch.where(chosen < 0, settled, chosen)
        if tables.uniform[group]:
            chosen = chosen & torch.randint(1 << 24, (pixels,), device=device, generator=generator, dtype=torch.int32)
        masks ^= chosen
    return masks


@cache  # for good: a CUDA graph reads them where they are
def _on_device(plan: Plan, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """The cells (ties are negative), the last 48 bits of the thresholds, and the outcome words of each column."""
    tables = plan.tables
    cells = torch.from_numpy(tables.cells.view("int32").copy()).to(device)
    rest = torch.from_numpy(tables.rest.astype("int64")).to(device)
    words = torch.from_numpy(tables.outcome_words.astype("int32")).to(device)
    return cells, rest, words
