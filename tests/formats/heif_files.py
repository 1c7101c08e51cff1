"""HEIC files for tests. A test that uses them is skipped where pillow-heif is not installed."""

from __future__ import annotations

import io

import pytest
from PIL import Image


def heic(*images: Image.Image, **options: object) -> bytes:
    """Return a HEIC file with these images; the first is the main one."""
    pillow_heif, file = pytest.importorskip("pillow_heif"), io.BytesIO()
    made = pillow_heif.from_pillow(images[0])
    for image in images[1:]:
        made.add_from_pillow(image)
    made.save(file, **options)
    return file.getvalue()
