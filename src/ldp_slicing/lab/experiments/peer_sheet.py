"""One image as all systems release it, with the best reconstruction of each below: a sheet that may be published."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ldp_slicing.files import write_atomically
from ldp_slicing.lab.attacks.contact_sheet import contact_sheet, portrait

COLUMNS = 8


def keep_example(images: Tensor, name: str, folder: Path) -> None:
    """Store uint8 [K, 3, H, W], what leaves and what was reconstructed, so that every run can draw the whole sheet."""
    folder.mkdir(parents=True, exist_ok=True)
    stacked = torch.cat(list(images), 1).permute(1, 2, 0)
    Image.fromarray(np.ascontiguousarray(stacked.cpu().numpy())).save(_file(name, folder), lossless=True)


def read_example(name: str, folder: Path, count: int) -> Tensor | None:
    """uint8 [count, 3, H, W] that ``keep_example`` has stored, or None."""
    path = _file(name, folder)
    if not path.is_file():
        return None
    with Image.open(path) as stored:
        stacked = torch.from_numpy(np.asarray(stored.convert("RGB")).copy()).permute(2, 0, 1)
    return torch.stack(stacked.chunk(count, 1))


def write_sheet(columns: Mapping[str, Tensor], path: Path) -> None:
    """Draw the columns of ``contact_sheet``, a few beside each other, to a PNG file."""
    titles = list(columns)
    sheets = [
        contact_sheet({title: columns[title] for title in titles[i : i + COLUMNS]})
        for i in range(0, len(titles), COLUMNS)
    ]
    whole = Image.new("RGB", (max(one.width for one in sheets), sum(one.height for one in sheets)), (250, 250, 248))
    top = 0
    for one in sheets:
        whole.paste(one, (0, top))
        top += one.height
    write_atomically(path, [_png(whole)])


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def example_source() -> Tensor | None:
    """uint8 [1, 3, 112, 112]: a portrait that may be published. Without scikit-image, which carries it, None."""
    try:
        return portrait()
    except ModuleNotFoundError:
        return None


def _file(name: str, folder: Path) -> Path:
    return folder / f"{name.replace(':', '-')}.webp"
