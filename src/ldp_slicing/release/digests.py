"""The digests by which the ledger recognises a source."""

from __future__ import annotations

from ldp_slicing.formats.base import Entry
from ldp_slicing.keys import common_digests, source_digest
from ldp_slicing.plan import COLOUR_BITS


def digests_of(entry: Entry) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the source digest of an entry and the digests of its common forms."""
    bits = 8 if entry.bits == COLOUR_BITS else entry.bits
    signed, inverted = (entry.kept.get(name) is True for name in ("signed", "inverted"))  # of a DICOM file
    return source_digest(entry.pixels, bits), common_digests(entry.pixels, bits, signed=signed, inverted=inverted)
