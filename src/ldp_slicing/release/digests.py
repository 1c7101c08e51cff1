"""The digests by which the ledger recognises a source."""

from __future__ import annotations

from ldp_slicing.formats.base import Entry
from ldp_slicing.keys import common_digests, source_digest
from ldp_slicing.plan import COLOUR_BITS


def digests_of(entry: Entry) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the source digest of an entry and the digests of its common forms."""
    pixels, bits = entry.pixels, 8 if entry.bits == COLOUR_BITS else entry.bits
    if entry.original is not None:  # a range that values are mapped to is part of the view, not of the source
        pixels, bits = entry.original.pixels, entry.original.bits
    if bits > 16:
        return source_digest(pixels, bits), ()
    signed, inverted = (entry.kept.get(name) is True for name in ("signed", "inverted"))  # of a DICOM file
    return source_digest(pixels, bits), common_digests(pixels, bits, signed=signed, inverted=inverted)
