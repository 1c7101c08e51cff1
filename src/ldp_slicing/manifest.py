"""The manifest of a folder of releases: one JSON line per release, with the checksum of its file.

The owner writes it when a run ends. Whoever receives the releases reads it to check them (``ldp_slicing.verify``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO

from ldp_slicing.errors import ImageError, LdpSlicingError, ReleaseError
from ldp_slicing.files import limited_lines
from ldp_slicing.sets import MANIFEST_NAME, card_beside
from ldp_slicing.storage import LocalStorage, Storage, write_file
from ldp_slicing.strict_json import fields, parse, shown

MANIFEST_VERSION = 2  # no earlier one was in a released version
LISTED = 1000  # files of a folder that are looked at if it has no manifest
LINE_BYTES = 1 << 16  # the longest line: names of files and members have at most 4,096 bytes
RELEASED = "released"  # status of a release
LOST = "lost"  # status of a release whose file is gone
AGAIN = "released again"  # status of a release that replaced a lost one
_REQUIRED = {"output": str, "sha256": str, "status": str}
_SIZE = {"width": int, "height": int, "word_bits": int}  # only of a lost release: nobody can look
_OPTIONAL = {**_SIZE, "member": str, "frames": int}
_SHA256 = re.compile("[0-9a-f]{64}")


class DamagedManifestError(ReleaseError):
    """The manifest is not as ``write_manifest`` writes it: somebody changed it, or it was damaged."""

    def __init__(self, damage: str) -> None:
        self.damage = damage
        super().__init__(f"has a damaged {MANIFEST_NAME}: {damage}")


def _a_single_release(place: Storage) -> str | None:
    """Return the name of a file in the folder that has a card of its own."""
    names = {found.path for found in islice(place.files(), LISTED)}
    return next((name for name in sorted(names) if card_beside(name) in names), None)


def write_manifest(place: Storage, lines: Iterable[dict[str, Any]]) -> None:
    """Write one JSON line per release.

    Every line has ``output`` (the path of the file), ``sha256`` and ``status``. A lost release also has ``width``,
    ``height`` and ``word_bits``; one inside a tar or Parquet file has ``member``; a video or multi-frame DICOM file has
    ``frames``.
    """
    write_file(place, MANIFEST_NAME, map(_encode_line, lines))


def read_manifest(place: Storage) -> Iterator[dict[str, Any]]:
    """Yield the checked lines of the manifest one at a time: there may be millions.

    Raises ReleaseError if the manifest is missing, and DamagedManifestError if it is not as ``write_manifest`` writes
    it, or if a line names a file outside the folder.
    """
    try:
        file = place.open(MANIFEST_NAME)
    except ImageError as error:
        detail = f" ({error})" if place.exists(MANIFEST_NAME) else ""
        single = _a_single_release(place) if isinstance(place, LocalStorage) and not detail else None
        raise ReleaseError(
            f"has no {MANIFEST_NAME}, but files that were released on their own: name the file, such as {single}"
            if single
            else f"has no {MANIFEST_NAME}: the run did not finish, this is a part of a set (name the whole folder), or "
            f"it is not a folder of releases{detail}"
        ) from None
    with file:
        for number, text in enumerate(_split(file), 1):
            try:
                line = _read_line(text)
            except LdpSlicingError as error:
                raise DamagedManifestError(f"line {number} is not a valid manifest line: {error}") from None
            yield line


def _split(file: BinaryIO) -> Iterator[bytes]:
    try:
        yield from limited_lines(file, LINE_BYTES)
    except ImageError as error:
        raise DamagedManifestError(f"it {error}") from None


def is_lost(place: Storage, line: dict[str, Any]) -> bool:
    """Return whether the manifest records the release as lost and no file has taken its path."""
    return line["status"] == LOST and not place.exists(line["output"])


def _read_line(text: bytes) -> dict[str, Any]:
    """Return the content of a line, or raise LdpSlicingError.

    The manifest comes from somebody else and is not trusted. A line has exactly one text for its content.
    """
    line = fields(parse(text, most_bytes=LINE_BYTES), {"manifest": int, **_REQUIRED}, _OPTIONAL)
    if (version := line.pop("manifest")) != MANIFEST_VERSION:
        raise LdpSlicingError(f"it has version {version}, and this software reads version {MANIFEST_VERSION}")
    if line["status"] not in (RELEASED, LOST, AGAIN):
        raise LdpSlicingError(f"the status {shown(line['status'])} is unknown")
    if not _SHA256.fullmatch(line["sha256"]):
        raise LdpSlicingError(f"{shown(line['sha256'])} is not a checksum")
    if not _stays_inside(line["output"]):
        raise LdpSlicingError(f"{shown(line['output'])} is not a path inside the folder")
    if {key for key in line if key in _SIZE} != ({*_SIZE} if line["status"] == LOST else set()):
        raise LdpSlicingError("a lost release has width, height and word_bits, and no other has")
    if min(line.get(key, 1) for key in _SIZE) < 1 or line.get("frames", 2) < 2:
        raise LdpSlicingError("a width, a height, a number of bits or a number of frames is too small")
    if _encode_line(line) != text:
        raise LdpSlicingError("it is not written as this software writes it")
    return line


def _encode_line(line: dict[str, Any]) -> bytes:
    stated = {key: line[key] for key in (*_REQUIRED, *_OPTIONAL) if key in line}
    return json.dumps({"manifest": MANIFEST_VERSION} | stated).encode() + b"\n"


def _stays_inside(output: str) -> bool:
    try:
        path = output.encode("utf-8", "surrogateescape")  # whatever the system's encoding is
    except UnicodeEncodeError:
        return False
    parts = path.replace(b"\\", b"/").split(b"/")
    return b"\0" not in path and not {b"", b".", b".."} & set(parts)
