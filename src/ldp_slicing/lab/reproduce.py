"""Run an experiment to its end or until the time is up, and write what it has shown so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from ldp_slicing.lab import results as files
from ldp_slicing.lab.experiments import experiment
from ldp_slicing.lab.training import Epoch, Limits, Run, train


def reproduce(
    name: str,
    data: Path,
    results: Path,
    work: Path,
    *,
    minutes: float = float("inf"),
    epochs: int | None = None,
    device: str = "",
    say: Callable[[str], None] = print,
) -> tuple[bool, Path]:
    """Whether the experiment is complete, and the file with its numbers."""
    limits = Limits(seconds=60 * minutes)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    chosen = experiment(name)
    tasks = chosen.tasks(data)
    if epochs is not None:
        tasks = [replace(task, recipe=replace(task.recipe, epochs=epochs)) for task in tasks]
    runs = [Run(task, where) for task in tasks]

    def report(run: Run, epoch: Epoch) -> None:
        accuracy = "" if epoch.test_accuracy is None else f", test {100 * epoch.test_accuracy:.2f} %"
        say(f"{run.task.name} {epoch.epoch + 1}/{run.task.recipe.epochs}: loss {epoch.loss:.4f}{accuracy}, {epoch.seconds:.1f} s")

    done = train(runs, work / name, limits, report)
    return done, files.write(name, chosen, runs, results)
