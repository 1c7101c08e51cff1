"""Derived image keys: the same source always gives the same release under one secret.

There are two kinds of secret. A *run key* belongs to one run and is destroyed with it. The item's name enters the
derivation, so two copies of an image get independent noise. An *owner's key* persists. Names do not enter its
derivation, so equal pixels always give equal releases.

Everything that decides how the keystream is used enters the derivation: one keystream read through two different tables
would reveal bits. Post-processing of the released bits, such as the file format and the conversion to RGB, does not.

Proofs: docs/proofs.md, 12 and 13. Tests: tests/test_keys.py.
"""

from __future__ import annotations

import hmac
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from ldp_slicing.digests import frame, tables_digest
from ldp_slicing.errors import KeyFileError
from ldp_slicing.files import create_durably, sync_file, sync_folder
from ldp_slicing.plan import Plan
from ldp_slicing.randomness import KEY_BYTES, ImageKey
from ldp_slicing.tables import LAYOUT_VERSION
from ldp_slicing.view import Prune, Shrinking

_HEADER = b"ldp-slicing key 1\n"


@dataclass(frozen=True)
class Secret:
    """The secret from which image keys are derived. Messages and ``repr`` never show it."""

    key: bytes = field(repr=False)
    is_owners: bool

    def image_key(
        self, name: bytes, source: bytes, plan: Plan, prune: Prune, shrinking: Shrinking | None, mapping: str = ""
    ) -> ImageKey:
        """Derive the key of one image from its item's name (run keys only), source digest, tables and view.

        shrinking: how the source is shrunk, by ``Slicer.shrinking``; None if it keeps its size.
        mapping: how its values are mapped to a range, by ``RangeMap``; nothing if they are its words.
        """
        kind = (b"ldp-slicing owner's key 1",) if self.is_owners else (b"ldp-slicing run key 1", name)
        view = [(prune or "none").encode(), b"YCbCr" if plan.is_colour else b"grey"]
        if shrinking is not None:
            view.append(shrinking.encode())
        if mapping:
            view.append(f"range {mapping}".encode())
        parts = (*kind, source, tables_digest(plan.tables), frame(*view), LAYOUT_VERSION.to_bytes(4, "big"))
        return ImageKey(self._mac(*parts))

    def output_name(self, name: bytes) -> str:
        """Return 32 hexadecimal digits that reveal nothing about the item's name without the secret."""
        return self._mac(b"ldp-slicing output name 1", name).hex()[:32]

    def pseudonym(self, kind: str, name: str) -> bytes:
        """Return 16 bytes for a name of some kind, the same under the same secret. They reveal nothing without it."""
        return self._mac(b"ldp-slicing pseudonym 1", kind.encode(), name.encode())[:16]

    def identity(self) -> bytes:
        """Return 16 bytes that distinguish two secrets and reveal neither."""
        return self._mac(b"ldp-slicing key identity 1")[:16]

    def _mac(self, *parts: bytes) -> bytes:
        return hmac.digest(self.key, frame(*parts), "sha256")


def new_key_file(path: Path) -> bytes:
    """Create a key file that only its owner can read, and return the new key. The file is durable when this returns."""
    key = os.urandom(KEY_BYTES)
    try:
        create_durably(path, _HEADER + key.hex().encode() + b"\n", mode=0o600)
    except FileExistsError:
        raise KeyFileError(
            f"{path} exists: a key is never overwritten, because releases made with it could not be repeated"
        ) from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
    return key


def read_key_file(path: Path) -> bytes:
    """Return the 32 bytes of a key file. Refuse a file that others can read."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(len(_HEADER) + 2 * KEY_BYTES + 2)
    except OSError as error:
        raise KeyFileError(
            f"the key {path} cannot be read: {error.strerror}; create one with: ldp-slicing key new FILE"
        ) from None
    try:
        key = bytes.fromhex(content.removeprefix(_HEADER).decode("ascii"))
    except ValueError:
        key = b""
    if not content.startswith(_HEADER) or len(key) != KEY_BYTES:
        raise KeyFileError(f"{path} is not a key file; create one with: ldp-slicing key new FILE")
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise KeyFileError(
            f"the key {path} can be read by others (mode {stat.S_IMODE(mode):04o}); run: chmod 600 {path}"
        )
    return key


def destroy_key_file(path: Path) -> None:
    """Overwrite a key file and remove it. This is best effort: file systems and disks may keep old blocks."""
    with open(path, "rb+") as file:
        file.write(bytes(path.stat().st_size))
        sync_file(file)
    path.unlink()
    sync_folder(path.parent)
