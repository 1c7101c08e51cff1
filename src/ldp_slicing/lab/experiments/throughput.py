"""How many networks one process should train at once: images per second of ResNet-56, on synthetic images."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, with_recipe
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.rows import Row, select
from ldp_slicing.lab.tables import markdown

COUNTS = (1, 2, 4, 6, 8)
SECONDS = 3.0
IMAGES = 4096


def measure(context: ExperimentContext) -> Iterator[Row]:
    rng, how = np.random.default_rng(0), context.shortened(recipe("cifar-once"))
    split = Split(rng.integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, IMAGES))
    images = ImageSet("synthetic", 10, split, Split(split.images[:0], split.labels[:0]))
    for compiled in (False, True):
        runs = list[TrainingRun]()
        for count in COUNTS:
            row = with_recipe(Row("throughput", options={"networks": count, "compiled": compiled}), how)
            if not context.pending(row):
                continue
            while len(runs) < count:
                task = TrainingTask("throughput", images, how, release="none", seed=len(runs))
                runs.append(TrainingRun(task, context.device))
                if compiled:
                    runs[-1].objective.compile()
            steps, seconds = _train(runs)
            rate = steps * min(how.batch, IMAGES) / seconds
            context.log(f"{row.label}: {rate:.0f} images/s")
            yield replace(row, metrics={"steps": steps, "images_per_second": rate}, seconds=seconds)


def _train(runs: Sequence[TrainingRun]) -> tuple[int, float]:
    """Steps of all runs together, and the seconds they took. Graphs and kernels are built before the clock starts."""
    for run in runs:
        run.begin_epoch()
    began, steps = time.monotonic(), 0
    while time.monotonic() - began < SECONDS or not all(run.epoch_is_over for run in runs):
        for run in runs:
            steps += run.advance()
            if run.epoch_is_over and time.monotonic() - began < SECONDS:
                run.begin_epoch()
    return steps, time.monotonic() - began


def table(rows: Sequence[Row]) -> str:
    found = {
        (bool(row.options["compiled"]), int(row.options["networks"])): float(row.metrics["images_per_second"])
        for row in select(rows)
    }
    alone = found.get((False, 1), float("nan"))
    lines = [
        [str(count), "yes" if compiled else "no", f"{rate:,.0f}", f"{rate / alone:.2f}", f"{45_000 / rate:.2f}"]
        for (compiled, count), rate in sorted(found.items())
    ]
    heads = [
        "networks at once",
        "compiled",
        "images per second, all together",
        "relative to one network",
        "seconds per epoch (45,000 images) and network",
    ]
    return markdown(heads, lines)


EXPERIMENT = Experiment(
    "throughput",
    """
This shows the gain from training several networks in one process, and from `torch.compile` (`--compile`): ResNet-56 in
batches of 256, where each step is a CUDA graph on a stream of its own.
""",
    measure,
    table,
)
