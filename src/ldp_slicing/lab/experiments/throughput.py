"""How many networks one process should train side by side: images per second of ResNet-56, on images made up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.experiment import Experiment, Row, Setting, markdown, plain
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask

COUNTS = (1, 2, 4, 6, 8)
SECONDS = 3.0
IMAGES = 4096


def measure(setting: Setting) -> Iterator[Row]:
    rng, how = np.random.default_rng(0), setting.shortened(recipe("cifar-once"))
    split = Split(rng.integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, IMAGES))
    images = ImageSet("made up", 10, split, Split(split.images[:0], split.labels[:0]))
    for compiled in (False, True):
        runs = list[TrainingRun]()
        for count in COUNTS:
            name = f"{count}-side-by-side{'-compiled' * compiled}"
            if not setting.wants(name) or setting.has(name):
                continue
            while len(runs) < count:
                runs.append(
                    TrainingRun(TrainingTask(name, images, how, release="none", seed=len(runs)), setting.device)
                )
                if compiled:
                    runs[-1].compile()
            steps, taken = _train(runs)
            rate = steps * min(how.batch, IMAGES) / taken
            setting.say(f"{name}: {rate:.0f} images/s")
            yield {
                "run": name,
                "seed": 0,
                "finished": True,
                "networks": count,
                "compiled": compiled,
                "steps": steps,
                "seconds": taken,
                "images_per_second": rate,
                "recipe": plain(how),
            }


def _train(runs: Sequence[TrainingRun]) -> tuple[int, float]:
    """Steps of all runs together, and the seconds that they took; what is made once, graphs and kernels, is made before."""
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
    found = {(row["networks"], row["compiled"]): row["images_per_second"] for row in rows if row["finished"]}
    alone = found.get((1, False), float("nan"))
    lines = [
        [f"{count}{', compiled' * compiled}", f"{rate:,.0f}", f"{rate / alone:.2f}", f"{45_000 / rate:.2f}"]
        for (count, compiled), rate in sorted(found.items(), key=lambda one: (one[0][1], one[0][0]))
    ]
    return markdown(
        [
            "networks side by side",
            "images per second, all together",
            "times one alone",
            "seconds per epoch of 45,000 and network",
        ],
        lines,
    )


EXPERIMENT = Experiment(
    "ResNet-56 in batches of 256, each step a CUDA graph on a stream of its own: what one process gains by training several at once, "
    "and by kernels that `torch.compile` makes for it (`--compile`)",
    measure,
    table,
)
