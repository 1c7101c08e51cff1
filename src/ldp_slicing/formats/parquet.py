"""Parquet files: reads and writes the image column of Hugging Face data sets, struct<bytes, path>.

Other columns are kept only if the owner named them, and only if they cannot hold images.

pyarrow writes the pages of a release, uncompressed, without dictionaries and without statistics. Its footer is reduced
to the fields that a reader needs, so that it does not depend on the version of pyarrow.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from ldp_slicing.errors import ImageError
from ldp_slicing.formats import thrift
from ldp_slicing.formats.base import (
    Claims,
    Content,
    Damaged,
    Entry,
    Member,
    Options,
    Released,
    check_keep,
    make_entry,
    note_left_out,
)
from ldp_slicing.formats.image import check_png, load_png
from ldp_slicing.formats.parquet_columns import (
    FEATURES_KEY,
    MOST_NAME,
    image_column,
    kept_features,
    metadata_keys,
    one_row,
)
from ldp_slicing.formats.parquet_pages import check_declared
from ldp_slicing.formats.thrift import STRUCT, Field
from ldp_slicing.images import decode_image
from ldp_slicing.png import Canvas
from ldp_slicing.storage import TemporaryFile

IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
ROW_GROUP = 100  # what the Hugging Face writer uses for images
_ROWS_AT_ONCE = 16
_LIBRARY = f"pyarrow {pa.__version__}"
_MAGIC, _APPLICATION = b"PAR1", b"ldp-slicing"
_CREATED_BY, _ROW_GROUPS, _COLUMNS, _CHUNK_METADATA = 6, 4, 1, 3  # field numbers of the footer
_FILE_FIELDS = (1, 2, 3, 4, 5, 7)  # version, schema, rows, row groups, metadata, column orders
_ROW_GROUP_FIELDS = (1, 2, 3)  # columns, bytes, rows
_CHUNK_FIELDS = (1, 2, 3, 4, 5, 6, 7, 9)  # type, encodings, path, compression, values, sizes, where it begins
_ROW_OVERHEAD = 1 << 12  # bytes of a row in memory that need not be in the file: offsets, flags for missing values


def read(file: BinaryIO, options: Options) -> Iterator[Entry | Damaged]:
    """Yield one entry per row. ``kept`` holds the name of the image column and, per row, the columns that are kept."""
    try:
        check_declared(file)
        source = pq.ParquetFile(file)
        column = image_column(source.schema_arrow, options.keep)
        others = [name for name in source.schema_arrow.names if name != column]
        check_keep(options.keep, others)
        kept = [name for name in others if name in options.keep]
        left_out = set(others) - set(kept)
        features = kept_features(source.schema_arrow, kept)
        row = 0
        for batch in source.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[column, *kept]):
            for position in range(batch.num_rows):
                image = batch.column(column)[position].as_py()
                values = {name: _kept_value(batch, name, position) for name in kept}
                entry = _entry(row, image, {"column": column, "values": values, "features": features})
                if isinstance(entry, Entry):
                    entry, left_out = note_left_out(entry, left_out), set()
                yield entry
                row += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ImageError(f"is not a Parquet file, or is damaged: {str(error).strip()}") from None


def _kept_value(batch: Any, name: str, position: int) -> Any:  # noqa: ANN401
    try:
        return one_row(batch.column(name), position)
    except pa.ArrowInvalid:
        raise ImageError(
            f"has a column {name} with text that is not UTF-8, which may be an image: leave out --keep {name}"
        ) from None


def keepable(open_file: Callable[[], BinaryIO]) -> Collection[str]:
    """Return the names of the columns that are not images, from the footer."""
    with open_file() as file:
        try:
            check_declared(file)
            schema = pq.ParquetFile(file).schema_arrow
        except pa.ArrowException as error:
            raise ImageError(f"is not a Parquet file, or is damaged: {str(error).strip()}") from None
        return set(schema.names) - {image_column(schema)}


def _entry(row: int, image: Any, kept: dict[str, Any]) -> Entry | Damaged:  # noqa: ANN401
    data, path = (image.get("bytes"), image.get("path")) if isinstance(image, dict) else (image, None)
    base = PurePosixPath(path or "").name
    name = f"{row}/{base if 0 < len(base.encode()) <= MOST_NAME else f'{row:08}'}"
    if not data:
        return Damaged(name, "has no image data")
    try:
        return make_entry(name, decode_image(data), hashlib.sha256(data).digest(), kept, kept["values"])
    except ImageError as error:
        return Damaged(name, str(error))


class _Sink:
    """A file for pyarrow to write to. What it writes while ``held`` is set is kept there instead."""

    closed = False

    def __init__(self, file: TemporaryFile) -> None:
        self._file, self.size = file, 0
        self.held: bytearray | None = None

    def write(self, data: Any) -> int:  # noqa: ANN401
        size = len(memoryview(data))
        self.size += size
        if self.held is None:
            self._file.write(data)
        else:
            self.held += data
        return size

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Do nothing."""

    close = flush


class Writer:
    """Writes rows of an image and the columns that are kept, uncompressed, in row groups of ROW_GROUP rows."""

    canvas = Canvas

    def __init__(self, file: TemporaryFile, options: Options) -> None:
        self._file = file
        self._sink = _Sink(file)
        self._writer: Any = None
        self._rows: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def add(self, entry: Entry, name: str, identity: str, canvas: Canvas) -> str:
        path = f"{PurePosixPath(name.rpartition('/')[2]).stem}.png"
        self.add_row({"bytes": b"".join(canvas.encode()), "path": path}, entry.kept)
        return path

    def add_row(self, image: dict[str, Any], kept: dict[str, Any]) -> None:
        """Write the value of the image column, and what is kept beside it."""
        self._rows.append((image, kept))
        if len(self._rows) >= ROW_GROUP:
            self._write_rows()

    def _write_rows(self) -> None:
        if not self._rows:
            return
        column, features = self._rows[0][1]["column"], self._rows[0][1]["features"]
        columns = {column: pa.array([image for image, _ in self._rows], IMAGE_TYPE)}
        for name in self._rows[0][1]["values"]:
            columns[name] = pa.concat_arrays([kept["values"][name] for _, kept in self._rows])
        info = {"info": {"features": {column: {"_type": "Image"}, **features}}}
        table = pa.table(columns).replace_schema_metadata({FEATURES_KEY: json.dumps(info).encode()})
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                pa.PythonFile(self._sink, mode="w"),
                table.schema,
                compression="none",
                use_dictionary=False,
                write_statistics=False,
                version="2.6",
                data_page_version="1.0",
            )
        self._writer.write_table(table, row_group_size=ROW_GROUP)
        self._rows = []

    def close(self) -> None:
        self._write_rows()
        self._sink.held = bytearray()
        self._writer.close()
        rest, footer = _split_footer(bytes(self._sink.held))
        footer = _reduced(footer)
        self._file.write(rest + footer + len(footer).to_bytes(4, "little") + _MAGIC)

    def abort(self) -> None:
        """Do nothing: the caller discards the file."""


def _split_footer(data: bytes) -> tuple[bytes, bytes]:
    """Return what is before the footer, and the footer without its length."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:start], data[start:-8]


def _reduced(footer: bytes) -> bytes:
    """Return a footer with no more than readers need: no version of the library, no statistics."""
    file = _only(thrift.decode(footer), _FILE_FIELDS)
    file[_CREATED_BY] = thrift.text(_APPLICATION)
    for group in file[_ROW_GROUPS].value:
        reduced = _only(group.value, _ROW_GROUP_FIELDS)
        group.value.clear()
        group.value.update(reduced)
        for chunk in reduced[_COLUMNS].value:
            chunk.value[_CHUNK_METADATA] = Field(STRUCT, _only(chunk.value[_CHUNK_METADATA].value, _CHUNK_FIELDS))
    return thrift.encode(file)


def _only(fields: dict[int, Field], numbers: Collection[int]) -> dict[int, Field]:
    return {number: field for number, field in fields.items() if number in numbers}


def members(file: BinaryIO) -> Iterator[Member]:
    """Yield one member per row. The piece is its row group."""
    check_declared(file, compressed=False)
    source = pq.ParquetFile(file)
    column = image_column(source.schema_arrow)
    for group in range(source.num_row_groups):
        images = source.read_row_group(group, columns=[f"{column}.path"]).column(column)
        yield from (Member(image["path"], group, position) for position, image in enumerate(images.to_pylist()))


def load(file: BinaryIO, piece: int) -> Sequence[Released]:
    source = pq.ParquetFile(file)
    return _Rows(source.read_row_group(piece), image_column(source.schema_arrow))


class _Rows(Sequence[Released]):
    """The rows of a row group. Each is decoded when it is asked for."""

    def __init__(self, table: Any, column: str) -> None:  # noqa: ANN401
        self._table, self._column = table, column

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, position: Any) -> Any:  # noqa: ANN401
        row = {name: self._table.column(name)[position].as_py() for name in self._table.column_names}
        return load_png(row.pop(self._column)["bytes"], row)


class _Comparison:
    """A file that compares what is written with what another file holds. Both may be used in turn."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._at, self.is_equal = file, 0, True

    def write(self, data: Any) -> int:  # noqa: ANN401
        written = bytes(data)
        self._file.seek(self._at)
        self.is_equal = self.is_equal and self._file.read(len(written)) == written
        self._at += len(written)
        return len(written)

    def is_at_end(self) -> bool:
        return self._file.seek(0, os.SEEK_END) == self._at


def check(file: BinaryIO, claims: Claims) -> Iterator[Content]:
    """Yield unknown metadata as problems, then the columns that were kept, then every release.

    All rows are written again and compared with the file. This relies on pyarrow, which gives the same pages for the
    same rows and options.
    """
    size = check_declared(file, compressed=False)
    source = pq.ParquetFile(file, pre_buffer=False)
    schema = source.schema_arrow
    for key in [*(schema.metadata or {}), *metadata_keys(schema)]:
        if key != FEATURES_KEY:
            yield Content(None, problem=f"has unknown metadata: {key.decode('utf-8', 'replace')}")
    column = image_column(schema, schema.names)
    kept = [name for name in schema.names if name != column]
    for name in kept:
        yield Content(name, kept=name)
    features = kept_features(schema, kept)
    comparison = _Comparison(file)
    writer = Writer(cast("TemporaryFile", comparison), Options())
    held = 0
    for batch in source.iter_batches(batch_size=1):
        held += batch.nbytes - _ROW_OVERHEAD
        if held > size:  # a dictionary could repeat one long value in every row
            raise ImageError("holds more in its rows than it has bytes")
        for position, image in enumerate(batch.column(column).to_pylist()):
            if len(image["path"].encode()) > MOST_NAME + len(".png"):
                yield Content(None, problem=f"has an image whose name has more than {MOST_NAME} bytes")
            yield check_png(io.BytesIO(image["bytes"]), len(image["bytes"]), image["path"], claims)
            values = {name: one_row(batch.column(name), position) for name in kept}
            writer.add_row(image, {"column": column, "values": values, "features": features})
    writer.close()
    if not comparison.is_equal or not comparison.is_at_end():
        yield Content(None, problem=f"holds more than its rows, or was not written by this software and {_LIBRARY}")
