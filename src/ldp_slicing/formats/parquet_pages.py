"""What the pages of a Parquet file declare, read before a library allocates memory for it.

pyarrow believes the headers of pages, and the footer may say something else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow.parquet as pq

from ldp_slicing.errors import ImageError
from ldp_slicing.formats import thrift

_MOST_EXPANSION = 100  # of a file by decompression; images are compressed already
_LARGE_PAGE, _LARGE_PAGE_EXPANSION = 1 << 26, 4  # a page of more bytes may not expand as much: it is read as a whole
_HEADER_BYTES, _LONG_HEADER_BYTES = 1 << 8, 1 << 20  # of a page; one with long statistics is rare
_EXPANDED, _STORED = 2, 3  # field numbers of its sizes


def check_declared(file: BinaryIO, *, compressed: bool = True) -> int:
    """Return the size of a Parquet file; raise ImageError if it declares more than it can hold.

    Only the footer and the headers of pages are read. ``compressed``: whether pages may be.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    metadata = pq.read_metadata(file)
    if metadata.num_rows > size:
        raise ImageError(f"declares {metadata.num_rows:,} rows and has {size:,} bytes")
    total = 0
    for expanded, stored in _pages(file, metadata):
        total += expanded
        is_large = expanded > _LARGE_PAGE and expanded > _LARGE_PAGE_EXPANSION * stored
        if is_large or total > _MOST_EXPANSION * size:
            raise ImageError(f"declares {max(total, expanded):,} bytes of values in {size:,} bytes of file")
        if expanded != stored and not compressed:
            raise ImageError("was not written by this software: it is compressed")
    file.seek(0)
    return size


def _pages(file: BinaryIO, metadata: Any) -> Iterator[tuple[int, int]]:  # noqa: ANN401
    """Yield the bytes of every page, in memory and in the file, as its header declares them."""
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        for column in (group.column(number) for number in range(group.num_columns)):
            at, dictionary = column.data_page_offset, column.dictionary_page_offset
            if dictionary is not None and 0 < dictionary < at:  # as pyarrow decides where to begin
                at = dictionary
            end = at + column.total_compressed_size
            while at < end:
                header, length = _page_header(file, at)
                expanded, stored = (thrift.signed(header[number].value) for number in (_EXPANDED, _STORED))
                if min(expanded, stored) < 0:
                    raise ImageError("has a damaged page")
                yield expanded, stored
                at += length + stored


def _page_header(file: BinaryIO, at: int) -> tuple[dict[int, thrift.Field], int]:
    """Return the header of the page at ``at``, and its length in bytes."""
    for length in (_HEADER_BYTES, _LONG_HEADER_BYTES):
        file.seek(at)
        try:
            header, size = thrift.decode_first(file.read(length))
        except ImageError:
            continue
        if {_EXPANDED, _STORED} <= header.keys():
            return header, size
    raise ImageError("has a damaged page")
