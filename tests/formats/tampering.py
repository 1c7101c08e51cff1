"""Attacks on a set of releases: a changed file whose checksum is recomputed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ldp_slicing.sets import MANIFEST_NAME
from tests.release.helpers import verified


def problem_of(folder: Path, name: str, data: bytes) -> str | None:
    """Replace a file of the set, correct the manifest, and return what ``verify`` says about the file."""
    old = (folder / name).read_bytes()
    (folder / name).write_bytes(data)
    manifest = folder / MANIFEST_NAME
    manifest.write_text(manifest.read_text().replace(hashlib.sha256(old).hexdigest(), hashlib.sha256(data).hexdigest()))
    return dict(verified(folder)).get(name)
