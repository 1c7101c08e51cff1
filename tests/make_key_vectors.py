"""Write tests/vectors/keys-v1.json: digests and derived keys that every implementation must reproduce.

Run it with `python -m tests.make_key_vectors`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ldp_slicing.digests import source_digest, tables_digest
from ldp_slicing.keys import Secret
from ldp_slicing.view import GAIN, shrinking_of
from tests.cases import PLANS, PRUNES, SHRUNK_VECTORS
from tests.make_vectors import little_endian, size_entry, source_of

FILE = Path(__file__).parent / "vectors" / "keys-v1.json"
NAMES = (b"a.png", b"album/two words.jpg", b"\xff\xfe not UTF-8", b"")


def vector(
    number: int, plan_name: str, prune: Any, height: int = 5, width: int = 3, size: Any = None
) -> dict[str, Any]:
    plan, name = PLANS[plan_name], NAMES[number % len(NAMES)]
    secret = hashlib.sha256(f"ldp-slicing key vector {number}".encode()).digest()
    source, shrinking = source_of(plan, height, width), shrinking_of(size, height, width)
    digest = source_digest(source, 8 if plan.is_colour else plan.word_bits)
    return {
        "plan": plan_name,
        "prune": prune,
        "name": name.hex(),
        "secret": secret.hex(),
        "height": height,
        "width": width,
        **size_entry(size),
        "source": little_endian(source).hex(),
        "source_digest": digest.hex(),
        "tables_digest": tables_digest(plan.tables).hex(),
        **{
            f"image_key_of_{owner}": Secret(secret, is_owners=owner == "owner")
            .image_key(name, digest, plan, prune, shrinking)
            .take()
            .hex()
            for owner in ("run", "owner")
        },
        "output_name": Secret(secret, is_owners=False).output_name(name),
    }


def all_vectors() -> dict[str, Any]:
    cases = [(name, prune) for name in PLANS for prune in PRUNES]
    cases.sort(key=lambda case: case[1] in GAIN)  # prunings that were added later have later numbers
    cases += [(name, prune, height, width, size) for prune, size, height, width in SHRUNK_VECTORS for name in PLANS]
    return {
        "about": "Plans: release-v1.json. Encoding: src/ldp_slicing/keys.py; bytes as hexadecimal digits.",
        "vectors": [vector(number, *case) for number, case in enumerate(cases)],
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(all_vectors(), indent=1) + "\n")
