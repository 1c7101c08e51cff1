"""The eps that a training task spends on each source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ldp_slicing.lab.learners.task import TrainingTask


def epsilon_per_source(task: TrainingTask, also_released: Iterable[str] = ()) -> float | None:
    """The largest eps per released pixel that any source has spent when training ends; None if nothing is private.

    Equal images are one source, so their releases add up.

    also_released: digests of images that were released once more each, outside the data set.
    """
    if task.plan is None:
        return None
    if task.data.release_info is not None:
        return task.data.release_info.spent
    epochs = task.recipe.epochs if task.release == "every-epoch" else 1
    times = Counter({digest: epochs * count for digest, count in task.data.times.items()})
    times.update([*also_released])
    return task.plan.realised_epsilon * max(times.values(), default=1)
