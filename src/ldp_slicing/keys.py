"""Keys that give the same image the same release: a secret, and everything that decides what its keystream is used for.

Two secrets can be at the root. A *run key* belongs to one run and dies with it; the item's name takes part, so two copies of a picture get
independent noise. An *owner's key* stays; names take no part, so the same pixels always give the same release.

Everything the keystream is compared with takes part: one keystream read through two different tables would give bits away. What only
post-processes the released bits (the file format, the way back to RGB) does not.

Proofs: docs/proofs.md, 12 and 13. Tests: tests/test_keys.py.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import KeyFileError
from ldp_slicing.plan import Plan
from ldp_slicing.randomness import KEY_BYTES, ImageKey
from ldp_slicing.tables import LAYOUT_VERSION, Tables
from ldp_slicing.view import Prune

_HEADER = b"ldp-slicing key 1\n"


def frame(*parts: bytes) -> bytes:
    """The parts, each behind its length in 8 bytes: no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def source_digest(pixels: NDArray[np.unsignedinteger], bits: int) -> bytes:
    """SHA-256 of a source: uint8 H x W x 3, or uint8 or uint16 H x W, of ``bits`` bits per channel; pixels little-endian, row by row."""
    height, width = pixels.shape[:2]
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    plain = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder("<"))
    numbers = b"".join(number.to_bytes(8, "big") for number in (height, width, channels, bits))
    digest = hashlib.sha256(frame(b"ldp-slicing source 1", numbers) + plain.nbytes.to_bytes(8, "big"))
    digest.update(plain.data)
    return digest.digest()


@lru_cache(maxsize=64)
def tables_digest(tables: Tables) -> bytes:
    """SHA-256 of the exact arrays that the sampler reads."""
    groups = b"".join(bits.to_bytes(4, "big") for bits in tables.group_bits)
    arrays = (tables.first, tables.rest, tables.outcome, tables.uniform)
    plain = [np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes() for array in arrays]
    return hashlib.sha256(frame(b"ldp-slicing tables 1", tables.word_bits.to_bytes(4, "big"), groups, *plain)).digest()


@dataclass(frozen=True)
class Secret:
    """The root of a run's image keys. Never shown: not in messages, not by ``repr``."""

    key: bytes = field(repr=False)
    is_owners: bool

    def image_key(self, name: bytes, source: bytes, plan: Plan, prune: Prune) -> ImageKey:
        """Derive the key of one image from its item's name (run keys only), source digest, tables and view."""
        kind = (b"ldp-slicing owner's key 1",) if self.is_owners else (b"ldp-slicing run key 1", name)
        view = frame((prune or "none").encode(), b"YCbCr" if plan.is_colour else b"grey")
        parts = (*kind, source, tables_digest(plan.tables), view, LAYOUT_VERSION.to_bytes(4, "big"))
        return ImageKey(self._mac(*parts))

    def output_name(self, name: bytes) -> str:
        """32 hexadecimal digits that say nothing of the item's name to whoever lacks the secret."""
        return self._mac(b"ldp-slicing output name 1", name).hex()[:32]

    def identity(self) -> bytes:
        """Tells two secrets apart without giving either away."""
        return self._mac(b"ldp-slicing key identity 1")[:16]

    def _mac(self, *parts: bytes) -> bytes:
        return hmac.digest(self.key, frame(*parts), "sha256")


def new_key_file(path: Path) -> bytes:
    """A new key from the operating system, in a new file that only its owner can read, on the disk before anything is made with it."""
    key, temporary = os.urandom(KEY_BYTES), path.with_name(f".{secrets.token_hex(8)}.key")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(_HEADER + key.hex().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)  # the whole file or none, and of several processes the first wins
        finally:
            temporary.unlink()
        sync_folder(path.parent)
    except FileExistsError:
        raise KeyFileError(
            f"{path} exists already: a key is never overwritten, or nobody could repeat what was made with it"
        ) from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
    return key


def read_key_file(path: Path) -> bytes:
    """The 32 bytes of a key file, if nobody but its owner can read it."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(len(_HEADER) + 2 * KEY_BYTES + 2)
    except OSError as error:
        raise KeyFileError(
            f"the key {path} cannot be read: {error.strerror}; make one with: ldp-slicing key new FILE"
        ) from None
    try:
        key = bytes.fromhex(content.removeprefix(_HEADER).decode("ascii"))
    except ValueError:
        key = b""
    if not content.startswith(_HEADER) or len(key) != KEY_BYTES:
        raise KeyFileError(f"{path} is not a key file; make one with: ldp-slicing key new FILE")
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise KeyFileError(
            f"the key {path} can be read by others (mode {stat.S_IMODE(mode):04o}); run: chmod 600 {path}"
        )
    return key


def destroy_key_file(path: Path) -> None:
    """Overwrite and remove. Best effort: disks and file systems of today keep old blocks, and nobody can promise otherwise."""
    with open(path, "rb+") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A file's name is on the disk only when its folder is."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a private folder and its parents, each durable under its name."""
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(exist_ok=True, mode=0o700)
        sync_folder(missing.parent)
