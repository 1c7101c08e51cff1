"""Shrinking a 24-megapixel source before the noise: time as ratios, and memory beside the source."""

from __future__ import annotations

import io
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from ldp_slicing import Plan, Slicer
from ldp_slicing.view import shrink

SHAPE, SIZE = (4000, 6000), 224
DECODED, SHRUNK, PILLOW, RELEASED, WHOLE = "decode", "shrink", "box", "release", "whole"
WORDS = {
    DECODED: "decode the JPEG file (Pillow)",
    SHRUNK: f"shrink to {SIZE} in exact integers (NumPy)",
    PILLOW: f"shrink to {SIZE} with Pillow's box filter",
    RELEASED: f"release, shrunk to {SIZE}",
    WHOLE: "release in full size",
}
MEMORY = f"""
import numpy as np
from ldp_slicing import Plan, Slicer
def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
slicer = Slicer(Plan.paper(20.0), size={SIZE})
slicer(np.zeros((300, 300, 3), np.uint8))
image = np.random.default_rng(0).integers(0, 256, {(*SHAPE, 3)}, dtype=np.uint8)
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
slicer(image)
print((status("VmHWM") - before) / 1024)
"""


def shrinking(interleaved: Callable[[dict[str, Callable[[Any], Any]], Any, int], dict[str, list[float]]]) -> list[str]:
    """Measure by ``run.interleaved``: the functions take turns, and ratios are computed within each round."""
    coarse = np.random.default_rng(0).integers(0, 256, (400, 600, 3), dtype=np.uint8)
    image = np.asarray(Image.fromarray(coarse).resize(SHAPE[::-1]))
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=90)
    plan, small = Plan.paper(20.0), tuple(SIZE * side // max(SHAPE) for side in SHAPE[::-1])
    functions: dict[str, Callable[[Any], Any]] = {
        DECODED: lambda _: np.asarray(Image.open(io.BytesIO(file.getvalue()))),
        SHRUNK: lambda pixels: shrink(pixels, SIZE),
        PILLOW: lambda pixels: Image.fromarray(pixels).resize(small, Image.Resampling.BOX),
        RELEASED: Slicer(plan, size=SIZE),
        WHOLE: Slicer(plan),
    }
    times = interleaved(functions, image, 7)
    lines = ["| 24 megapixels (4000 x 6000), colour | time relative to decoding |", "|---|---|"]
    for name, took in times.items():
        relative = statistics.median(mine / decoded for mine, decoded in zip(took, times[DECODED], strict=True))
        lines.append(f"| {WORDS[name]} | {relative:.2f} |")
    found = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    source = np.prod((*SHAPE, 3)) / 2**20
    lines += ["", f"Memory beside the source of {source:.1f} MiB: **{float(found.stdout):.1f} MiB**."]
    return lines
