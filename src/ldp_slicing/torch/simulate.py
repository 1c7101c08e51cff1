"""The mechanism on any torch device, for research: new noise in every epoch, adversaries that make their own releases.

NOT FOR RELEASE: masks come from torch's generator, which is not secret. The view is the same bit for bit as in
``ldp_slicing.view``, and masks have the distribution of the same tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ldp_slicing.errors import ImageError, LdpSlicingError
from ldp_slicing.plan import COLOUR_BITS, Plan
from ldp_slicing.view import Prune, Shrinking, Size, block_of, gain_of, shrinking_of

Generators = torch.Generator | Sequence[torch.Generator] | None


def simulate(
    batch: Tensor,
    plan: Plan | Sequence[Plan],
    generator: Generators = None,
    *,
    prune: Prune = "haar",
    size: Size = None,
    output: str = "rgb",
) -> Tensor:
    """Return uint8 [N, C, h, w], 0 to 255: what releases of the uint8 [N, C, H, W] images in ``batch`` would look like.

    >>> simulate(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), Plan.paper(20.0)).shape
    torch.Size([2, 3, 4, 4])

    C is 3 for colour plans and 1 for plans of 8-bit grey words. Without ``size`` the result has the shape of ``batch``.
    It is on the device of ``batch``.

    plan: one for all images, or a sequence with one per image.
    generator: a generator on the same device, or one for each image, which then decides that image's release by itself.
    None uses the default generator.
    prune, size, output: as in ``Slicer``.

    Random numbers are drawn on the device, and no step depends on pixel values. So the function can be captured in a
    CUDA graph, after one call with the same plans outside of the graph.
    """
    plans = (plan,) if isinstance(plan, Plan) else tuple(plan)
    _check_arguments(batch, plans, output)
    colour = batch.shape[1] == 3
    distinct = {id(one): one for one in plans}  # comparing identities is cheaper than comparing plans
    tables = _tables_on_device(frozenset(distinct.values()), str(batch.device))
    positions = {identity: tables.positions[one] for identity, one in distinct.items()}
    position = _index_tensor(tuple(positions[id(one)] for one in plans), str(batch.device))
    if batch.is_cuda and torch.cuda.is_current_stream_capturing():
        _USED_BY_GRAPHS.update((tables, position))
    words = apply_view(batch, prune, colour=colour, size=size)
    count, _, height, width = words.shape
    masks = _draw_masks(tables, position, count, height * width, generator).view(count, 1, height, width)
    released = ((words ^ (masks >> tables.shifts)) & tables.kept[position]) | tables.dropped[position]
    return (to_rgb(released) if output == "rgb" and colour else released).to(torch.uint8)


def _check_arguments(batch: Tensor, plans: tuple[Plan, ...], output: str) -> None:
    if not isinstance(batch, Tensor):
        raise ImageError(f"simulate takes a uint8 tensor [N, C, H, W]; got {type(batch).__name__}")
    if output not in ("rgb", "ycbcr"):
        raise LdpSlicingError(f'output must be "rgb" or "ycbcr"; got {output!r}')
    bits = {one.word_bits for one in plans}
    is_image = batch.dtype == torch.uint8 and batch.ndim == 4 and batch.shape[1] in (1, 3)
    if not is_image or bits != {COLOUR_BITS if batch.shape[1] == 3 else 8}:
        raise ImageError(
            "simulate takes uint8 [N, C, H, W] and plans of 24-bit (colour) or 8-bit (grey) words; "
            f"got {batch.dtype} {tuple(batch.shape)} and words of {', '.join(map(str, sorted(bits)))} bits"
        )
    if len(plans) not in (1, len(batch)):
        raise ImageError(f"simulate takes one plan, or one for each image; got {len(plans)} for {len(batch)} images")


def apply_view(batch: Tensor, prune: Prune, *, colour: bool, size: Size = None) -> Tensor:
    """Return int32 [N, C, h, w], 0 to 255: the view of the uint8 [N, C, H, W] images in ``batch``.

    Channels are Y, Cb, Cr if ``colour``, else grey. h x w is H x W unless ``size`` is given, as in ``Slicer``. The
    values equal those of ``ldp_slicing.view``.
    """
    how = shrinking_of(size, *batch.shape[2:])
    x = batch.to(torch.int32) if how is None else _shrink(batch, how)
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
    padded = x[:, :, rows][:, :, :, columns]  # the last row and column are repeated to fill a block
    tiles = padded.reshape(*x.shape[:2], len(rows) // block, block, len(columns) // block, block)
    area = block * block
    detail = (area * tiles - tiles.sum((3, 5), keepdim=True, dtype=torch.int32)) * gain_of(prune)
    pruned = (detail + area * 128 + area // 2) >> (area.bit_length() - 1)
    return pruned.clamp_(0, 255).reshape(padded.shape)[:, :, :height, :width]


def _shrink(batch: Tensor, how: Shrinking) -> Tensor:
    """Return int32 [N, C, h, w]: the means of the rectangles of ``view.shrink_rows``, of uint8 [N, C, H, W] images."""
    kept = batch[:, :, how.top : how.top + how.height, how.left : how.left + how.width]
    if how.is_padded:
        above, left = how.padding
        below, right = how.released_height - how.height - above, how.released_width - how.width - left
        return functional.pad(kept.to(torch.int32), (left, right, above, below))
    wide = torch.int32 if kept.shape[2] * kept.shape[3] < 1 << 22 else torch.int64  # twice the sum of all, and an area
    sums, areas = kept, torch.ones((), dtype=wide, device=batch.device)
    for axis, parts in ((2, how.released_height), (3, how.released_width)):
        edges = torch.arange(parts + 1, device=batch.device) * kept.shape[axis] // parts
        ends = sums.cumsum(axis, dtype=wide).index_select(axis, edges[1:] - 1)
        sums = torch.cat((ends.narrow(axis, 0, 1), ends.diff(dim=axis)), axis)
        areas = areas[..., None] * edges.diff().to(wide)
    return ((2 * sums + areas) // (2 * areas)).to(torch.int32)


def to_rgb(ycbcr: Tensor) -> Tensor:
    """Return int32 [N, 3, H, W] R, G, B, 0 to 255, of int32 [N, 3, H, W] Y, Cb, Cr."""
    y, cb, cr = ycbcr.unbind(1)
    cb, cr = cb - 128, cr - 128
    r = y + ((91881 * cr + 32768) >> 16)
    g = y + ((-22554 * cb - 46802 * cr + 32768) >> 16)
    b = y + ((116130 * cb + 32768) >> 16)
    return torch.stack((r, g, b), dim=1).clamp_(0, 255)


@dataclass(frozen=True, eq=False)
class _DeviceTables:
    """The sampling tables of P plans on one device. Every plan has G groups; missing groups are filled with zeros.

    positions: the position of each plan.
    cells: int32 [P * G * 2^16]; the mask of a draw, negative for ties.
    rest: int64 [P * G * 2^8]; the last 48 bits of the threshold of a column, which settle ties.
    words: int32 [P * G * 2 * 2^8]; the two outcomes of a column.
    certain: int32 [P * G]; 0 for groups of uniform bits, else all ones.
    uniform: for each group, whether any plan has uniform bits there.
    shifts: int32 [1, C, 1, 1]; the position of each channel in the word.
    kept, dropped: int32 [P, C, 1, 1]; the kept bits, and the value of the dropped ones.
    """

    positions: dict[Plan, int]
    cells: Tensor
    rest: Tensor
    words: Tensor
    certain: Tensor
    uniform: tuple[bool, ...]
    shifts: Tensor
    kept: Tensor
    dropped: Tensor


_USED_BY_GRAPHS = set[_DeviceTables | Tensor]()  # never freed: a CUDA graph reads them by address


def _draw_masks(tables: _DeviceTables, position: Tensor, images: int, pixels: int, generator: Generators) -> Tensor:
    """Return int32 [images, pixels] mask words. position: int32 [images or 1], the positions of their plans.

    If the generator's bits are uniform, masks have exactly the distribution of the tables.
    """
    shape, device = (images, pixels), tables.cells.device
    if generator is None or isinstance(generator, torch.Generator):
        kept: Iterator[Tensor] = iter(())
    else:  # one call for each image instead of several: many small calls are slow on a GPU
        drawn = torch.empty((images, 3 * len(tables.uniform), pixels), dtype=torch.int64, device=device)
        for row, one in zip(drawn, generator, strict=True):
            row.random_(generator=one)  # 63 bits
        kept = iter(drawn.unbind(1))

    def random_bits(count: int, dtype: torch.dtype) -> Tensor:
        if generator is None or isinstance(generator, torch.Generator):
            return torch.randint(1 << count, shape, device=device, generator=generator, dtype=dtype)
        return (next(kept) & (1 << count) - 1).to(dtype)

    first = len(tables.uniform) * position[:, None]
    masks = torch.zeros(shape, dtype=torch.int32, device=device)
    for group, uniform in enumerate(tables.uniform):
        table = first + group
        draws = random_bits(16, torch.int32)
        more = random_bits(48, torch.int64)  # used only where draws tie
        column = draws >> 8
        other = (more >= tables.rest[(table << 8) + column]).to(torch.int32)
        chosen = tables.cells[(table << 16) + draws]
        chosen = torch.where(chosen < 0, tables.words[(table << 9) + (other << 8) + column], chosen)
        if uniform:
            chosen = chosen & (random_bits(24, torch.int32) | tables.certain[table])
        masks ^= chosen
    return masks


@lru_cache(maxsize=64)
def _index_tensor(positions: tuple[int, ...], device: str) -> Tensor:
    return torch.tensor(positions, dtype=torch.int32, device=device)


@lru_cache(maxsize=16)  # some MiB each
def _tables_on_device(plans: frozenset[Plan], device: str) -> _DeviceTables:
    ordered = list(plans)
    tables = [one.tables for one in ordered]
    groups = max(one.groups for one in tables)
    shifts = range(ordered[0].word_bits - 8, -1, -8)

    def stack(parts: list[NDArray[Any]], kind: str) -> Tensor:
        """Return arrays [groups of a plan, ...] as one flat tensor, padded to the same number of groups."""
        padded = [np.concatenate([part, np.zeros((groups - len(part), *part.shape[1:]), part.dtype)]) for part in parts]
        return torch.from_numpy(np.stack(padded).astype(kind).reshape(-1)).to(device)

    def split_channels(words: list[int]) -> Tensor:
        parts = [[word >> shift & 255 for shift in shifts] for word in words]
        return torch.tensor(parts, dtype=torch.int32, device=device)[:, :, None, None]

    return _DeviceTables(
        positions={one: position for position, one in enumerate(ordered)},
        cells=stack([one.cells.view(np.int32) for one in tables], "int32"),
        rest=stack([one.rest for one in tables], "int64"),
        words=stack([one.outcome_words for one in tables], "int32"),
        certain=stack([np.where(one.uniform, 0, (1 << 24) - 1) for one in tables], "int32"),
        uniform=tuple(any(g < one.groups and bool(one.uniform[g]) for one in tables) for g in range(groups)),
        shifts=torch.tensor(shifts, dtype=torch.int32, device=device)[None, :, None, None],
        kept=split_channels([one.kept_bits for one in ordered]),
        dropped=split_channels([one.dropped_value for one in ordered]),
    )
