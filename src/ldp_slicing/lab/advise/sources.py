"""Read an owner's images with their labels and groups: a folder by class, images with a table, or Parquet files."""

from __future__ import annotations

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.arrays import has_equal_channels
from ldp_slicing.errors import DataError, LdpSlicingError
from ldp_slicing.images import decode_image, read_image
from ldp_slicing.lab.data.folders import list_images
from ldp_slicing.view import shrink
from ldp_slicing.wording import counted

AT_ONCE = 64  # images that are read side by side
SMALLEST = 12  # pixels of a side: the window of SSIM has 11
PATH_COLUMNS = ("file", "path", "image", "file_name", "filename", "name")
LABEL_COLUMNS = ("label", "class", "target")


@dataclass(frozen=True)
class SourceItem:
    """One image that is not read yet. label, group: as text; "" if there is none."""

    name: str
    load: Callable[[], NDArray[np.uint8]]
    label: str
    group: str


@dataclass(frozen=True)
class SourceSet:
    """Images of one shape, uint8 [N, H, W, C], with int64 [N] labels and groups.

    classes: the names of the labels; empty if there are none. groups: None if none were named.
    size: width and height of all image files; None if they differ. total: how many images there were to read.
    tried: how many of them were read or left out, and ``problems`` says why some were left out, by name.
    converted: whether they are colour images with equal channels, which are measured as grey.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    groups: NDArray[np.int64] | None
    size: tuple[int, int] | None
    total: int
    tried: int
    converted: bool = False
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Width and height of the images as they were read."""
        return int(self.images.shape[2]), int(self.images.shape[1])

    @property
    def is_grey(self) -> bool:
        return int(self.images.shape[3]) == 1

    @cached_property
    def units(self) -> NDArray[np.int64]:
        """int64 [N]: what is held out or trained on as a whole. Groups; without them, equal images are one unit."""
        if self.groups is not None:
            return self.groups
        seen = [hashlib.sha256(one.tobytes()).digest() for one in self.images]
        return np.unique(np.array(seen, "V32"), return_inverse=True)[1].astype(np.int64)

    @property
    def clusters(self) -> NDArray[np.int64] | None:
        """The units, for intervals; None if each is one image, so that all images are independent."""
        return None if len(np.unique(self.units)) == len(self.units) else self.units

    @property
    def digest(self) -> str:
        """Changes with every pixel, label and group. It is for the work folder only: it would confirm a guess."""
        digest = hashlib.sha256()
        for array in (self.images, self.labels, np.zeros(0) if self.groups is None else self.groups):
            digest.update(f"{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


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


def read_sources(
    items: Sequence[SourceItem],
    *,
    largest: int,
    stop: Callable[[], bool] = lambda: False,
    limit: int | None = None,
    seed: int = 0,
) -> SourceSet:
    """Read images, group by group in a random order, until there are no more, ``limit`` were read, or ``stop`` says so.

    Images are shrunk as ``privatize --fit`` does it: all to one size, whose longest side is at most ``largest``. Images
    that cannot be read are left out.
    """
    chosen, problems = _in_random_order(items, seed)[:limit], dict[str, str]()

    def decode(i: int) -> NDArray[np.uint8] | None:
        try:
            return items[i].load()
        except LdpSlicingError as error:
            problems[items[i].name] = str(error)
            return None

    first = [one for one in map(decode, chosen[:AT_ONCE]) if one is not None]
    if not first:
        name, problem = next(iter(problems.items()))
        raise DataError(f"no image can be read; the first one is {name}: {problem}")
    shapes = {one.shape[:2] for one in first}
    target = _common_size(shapes, largest)
    grey = all(one.ndim == 2 or has_equal_channels(one) for one in first)
    images, kept, sizes, tried = list[NDArray[np.uint8]](), list[SourceItem](), set[tuple[int, int]](), 0
    with ThreadPoolExecutor() as pool:
        while tried < len(chosen) and not (tried and stop()):
            part = chosen[tried : tried + AT_ONCE]
            for i, pixels in zip(part, pool.map(decode, part), strict=True):
                if pixels is not None:
                    try:
                        images.append(to_shape(pixels, target, grey))
                    except LdpSlicingError as error:
                        problems[items[i].name] = str(error)
                        continue
                    kept.append(items[i])
                    sizes.add((pixels.shape[1], pixels.shape[0]))
            tried += len(part)
    names = sorted({one.label for one in kept if one.label})
    number = {label: i for i, label in enumerate(names)}
    groups = None
    if kept and kept[0].group:
        groups = np.unique([one.group for one in kept], return_inverse=True)[1].astype(np.int64)
    labels = np.array([number.get(one.label, 0) for one in kept], np.int64)
    one_size = next(iter(sizes)) if len(sizes) == 1 else None
    converted = grey and any(one.ndim == 3 for one in first)
    counts = len(items), tried
    return SourceSet(np.stack(images), labels, tuple(names), groups, one_size, *counts, converted, problems)


def shrink_all(sources: SourceSet, side: int) -> SourceSet:
    """The same images with a longest side of at most ``side`` pixels."""
    width, height = sources.shape
    longest = max(width, height)
    if side >= longest:
        return sources
    target = max(1, width * side // longest), max(1, height * side // longest)
    small = [to_shape(one[..., 0] if sources.is_grey else one, target, sources.is_grey) for one in sources.images]
    return replace(sources, images=np.stack(small))


def _in_random_order(items: Sequence[SourceItem], seed: int) -> list[int]:
    """Positions of the items. Images of one group stay together, so that a beginning of the list has whole groups."""
    names = {one.group or one.name: 0 for one in items}
    place = dict(zip(names, np.random.default_rng(seed).permutation(len(names)).tolist(), strict=True))
    return sorted(range(len(items)), key=lambda i: (place[items[i].group or items[i].name], i))


def check_enough(sources: SourceSet) -> None:
    """Refuse sources from which nothing can be learned."""
    counts = Counter(sources.labels.tolist())
    if sources.classes and len(sources.classes) < 2:
        raise DataError(f"all images are of the class {sources.classes[0]!r}: there is nothing to learn; see --labels")
    if sources.classes and min(counts.values()) < 4:
        rare = sources.classes[min(counts, key=lambda kind: counts[kind])]
        raise DataError(
            f"{counted(min(counts.values()), 'image')} of the {len(sources.labels):,} that were read "
            f"{'is' if min(counts.values()) == 1 else 'are'} of the class {rare!r}: every class needs 4 or more; "
            "--images reads more"
        )
    several = {kind: len(np.unique(sources.units[sources.labels == kind])) for kind in counts}
    if min(several.values()) < 2:
        one = sources.classes[min(several, key=lambda kind: several[kind])] if sources.classes else ""
        of = f" of the class {one!r}" if one else ""
        if sources.groups is None:
            raise DataError(f"all images{of} are equal: there is nothing to learn")
        raise DataError(
            f"all images{of} are in one group: every class needs two or more groups, so that some can be held out. If "
            "classes are the groups, use --labels none"
            if one
            else "all images are of one group: there is nothing to link; see --groups"
        )
    if len(sources.labels) < 16:
        raise DataError(f"{len(sources.labels)} images are too few to measure anything: use 16 or more")


def _common_size(shapes: set[tuple[int, int]], largest: int) -> tuple[int, int]:
    """(width, height) of all images: their own if it is one and not too large, else a common part of it."""
    if len(shapes) == 1:
        ((height, width),) = shapes
    else:
        height = width = min(min(shape) for shape in shapes)
    longest = max(height, width)
    if longest > largest:
        height, width = max(1, height * largest // longest), max(1, width * largest // longest)
    if min(height, width) < SMALLEST:
        raise DataError(
            f"images of {width} x {height} pixels are too small to measure: both sides need {SMALLEST} pixels or more; "
            "see --sizes"
        )
    return width, height


def to_shape(pixels: NDArray[np.uint8], target: tuple[int, int], grey: bool) -> NDArray[np.uint8]:
    """uint8 [H, W] or [H, W, 3] to [h, w, 1] or [h, w, 3]: shrunk as ``--fit`` does it."""
    small = np.asarray(shrink(pixels, target), np.uint8) if pixels.shape[1::-1] != target else pixels
    if grey and small.ndim == 3:
        return np.asarray(Image.fromarray(small).convert("L"))[..., None]
    if not grey and small.ndim == 2:
        return np.repeat(small[..., None], 3, axis=2)
    return small.reshape(*small.shape[:2], -1)


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
