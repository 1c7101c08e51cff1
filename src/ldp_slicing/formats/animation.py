"""Animated GIF, PNG, WebP and AVIF: each frame is a release, as in a video, and ``formats.video`` writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from fractions import Fraction
from typing import BinaryIO

from ldp_slicing.formats.base import Entry, Options
from ldp_slicing.formats.video import nearest_common_rate
from ldp_slicing.images import decode_frames
from ldp_slicing.integrity import read_whole
from ldp_slicing.plan import COLOUR_BITS


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    """Yield every frame as uint8 [H, W, 3]. ``kept`` holds the frame rate, which is that of the first frame."""
    data = read_whole(file)
    digest = hashlib.sha256(data).digest()
    about: dict[str, Fraction] = {}
    for number, (frame, rate) in enumerate(decode_frames(data), 1):
        about = about or {"rate": nearest_common_rate(rate)}
        yield Entry(str(number), frame.pixels, COLOUR_BITS, digest, frame.notices, number, about)
