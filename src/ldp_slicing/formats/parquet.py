"""Parquet files with a column of images as Hugging Face data sets have it: struct<bytes, path>. Other columns only where named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ldp_slicing.errors import ImageError
from ldp_slicing.formats.base import Damaged, Entry, Options, Seen, check_keep, entry_of, left_out
from ldp_slicing.formats.image import inspect_png
from ldp_slicing.images import Canvas, decode_image
from ldp_slicing.storage import Draft

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
ROW_GROUP = 100  # as the Hugging Face writer does for images
_HEAD = b"huggingface"
PLAIN = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_temporal,
    pa.types.is_string,
    pa.types.is_large_string,
)


def read(file: BinaryIO, options: Options) -> Iterator[Entry | Damaged]:
    try:
        source = pq.ParquetFile(file)
        column = _image_column(source.schema_arrow, options)
        others = [name for name in source.schema_arrow.names if name != column]
        check_keep(options.keep, others)
        kept = [name for name in others if name in options.keep]
        left = set(others) - set(kept)
        features = {name: feature for name, feature in _features(source.schema_arrow).items() if name in kept}
        row = 0
        for batch in source.iter_batches(batch_size=16, columns=[column, *kept]):
            for position in range(batch.num_rows):
                image = batch.column(column)[position].as_py()
                values = {name: _of_one_row(batch.column(name), position) for name in kept}
                entry = _entry(row, image, {"column": column, "values": values, "features": features})
                if isinstance(entry, Entry):
                    entry, left = left_out(entry, left), set()
                yield entry
                row += 1
    except (pa.ArrowException, OSError) as error:
        raise ImageError(f"is not a Parquet file, or damaged: {error}") from None


def _of_one_row(column: Any, position: int) -> Any:  # noqa: ANN401
    """Without a dictionary, which has the values of other rows, too: also of those that are left out; and without what types tell."""
    one = column.slice(position, 1)
    one = one.storage if isinstance(one, pa.ExtensionArray) else one
    one = one.dictionary_decode() if pa.types.is_dictionary(one.type) else one
    return one.cast(_bare(one.type))


def _bare(kind: Any) -> Any:  # noqa: ANN401
    """The type without the metadata that its fields may have."""
    if not pa.types.is_nested(kind):
        return kind
    fields = [pa.field(field.name, _bare(field.type), field.nullable) for field in _fields(kind)]
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_map(kind):
        return pa.map_(_bare(kind.key_type), _bare(kind.item_type), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(*fields, kind.list_size)
    return pa.large_list(*fields) if pa.types.is_large_list(kind) else pa.list_(*fields)


def _fields(kind: Any) -> list[Any]:  # noqa: ANN401
    return [kind.field(i) for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []


def _metadata(fields: Any) -> Iterator[bytes]:  # noqa: ANN401
    """All that fields, and those within them, say beside their names and types; the number is the file's own."""
    for field in fields:
        yield from (key for key in field.metadata or {} if key != b"PARQUET:field_id")
        yield from _metadata(_fields(field.type))


def _image_column(schema: Any, options: Options) -> str:  # noqa: ANN401
    """The one column that holds images. Whatever looks as if it held some, too, may not be kept as it is."""
    told = {
        name
        for name, feature in _features(schema).items()
        if isinstance(feature, dict) and feature.get("_type") == "Image"
    }
    found = [field.name for field in schema if _is_image(field.type) or field.name in told]
    if len(found) != 1:
        raise ImageError(
            f"has {len(found)} columns of images ({', '.join(found) or 'struct<bytes, path>'}), and one is expected"
        )
    for field in schema:
        tensor = pa.types.is_nested(field.type) and b"ARROW:extension:name" in (
            field.metadata or {}
        )  # of somebody's own, not known here
        if field.name in options.keep and field.name != found[0] and (tensor or not _may_be_kept(field.type)):
            raise ImageError(f"the column {field.name} may hold pictures ({field.type}): it cannot be kept as it is")
    return str(found[0])


def _is_image(kind: Any) -> bool:  # noqa: ANN401
    return pa.types.is_struct(kind) and {"bytes", "path"} == {field.name for field in _fields(kind)}


def _may_be_kept(kind: Any, lists: int = 0) -> bool:  # noqa: ANN401
    """Numbers, times and text, alone or in structures; no bytes, no lists of small integers, no lists of lists of lists.

    Dictionaries and types of somebody's own only where they are a whole column's: see ``_of_one_row``.
    """
    if isinstance(kind, pa.BaseExtensionType):  # among them are tensors: pictures in one flat list
        simple = not pa.types.is_nested(kind.storage_type) and not pa.types.is_dictionary(kind.storage_type)
        return simple and _may_be_kept(kind.storage_type, lists)
    if pa.types.is_dictionary(kind):
        return _may_be_kept(kind.value_type, lists)
    if pa.types.is_nested(kind):
        lists += not pa.types.is_struct(kind) and not pa.types.is_map(kind)
        inner = [field.type for field in _fields(kind)]
        own = [one for one in inner if pa.types.is_dictionary(one) or isinstance(one, pa.BaseExtensionType)]
        return lists < 3 and not own and all(_may_be_kept(one, lists) for one in inner)
    if pa.types.is_integer(kind):
        return kind.bit_width > 16 or not lists
    return any(known(kind) for known in PLAIN)


def _features(schema: Any) -> dict[str, Any]:  # noqa: ANN401
    try:
        features: dict[str, Any] = json.loads((schema.metadata or {})[_HEAD])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _entry(row: int, image: Any, kept: dict[str, Any]) -> Entry | Damaged:  # noqa: ANN401
    data, path = (image.get("bytes"), image.get("path")) if isinstance(image, dict) else (image, None)
    name = f"{row}/{PurePosixPath(path or f'{row:08}').name}"
    if not data:
        return Damaged(name, "holds no bytes of an image")
    try:
        return entry_of(name, decode_image(data), hashlib.sha256(data).digest(), kept)
    except ImageError as error:
        return Damaged(name, str(error))


class Writer:
    canvas = Canvas

    def __init__(self, draft: Draft, options: Options) -> None:
        self._draft, self._compression = draft, options.compression
        self._writer: Any = None
        self._rows: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def add(self, entry: Entry, name: str, identity: str, canvas: Canvas) -> str:
        path = f"{PurePosixPath(name.rpartition('/')[2]).stem}.png"
        self._rows.append(({"bytes": b"".join(canvas.encode(self._compression)), "path": path}, entry.kept))
        if len(self._rows) >= ROW_GROUP:
            self._flush()
        return path

    def _flush(self) -> None:
        if not self._rows:
            return
        column, features = self._rows[0][1]["column"], self._rows[0][1]["features"]
        columns = {column: pa.array([image for image, _ in self._rows], IMAGE)}
        for name in self._rows[0][1]["values"]:
            columns[name] = pa.concat_arrays([kept["values"][name] for _, kept in self._rows])
        info = {"info": {"features": {column: {"_type": "Image"}, **features}}}
        table = pa.table(columns).replace_schema_metadata({_HEAD: json.dumps(info).encode()})
        if self._writer is None:
            self._writer = pq.ParquetWriter(pa.PythonFile(self._draft, mode="w"), table.schema, compression="none")
        self._writer.write_table(table, row_group_size=ROW_GROUP)
        self._rows = []

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def abort(self) -> None:
        """The draft goes, and this with it."""


def inspect(file: BinaryIO) -> Iterator[Seen]:
    source = pq.ParquetFile(file)
    for key in [*(source.schema_arrow.metadata or {}), *_metadata(source.schema_arrow)]:
        if key != _HEAD:
            yield Seen(None, problem=f"has metadata, {key.decode('utf-8', 'replace')}")
    column = _image_column(source.schema_arrow, Options())
    for name in source.schema_arrow.names:
        if name != column:
            yield Seen(name, kept=name)
    for batch in source.iter_batches(batch_size=16, columns=[column]):
        for image in batch.column(column).to_pylist():
            yield inspect_png(image["bytes"], image["path"])
