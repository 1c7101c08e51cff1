"""The digests by which the ledger recognises a source."""

from __future__ import annotations

from ldp_slicing.formats.base import Entry
from ldp_slicing.keys import common_digests, source_digest
from ldp_slicing.plan import channel_bits


def digests_of(entry: Entry) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the source digest of an entry and the digests of its common forms."""
    pixels, bits = entry.pixels, channel_bits(entry.bits)
    if entry.original is not None:  # a range that values are mapped to is part of the view, not of the source
        pixels, bits = entry.original.pixels, entry.original.bits
        if pixels.dtype.kind == "f":
            pixels = pixels.view(f"u{pixels.dtype.itemsize}")
    if bits > 16:
        return source_digest(pixels, bits), ()
    signed, inverted = (entry.kept.get(name) is True for name in ("signed", "inverted"))  # of a DICOM file
    return source_digest(pixels, bits), common_digests(pixels, bits, signed=signed, inverted=inverted)
