"""Draw docs/images/releases.webp, the image at the top of the README: `python docs/images/make.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ldp_slicing import Plan, Slicer, view
from ldp_slicing.comparison_sheet import view_image

HERE = Path(__file__).parent
SIDE, GAP, TEXT = 176, 8, 20
BUDGETS = (58.0, 20.0, 5.2, 1.0)


def main() -> None:
    with Image.open(HERE.parents[1] / "examples" / "astronaut.jpg") as portrait:
        source = np.asarray(portrait.resize((SIDE, SIDE), Image.Resampling.LANCZOS))
    pruned = np.moveaxis(view.to_rgb(np.moveaxis(view_image(source, "haar"), -1, 0)), 0, -1)
    rows = [[("source", source)], [("view: low band pruned", pruned)]]
    for row, prune in zip(rows, (None, "haar"), strict=True):
        for epsilon in BUDGETS:
            release = Slicer(Plan.paper(epsilon), prune=prune)(source)
            row.append((f"eps {epsilon:g}, {'pruned' if prune else 'not pruned'}", release))
    sheet = Image.new("RGB", (GAP + len(rows[0]) * (SIDE + GAP), GAP + len(rows) * (SIDE + TEXT + GAP)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for r, row in enumerate(rows):
        for c, (label, pixels) in enumerate(row):
            left, top = GAP + c * (SIDE + GAP), GAP + r * (SIDE + TEXT + GAP)
            sheet.paste(Image.fromarray(np.ascontiguousarray(pixels)), (left, top))
            draw.text((left, top + SIDE + 3), label, fill=(40, 40, 40), font=font)
    sheet.save(HERE / "releases.webp", quality=82, method=6)


if __name__ == "__main__":
    main()
