"""UIDs of releases. Files of one series have releases of one series, under UIDs that reveal nothing else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Pseudonym = Callable[[str, str], bytes]  # a kind of UID and a UID to 16 bytes
ROOT = "2.25."  # of UIDs that are a number of 128 bits
_UID = re.compile(r"2\.25\.([1-9][0-9]{38})")
_HIGHEST_BIT = 1 << 127  # set in every number, so that a date or the like is none of them
_SOURCES = {"study": "StudyInstanceUID", "series": "SeriesInstanceUID", "place": "FrameOfReferenceUID"}


@dataclass(frozen=True)
class Uids:
    """The UIDs of a release as numbers: of the image, its study, its series, and its frame of reference if any."""

    image: int
    study: int
    series: int
    place: int | None = None


def pseudonyms(dataset: Any, pseudonym: Pseudonym | None) -> dict[str, int]:  # noqa: ANN401
    """Return a number for each UID of the source that groups files. Without ``pseudonym`` there are none."""
    if pseudonym is None:
        return {}
    stated = {kind: str(dataset.get(name) or "") for kind, name in _SOURCES.items()}
    return {kind: _number(pseudonym(f"DICOM {kind}", uid)) for kind, uid in stated.items() if uid}


def uids_of(identity: str, groups: dict[str, int]) -> Uids:
    """Return the UIDs of the release with this identity. A file that names no study or series is one of its own."""
    image = _number(_digest(f"image {identity}"))
    alone = {kind: _number(_digest(f"{kind} {ROOT}{image}")) for kind in ("study", "series")}
    return Uids(image, **alone | groups)


def parse_uid(text: str) -> int | None:
    """Return the number of a UID that ``uids_of`` can have made, or None."""
    found = _UID.fullmatch(text)
    return int(found[1]) if found and _HIGHEST_BIT <= int(found[1]) < 1 << 128 else None


def _number(digest: bytes) -> int:
    return int.from_bytes(digest, "big") | _HIGHEST_BIT


def _digest(text: str) -> bytes:
    """Return 16 bytes, the same whenever the same release is made again."""
    return hashlib.sha256(text.encode()).digest()[:16]
