"""Run an experiment until it is complete or the time is up, and write its rows, page and figure."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab import results as pages
from ldp_slicing.lab.experiment import ExperimentContext
from ldp_slicing.lab.experiments import load_experiment
from ldp_slicing.lab.learners.training import Limits, find_device
from ldp_slicing.lab.provenance import provenance, stamped
from ldp_slicing.lab.rows import parse_selector, read_rows
from ldp_slicing.lab.run_folder import check_writable


def reproduce(
    name: str,
    data: Path,
    results: Path,
    work: Path,
    *,
    minutes: float = float("inf"),
    epochs: int | None = None,
    device: str = "",
    side_by_side: int = 4,
    compiled: bool = False,
    only: str = "",
    say: Callable[[str], None] = print,
    stop_requested: Callable[[], bool] = lambda: False,
) -> tuple[bool, Path]:
    """Whether the experiment is complete, and the file with its rows. Finished rows are not measured again.

    only: a selector such as "dataset=cifar10 epsilon=20". stop_requested: whether the user has asked to stop.
    """
    experiment, path = load_experiment(name), results / f"{name}.json"
    rows, selector = read_rows(path), parse_selector(only)
    if epochs is not None and any(row.finished and row.recipe.get("epochs", epochs) > epochs for row in rows):
        raise LdpSlicingError(
            f"{path} holds rows of more than {epochs} epochs, which this run would replace: "
            "choose another folder with --results"
        )
    check_writable(results)
    where = find_device(device)
    limits = Limits(seconds=60 * minutes, side_by_side=side_by_side, compile=compiled, stop_requested=stop_requested)
    context = ExperimentContext(data, work, where, limits, tuple(rows), epochs, selector, say, results)
    complete, measured, made_by = True, 0, provenance(where)
    began = time.monotonic()
    for row in experiment.measure(context):
        pages.keep_row(stamped(row, made_by, time.monotonic() - began), results)
        began, measured = time.monotonic(), measured + 1
        complete &= row.finished
    if selector and not context.wants_any(context.considered.copy()):
        labels = sorted({row.label for row in context.considered})
        raise LdpSlicingError(f"no row of {name} matches --only {only!r}; there are: {'; '.join(labels)}")
    if rows and not measured and not context.postponed:
        say(
            f"nothing was measured: the rows that you asked for are finished, and are in {path}. To measure them anew, "
            "name new folders, such as --results my-results --work my-work"
        )
    if path.is_file():
        pages.write_page(experiment, results)
    return complete and not context.postponed, path
