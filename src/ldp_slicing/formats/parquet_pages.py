"""What the pages of a Parquet file declare, read before a library allocates memory for it.

pyarrow believes the headers of pages, and the footer may say something else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from ldp_slicing.errors import ImageError
from ldp_slicing.formats import thrift

_MOST_EXPANSION = 100  # of a file by decompression; images are compressed already
_LARGE_PAGE, _LARGE_PAGE_EXPANSION = 1 << 26, 4  # a page of more bytes may not expand as much: it is read as a whole
_HEADER_BYTES, _LONG_HEADER_BYTES = 1 << 8, 1 << 20  # of a page; one with long statistics is rare
_EXPANDED, _STORED = 2, 3  # field numbers of its sizes
_MAGIC, _TAIL_BYTES = b"PAR1", 8  # of a file: the length of the footer, and the magic number
_MOST_FOOTER = 1 << 23  # bytes; tables of images have a thousandth of that
_ROWS, _ROW_GROUPS, _COLUMNS, _CHUNK_METADATA = 3, 4, 1, 3  # field numbers of the footer
_LENGTH, _PAGES, _DICTIONARY = 7, 9, 11  # field numbers of a column


def check_declared(file: BinaryIO, *, compressed: bool = True) -> int:
    """Return the size of a Parquet file; raise ImageError if it declares more than it can hold.

    Only the footer and the headers of pages are read, and not by pyarrow: some damage would end the process.
    ``compressed``: whether pages may be.
    """
    size = file.seek(0, os.SEEK_END)
    total = 0
    try:
        footer = _footer(file, size)
        if (rows := thrift.signed(footer[_ROWS].value)) > size:
            raise ImageError(f"declares {rows:,} rows and has {size:,} bytes")
        for expanded, stored in _pages(file, footer):
            total += expanded
            is_large = expanded > _LARGE_PAGE and expanded > _LARGE_PAGE_EXPANSION * stored
            if is_large or total > _MOST_EXPANSION * size:
                raise ImageError(f"declares {max(total, expanded):,} bytes of values in {size:,} bytes of file")
            if expanded != stored and not compressed:
                raise ImageError("was not written by this software: it is compressed")
    except ImageError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, OSError):  # another field, or one of another type
        raise ImageError("is not a Parquet file, or is damaged: its footer is wrong") from None
    file.seek(0)
    return size


def _footer(file: BinaryIO, size: int) -> dict[int, thrift.Field]:
    """Return the footer."""
    file.seek(max(0, size - _TAIL_BYTES))
    tail = file.read(_TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length + len(_MAGIC) + _TAIL_BYTES > size:
        raise ImageError("is not a Parquet file, or is damaged: its end is missing")
    if length > _MOST_FOOTER:
        raise ImageError(f"has a footer of more than {_MOST_FOOTER:,} bytes: write it with larger row groups")
    file.seek(size - _TAIL_BYTES - length)
    return thrift.decode(file.read(length))


def _pages(file: BinaryIO, footer: dict[int, thrift.Field]) -> Iterator[tuple[int, int]]:
    """Yield the bytes of every page, in memory and in the file, as its header declares them."""
    for group in footer[_ROW_GROUPS].value:
        for chunk in group.value[_COLUMNS].value:
            column = chunk.value[_CHUNK_METADATA].value
            at, length = (thrift.signed(column[number].value) for number in (_PAGES, _LENGTH))
            dictionary = thrift.signed(column[_DICTIONARY].value) if _DICTIONARY in column else 0
            if 0 < dictionary < at:  # as pyarrow decides where to begin
                at = dictionary
            end = at + length
            while at < end:
                header, header_bytes = _page_header(file, at)
                expanded, stored = (thrift.signed(header[number].value) for number in (_EXPANDED, _STORED))
                if min(expanded, stored) < 0:
                    raise ImageError("has a damaged page")
                yield expanded, stored
                at += header_bytes + stored


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
