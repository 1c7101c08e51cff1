"""The sheet that `ldp-slicing show` draws: a source beside its views, bit-planes and releases.

The sheet shows the source, so it is for the owner only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ldp_slicing import view
from ldp_slicing.measured import entries, nearest, table_version
from ldp_slicing.plan import BUDGETS, CHANNELS, COLOUR_BITS, RARE, Plan, plan_for
from ldp_slicing.slicer import Slicer

COLUMNS = 8
GAP, TEXT, TITLE, SMALLEST = 10, 15, 22, 8
PRUNINGS: dict[view.Prune, str] = {
    None: "without pruning",
    "haar": "with the low Haar band pruned",
    "dct": "with the DC of 8x8 blocks pruned",
}
INK, FAINT, PAPER, WARNING = (30, 30, 34), (105, 105, 112), (250, 250, 248), (176, 28, 28)

Pixels = NDArray[np.uint8]
Words = NDArray[np.unsignedinteger]
Row = tuple[str, list["Tile"]]  # a heading and the tiles below it


@dataclass(frozen=True)
class Tile:
    """An image of the sheet with its label."""

    pixels: Pixels
    label: str
    note: str = ""


def make_sheet(
    source: Words,
    side: int = 192,
    slices: str | None = None,
    prune: view.Prune = "haar",
    bits: int = 8,
    *,
    shrunk: bool = False,
) -> Image.Image:
    """Draw a source with its views, its bit-planes, and its releases at the paper's budgets with and without pruning.

    source: uint8 H x W x 3, or grey uint8 or uint16 H x W of ``bits`` bits. side: the largest width of a tile. shrunk:
    whether the source was shrunk, as it would be before the noise; the sheet says so.

    The source is released at its full size, as by ``privatize``. If it is larger than a tile, the sheet shows the
    middle of each release at full size, and the whole release reduced by averaging. Averaging removes noise, so only
    the reduced release shows how much a large release reveals.
    """
    height, width = source.shape[:2]
    block = max(view.BLOCK.values())
    top, left = (max(0, length - side) // 2 // block * block for length in (height, width))
    where = (slice(top, top + side), slice(left, left + side))
    is_large = max(height, width) > side
    middle = ", the middle at full size" if is_large else ""
    haar: view.Prune = prune if prune in view.GAIN else "haar"
    piece = source[where]
    ends = tuple(slice(part.start, part.stop + -side % block) for part in where)  # views need whole blocks
    views = {
        name: view_image(source[ends], kind, bits)[:side, :side]
        for name, kind in (("none", None), ("haar", haar), ("dct", "dct"))
    }
    rows: list[Row] = [(f"The view, to which noise is added{middle}", _view_tiles(piece, views, view.gain_of(haar)))]
    for c, channel in enumerate(CHANNELS if source.ndim == 3 else ("grey",)):
        plane = views["none"][..., c] if source.ndim == 3 else views["none"]
        tiles = [Tile(((plane >> b & 1) * 255).astype(np.uint8), f"{channel} bit {b}") for b in range(bits - 1, -1, -1)]
        heading = f"Bit-planes of {channel}, highest first{middle}"
        rows += [(heading, tiles[i : i + COLUMNS]) for i in range(0, bits, COLUMNS)]
    for shown in dict.fromkeys((prune, None)):
        like = views["none" if shown is None else "dct" if shown == "dct" else "haar"]
        pairs = list(_release_tiles(source, where, side, slices, shown, bits, like))
        below = "eps per released pixel, and the share of people that a network re-identified"
        heading = f"Releases {_described(shown, slices)}{middle}; {below}"
        rows.append((heading, [near for near, _ in pairs]))
        if is_large:
            ratio = f"{max(height, width) / side:.3g}"
            heading = (
                f"The same releases, reduced: each pixel is the mean of about {ratio} x {ratio}, contrast stretched"
            )
            whole = [*(far for _, far in pairs), Tile(reduce_image(source, side), "source", "for the owner only")]
            rows.append((f"{heading}; a network may see more", whole))
    cut = f"the middle {piece.shape[1]} x {piece.shape[0]} of {width} x {height} pixels, and the whole image reduced"
    size = cut if is_large else f"shown at {width} x {height} pixels"
    deep = f", {bits}-bit values stretched over the range of the view" if bits > 8 else ""
    small = "Shrunk before the noise. " if shrunk else ""
    shares = " Shares were measured on other images, of at most 112 x 112 pixels; larger releases reveal more."
    return _draw(rows, f"{small}Each release here is one of many releases of the same image; {size}{deep}.{shares}")


def _described(prune: view.Prune, slices: str | None) -> str:
    words = PRUNINGS.get(prune, f"with the low Haar band pruned, detail x {view.gain_of(prune)}")
    return f"{words}, slices {slices}" if slices else words


def view_image(pixels: Words, prune: view.Prune, bits: int = 8) -> Words:
    """Return the view of uint8 [H, W, 3] or grey [H, W] pixels: Y, Cb, Cr or grey after pruning, same shape."""
    planes = view.to_ycbcr(np.array(np.moveaxis(pixels, -1, 0), order="C")) if pixels.ndim == 3 else pixels[None]
    pruned = np.stack([view.prune_low(plane, prune, bits) for plane in planes], axis=-1)
    return pruned if pixels.ndim == 3 else pruned[..., 0]


def reduce_image(words: Words, side: int) -> Pixels:
    """Reduce an image to at most ``side`` x ``side`` pixels by averaging, and stretch the contrast of each channel."""
    scale = min(1.0, side / max(words.shape[:2]))
    means = average(words, *(max(1, round(length * scale)) for length in words.shape[:2]))
    return stretch(means, means)


def average(words: Words, height: int, width: int) -> NDArray[np.float64]:
    """Return the means of height x width rectangles of about equal size: float64 [height, width] or [height, width, 3].

    They are not rounded, because averaged noise leaves a scene a few grey levels, or less.
    """
    edges = [np.arange(pieces) * length // pieces for pieces, length in zip((height, width), words.shape, strict=False)]
    sums = np.add.reduceat(np.add.reduceat(words, edges[0], axis=0, dtype=np.uint64), edges[1], axis=1)
    rows, columns = (np.diff(edge, append=length) for edge, length in zip(edges, words.shape, strict=False))
    counts = np.multiply.outer(rows, columns)
    means: NDArray[np.float64] = sums / counts.reshape(counts.shape + (1,) * (words.ndim - 2))
    return means


def stretch(values: Words | NDArray[np.float64], like: Words | NDArray[np.float64]) -> Pixels:
    """Scale each channel so that ``like`` fills the range 0..255, except for its darkest and lightest percent."""
    low, high = np.percentile(like.astype(np.float64), (1, 99), axis=(0, 1))
    shown: Pixels = np.clip((values - low) * (255 / np.maximum(high - low, 1e-9)), 0, 255).astype(np.uint8)
    return shown


def _view_tiles(piece: Words, views: dict[str, Words], gain: int) -> list[Tile]:
    amplified = f"detail x {gain}" if gain > 1 else ""

    def shown(pixels: Words) -> Pixels:
        pixels = _bytes(pixels, pixels)
        return np.moveaxis(view.to_rgb(np.moveaxis(pixels, -1, 0)), 0, -1) if pixels.ndim == 3 else pixels

    tiles = [Tile(_bytes(piece, piece), "source", "for the owner only")]
    if piece.ndim == 3:
        tiles += [Tile(views["none"][..., c].astype(np.uint8), channel) for c, channel in enumerate(CHANNELS)]
    tiles += [Tile(shown(views["haar"]), "Haar pruned", amplified), Tile(shown(views["dct"]), "DCT pruned")]
    if piece.ndim == 3:
        luma = views["haar"][..., 0].astype(np.uint8)
        tiles += [
            Tile(luma, "Y, Haar pruned", amplified),
            Tile(np.where(luma >> 7, np.uint8(255), np.uint8(0)), "Y bit 7, Haar pruned"),
        ]
    return tiles


def _release_tiles(
    source: Words, where: tuple[slice, slice], side: int, slices: str | None, prune: view.Prune, bits: int, like: Words
) -> Iterator[tuple[Tile, Tile]]:
    """Yield, for each budget, a piece of a release at full size and the whole release reduced."""
    for epsilon in BUDGETS:
        plan = plan_for(COLOUR_BITS if source.ndim == 3 else bits, epsilon, slices=slices)
        release = Slicer(plan, prune=prune)(source)
        almost_noiseless = any(plan.tables.change_probability(part.bits) < RARE for part in plan.slices)
        note = "almost no noise" if almost_noiseless else re_identified(plan, prune)
        label = f"eps {epsilon:g}"
        yield Tile(_bytes(release[where], like), label, note), Tile(reduce_image(release, side), label)


def re_identified(plan: Plan, prune: view.Prune) -> str:
    """Return the share of people whom a network re-identified at this very budget, plan and pruning, if measured."""
    entry = nearest(entries(table_version()), plan, prune, None)
    if entry is None or entry.kind != "identity" or entry.epsilon != plan.epsilon:
        return "not measured"
    whom = "faces" if plan.is_colour else "patients"
    return f"{100 * entry.numbers['rank_1_identification']:.1f} % of {whom}"


def _bytes(words: Words, like: Words) -> Pixels:
    """Return pixels as bytes to display. Deep grey is stretched: a DICOM file may use a small part of its range."""
    return words.astype(np.uint8) if words.dtype.itemsize == 1 else stretch(words, like)


def _draw(rows: list[Row], about: str) -> Image.Image:
    shapes = [tile.pixels.shape for _, tiles in rows for tile in tiles]
    magnify = max(1, 96 // max(max(shape[:2]) for shape in shapes))  # tiny images are enlarged pixel by pixel
    tile_width = max(96, magnify * max(shape[1] for shape in shapes))
    heights = [magnify * max(tile.pixels.shape[0] for tile in tiles) for _, tiles in rows]
    around = TITLE + 8 + 2 * TEXT + 6 + GAP  # heading and labels
    banner = 3 * TITLE
    sheet = Image.new(
        "RGB", (GAP + COLUMNS * (tile_width + GAP), banner + GAP + sum(heights) + len(rows) * around), PAPER
    )
    draw = ImageDraw.Draw(sheet)

    def write(left: int, top: int, words: str, size: int, width: int, ink: tuple[int, int, int]) -> None:
        draw.text((left, top), words, fill=ink, font=_fitting(words, size, width))

    inside = sheet.width - 2 * GAP
    draw.rectangle((0, 0, sheet.width, banner), fill=WARNING)
    write(GAP, 9, "FOR THE OWNER ONLY. This sheet shows the source and must not be released.", TITLE - 6, inside, PAPER)
    write(GAP, 9 + TITLE, about, TEXT - 2, inside, PAPER)
    top = banner + GAP
    for (heading, tiles), tile_height in zip(rows, heights, strict=True):
        write(GAP, top, heading, TITLE - 6, inside, INK)
        for column, tile in enumerate(tiles):
            left, shown = GAP + column * (tile_width + GAP), Image.fromarray(tile.pixels)
            shown = shown.resize((magnify * shown.width, magnify * shown.height), Image.Resampling.NEAREST)
            sheet.paste(shown.convert("RGB"), (left, top + TITLE + 6))
            write(left, top + TITLE + 8 + tile_height, tile.label, TEXT - 2, tile_width, INK)
            write(left, top + TITLE + 8 + tile_height + TEXT, tile.note, TEXT - 2, tile_width, FAINT)
        top += tile_height + around
    return sheet


def _fitting(words: str, size: int, width: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return the font at that size, or smaller if the text, such as a long list of slices, would not fit."""
    font = ImageFont.load_default(size)
    return font if size <= SMALLEST or font.getlength(words) <= width else _fitting(words, size - 1, width)
