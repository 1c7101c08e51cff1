"""List an owner's images with their labels and groups: a folder by class, images with a table, or Parquet files."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import DataError
from ldp_slicing.images import decode_image, read_image
from ldp_slicing.lab.data.folders import list_images

PATH_COLUMNS = ("file", "path", "image", "file_name", "filename", "name")
LABEL_COLUMNS = ("label", "class", "target")


@dataclass(frozen=True)
class SourceItem:
    """One image that is not read yet. label, group: as text; "" if there is none."""

    name: str
    load: Callable[[], NDArray[np.uint8]]
    label: str
    group: str


def list_sources(source: Path, labels: str | None = None, groups: str | None = None) -> list[SourceItem]:
    """The images of SRC in a fixed order.

    labels: None for a folder by class, "none", a table in CSV or Parquet (``FILE`` or ``FILE:COLUMN``), or a column of
    the Parquet files that the images are in.
    groups: None, "folder", "name:REGEX" for a part of the file's name, or a column of the same table.
    """
    items = _list(source, labels, groups)
    if items and groups is not None and groups.startswith("name:"):
        pattern = groups.removeprefix("name:")
        if not any(re.search(pattern, Path(one.name).name) for one in items):
            raise DataError(
                f"--groups {groups} matches no file name; the first file name is {Path(items[0].name).name}"
            )
    return items


def _list(source: Path, labels: str | None, groups: str | None) -> list[SourceItem]:
    if labels is not None and source.is_dir() and Path(labels.partition(":")[0]).is_file():
        return _from_table(source, labels, groups)  # the table may lie among the images
    tables = _parquet_files(source)
    if tables:
        if labels is None:
            raise DataError(
                f"the images of {source} are in Parquet files: name the column of labels with --labels COLUMN, "
                "or --labels none"
            )
        return _from_parquet(tables, None if labels == "none" else labels, groups)
    if not source.is_dir():
        raise DataError(f"{source} is neither a folder of images nor a Parquet file")
    if labels is not None and labels != "none":
        raise DataError(
            f"--labels {labels}: there is no such file. For a folder of images, use FILE.csv, FILE.csv:COLUMN or none"
        )
    found = list_images(source)
    if not found:
        raise DataError(f"{source} has no images: .jpg, .png, .webp, .bmp or .tif of 8 bits")
    items = []
    for path in found:
        inside = path.relative_to(source)
        if labels is None and len(inside.parts) < 2:
            raise DataError(f"{path} is in no class folder: use SRC/CLASS/IMAGE, --labels FILE.csv, or --labels none")
        label = "" if labels == "none" else inside.parts[0]
        items.append(SourceItem(str(inside), partial(read_source, path), label, _group(inside, groups, {})))
    return items


def read_source(path: Path) -> NDArray[np.uint8]:
    """uint8 [H, W] or [H, W, 3]. Images of more than 8 bits are refused."""
    return _eight_bits(read_image(path).pixels, str(path))


def _eight_bits(pixels: NDArray[Any], name: str) -> NDArray[np.uint8]:
    if pixels.dtype != np.uint8:
        raise DataError(f"{name} has more than 8 bits per channel: convert it to 8 bits to measure it")
    return np.asarray(pixels, np.uint8)


def _group(inside: Path, groups: str | None, row: dict[str, str]) -> str:
    if groups is None:
        return ""
    if groups == "folder":
        return inside.parent.as_posix()
    if groups.startswith("name:"):
        try:
            found = re.search(groups.removeprefix("name:"), inside.name)
        except re.error as error:
            raise DataError(f"--groups {groups} is not a regular expression: {error}") from None
        return found[0] if found else str(inside)  # a group of its own
    if row.get(groups) == "":
        raise DataError(f"{inside} has no {groups}: --groups needs a value for every image")
    if groups not in row:
        known = f"; the table has {', '.join(row)}" if row else ""
        raise DataError(f"--groups {groups!r} is not folder, name:REGEX or a column of the table of labels{known}")
    return row[groups]


def _from_table(source: Path, labels: str, groups: str | None) -> list[SourceItem]:
    name, _, wanted = labels.partition(":")
    path = Path(name)
    rows = _parquet_rows(path) if path.suffix == ".parquet" else _csv_rows(path)
    columns = list(rows[0]) if rows else []
    place = next((one for one in columns if one.lower() in PATH_COLUMNS), columns[0] if columns else "")
    label = wanted or next((one for one in columns if one.lower() in LABEL_COLUMNS), "")
    if label not in columns:
        raise DataError(f"{path} has no column {label or 'label'!r}; it has {', '.join(columns) or 'no rows'}")
    items = []
    for row in rows:
        if not row[place]:
            raise DataError(f"{path}: a row has no {place}, which is the path of an image")
        file_path = (source / row[place]).resolve()
        if not file_path.is_relative_to(source.resolve()):
            raise DataError(f"{path}: {row[place]!r} is outside {source}")
        if not row[label]:
            raise DataError(f"{path}: {row[place]!r} has no {label}")
        group = _group(Path(row[place]), groups, row)
        items.append(SourceItem(row[place], partial(read_source, file_path), row[label], group))
    return items


def _csv_rows(path: Path) -> list[dict[str, str]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            return list(csv.DictReader(file, restkey="", restval=""))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path} is not a CSV table in UTF-8 ({error}): --labels takes a .csv or a .parquet file"
        ) from None


def _parquet_rows(path: Path) -> list[dict[str, str]]:
    """The rows as a CSV file has them. Images in the table are left out."""
    table = _read_parquet(path)
    columns = {one.name: table[one.name].to_pylist() for one in table.schema if not _holds(one.type)}
    return [
        {name: "" if values[row] is None else str(values[row]) for name, values in columns.items()}
        for row in range(table.num_rows)
    ]


def _parquet_files(source: Path) -> list[Path]:
    if source.is_file() and source.suffix == ".parquet":
        return [source]
    return sorted(source.rglob("*.parquet")) if source.is_dir() else []


def _from_parquet(files: Sequence[Path], labels: str | None, groups: str | None) -> list[SourceItem]:
    items = list[SourceItem]()
    for path in files:
        table = _read_parquet(path)
        column = next((one.name for one in table.schema if _holds(one.type)), None)
        wanted = [one for one in (labels, groups) if one is not None]
        missing = [one for one in wanted if one not in table.schema.names]
        if column is None or missing:
            what = "no column of images" if column is None else f"no column {missing[0]!r}"
            raise DataError(f"{path} has {what}; it has {', '.join(table.schema.names)}")
        kept = {one: [_text(value, one, path) for value in table[one].to_pylist()] for one in wanted}
        images = table[column].combine_chunks()
        images = images.field("bytes") if _pyarrow().types.is_struct(images.type) else images
        for row in range(table.num_rows):
            items.append(
                SourceItem(
                    f"{path.name}, row {row}",
                    _bytes_loader(images, row, f"{path}, row {row}"),
                    "" if labels is None else kept[labels][row],
                    "" if groups is None else kept[groups][row],
                )
            )
    return items


def _read_parquet(path: Path) -> Any:  # noqa: ANN401 - a table of pyarrow
    pa = _pyarrow()
    try:
        return pa.parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a Parquet file, or is damaged: {str(error).strip()}") from None


def _pyarrow() -> ModuleType:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise DataError(f"Parquet files need {error.name}: pip install 'ldp-slicing[parquet]'") from None
    return cast("ModuleType", pyarrow)


def _text(value: Any, column: str, path: Path) -> str:  # noqa: ANN401 - of any column
    if value is None or value == "":
        raise DataError(f"{path}: the column {column!r} has no value for some images")
    return str(value)


def _holds(kind: Any) -> bool:  # noqa: ANN401 - a type of pyarrow
    types = _pyarrow().types
    is_struct = types.is_struct(kind) and any(field.name == "bytes" for field in kind)
    return bool(is_struct or types.is_binary(kind) or types.is_large_binary(kind))


def _bytes_loader(column: Any, row: int, name: str) -> Callable[[], NDArray[np.uint8]]:  # noqa: ANN401 - of pyarrow
    return lambda: _eight_bits(decode_image(column[row].as_py()).pixels, name)
