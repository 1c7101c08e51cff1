"""The pictures of the paper for one source, on one sheet. The sheet shows the source: it is for its owner only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ldp_slicing import view
from ldp_slicing.plan import BUDGETS, CHANNELS, COLOUR_BITS, RARE, plan_for
from ldp_slicing.slicer import Slicer

COLUMNS = 8
GAP, TEXT, TITLE, SMALLEST = 10, 15, 22, 8
WORDS: dict[view.Prune, str] = {
    None: "without pruning",
    "haar": "with the low Haar band pruned",
    "dct": "with the DC of 8x8 blocks pruned",
}
INK, FAINT, PAPER, WARNING = (30, 30, 34), (105, 105, 112), (250, 250, 248), (176, 28, 28)

Pixels = NDArray[np.uint8]
Words = NDArray[np.unsignedinteger]
Part = tuple[str, list["Tile"]]  # a heading and the tiles below it


@dataclass(frozen=True)
class Tile:
    pixels: Pixels
    label: str
    note: str = ""


def make_sheet(
    source: Words, side: int = 192, slices: str | None = None, prune: view.Prune = "haar", bits: int = 8
) -> Image.Image:
    """uint8 H x W x 3, or grey H x W of ``bits`` bits, to a sheet: source, views, bit-planes, releases with and without pruning, by the
    paper's plan or by slices.

    What is released is the source at its full size, as by ``privatize``. Of one larger than a tile the sheet has the middle, pixel by
    pixel, and the whole made small by averaging: that takes noise away, so that what a large release gives away is seen only there.
    """
    height, width = source.shape[:2]
    block = max(view.BLOCK.values())
    top, left = (max(0, length - side) // 2 // block * block for length in (height, width))
    where = (slice(top, top + side), slice(left, left + side))
    large = max(height, width) > side
    middle = ", the middle at full size" * large
    haar: view.Prune = prune if prune in view.GAIN else "haar"
    piece, ends = (
        source[where],
        tuple(slice(part.start, part.stop + -side % block) for part in where),
    )  # views need whole blocks
    seen = {
        name: look(source[ends], kind, bits)[:side, :side]
        for name, kind in (("none", None), ("haar", haar), ("dct", "dct"))
    }
    parts: list[Part] = [(f"What the noise is put on: the view{middle}", _views(piece, seen, view.gain_of(haar)))]
    for c, channel in enumerate(CHANNELS if source.ndim == 3 else ("grey",)):
        plane = seen["none"][..., c] if source.ndim == 3 else seen["none"]
        tiles = [Tile(((plane >> b & 1) * 255).astype(np.uint8), f"{channel} bit {b}") for b in range(bits - 1, -1, -1)]
        parts += [
            (f"Bit-planes of {channel}, highest first{middle}", tiles[i : i + COLUMNS]) for i in range(0, bits, COLUMNS)
        ]
    for shown in dict.fromkeys((prune, None)):
        words = WORDS.get(
            shown, f"with the low Haar band pruned, detail x {view.gain_of(shown)}"
        ) + f", slices {slices}" * bool(slices)
        like = seen["none" if shown is None else "dct" if shown == "dct" else "haar"]
        pairs = list(_releases(source, where, side, slices, shown, bits, like))
        parts.append(
            (f"Releases {words}{middle}; eps per released pixel, PSNR against the source", [near for near, _ in pairs])
        )
        if large:
            ratio = f"{max(height, width) / side:.3g}"
            averaged = f"each pixel here is the mean of about {ratio} x {ratio}, contrast stretched"
            whole = [*(far for _, far in pairs), Tile(make_small(source, side), "source", "must not leave")]
            parts.append(
                (
                    f"The same releases as a whole, made small ({averaged}): what averaging shows; a network may see more",
                    whole,
                )
            )
    cut = f"the middle {piece.shape[1]} x {piece.shape[0]} of {width} x {height} pixels as they are, and the whole made small"
    size = cut if large else f"shown at {width} x {height} pixels"
    deep = f", values of {bits} bits stretched over the range of the view" * (bits > 8)
    return _draw(parts, f"Each release here is one of many of the same picture; {size}{deep}.")


def look(pixels: Words, prune: view.Prune, bits: int = 8) -> Words:
    """The view as an image: Y, Cb, Cr (or grey) after pruning, before any noise."""
    planes = view.to_ycbcr(np.array(np.moveaxis(pixels, -1, 0), order="C")) if pixels.ndim == 3 else pixels[None]
    pruned = np.stack([view.prune_low(plane, prune, bits) for plane in planes], axis=-1)
    return pruned if pixels.ndim == 3 else pruned[..., 0]


def psnr(a: Words, b: Words, bits: int = 8) -> float:
    """Peak signal-to-noise ratio in dB, peak 2^bits - 1. Some rows at a time: floats of a whole photo would fill the memory."""
    pieces = len(a) // 64 + 1
    differences = (
        np.subtract(x, y, dtype=np.float32).ravel()
        for x, y in zip(np.array_split(a, pieces), np.array_split(b, pieces), strict=True)
    )
    error = sum(float(part @ part) for part in differences) / a.size
    return math.inf if error == 0 else 10 * math.log10(((1 << bits) - 1) ** 2 / error)


def make_small(words: Words, side: int) -> Pixels:
    """At most ``side`` pixels wide and high, by averaging, with the contrast of each channel stretched."""
    scale = min(1.0, side / max(words.shape[:2]))
    means = average(words, *(max(1, round(length * scale)) for length in words.shape[:2]))
    return stretched(means, means)


def average(words: Words, height: int, width: int) -> NDArray[np.float64]:
    """The means of height x width pieces, about equal in size. Not rounded: averaged noise leaves a scene a few grey levels, or less."""
    edges = [np.arange(pieces) * length // pieces for pieces, length in zip((height, width), words.shape, strict=False)]
    sums = np.add.reduceat(np.add.reduceat(words, edges[0], axis=0, dtype=np.uint64), edges[1], axis=1)
    rows, columns = (np.diff(edge, append=length) for edge, length in zip(edges, words.shape, strict=False))
    counts = np.multiply.outer(rows, columns)
    means: NDArray[np.float64] = sums / counts.reshape(counts.shape + (1,) * (words.ndim - 2))
    return means


def stretched(values: Words | NDArray[np.float64], like: Words | NDArray[np.float64]) -> Pixels:
    """Each channel so that ``like`` fills the whole range, but for its darkest and lightest hundredth."""
    low, high = np.percentile(like.astype(np.float64), (1, 99), axis=(0, 1))
    shown: Pixels = np.clip((values - low) * (255 / np.maximum(high - low, 1e-9)), 0, 255).astype(np.uint8)
    return shown


def _views(piece: Words, seen: dict[str, Words], gain: int) -> list[Tile]:
    stronger = f"detail x {gain}" * (gain > 1)

    def shown(pixels: Words) -> Pixels:
        pixels = _bytes(pixels, pixels)
        return np.moveaxis(view.to_rgb(np.moveaxis(pixels, -1, 0)), 0, -1) if pixels.ndim == 3 else pixels

    tiles = [Tile(_bytes(piece, piece), "source", "must not leave")]
    if piece.ndim == 3:
        tiles += [Tile(seen["none"][..., c].astype(np.uint8), channel) for c, channel in enumerate(CHANNELS)]
    tiles += [Tile(shown(seen["haar"]), "Haar, LL pruned", stronger), Tile(shown(seen["dct"]), "8x8, DC pruned")]
    if piece.ndim == 3:
        luma = seen["haar"][..., 0].astype(np.uint8)
        tiles += [
            Tile(luma, "Y, LL pruned", stronger),
            Tile(np.where(luma >> 7, np.uint8(255), np.uint8(0)), "Y bit 7, LL pruned"),
        ]
    return tiles


def _releases(
    source: Words, where: tuple[slice, slice], side: int, slices: str | None, prune: view.Prune, bits: int, like: Words
) -> Iterator[tuple[Tile, Tile]]:
    """Of a release at each budget the piece that is asked for, as it is, and the whole made small. One release at a time is held."""
    for epsilon in BUDGETS:
        plan = plan_for(COLOUR_BITS if source.ndim == 3 else bits, epsilon, slices=slices)
        release = Slicer(plan, prune=prune)(source)
        bare = any(plan.tables.change_probability(part.bits) < RARE for part in plan.slices)
        note = "hardly noisy" if bare else f"{psnr(release, source, bits):.2f} dB"
        label = f"eps {epsilon:g}"
        yield Tile(_bytes(release[where], like), label, note), Tile(make_small(release, side), label)


def _bytes(words: Words, like: Words) -> Pixels:
    """For the eye: as they are, or deep words by the range of their view, of which a scan may use a small part."""
    return words.astype(np.uint8) if words.dtype.itemsize == 1 else stretched(words, like)


def _draw(parts: list[Part], about: str) -> Image.Image:
    shapes = [tile.pixels.shape for _, tiles in parts for tile in tiles]
    magnify = max(1, 96 // max(max(shape[:2]) for shape in shapes))  # tiny images are shown with whole, enlarged pixels
    tile_width = max(96, magnify * max(shape[1] for shape in shapes))
    heights = [magnify * max(tile.pixels.shape[0] for tile in tiles) for _, tiles in parts]
    around = TITLE + 8 + 2 * TEXT + 6 + GAP  # heading and labels
    banner = 3 * TITLE
    sheet = Image.new(
        "RGB", (GAP + COLUMNS * (tile_width + GAP), banner + GAP + sum(heights) + len(parts) * around), PAPER
    )
    draw = ImageDraw.Draw(sheet)

    def write(left: int, top: int, words: str, size: int, width: int, ink: tuple[int, int, int]) -> None:
        draw.text((left, top), words, fill=ink, font=_fitting(words, size, width))

    inside = sheet.width - 2 * GAP
    draw.rectangle((0, 0, sheet.width, banner), fill=WARNING)
    write(GAP, 9, "FOR THE OWNER ONLY. This sheet shows the source: not for release.", TITLE - 6, inside, PAPER)
    write(GAP, 9 + TITLE, about, TEXT - 2, inside, PAPER)
    top = banner + GAP
    for (heading, tiles), tile_height in zip(parts, heights, strict=True):
        write(GAP, top, heading, TITLE - 6, inside, INK)
        for column, tile in enumerate(tiles):
            left, picture = GAP + column * (tile_width + GAP), Image.fromarray(tile.pixels)
            picture = picture.resize((magnify * picture.width, magnify * picture.height), Image.Resampling.NEAREST)
            sheet.paste(picture.convert("RGB"), (left, top + TITLE + 6))
            write(left, top + TITLE + 8 + tile_height, tile.label, TEXT - 2, tile_width, INK)
            write(left, top + TITLE + 8 + tile_height + TEXT, tile.note, TEXT - 2, tile_width, FAINT)
        top += tile_height + around
    return sheet


def _fitting(words: str, size: int, width: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The font at that size, or smaller where the words, such as a long list of slices, would run off the sheet."""
    font = ImageFont.load_default(size)
    return font if size <= SMALLEST or font.getlength(words) <= width else _fitting(words, size - 1, width)
