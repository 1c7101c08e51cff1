"""The pictures of the paper for one source, on one sheet. The sheet shows the source: it is for its owner only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ldp_slicing import view
from ldp_slicing.plan import CHANNELS, COLOUR_BITS, SELDOM, plan_for
from ldp_slicing.slicer import Slicer

BUDGETS = (1.0, 2.4, 5.2, 12.0, 20.0, 32.0, 58.0)  # the paper's
COLUMNS = 8
GAP, TEXT, TITLE, SMALLEST = 10, 15, 22, 8
WORDS: dict[view.Prune, str] = {None: "without pruning", "haar": "with the low Haar band pruned", "dct": "with the DC of 8x8 blocks pruned"}
INK, FAINT, PAPER, WARNING = (30, 30, 34), (105, 105, 112), (250, 250, 248), (176, 28, 28)

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Tile:
    pixels: Pixels
    label: str
    note: str = ""


def make_sheet(source: Pixels, side: int = 192, slices: str | None = None, prune: view.Prune = "haar") -> Image.Image:
    """uint8 H x W x 3 or H x W to a sheet: source, views, bit-planes, releases with and without pruning, by the paper's plan or by slices.

    The source is first made small enough for its pixels to be seen one by one: a large release shown small would look cleaner than it is.
    """
    small = _at_most(source, side)
    haar: view.Prune = prune if prune in view.GAIN else "haar"
    seen: dict[view.Prune, Pixels] = {None: look(small, None), "haar": look(small, haar), "dct": look(small, "dct")}
    parts: list[tuple[str, list[Tile]]] = [("What the noise is put on: the view", _views(small, seen, view.gain_of(haar)))]
    for c, channel in enumerate(CHANNELS if small.ndim == 3 else ("grey",)):
        plane = seen[None][..., c] if small.ndim == 3 else seen[None]
        tiles = [Tile(((plane >> b & 1) * 255).astype(np.uint8), f"{channel} bit {b}") for b in range(7, -1, -1)]
        parts.append((f"Bit-planes of {channel}, highest first", tiles))
    for shown in dict.fromkeys((prune, None)):
        words = WORDS.get(shown, f"with the low Haar band pruned, detail x {view.gain_of(shown)}")
        tiles = [_release(small, epsilon, slices, shown) for epsilon in BUDGETS]
        parts.append((f"Releases {words}{f', slices {slices}' * bool(slices)}; eps per released pixel, PSNR against the source", tiles))
    return _draw(parts, small.shape[1], small.shape[0])


def look(pixels: Pixels, prune: view.Prune) -> Pixels:
    """The view as an image: Y, Cb, Cr (or grey) after pruning, before any noise."""
    planes = view.to_ycbcr(np.array(np.moveaxis(pixels, -1, 0), order="C")) if pixels.ndim == 3 else pixels[None]
    pruned = np.stack([view.prune_low(plane, prune, 8) for plane in planes], axis=-1).astype(np.uint8)
    return pruned if pixels.ndim == 3 else pruned[..., 0]


def psnr(a: Pixels, b: Pixels) -> float:
    """Peak signal-to-noise ratio in dB, peak 255."""
    error = float(np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2))
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


def _views(small: Pixels, seen: dict[view.Prune, Pixels], gain: int) -> list[Tile]:
    stronger = f"detail x {gain}" * (gain > 1)

    def shown(pixels: Pixels) -> Pixels:
        return np.moveaxis(view.to_rgb(np.moveaxis(pixels, -1, 0)), 0, -1) if pixels.ndim == 3 else pixels

    tiles = [Tile(small, "source", "must not leave")]
    if small.ndim == 3:
        tiles += [Tile(seen[None][..., c], channel) for c, channel in enumerate(CHANNELS)]
    tiles += [Tile(shown(seen["haar"]), "Haar, LL pruned", stronger), Tile(shown(seen["dct"]), "8x8, DC pruned")]
    if small.ndim == 3:
        tiles += [
            Tile(seen["haar"][..., 0], "Y, LL pruned", stronger),
            Tile(np.where(seen["haar"][..., 0] >> 7, np.uint8(255), np.uint8(0)), "Y bit 7, LL pruned"),
        ]
    return tiles


def _release(small: Pixels, epsilon: float, slices: str | None, prune: view.Prune) -> Tile:
    plan = plan_for(COLOUR_BITS if small.ndim == 3 else 8, epsilon, slices=slices)
    release = Slicer(plan, prune=prune)(small)
    bare = any(plan.tables.change_probability(part.bits) < SELDOM for part in plan.slices)
    note = "hardly noisy" if bare else f"{psnr(release.astype(np.uint8), small):.2f} dB"
    return Tile(release.astype(np.uint8), f"eps {epsilon:g}", note)


def _at_most(pixels: Pixels, side: int) -> Pixels:
    height, width = pixels.shape[:2]
    scale = min(1.0, side / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS)) if scale < 1 else pixels


def _draw(parts: list[tuple[str, list[Tile]]], width: int, height: int) -> Image.Image:
    magnify = max(1, 96 // max(width, height))  # tiny images are shown with whole, enlarged pixels
    tile_width, tile_height = max(width * magnify, 96), height * magnify
    label_height = 2 * TEXT + 6
    row_height = TITLE + 8 + tile_height + label_height + GAP
    banner = 3 * TITLE
    sheet = Image.new("RGB", (GAP + COLUMNS * (tile_width + GAP), banner + GAP + len(parts) * row_height), PAPER)
    draw = ImageDraw.Draw(sheet)
    text, title = ImageFont.load_default(TEXT - 2), ImageFont.load_default(TITLE - 6)
    draw.rectangle((0, 0, sheet.width, banner), fill=WARNING)
    draw.text((GAP, 9), "FOR THE OWNER ONLY. This sheet shows the source: not for release.", fill="white", font=title)
    draw.text(
        (GAP, 9 + TITLE),
        f"Each release here is one of many of the same picture; shown at {width} x {height} pixels.",
        fill="white",
        font=text,
    )
    for row, (heading, tiles) in enumerate(parts):
        top = banner + GAP + row * row_height
        draw.text((GAP, top), heading, fill=INK, font=_fitting(heading, TITLE - 6, sheet.width - 2 * GAP))
        for column, tile in enumerate(tiles):
            left = GAP + column * (tile_width + GAP)
            picture = Image.fromarray(tile.pixels).resize((width * magnify, tile_height), Image.Resampling.NEAREST)
            sheet.paste(picture.convert("RGB"), (left, top + TITLE + 6))
            draw.text((left, top + TITLE + 8 + tile_height), tile.label, fill=INK, font=text)
            draw.text((left, top + TITLE + 8 + tile_height + TEXT), tile.note, fill=FAINT, font=text)
    return sheet


def _fitting(words: str, size: int, width: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The font at that size, or smaller where the words, such as a long list of slices, would run off the sheet."""
    font = ImageFont.load_default(size)
    return font if size <= SMALLEST or font.getlength(words) <= width else _fitting(words, size - 1, width)
