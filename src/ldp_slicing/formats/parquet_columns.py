"""The columns of a Parquet file: which one holds images, which others may be kept, and Hugging Face's description.

A column may be kept only if its type cannot hold images. Its description is reduced to what readers need.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ldp_slicing.errors import ImageError

FEATURES_KEY = b"huggingface"  # of the schema's metadata
_MOST_FEATURES = 1 << 20  # bytes of the description of the columns
MOST_NAME = 255  # bytes of the name of an image, and of the column of images
_DATA_TYPE = re.compile(  # as Hugging Face's library names types
    r"null|bool|u?int(8|16|32|64)|float(16|32|64)?|double|decimal(128|256)\([0-9]{1,2}, -?[0-9]{1,2}\)|date(32|64)"
    r"|(time32|time64|duration)\[[mun]?s\]|timestamp\[[mun]?s(, (?P<zone>tz=[^]]+))?\]|(large_)?(string|binary)"
)
_SCALAR_TYPES = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_temporal,
    pa.types.is_string,
    pa.types.is_large_string,
)


def image_column(schema: Any, keep: Collection[str] = ()) -> str:  # noqa: ANN401
    """Return the name of the one image column; raise ImageError if a column to ``keep`` may hold images, too."""
    declared = {
        name
        for name, feature in _features(schema).items()
        if isinstance(feature, dict) and feature.get("_type") == "Image"
    }
    found = [field.name for field in schema if _is_image_type(field.type) or field.name in declared]
    if len(found) != 1:
        listed = f" ({', '.join(found)})" if found else ""
        raise ImageError(f"has {len(found)} image columns{listed}; expected one, of type struct<bytes, path>")
    if len(found[0].encode()) > MOST_NAME:
        raise ImageError(f"has an image column whose name has more than {MOST_NAME} bytes: rename it")
    for field in schema:
        is_custom = pa.types.is_nested(field.type) and b"ARROW:extension:name" in (field.metadata or {})
        if field.name in keep and field.name != found[0] and (is_custom or not _may_be_kept(field.type)):
            raise ImageError(f"has a column {field.name} ({field.type}) that may hold images: it cannot be kept")
    return str(found[0])


def _is_image_type(kind: Any) -> bool:  # noqa: ANN401
    return pa.types.is_struct(kind) and {"bytes", "path"} == {field.name for field in _fields(kind)}


def _may_be_kept(kind: Any, list_depth: int = 0) -> bool:  # noqa: ANN401
    """Return whether a type cannot hold an image: numbers, times and text, alone or in structures.

    Refused are bytes, lists of small integers and lists nested three deep. Dictionary and extension types are allowed
    only as the type of a whole column, since ``one_row`` decodes only those.
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


def one_row(column: Any, position: int) -> Any:  # noqa: ANN401
    """Return an array of one row that holds nothing of other rows (a dictionary would) and no metadata.

    Raise ArrowInvalid if it has text that is not UTF-8: Parquet does not check it, and it could be an image.
    """
    one = column.slice(position, 1)
    one = one.storage if isinstance(one, pa.ExtensionArray) else one
    one = one.dictionary_decode() if pa.types.is_dictionary(one.type) else one
    one.validate(full=True)
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


def metadata_keys(fields: Any) -> Iterator[bytes]:  # noqa: ANN401
    """Yield the metadata keys of fields and of the fields inside them, except the field number of the file itself."""
    for field in fields:
        yield from (key for key in field.metadata or {} if key != b"PARQUET:field_id")
        yield from metadata_keys(_fields(field.type))


def _features(schema: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return Hugging Face's description of the columns, or {} if there is none."""
    try:
        features: dict[str, Any] = json.loads((schema.metadata or {})[FEATURES_KEY])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def kept_features(schema: Any, kept: Collection[str]) -> dict[str, Any]:  # noqa: ANN401
    """Return the description of the columns that are kept, in their order, reduced to types and names of classes."""
    described = _features(schema)
    found = {name: _reduced_feature(described[name], schema.field(name).type) for name in kept if name in described}
    features = {name: one for name, one in found.items() if one is not None}
    return features if len(json.dumps(features)) <= _MOST_FEATURES else {}


def _reduced_feature(feature: Any, column: Any) -> Any:  # noqa: ANN401
    """Return a description of Hugging Face with the keys that readers need, in one order; None if it is another one.

    A description could otherwise hold anything. Names of fields and time zones must be those of the column's type.
    """
    if isinstance(feature, list):  # of one kind
        inner = [_reduced_feature(one, column) for one in feature]
        return inner if len(inner) == 1 and inner[0] is not None else None
    if not isinstance(feature, dict):
        return None
    kind = feature.get("_type")
    if kind is None:
        return _reduced_structure(feature, column)
    if kind == "Value" and (found := _DATA_TYPE.fullmatch(str(feature.get("dtype")))):
        has_zone = not found["zone"] or f"{found['zone']}]" in str(column)
        return {"dtype": feature["dtype"], "_type": kind} if has_zone else None
    names = feature.get("names")
    if kind == "ClassLabel" and isinstance(names, list) and all(isinstance(one, str) for one in names):
        return {"names": names, "_type": kind}
    inner = _reduced_feature(feature.get("feature"), column)
    if kind in ("Sequence", "List", "LargeList") and inner is not None:
        length = feature.get("length", -1)
        fixed = {"length": length} if type(length) is int and 0 <= length < 1 << 31 else {}
        return {"feature": inner, **fixed, "_type": kind}
    return None


def _reduced_structure(feature: dict[str, Any], column: Any) -> dict[str, Any] | None:  # noqa: ANN401
    names = dict.fromkeys(_names_of_fields(column))
    if not feature.keys() <= names.keys():
        return None
    fields = {name: _reduced_feature(feature[name], column) for name in names if name in feature}
    return fields if all(fields.values()) else None


def _names_of_fields(kind: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield the names of the fields of all structures in a type."""
    for field in _fields(kind):
        if pa.types.is_struct(kind):
            yield field.name
        yield from _names_of_fields(field.type)


def class_names(file: BinaryIO) -> dict[str, list[str]]:
    """Return the names of the classes of each column that Hugging Face's description calls a class label."""
    features = _features(pq.read_schema(file))
    found = {name: one for name, one in features.items() if isinstance(one, dict) and one.get("_type") == "ClassLabel"}
    return {name: list(one.get("names", [])) for name, one in found.items()}
