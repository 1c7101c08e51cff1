"""Digests of sources and of tables, in versioned encodings: keys are derived from them, and the ledger compares them.

Proofs: docs/proofs.md, 13. Tests: tests/test_keys.py and tests/release/test_common_forms.py.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.arrays import has_equal_channels
from ldp_slicing.tables import Tables


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


@lru_cache(maxsize=64)
def tables_digest(tables: Tables) -> bytes:
    """Return the SHA-256 of the arrays that the sampler reads."""
    groups = b"".join(bits.to_bytes(4, "big") for bits in tables.group_bits)
    arrays = (tables.first, tables.rest, tables.outcome, tables.uniform)
    plain = [np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes() for array in arrays]
    return hashlib.sha256(frame(b"ldp-slicing tables 1", tables.word_bits.to_bytes(4, "big"), groups, *plain)).digest()
