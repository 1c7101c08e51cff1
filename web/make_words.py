"""Write web/src/words.js: what the page takes over from the Python package, so that each text has one home.

Run it with `python web/make_words.py` after a change of the card's prose, of the table of measured settings and presets
or of the version.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ldp_slicing.card.card import Card
from ldp_slicing.card.prose import CARD_VERSION, NOT_PROTECTED, PADDED_SIZE, READ_THIS, SIZE
from ldp_slicing.measured import KINDS, NOTHING, RECOGNISABLE, SAME_SHARE, Measured, entries, table_version
from ldp_slicing.presets import presets

FILE = Path(__file__).parent / "src" / "words.js"


def measured(one: Measured, families: list[dict[int, float]]) -> dict[str, Any]:
    """Return what `nearest` and `risk` need of an entry. Its plan is given by the shares of its slices.

    families: the distinct shares; they are much longer than the rest, and many entries have the same.
    """
    shared = {name: getattr(one, name) for name in ("name", "kind", "pixels", "epsilon", "prune", "sentence", "advice")}
    return shared | {"wordBits": one.word_bits, "family": families.index(one.shares)}


def words() -> str:
    """Return the text of the module."""
    constants = {
        "CARD_VERSION": CARD_VERSION,
        "SOFTWARE": Card.__dataclass_fields__["software"].default,
        "SIZE": SIZE,
        "PADDED_SIZE": PADDED_SIZE,
        "NOT_PROTECTED": NOT_PROTECTED,
        "READ_THIS": READ_THIS,
        "TABLE_VERSION": table_version(),
        "KINDS": KINDS,
        "SAME_SHARE": SAME_SHARE,
        "NOTHING_MEASURED": NOTHING,
        "RECOGNISABLE": RECOGNISABLE,
    }
    lines = [f"export const {name} = {json.dumps(value, indent=2)};\n" for name, value in constants.items()]
    known = entries(table_version())
    families = list[dict[int, float]]()
    for one in known:
        if one.shares not in families:
            families.append(one.shares)
    rows = {
        "FAMILIES": [list(shares.items()) for shares in families],
        "MEASURED": [measured(one, families) for one in known],
        "PRESETS": [replace(one, measured_bits=()).to_dict() for one in presets()],  # the page shows no notice of these
    }
    for name, values in rows.items():
        lines.append(f"export const {name} = [\n" + "".join(f"  {json.dumps(value)},\n" for value in values) + "];\n")
    return "/** Written by web/make_words.py. Do not edit. */\n\n" + "\n".join(lines)


if __name__ == "__main__":
    FILE.write_text(words())
