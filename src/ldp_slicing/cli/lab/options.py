"""What the commands of the lab share: options, interruption, progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ldp_slicing.cli.common import err, stop_signals
from ldp_slicing.errors import LdpSlicingError

if TYPE_CHECKING:
    from ldp_slicing.lab.learners.run import Epoch, TrainingRun

NO_LIMIT = float("inf")

SetName = Annotated[
    str,
    typer.Argument(metavar="SET", help="cifar10, cifar100, chest, or a folder inside --data.", show_default=False),
]
Data = Annotated[Path, typer.Option("--data", help="The folder that contains the data sets.", show_default=False)]
RunFolder = Annotated[
    Path,
    typer.Option("--out", help="Output folder for checkpoint, log and result. Run again to resume."),
]
Minutes = Annotated[
    float,
    typer.Option(
        "--minutes",
        help="Stop at the end of the epoch in which this time is up. Run again to resume.",
        show_default="no limit",
    ),
]
Device = Annotated[str, typer.Option("--device", help="cuda or cpu.", show_default="cuda if there is a GPU")]
Compile = Annotated[
    bool, typer.Option("--compile", help="Compile the network first. This takes a minute and pays off in long runs.")
]
Epochs = Annotated[int | None, typer.Option("--epochs", min=1, help="Number of epochs.", show_default="the recipe's")]
Seed = Annotated[
    int,
    typer.Option("--seed", min=0, help="Seed of weights, order and crops. The noise of --release once is not seeded."),
]


class ReleaseChoice(StrEnum):
    once = "once"
    every_epoch = "every-epoch"
    view = "view"
    none = "none"


class ModeChoice(StrEnum):
    raw = "raw"
    decoded = "decoded"
    reconstructed = "reconstructed"
    reconstructed_public = "reconstructed-public"


class LogChoice(StrEnum):
    csv = "csv"
    tensorboard = "tensorboard"


ReleaseOption = Annotated[
    ReleaseChoice,
    typer.Option(
        "--release",
        help="once: release each image once. every-epoch: release it again in every epoch, as the paper's authors do; "
        "this costs epochs x eps. view: the view without noise. none: the sources. The last two are not private.",
    ),
]
LogOption = Annotated[LogChoice, typer.Option("--log", help="Write log.csv, or TensorBoard event files.")]


def from_command_line(context: typer.Context, name: str) -> bool:
    """Whether the user has given this option."""
    origin = context.get_parameter_source(name)
    return origin is not None and origin.name == "COMMANDLINE"


def missing_extra(error: ModuleNotFoundError, command: str = "the lab") -> LdpSlicingError:
    return LdpSlicingError(f"{command} needs {error.name}: pip install 'ldp-slicing[lab]'")


def interruptible() -> AbstractContextManager[list[int]]:
    """The signals received. The first one stops at the end of the epoch, with a checkpoint; the second one at once."""
    return stop_signals(
        lambda: err.print("stopping at the end of the current step, such as an epoch; interrupt again to stop at once")
    )


def exit_if_interrupted(received: list[int]) -> None:
    if received:
        raise typer.Exit(128 + received[0])


@contextmanager
def epoch_progress(activity: str) -> Iterator[tuple[Callable[[TrainingRun, Epoch], None], Callable[[int, int], None]]]:
    """A progress bar over epochs, or one line per epoch without a terminal.

    Call the first result after each epoch, and the second with the steps done and all steps of a reconstructor.
    """
    columns = (
        TextColumn(activity),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as progress:
        bar = progress.add_task("", total=None)

        def report(run: TrainingRun, epoch: Epoch) -> None:
            total, text = run.task.recipe.epochs, f"loss {epoch.loss:.3f}"
            if run.task.is_pretraining:
                text = f"first on {run.task.data.name}, {text}"
            if epoch.validation_accuracy is not None:
                text += f", validation accuracy {100 * epoch.validation_accuracy:.2f} %"
            progress.update(bar, total=total, completed=run.epoch, description=text)
            if not err.is_terminal:
                err.print(f"{activity}: {run.epoch} of {total} epochs, {text}")

        def reconstructing(done: int, steps: int) -> None:
            text = f"first training a reconstructor, {done:,} of {steps:,} steps"
            progress.update(bar, description=text)
            if not err.is_terminal and done in (0, *(steps * part // 100 for part in (1, 10, 25, 50, 75, 100))):
                err.print(f"{activity}: {text}")

        yield report, reconstructing
