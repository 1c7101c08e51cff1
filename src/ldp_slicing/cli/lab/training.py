"""What `lab train` and `lab train-faces` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ldp_slicing.cli.common import out, plain
from ldp_slicing.cli.lab.options import epoch_progress, exit_if_interrupted, interruptible
from ldp_slicing.wording import number

if TYPE_CHECKING:
    from ldp_slicing.lab.learners.task import TrainingTask
    from ldp_slicing.lab.rows import Row


def train_with_progress(
    task: TrainingTask,
    folder: Path,
    minutes: float,
    *,
    compiled: bool = False,
    **options: Any,  # noqa: ANN401 - passed on to train_in_folder
) -> Row | None:
    """The finished row. If training stopped early, say so and return None."""
    from ldp_slicing.lab.learners.training import Limits
    from ldp_slicing.lab.train_command import train_in_folder

    with interruptible() as received, epoch_progress("training") as (report, reconstructing):
        limits = Limits(
            60 * minutes, compile=compiled, stop_requested=lambda: bool(received), reconstructing=reconstructing
        )
        row = train_in_folder(task, folder, limits, report=report, **options)
    if row is not None and row.finished:
        return row
    done = "before the first epoch"
    if row is not None and row.training is not None:
        done = f"after {row.training.epochs} of {task.recipe.epochs} epochs"
    out.print(f"stopped {done}; run the same command again to resume")
    exit_if_interrupted(received)
    return None


def print_spent(row: Row, folder: Path, task: TrainingTask) -> None:
    """Print what the sources have spent: in this run, or before, if the task was given releases."""
    if spent := row.epsilon_spent:
        before = task.data.release_info is not None
        when = "as the card of the releases says" if before else "in this run, which no ledger records"
        out.print(f"no source has spent more than eps {number(spent)} per released pixel, {when}")
    else:
        out.print("this run is not private")
    out.print(plain(str(folder / "result.json")))
