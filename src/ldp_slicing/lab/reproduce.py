"""Run an experiment to its end or until the time is up, and write what it has shown so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab import results as files
from ldp_slicing.lab.experiment import Setting
from ldp_slicing.lab.experiments import experiment
from ldp_slicing.lab.learners.training import Limits, device_of


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
    asked: Callable[[], bool] = lambda: False,
) -> tuple[bool, Path]:
    """Whether the experiment is complete, and the file with its rows. Rows that are there and finished are not made again.

    asked: whether somebody has asked to stop.
    """
    chosen, rows = experiment(name), files.read(name, results)
    if epochs is not None and any(
        row["finished"] and row.get("recipe", {}).get("epochs", epochs) > epochs for row in rows
    ):
        raise LdpSlicingError(
            f"{results} holds rows of whole runs, which a trial of {epochs} epochs would replace: name another with --results"
        )
    where, limits = (
        device_of(device),
        Limits(seconds=60 * minutes, side_by_side=side_by_side, compile=compiled, asked=asked),
    )
    setting = Setting(data, work / name, where, limits, tuple(rows), epochs, only, say, results)
    done, path, made = True, results / f"{name}.json", files.stamp(where)
    began = time.monotonic()
    for row in chosen.measure(setting):
        files.keep(
            name, chosen.about, {"seconds": time.monotonic() - began} | row | made, results
        )  # what is trained says its own
        began = time.monotonic()
        done &= row["finished"]
    if only and not any(only in run for run in setting.named):
        raise LdpSlicingError(
            f"no run of {name} has {only!r} in its name; there are {', '.join(sorted(setting.named))}"
        )
    if path.is_file():
        files.show(name, results)
    return done and not setting.left, path
