"""What every browser must answer: see web/test/browser.js."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from ldp_slicing import Plan, Slicer
from ldp_slicing.randomness import ImageKey
from tests.make_vectors import FILE

VECTORS = json.loads(FILE.read_text())


def check_answer(found: dict[str, Any]) -> None:
    """Check all vectors, AES, and one release above a megapixel."""
    source = (np.arange(3 * 1203 * 1001) * 7919 >> 5).astype(np.uint8).reshape(1001, 1203, 3)
    release = Slicer(Plan.paper(20.0))(source, key=ImageKey(bytes(range(32))))
    assert found["wrong"] == []
    assert found["checked"] > 400
    assert found["wrongBlocks"] == 0
    assert found["large"] == hashlib.sha256(release.tobytes()).hexdigest()
