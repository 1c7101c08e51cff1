"""Sets of releases: the files that lie beside releases, and how a folder of releases is recognised by them.

What is for the owner only must not lie in such a folder, because it is handed on.
"""

from __future__ import annotations

import json
from pathlib import Path

from ldp_slicing.card import CARD_BYTES
from ldp_slicing.errors import ImageError, Reason, ReleaseError
from ldp_slicing.files import read_limited
from ldp_slicing.storage import LocalStorage, Storage

CARD_NAME = "card.json"
MANIFEST_NAME = "manifest.jsonl"
STATE_SUFFIX, STATE_NAME = ".owner", "state.sqlite"  # of the folder beside a set, and of the file in it with its state
BLANK = b"\0 \n"  # what a power cut may leave of a file


def card_beside(output: str) -> str:
    """Return the name of the card of a single release, which lies beside it."""
    return f"{output}.{CARD_NAME}"


def has_card(place: Storage, path: str = CARD_NAME) -> bool:
    """Return whether a card lies at ``path``. An empty or blank file, as a power cut leaves it, is not a card."""
    try:
        return is_card(read_or_empty(place, path))
    except (ImageError, OSError):
        return False


def is_card(content: bytes) -> bool:
    """Return whether a file of this content is meant as a card."""
    try:
        found = json.loads(content) if content.strip(BLANK) else {}
        return isinstance(found, dict) and {"card", "statements"} <= set(found)
    except (ValueError, RecursionError):
        return False


def read_or_empty(place: Storage, path: str) -> bytes:
    """Return the content of a card, or nothing if there is no such file. Raise ImageError if it is too long for one."""
    return b"" if place.size(path) is None else read_limited(place.open(path), CARD_BYTES)


def set_around(path: Path) -> Path | None:
    """Return the folder of releases that a path is or lies in, if there is one: whatever lies there is handed on.

    A run that was stopped may have written neither card nor manifest yet, but it has its state beside the folder.
    """
    whole = path.resolve()
    for folder in ([whole] if whole.is_dir() else []) + list(whole.parents):
        state = Path(f"{folder}{STATE_SUFFIX}", STATE_NAME)
        if has_card(LocalStorage(folder)) or (folder / MANIFEST_NAME).is_file() or state.is_file():
            return folder
    return None


def check_outside_sets(path: Path) -> None:
    """Refuse to write something that is for the owner only among releases.

    What replaces a link lies where the link was, and what follows it where it leads: neither may be among releases.
    """
    if (folder := set_around(path) or set_around(path.parent)) is not None:
        raise ReleaseError(
            f"{path} is for the owner only, and would lie in {folder}, which holds releases and is handed on: keep it "
            "elsewhere",
            Reason.OVERLAP,
        )
