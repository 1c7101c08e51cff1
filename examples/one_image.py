"""Release one image from Python, and read what is promised about it.

    python examples/one_image.py [OUTPUT FOLDER]

Each call of a slicer is a new release of the source, and nothing counts these calls. Use `ldp-slicing privatize`
(see folder.py) where one source must be released only once.
"""

import sys
from pathlib import Path

from PIL import Image, ImageOps

from ldp_slicing import Plan, Slicer

out = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
out.mkdir(parents=True, exist_ok=True)

with Image.open(Path(__file__).with_name("astronaut.jpg")) as opened:
    source = ImageOps.exif_transpose(opened).convert("RGB")  # upright: a slicer takes pixels as they are stored

slicer = Slicer(Plan.paper(5.2), prune="haar")  # eps 5.2 for each released pixel
release = slicer(source)  # a PIL image of the same size
release.save(out / "astronaut.png")  # PNG or another lossless format; JPEG would only add errors

print(slicer.card(*source.size))
