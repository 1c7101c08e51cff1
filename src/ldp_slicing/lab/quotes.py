"""Fill numbers from ``results/*.json`` into documents, between markers.

In a document, write an experiment, the fields of the row and the metric::

    <!-- quote curves dataset=cifar10 epsilon=20 recipe=cifar-decoded metric=test_accuracy --><!-- /quote -->

and run, in the root of the repository::

    python -m ldp_slicing.lab.quotes            # fill in all documents
    python -m ldp_slicing.lab.quotes --check    # exit status 1 if a number in a document is not up to date

- Fields: dataset, method, plan, epsilon, prune, release, mode, folds, releases, recipe, seed and the options of a row;
  see ``rows.describe_fields``. A field that a row does not have is "none": ``epsilon=none`` selects rows without
  privacy.
- A list of eps, ``epsilon=5.2,12,20``, fills in several cells of a table: "36.9 | 67.0 | 77.8".
- Rows may differ in seed and folds: the number is their mean. A marker that matches no row, or rows that differ
  otherwise, is an error. The message says in which fields they differ.
- pick: with ``pick=largest`` rows may differ, and the number is the largest of them, such as that of the strongest
  attack at each budget. Several experiments are named as ``white-box,bit-unet``.
- metric: a path in the metrics of the measurement or row, such as ``reconstruction.rank_1.share``, or in its training,
  such as ``training.best_validation_accuracy``.
- missing: what to write while no row matches, such as ``missing=-``; without it that is an error.
- as: how the number is written. ``as=.1%``, the default, is a share as a percentage without the sign. ``as=.3f`` and
  other format specifications are written as Python does.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.rows import Measurement, Row, describe_fields, matches, parse_selector, read_rows

MARKER = re.compile(r"(?s)<!-- quote (?!\.\.\. -->)(?P<selector>.*?) -->(?P<text>.*?)<!-- /quote -->")
AVERAGED = ("seed", "folds")
DEFAULT_FORMAT = ".1%"

RowsOf = Callable[[str], Sequence[Row]]  # the rows of an experiment, by its name


def fill(text: str, rows_of: RowsOf) -> str:
    """The document with the number of every marker filled in."""
    opened = len(re.findall(r"<!-- quote (?!\.\.\. -->)", text))  # "..." is how documents speak of markers
    if not opened == text.count("<!-- /quote -->") == len(MARKER.findall(text)):
        raise LdpSlicingError("a marker is not closed: write <!-- quote ... --><!-- /quote -->")

    def filled(marker: re.Match[str]) -> str:
        return f"<!-- quote {marker['selector']} -->{quote(marker['selector'], rows_of)}<!-- /quote -->"

    return MARKER.sub(filled, text)


def quote(marker: str, rows_of: RowsOf) -> str:
    """The text for one marker, such as "curves dataset=cifar10 epsilon=20 metric=test_accuracy"."""
    experiments, _, rest = marker.strip().partition(" ")
    selector = parse_selector(rest)
    if "metric" not in selector:
        raise LdpSlicingError(f"the marker {marker!r} names no metric: add metric=test_accuracy, for example")
    metric, spec = selector.pop("metric"), selector.pop("as", DEFAULT_FORMAT)
    missing, pick = selector.pop("missing", None), selector.pop("pick", None)
    if pick not in (None, "largest"):
        raise LdpSlicingError(f"the marker {marker!r} has pick={pick}: write pick=largest, or leave it out")
    rows = list[Row]()
    for experiment in experiments.split(","):
        finished = [row for row in rows_of(experiment) if row.finished]
        if not finished and missing is None:
            raise LdpSlicingError(f"the marker {marker!r} names an experiment without rows, {experiment!r}")
        rows += finished
    several = selector["epsilon"].split(",") if "epsilon" in selector else [None]
    cells = []
    for epsilon in several:
        one = selector if epsilon is None else {**selector, "epsilon": epsilon}
        found = _mean(marker, rows, one, metric, required=missing is None, largest=pick is not None)
        cells.append(str(missing) if found is None else f"{found:{spec}}".removesuffix("%"))
    return " | ".join(cells)


def _mean(
    marker: str, rows: Iterable[Row], selector: dict[str, str], metric: str, *, required: bool, largest: bool
) -> float | None:
    """The mean of the rows that match. ``largest``: they may differ, and the largest of their means is returned."""
    found = dict[tuple[tuple[str, str], ...], list[float]]()
    for row in rows:
        for one in row.measurements or (None,):
            fields = describe_fields(row, one)
            if matches(fields, selector) and (value := _value(row, one, metric)) is not None:
                identity = tuple((name, text) for name, text in fields.items() if name not in AVERAGED)
                found.setdefault(identity, []).append(value)
    if not found and not required:
        return None
    if not found:
        raise LdpSlicingError(f"the marker {marker!r} matches no row with the metric {metric!r}")
    if len(found) > 1 and not largest:
        first, *others = map(dict, found)
        names = {*first}.union(*others)
        differ = sorted(name for name in names if any(one.get(name) != first.get(name) for one in others))
        choices = [
            f"{name}={', '.join(sorted({one.get(name, 'none') for one in (first, *others)}))}" for name in differ
        ]
        raise LdpSlicingError(f"the marker {marker!r} matches rows that differ: add one of {'; '.join(choices)}")
    return max(map(fmean, found.values()))


def _value(row: Row, measurement: Measurement | None, path: str) -> float | None:
    """The number at a path such as "reconstruction.ssim" or "training.epochs"; None if there is none."""
    first, *rest = path.split(".")
    if first == "training":
        value: object = row.training
        for name in rest:
            value = getattr(value, name, None)
    else:
        value = measurement.metrics if measurement else row.metrics
        for name in (first, *rest):
            value = value.get(name) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else None


def documents(root: Path) -> list[Path]:
    """The hand-written documents of the repository."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ldp_slicing.lab.quotes", description="Fill results into documents."
    )
    parser.add_argument("files", nargs="*", type=Path, help="documents; by default *.md and docs/**/*.md")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository, which has results/")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a document is out of date")
    asked = parser.parse_args(arguments)
    known = dict[str, list[Row]]()

    def rows_of(name: str) -> list[Row]:
        if name not in known:
            known[name] = read_rows(asked.root / "results" / f"{name}.json")
        return known[name]

    stale = 0
    for path in asked.files or documents(asked.root):
        text = path.read_text(encoding="utf-8")
        try:
            filled = fill(text, rows_of)
        except LdpSlicingError as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 2
        if filled != text:
            stale += 1
            print(f"{path}: {'out of date' if asked.check else 'filled in'}")
            if not asked.check:
                path.write_text(filled, encoding="utf-8")
    return 1 if stale and asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
