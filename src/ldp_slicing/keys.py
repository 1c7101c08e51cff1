"""Derived image keys: the same source always gives the same release under one secret.

There are two kinds of secret. A *run key* belongs to one run and is destroyed with it. The item's name enters the
derivation, so two copies of an image get independent noise. An *owner's key* persists. Names do not enter its
derivation, so equal pixels always give equal releases.

Everything that decides how the keystream is used enters the derivation: one keystream read through two different tables
would reveal bits. Post-processing of the released bits, such as the file format and the conversion to RGB, does not.

Proofs: docs/proofs.md, 12 and 13. Tests: tests/test_keys.py.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import KeyFileError
from ldp_slicing.files import create_durably, sync_file, sync_folder
from ldp_slicing.plan import Plan
from ldp_slicing.randomness import KEY_BYTES, ImageKey
from ldp_slicing.tables import LAYOUT_VERSION, Tables
from ldp_slicing.view import Prune, Shrinking

_HEADER = b"ldp-slicing key 1\n"


def frame(*parts: bytes) -> bytes:
    """Join parts, each preceded by its length in 8 bytes. Different lists of parts give different bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def source_digest(pixels: NDArray[np.generic], bits: int) -> bytes:
    """Return the SHA-256 of a source: uint8 H x W x 3, or H x W uint8, uint16, uint32 or floats; ``bits`` per channel.

    Height, width, channels and bits enter the digest. Pixels enter row by row, in little-endian order. Floats have a
    prefix of their own: the bytes of a float are those of some integer, too, which the view would map to another word.
    """
    height, width = pixels.shape[:2]
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    plain = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder("<"))
    numbers = b"".join(number.to_bytes(8, "big") for number in (height, width, channels, bits))
    kind = b"ldp-slicing floats 1" if plain.dtype.kind == "f" else b"ldp-slicing source 1"
    digest = hashlib.sha256(frame(kind, numbers) + plain.nbytes.to_bytes(8, "big"))
    digest.update(plain.data)
    return digest.digest()


def common_digests(
    pixels: NDArray[np.unsignedinteger], bits: int, *, signed: bool = False, inverted: bool = False
) -> tuple[bytes, ...]:
    """Return SHA-256 digests of a source in common forms. The same grey values at another bit depth have one in common.

    pixels, bits: as for ``source_digest``. Equal channels count as one. A colour image has no other form: none is
    returned. ``signed`` and ``inverted`` say how a DICOM file stores its values; then the stored values are a second
    form. Only the ledger compares these digests. No key is derived from them: two forms must not share a mask.
    """
    if pixels.ndim == 3:
        if not has_equal_channels(pixels):
            return ()
        pixels = pixels[..., 0]
    forms = [pixels.astype(np.int32)]
    if signed or inverted:
        stored = (1 << bits) - 1 - forms[0] if inverted else forms[0]
        forms.append(stored - (1 << (bits - 1)) if signed else stored)
    return tuple(_common_digest(values) for values in forms)


def _common_digest(values: NDArray[np.int32]) -> bytes:
    """Return the digest of grey values in the shortest type that holds them. 8 bits stretched to 16 are 8 again."""
    if values.size and not (values % 257).any():
        values = values // 257
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    kind = "u1" if low >= 0 and high < 1 << 8 else "<u2" if low >= 0 and high < 1 << 16 else "<i4"
    numbers = b"".join(number.to_bytes(8, "big") for number in values.shape)
    return hashlib.sha256(frame(b"ldp-slicing common form 1", numbers, values.astype(kind).tobytes())).digest()


def has_equal_channels(pixels: NDArray[np.unsignedinteger]) -> bool:
    """Return whether the three channels are equal. A few rows decide for most images, and are compared first."""
    for part in (pixels[:: 1 + len(pixels) // 8], pixels):
        red, green, blue = (part[..., channel] for channel in range(3))
        if not ((red == green).all() and (green == blue).all()):
            return False
    return True


@lru_cache(maxsize=64)
def tables_digest(tables: Tables) -> bytes:
    """Return the SHA-256 of the arrays that the sampler reads."""
    groups = b"".join(bits.to_bytes(4, "big") for bits in tables.group_bits)
    arrays = (tables.first, tables.rest, tables.outcome, tables.uniform)
    plain = [np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes() for array in arrays]
    return hashlib.sha256(frame(b"ldp-slicing tables 1", tables.word_bits.to_bytes(4, "big"), groups, *plain)).digest()


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
