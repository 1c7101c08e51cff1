"""A network for the attack view: the one that the package carries, or else a tiny one that reconstructs black."""

from __future__ import annotations

import json

from ldp_slicing.studio.page import included_network


def some_network() -> bytes:
    """Return the content of a network's file."""
    return included_network() or tiny_network()


def tiny_network(width: int = 4) -> bytes:
    """Return a file of three convolutions whose weights and biases are 0."""
    header = {"name": "tiny", "about": "untrained", "licence": "none", "side": 112, "inputs": 29, "widths": [width]}
    text = json.dumps(header).encode()
    values = sum(outside * (9 * inside + 1) for inside, outside in ((29, width), (width, width), (width, 4)))
    return b"LDPNET1\n" + len(text).to_bytes(4, "little") + text + bytes(2 * values)
