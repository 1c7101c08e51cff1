"""Write tests/vectors/release-v1.json: releases that every implementation must reproduce.

Run it with `python -m tests.make_vectors`. The reference makes them. They change only with the layout version.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp_slicing import Plan, Slicer
from ldp_slicing.randomness import SLACK, ImageKey, Keystream
from ldp_slicing.tables import LAYOUT_VERSION
from ldp_slicing.view import GAIN, Padded, Size
from tests.cases import PLANS, PRUNES, SHRUNK_VECTORS

FILE = Path(__file__).parent / "vectors" / f"release-v{LAYOUT_VERSION}.json"
SHAPES = ((1, 1), (5, 3), (9, 20))


def source_of(plan: Plan, height: int, width: int) -> NDArray[Any]:
    """Return a source that needs no random generator: value number i is i * (2 i + 91) + 17, modulo the range."""
    channels = 3 if plan.is_colour else 1
    i = np.arange(height * width * channels, dtype=np.int64)
    bits = 8 if plan.is_colour else plan.word_bits
    values = (i * (2 * i + 91) + 17) % (1 << bits)
    return values.astype(plan.dtype).reshape((height, width, 3) if plan.is_colour else (height, width))


def little_endian(array: NDArray[Any]) -> bytes:
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def keystream_start(key: bytes) -> bytes:
    room = memoryview(bytearray(32 + SLACK))
    Keystream(key, 32).fill(room)
    return bytes(room[:32])


def size_entry(size: Size) -> dict[str, Any]:
    """Return the entry for a size: none if sources keep theirs, as in all vectors that came before shrinking."""
    if isinstance(size, Padded):
        return {"size": [size.width, size.height], "pad": True}
    return {} if size is None else {"size": list(size) if isinstance(size, tuple) else size}


def size_of(case: dict[str, Any]) -> Size:
    """Return the size of a vector, the inverse of ``size_entry``."""
    size = case.get("size")
    if not isinstance(size, list):
        return size
    return Padded(*size) if case.get("pad") else (size[0], size[1])


def vector(name: str, number: int, prune: Any, height: int, width: int, size: Any = None) -> dict[str, Any]:
    plan = PLANS[name]
    key = hashlib.sha256(f"ldp-slicing test vector {number}".encode()).digest()
    source = source_of(plan, height, width)
    releases = {
        output: little_endian(
            Slicer(plan, prune=prune, size=size, output=output, backend="reference")(source, key=ImageKey(key))
        ).hex()
        for output in (("ycbcr", "rgb") if plan.is_colour else ("ycbcr",))
    }
    return {
        "plan": name,
        "word_bits": plan.word_bits,
        "slices": [[f"0x{part.bits:x}", part.epsilon.hex()] for part in plan.slices],
        "prune": prune,
        "height": height,
        "width": width,
        **size_entry(size),
        "key": key.hex(),
        "source": little_endian(source).hex(),
        "keystream_start": keystream_start(key).hex(),
        "lanes_per_block": plan.tables.lanes,
        "release": releases,
    }


def tables(name: str) -> dict[str, Any]:
    content = PLANS[name].tables
    return {
        "groups": [f"0x{bits:x}" for bits in content.group_bits],
        "uniform": content.uniform.tolist(),
        "sha256": {
            field: hashlib.sha256(little_endian(getattr(content, field))).hexdigest()
            for field in ("first", "rest", "outcome", "uniform")
        },
    }


def all_vectors() -> dict[str, Any]:
    cases = [(name, prune, *shape) for name in PLANS for prune in PRUNES for shape in SHAPES]
    cases.sort(key=lambda case: case[1] in GAIN)  # prunings that were added later have later numbers
    cases += [(name, prune, height, width, size) for prune, size, height, width in SHRUNK_VECTORS for name in PLANS]
    return {
        "layout": LAYOUT_VERSION,
        "about": "Arrays are little-endian, in C order. Tables: docs/proofs.md, section 3. "
        "Keystream: src/ldp_slicing/mask.py.",
        "tables": {name: tables(name) for name in PLANS},
        "vectors": [vector(name, number, *rest) for number, (name, *rest) in enumerate(cases)],
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(all_vectors(), indent=1) + "\n")
