"""A small set of grey images: two classes of stripes, whose phase tells the group."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def stripes(label: int, group: int, number: int, side: int = 16) -> np.ndarray:
    """uint8 [side, side]: horizontal or vertical stripes with a phase and a frequency of their group."""
    rng = np.random.default_rng([label, group, number])
    rows, columns = np.mgrid[:side, :side] / side
    wave = np.sin(2 * np.pi * ((1 + group % 3) * (rows if label else columns) + group / 7) + 0.2 * rng.normal())
    return (128 + 70 * wave + 8 * rng.normal(size=wave.shape)).clip(0, 255).astype(np.uint8)


def write_folder(root: Path, groups: int = 12, each: int = 4) -> Path:
    """``root/CLASS/gGROUP_NUMBER.png``: each group belongs to one class."""
    for group in range(groups):
        label = group % 2
        folder = root / ("rows", "columns")[label]
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(each):
            Image.fromarray(stripes(label, group, number)).save(folder / f"g{group:02d}_{number}.png")
    return root
