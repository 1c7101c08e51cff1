"""The manifest of a folder of releases: one JSON line per release, with the checksum of its file.

The owner writes it when a run ends. Whoever receives the releases reads it to check them (``ldp_slicing.verify``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from ldp_slicing.errors import ImageError, LdpSlicingError, ReleaseError
from ldp_slicing.storage import Storage, write_file

CARD_NAME = "card.json"
MANIFEST_NAME = "manifest.jsonl"
BLANK = b"\0 \n"  # what a power cut may leave of a file
LOST = "lost"  # status of a release whose file is gone
AGAIN = "released again"  # status of a release that replaced a lost one


def has_card(place: Storage, path: str = CARD_NAME) -> bool:
    """Return whether a card lies at ``path``. An empty or blank file, as a power cut leaves it, is not a card."""
    try:
        content = read_or_empty(place, path)
        found = json.loads(content) if content.strip(BLANK) else {}
        return isinstance(found, dict) and {"card", "statements"} <= set(found)
    except (ImageError, OSError, ValueError, RecursionError):
        return False


def read_or_empty(place: Storage, path: str) -> bytes:
    """Return the content of a file, or nothing if there is no such file."""
    if place.size(path) is None:
        return b""
    with place.open(path) as file:
        return file.read()


def write_manifest(place: Storage, lines: Iterable[dict[str, Any]]) -> None:
    """Write one JSON line per release.

    Every line has ``output`` (the path of the file), ``sha256`` and ``status``. A release inside a tar or Parquet file
    also has ``member``; a video or multi-frame DICOM file has ``frames``; a lost release has ``width``, ``height`` and
    ``word_bits``.
    """
    write_file(place, MANIFEST_NAME, (json.dumps(line).encode() + b"\n" for line in lines))


def read_manifest(place: Storage) -> Iterator[dict[str, Any]]:
    """Yield the checked lines of the manifest one at a time: there may be millions.

    Raises ReleaseError if the manifest is missing or damaged, or if a line names a file outside the folder.
    """
    try:
        with place.open(MANIFEST_NAME) as file:
            for number, text in enumerate(file, 1):
                line = json.loads(text)
                if not isinstance(line, dict) or not _is_valid(line):
                    raise ValueError(f"line {number} is not a valid manifest line")
                yield line
    except (ValueError, RecursionError) as error:
        if isinstance(error, LdpSlicingError):
            raise ReleaseError(
                f"has no {MANIFEST_NAME}: the run did not finish, or this is not a folder of releases ({error})"
            ) from None
        raise ReleaseError(f"has a damaged {MANIFEST_NAME}: {error}") from None


def is_lost(place: Storage, line: dict[str, Any]) -> bool:
    """Return whether the manifest records the release as lost and no file has taken its path."""
    return line["status"] == LOST and not place.exists(line["output"])


def _is_valid(line: dict[str, Any]) -> bool:
    """Return whether all fields have the right types and the path stays inside the folder.

    The manifest comes from somebody else and is not trusted.
    """
    texts = [line.get(key) for key in ("output", "sha256", "status")] + [line.get("member", "")]
    if not all(isinstance(text, str) for text in texts) or not _is_positive(line.get("frames", 1)):
        return False
    if line["status"] == LOST and not all(_is_positive(line.get(key)) for key in ("width", "height", "word_bits")):
        return False
    try:
        path = os.fsencode(line["output"])
    except UnicodeEncodeError:
        return False
    parts = path.replace(b"\\", b"/").split(b"/")
    return b"\0" not in path and bool(parts[0]) and b".." not in parts


def _is_positive(value: object) -> bool:
    return type(value) is int and value > 0
