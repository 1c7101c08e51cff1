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
import re
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
_FEATURES_KEY = b"huggingface"  # of the schema's metadata
_ROW_OVERHEAD = 1 << 12  # bytes of a row in memory that need not be in the file: offsets, flags for missing values
_MOST_FEATURES = 1 << 20  # bytes of the description of the columns
_MOST_NAME = 255  # bytes of the name of an image, and of the column of images
_DATA_TYPE = re.compile(r"[a-z]+[0-9]*(\[[a-zA-Z0-9, /=_+:-]{1,40}\]|\([0-9, ]{1,20}\))?")
_SCALAR_TYPES = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_temporal,
    pa.types.is_string,
    pa.types.is_large_string,
)


def read(file: BinaryIO, options: Options) -> Iterator[Entry | Damaged]:
    """Yield one entry per row. ``kept`` holds the name of the image column and, per row, the columns that are kept."""
    try:
        check_declared(file)
        source = pq.ParquetFile(file)
        column = _image_column(source.schema_arrow, options)
        others = [name for name in source.schema_arrow.names if name != column]
        check_keep(options.keep, others)
        kept = [name for name in others if name in options.keep]
        left_out = set(others) - set(kept)
        features = _kept_features(source.schema_arrow, kept)
        row = 0
        for batch in source.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[column, *kept]):
            for position in range(batch.num_rows):
                image = batch.column(column)[position].as_py()
                values = {name: _one_row(batch.column(name), position) for name in kept}
                entry = _entry(row, image, {"column": column, "values": values, "features": features})
                if isinstance(entry, Entry):
                    entry, left_out = note_left_out(entry, left_out), set()
                yield entry
                row += 1
    except (pa.ArrowException, OSError) as error:
        raise ImageError(f"is not a Parquet file, or is damaged: {str(error).strip()}") from None


def keepable(open_file: Callable[[], BinaryIO]) -> Collection[str]:
    """Return the names of the columns that are not images, from the footer."""
    with open_file() as file:
        try:
            check_declared(file)
            schema = pq.ParquetFile(file).schema_arrow
        except pa.ArrowException as error:
            raise ImageError(f"is not a Parquet file, or is damaged: {str(error).strip()}") from None
        return set(schema.names) - {_image_column(schema, Options())}


def _image_column(schema: Any, options: Options) -> str:  # noqa: ANN401
    """Return the name of the one image column; raise ImageError if a column to keep may hold images, too."""
    declared = {
        name
        for name, feature in _features(schema).items()
        if isinstance(feature, dict) and feature.get("_type") == "Image"
    }
    found = [field.name for field in schema if _is_image_type(field.type) or field.name in declared]
    if len(found) != 1:
        listed = f" ({', '.join(found)})" if found else ""
        raise ImageError(f"has {len(found)} image columns{listed}; expected one, of type struct<bytes, path>")
    if len(found[0].encode()) > _MOST_NAME:
        raise ImageError(f"has an image column whose name has more than {_MOST_NAME} bytes: rename it")
    for field in schema:
        is_custom = pa.types.is_nested(field.type) and b"ARROW:extension:name" in (field.metadata or {})
        if field.name in options.keep and field.name != found[0] and (is_custom or not _may_be_kept(field.type)):
            raise ImageError(f"has a column {field.name} ({field.type}) that may hold images: it cannot be kept")
    return str(found[0])


def _is_image_type(kind: Any) -> bool:  # noqa: ANN401
    return pa.types.is_struct(kind) and {"bytes", "path"} == {field.name for field in _fields(kind)}


def _may_be_kept(kind: Any, list_depth: int = 0) -> bool:  # noqa: ANN401
    """Return whether a type cannot hold an image: numbers, times and text, alone or in structures.

    Refused are bytes, lists of small integers and lists nested three deep. Dictionary and extension types are allowed
    only as the type of a whole column, since ``_one_row`` decodes only those.
    """
    if isinstance(kind, pa.BaseExtensionType):  # may be a tensor type, whose storage is a flat list
        storage = kind.storage_type
        is_simple = not pa.types.is_nested(storage) and not pa.types.is_dictionary(storage)
        return is_simple and _may_be_kept(storage, list_depth)
    if pa.types.is_dictionary(kind):
        return _may_be_kept(kind.value_type, list_depth)
    if pa.types.is_nested(kind):
        if not pa.types.is_struct(kind) and not pa.types.is_map(kind):
            list_depth += 1
        inner = [field.type for field in _fields(kind)]
        encoded = any(pa.types.is_dictionary(one) or isinstance(one, pa.BaseExtensionType) for one in inner)
        return list_depth < 3 and not encoded and all(_may_be_kept(one, list_depth) for one in inner)
    if pa.types.is_integer(kind):
        return kind.bit_width > 16 or not list_depth
    return any(is_type(kind) for is_type in _SCALAR_TYPES)


def _one_row(column: Any, position: int) -> Any:  # noqa: ANN401
    """Return an array of one row that holds nothing of other rows (a dictionary would) and no metadata."""
    one = column.slice(position, 1)
    one = one.storage if isinstance(one, pa.ExtensionArray) else one
    one = one.dictionary_decode() if pa.types.is_dictionary(one.type) else one
    return one.cast(_without_metadata(one.type))


def _without_metadata(kind: Any) -> Any:  # noqa: ANN401
    """Return the type without the metadata that the fields inside it may have."""
    if not pa.types.is_nested(kind):
        return kind
    fields = [pa.field(field.name, _without_metadata(field.type), field.nullable) for field in _fields(kind)]
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_map(kind):
        return pa.map_(_without_metadata(kind.key_type), _without_metadata(kind.item_type), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(*fields, kind.list_size)
    return pa.large_list(*fields) if pa.types.is_large_list(kind) else pa.list_(*fields)


def _fields(kind: Any) -> list[Any]:  # noqa: ANN401
    return [kind.field(i) for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []


def _metadata_keys(fields: Any) -> Iterator[bytes]:  # noqa: ANN401
    """Yield the metadata keys of fields and of the fields inside them, except the field number of the file itself."""
    for field in fields:
        yield from (key for key in field.metadata or {} if key != b"PARQUET:field_id")
        yield from _metadata_keys(_fields(field.type))


def _features(schema: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return Hugging Face's description of the columns, or {} if there is none."""
    try:
        features: dict[str, Any] = json.loads((schema.metadata or {})[_FEATURES_KEY])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _kept_features(schema: Any, kept: Collection[str]) -> dict[str, Any]:  # noqa: ANN401
    """Return the description of the columns that are kept, reduced to types and names of classes."""
    found = {name: _reduced_feature(one) for name, one in _features(schema).items() if name in kept}
    features = {name: one for name, one in found.items() if one is not None}
    return features if len(json.dumps(features)) <= _MOST_FEATURES else {}


def _reduced_feature(feature: Any) -> Any:  # noqa: ANN401
    """Return a description of Hugging Face with the keys that readers need, in one order; None if it is another one.

    A description could otherwise hold anything.
    """
    if isinstance(feature, list):  # of one kind
        inner = [_reduced_feature(one) for one in feature]
        return inner if len(inner) == 1 and inner[0] is not None else None
    if not isinstance(feature, dict):
        return None
    kind = feature.get("_type")
    if kind is None:  # a structure
        fields = {name: _reduced_feature(one) for name, one in feature.items()}
        return fields if all(fields.values()) else None
    if kind == "Value" and _DATA_TYPE.fullmatch(str(feature.get("dtype"))):
        return {"dtype": feature["dtype"], "_type": kind}
    names = feature.get("names")
    if kind == "ClassLabel" and isinstance(names, list) and all(isinstance(one, str) for one in names):
        return {"names": names, "_type": kind}
    inner = _reduced_feature(feature.get("feature"))
    if kind in ("Sequence", "List", "LargeList") and inner is not None:
        length = feature.get("length", -1)
        fixed = {"length": length} if type(length) is int and 0 <= length < 1 << 31 else {}
        return {"feature": inner, **fixed, "_type": kind}
    return None


def _entry(row: int, image: Any, kept: dict[str, Any]) -> Entry | Damaged:  # noqa: ANN401
    data, path = (image.get("bytes"), image.get("path")) if isinstance(image, dict) else (image, None)
    base = PurePosixPath(path or "").name
    name = f"{row}/{base if 0 < len(base.encode()) <= _MOST_NAME else f'{row:08}'}"
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
        table = pa.table(columns).replace_schema_metadata({_FEATURES_KEY: json.dumps(info).encode()})
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
    column = _image_column(source.schema_arrow, Options())
    for group in range(source.num_row_groups):
        images = source.read_row_group(group, columns=[f"{column}.path"]).column(column)
        yield from (Member(image["path"], group, position) for position, image in enumerate(images.to_pylist()))


def load(file: BinaryIO, piece: int) -> Sequence[Released]:
    source = pq.ParquetFile(file)
    return _Rows(source.read_row_group(piece), _image_column(source.schema_arrow, Options()))


class _Rows(Sequence[Released]):
    """The rows of a row group. Each is decoded when it is asked for."""

    def __init__(self, table: Any, column: str) -> None:  # noqa: ANN401
        self._table, self._column = table, column

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, position: Any) -> Any:  # noqa: ANN401
        row = {name: self._table.column(name)[position].as_py() for name in self._table.column_names}
        return load_png(row.pop(self._column)["bytes"], row)


def class_names(file: BinaryIO) -> dict[str, list[str]]:
    """Return the names of the classes of each column that Hugging Face's description calls a class label."""
    features = _features(pq.read_schema(file))
    found = {name: one for name, one in features.items() if isinstance(one, dict) and one.get("_type") == "ClassLabel"}
    return {name: list(one.get("names", [])) for name, one in found.items()}


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
    for key in [*(schema.metadata or {}), *_metadata_keys(schema)]:
        if key != _FEATURES_KEY:
            yield Content(None, problem=f"has unknown metadata: {key.decode('utf-8', 'replace')}")
    column = _image_column(schema, Options(keep=tuple(schema.names)))
    kept = [name for name in schema.names if name != column]
    for name in kept:
        yield Content(name, kept=name)
    features = _kept_features(schema, kept)
    comparison = _Comparison(file)
    writer = Writer(cast("TemporaryFile", comparison), Options())
    held = 0
    for batch in source.iter_batches(batch_size=1):
        held += batch.nbytes - _ROW_OVERHEAD
        if held > size:  # a dictionary could repeat one long value in every row
            raise ImageError("holds more in its rows than it has bytes")
        for position, image in enumerate(batch.column(column).to_pylist()):
            if len(image["path"].encode()) > _MOST_NAME + len(".png"):
                yield Content(None, problem=f"has an image whose name has more than {_MOST_NAME} bytes")
            yield check_png(io.BytesIO(image["bytes"]), len(image["bytes"]), image["path"], claims)
            values = {name: _one_row(batch.column(name), position) for name in kept}
            writer.add_row(image, {"column": column, "values": values, "features": features})
    writer.close()
    if not comparison.is_equal or not comparison.is_at_end():
        yield Content(None, problem=f"holds more than its rows, or was not written by this software and {_LIBRARY}")
