"""Contact sheets: reconstructions beside their sources."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from ldp_slicing.lab.bits import float_rgb, repeat_pixels
from ldp_slicing.torch.simulate import apply_view
from ldp_slicing.view import Prune, Size

GAP, TEXT = 4, 13
OWNERS = "FOR THE OWNER ONLY: shows sources"
RED = (176, 28, 28)
SMALLEST = 64  # smaller tiles are enlarged by a whole factor
EYES = ((202.0, 101.0), (247.0, 102.5))  # where they are in the portrait
TEMPLATE = ((38.29, 51.70), (73.53, 51.50))  # where they are in ArcFace's 112 x 112 crop


def contact_sheet(columns: Mapping[str, Tensor], banner: str = "") -> Image.Image:
    """Draw one column per title, with K images of [K, 3, H, W] or [K, 1, H, W], 0..255, below each other.

    banner: a text on red above the sheet.
    """
    tiles = {title: _tiles(images) for title, images in columns.items()}
    rows, height, width, _ = next(iter(tiles.values())).shape
    times = -(-SMALLEST // width)
    across, down = times * width + GAP, times * height + GAP
    font, top = ImageFont.load_default(TEXT - 2), 2 * TEXT if banner else 0
    room = max(GAP + len(tiles) * across, int(font.getlength(banner)) + 2 * GAP)
    titles = TEXT * max(2, *(title.count("\n") + 1 for title in tiles))
    sheet = Image.new("RGB", (room, top + GAP + titles + rows * down), (250, 250, 248))
    draw = ImageDraw.Draw(sheet)
    if banner:
        draw.rectangle((0, 0, room, top - 1), fill=RED)
        draw.text((GAP, TEXT // 2), banner, fill="white", font=font)
    for column, (title, images) in enumerate(tiles.items()):
        for number, line in enumerate(title.split("\n")):
            draw.text((GAP + column * across, top + 2 + number * TEXT), line, fill=(30, 30, 34), font=font)
        for row, image in enumerate(images):
            tile = Image.fromarray(image).resize((times * width, times * height), Image.Resampling.NEAREST)
            sheet.paste(tile, (GAP + column * across, top + GAP + titles + row * down))
    return sheet


def view_of(sources: Tensor, prune: Prune, size: Size = None) -> Tensor:
    """uint8 [K, C, H, W] to float32 [K, C, H, W], 0..255: the view as an RGB or grey image, in the same size."""
    words = repeat_pixels(apply_view(sources, prune, colour=sources.shape[1] == 3, size=size), sources.shape[2:])
    return float_rgb(words.float()).clamp_(0, 255)


def _tiles(images: Tensor) -> NDArray[np.uint8]:
    rounded = images.float().round().clamp(0, 255).to(torch.uint8).expand(-1, 3, -1, -1)  # grey as colour
    return np.ascontiguousarray(rounded.permute(0, 2, 3, 1).cpu().numpy())


def portrait() -> Tensor:
    """uint8 [1, 3, 112, 112]: NASA's portrait of Eileen Collins, in the public domain, cropped as for ArcFace.

    The images of LFW may be evaluated but not redistributed, so published sheets show this one.
    """
    from skimage import data

    (left, right), (to_left, to_right) = np.array(EYES), np.array(TEMPLATE)
    scale = np.linalg.norm(right - left) / np.linalg.norm(to_right - to_left)
    x, y = (left + right) / 2 - scale * (to_left + to_right) / 2
    box = (x, y, x + 112 * scale, y + 112 * scale)
    photograph = Image.fromarray(data.astronaut())  # type: ignore[no-untyped-call]
    crop = photograph.resize((112, 112), Image.Resampling.LANCZOS, box=box)
    return torch.from_numpy(np.asarray(crop).copy()).permute(2, 0, 1)[None]
