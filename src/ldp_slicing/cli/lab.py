from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from ldp_slicing.card import number
from ldp_slicing.cli.common import (
    Epsilon,
    PruneChoice,
    PruneOption,
    Slices,
    Weights,
    check_slices,
    err,
    out,
    parse_weights,
    plain,
    refusals_exit,
    stop_signals,
)
from ldp_slicing.errors import LdpSlicingError

if TYPE_CHECKING:
    from ldp_slicing.lab.learners.run import Epoch, TrainingRun
    from ldp_slicing.lab.learners.task import TrainingTask
    from ldp_slicing.lab.rows import Row

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The analyst's side: train on releases and measure. Needs the extra: pip install 'ldp-slicing[lab]'.",
)

SetName = Annotated[
    str, typer.Argument(metavar="SET", help="cifar10, cifar100, chest, or a folder below --data.", show_default=False)
]
Data = Annotated[Path, typer.Option("--data", help="The folder that holds the data sets.", show_default=False)]
Minutes = Annotated[
    float,
    typer.Option(
        "--minutes", help="Stop when an epoch ends after so long; again, and it goes on.", show_default="no limit"
    ),
]
Device = Annotated[str, typer.Option("--device", help="cuda or cpu", show_default="cuda where there is one")]
Results = Annotated[
    Path, typer.Option("--results", help="Where the numbers go. What is finished there is not run again.")
]
Work = Annotated[Path, typer.Option("--work", help="Where checkpoints go.")]
SideBySide = Annotated[int, typer.Option("--side-by-side", min=1, help="Networks trained at once.")]
Compile = Annotated[
    bool, typer.Option("--compile", help="Make kernels for the network first: a minute that pays in long trainings.")
]
Only = Annotated[
    str,
    typer.Option(
        "--only", help="Only rows with these fields, such as 'dataset=cifar10 epsilon=20'.", show_default="all"
    ),
]
NO_LIMIT = float("inf")
FEW_STEPS = 1_000  # of an adversary's training: such a result says little


class ReleaseChoice(StrEnum):
    once = "once"
    every_epoch = "every-epoch"
    view = "view"
    none = "none"


class LogChoice(StrEnum):
    csv = "csv"
    tensorboard = "tensorboard"


LocalStorage = Annotated[Path, typer.Option("--out", help="Checkpoint, log and result go here; again, and it goes on.")]
ReleaseOption = Annotated[
    ReleaseChoice,
    typer.Option(
        "--release",
        help="once: each image is released once. every-epoch: again in every epoch, as the paper's authors do, which costs "
        "epochs x eps. view: the view without noise; none: sources; neither is private.",
    ),
]
Decode = Annotated[
    bool,
    typer.Option(
        "--decode/--no-decode",
        help="Learn from the values to expect, knowing the plan, instead of those released. With --release once; it costs no privacy.",
    ),
]
Epochs = Annotated[int | None, typer.Option("--epochs", min=1, help="How long.", show_default="as the recipe says")]
Seed = Annotated[
    int,
    typer.Option("--seed", min=0, help="Of weights, order and crops. It does not touch the noise of --release once."),
]
LogOption = Annotated[LogChoice, typer.Option("--log", help="log.csv, or TensorBoard's files.")]


def refuse_plans(context: typer.Context, why: str) -> None:
    """How to release is not asked of what was released."""
    for name in ("epsilon", "weights", "slices", "prune", "release"):
        if (origin := context.get_parameter_source(name)) and origin.name == "COMMANDLINE":
            raise LdpSlicingError(f"{why}: leave out --{name}")


def missing(error: ModuleNotFoundError) -> LdpSlicingError:
    return LdpSlicingError(f"the lab needs {error.name}: pip install 'ldp-slicing[lab]'")


@app.command(short_help="Train a network on releases.")
@refusals_exit
def train(
    context: typer.Context,
    name: SetName,
    data: Data,
    folder: LocalStorage = Path("lab-run"),
    epsilon: Epsilon = 20.0,
    weights: Weights = "4:1:1",
    slices: Slices = None,
    prune: PruneOption = PruneChoice.haar,
    release: ReleaseOption = ReleaseChoice.once,
    decode: Decode = True,
    recipe: Annotated[
        str,
        typer.Option(
            "--recipe",
            help="How to train.",
            show_default="cifar-decoded, cifar-once if not decoded; chest for grey images",
        ),
    ] = "",
    model: Annotated[
        str, typer.Option("--model", help="resnet56, resnet9, wrn28 or resnet50-grey", show_default="the recipe's")
    ] = "",
    epochs: Epochs = None,
    validation: Annotated[
        float, typer.Option("--validation", help="Share of the training images held out to choose the epoch by.")
    ] = 0.1,
    seed: Seed = 0,
    log: LogOption = LogChoice.csv,
    compiled: Compile = False,
    minutes: Minutes = NO_LIMIT,
    device: Device = "",
) -> None:
    """`ldp-slicing lab train cifar10 --data data/ --epsilon 20`

    Train a classifier on releases and measure it on releases. The epoch is chosen on images held out of the training set; the test set is
    looked at once, at the end. Sources are released for it first; a folder that `ldp-slicing privatize` made, with its card, holds
    releases, and is taken as it is.
    """
    check_slices(context, slices)
    try:
        from ldp_slicing.lab.train_command import make_task, open_set
    except ModuleNotFoundError as error:
        raise missing(error) from None
    images = open_set(name, data)
    if images.release_info is not None:
        refuse_plans(context, f"{name} holds releases, and their card says how they were made")
    origin = context.get_parameter_source("decode")
    if (
        decode
        and release is not ReleaseChoice.once
        and images.release_info is None
        and origin
        and origin.name == "COMMANDLINE"
    ):
        raise LdpSlicingError(f"--decode goes with --release once, not with --release {release.value}")
    task = make_task(
        images,
        epsilon=epsilon,
        weights=parse_weights(weights),
        slices=slices,
        prune=prune.prune,
        release=release.value,
        decode=decode,
        recipe_name=recipe,
        model=model,
        epochs=epochs,
        validation=validation,
        seed=seed,
    )
    row = with_progress(task, folder, minutes, compiled=compiled, device=device, log=log.value)
    if row is not None:
        out.print(f"test accuracy {100 * row.metrics['test_accuracy']:.2f} %")
        if training := row.training:
            last = training.epochs - 1
            chosen = f"epoch {training.chosen_epoch} of 0 to {last}, chosen on {training.held_out} images held out"
            out.print(chosen)
        say_spent(row, folder)


@app.command(short_help="Train a face recogniser on releases.")
@refusals_exit
def train_faces(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="SET", help="A folder below --data with one folder per person.", show_default=False)
    ],
    data: Data,
    verify: Annotated[
        list[Path] | None, typer.Option("--verify", help="A verification set (InsightFace .bin); may be repeated.")
    ] = None,
    folder: LocalStorage = Path("lab-run"),
    epsilon: Epsilon = 20.0,
    weights: Weights = "4:1:1",
    slices: Slices = None,
    prune: PruneOption = PruneChoice.haar,
    release: ReleaseOption = ReleaseChoice.once,
    recipe: Annotated[
        str, typer.Option("--recipe", help="faces-paper, faces-authors or faces-arcface")
    ] = "faces-paper",
    start: Annotated[
        Path | None, typer.Option("--start", help="Weights to start from.", show_default="random ones")
    ] = None,
    epochs: Epochs = None,
    seed: Seed = 0,
    log: LogOption = LogChoice.csv,
    minutes: Minutes = NO_LIMIT,
    device: Device = "",
) -> None:
    """`ldp-slicing lab train-faces ms1m --data data/ --verify data/lfw.bin --start ir50.pt`

    Train a recogniser with the ArcFace loss on releases of 112 x 112 faces, and verify pairs of releases: ten folds, each image of a pair
    released once, its mirror made of that release.
    """
    check_slices(context, slices)
    try:
        from ldp_slicing.lab.train_faces_command import make_face_task, open_people, verifier
    except ModuleNotFoundError as error:
        raise missing(error) from None
    task = make_face_task(
        open_people(name, data),
        epsilon=epsilon,
        weights=parse_weights(weights),
        slices=slices,
        prune=prune.prune,
        release=release.value,
        recipe_name=recipe,
        start=start,
        epochs=epochs,
        seed=seed,
    )
    row = with_progress(task, folder, minutes, device=device, log=log.value, judge=verifier(verify or [], folder))
    if row is not None:
        for found in row.metrics["verification"]:
            out.print(
                f"{plain(found['set'])}: {100 * found['accuracy']:.2f} ± {100 * found['standard_error']:.2f} % of {found['pairs']} pairs"
            )
        say_spent(row, folder)


def stopping() -> AbstractContextManager[list[int]]:
    """Interruptions, the first of which ends what is trained with its epoch and a checkpoint."""
    return stop_signals(
        lambda: err.print("stopping when what is under way is done, such as an epoch; once more breaks it off")
    )


def exit_if(received: list[int]) -> None:
    if received:
        raise typer.Exit(128 + received[0])


@contextmanager
def _progress(what: str) -> Iterator[Callable[[TrainingRun, Epoch], None]]:
    """A bar over the epochs, where there are any; what it gives is to be told of each."""
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as progress:
        bar = progress.add_task("", total=None)

        def report(run: TrainingRun, epoch: Epoch) -> None:
            held = "" if epoch.validation_accuracy is None else f", validation {100 * epoch.validation_accuracy:.2f} %"
            progress.update(
                bar, total=run.task.recipe.epochs, completed=run.epoch, description=f"loss {epoch.loss:.3f}{held}"
            )
            if not err.is_terminal:  # no bar, but a log that shows that it goes on
                err.print(f"{what}: {run.epoch} of {run.task.recipe.epochs} epochs, loss {epoch.loss:.3f}{held}")

        yield report


def with_progress(
    task: TrainingTask,
    folder: Path,
    minutes: float,
    *,
    compiled: bool = False,
    **options: Any,  # noqa: ANN401 - passed on to study
) -> Row | None:
    """The finished row; None, and a word about it, when the time was up before."""
    from ldp_slicing.lab.learners.training import Limits
    from ldp_slicing.lab.train_command import study

    with stopping() as received, _progress("training") as report:
        row = study(
            task, folder, Limits(60 * minutes, compile=compiled, asked=lambda: bool(received)), report=report, **options
        )
    if row is None or not row.finished:
        done = "stopped before the first epoch"
        if row and row.training:
            done = f"stopped after {row.training.epochs} of {task.recipe.epochs} epochs"
        out.print(f"{done}; run the same command again to go on")
        exit_if(received)
        return None
    return row


def say_spent(row: Row, folder: Path) -> None:
    spent = row.epsilon_spent
    most = spent and f"here no source has spent more than eps {number(spent)} per released pixel"
    out.print(most or "nothing is private about this run")
    out.print(plain(str(folder / "result.json")))


@app.command(short_help="Run one experiment of the paper; resumes where it stopped.")
@refusals_exit
def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A table or figure; a wrong name lists them all.", show_default=False)
    ],
    data: Data,
    results: Results = Path("results"),
    work: Work = Path("lab-work"),
    minutes: Minutes = NO_LIMIT,
    epochs: Epochs = None,
    side_by_side: SideBySide = 4,
    compiled: Compile = False,
    only: Only = "",
    device: Device = "",
) -> None:
    """`ldp-slicing lab reproduce curves --data data/`

    Train what a table or figure needs, side by side, and write the numbers beside the paper's. Attacks are among them: averaging, bayes,
    black-box, white-box, identity.
    """
    try:
        from ldp_slicing.lab.reproduce import reproduce as run
    except ModuleNotFoundError as error:
        raise missing(error) from None
    with stopping() as received:
        done, path = run(
            name,
            data,
            results,
            work,
            minutes=minutes,
            epochs=epochs,
            device=device,
            side_by_side=side_by_side,
            compiled=compiled,
            only=only,
            say=lambda line: err.print(plain(line)),
            asked=lambda: bool(received),
        )
    out.print(f"{plain(str(path))}{'' if done else ' (not finished: run again to go on)'}")
    if not done:
        exit_if(received)


@app.command(short_help="Attack releases of a data set; resumes where it stopped.")
@refusals_exit
def attack(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="averaging, bayes, black-box, white-box or identity", show_default=False),
    ],
    images: SetName,
    data: Data,
    folder: Annotated[
        Path, typer.Option("--out", help="Checkpoint, result and contact sheet go here; again, and it goes on.")
    ] = Path("lab-attack"),
    epsilon: Epsilon = 20.0,
    weights: Weights = "4:1:1",
    slices: Slices = None,
    prune: PruneOption = PruneChoice.haar,
    epochs: Epochs = None,
    minutes: Minutes = NO_LIMIT,
    device: Device = "",
) -> None:
    """`ldp-slicing lab attack white-box cifar10 --data data/ --epsilon 5.2`

    Learn from the set's training images, which are the adversary's own, and reconstruct its test images from one release each (averaging:
    from several). identity: tell from a release and another picture whether they show the same class. It is for public data sets:
    nobody needs your sources to measure what releases of such pictures give away.
    """
    check_slices(context, slices)
    try:
        from ldp_slicing.lab.attack_command import Attempt, make_attempt, result_table
        from ldp_slicing.lab.learners.training import Limits
        from ldp_slicing.lab.train_command import open_set, plan_of
    except ModuleNotFoundError as error:
        raise missing(error) from None
    chosen = open_set(images, data)
    if chosen.release_info is not None:
        raise LdpSlicingError(f"{images} holds releases: how much an attack gets is measured on sources that you have")
    asked = Attempt(name, chosen, plan_of(chosen, epsilon, parse_weights(weights), slices), prune.prune, epochs)
    with stopping() as received, _progress("attacking") as report:
        row = make_attempt(
            asked, folder, Limits(60 * minutes, asked=lambda: bool(received)), device=device, report=report
        )
    if row is None:
        out.print("stopped; run the same command again to go on")
        exit_if(received)
        return
    head, lines = result_table(row)
    table = Table(*(Column(words, justify="right" if i else "left") for i, words in enumerate(head)))
    for line in lines:
        table.add_row(*map(plain, line))
    out.print(table)
    if row.training and (steps := row.training.steps):
        out.print(f"trained for {steps:,} steps on {row.training.images:,} public images")
        if steps < FEW_STEPS:
            out.print(
                "[bold red]too few steps to learn much[/bold red]: use more images or --epochs before trusting it"
            )
    out.print(plain(str(folder / "result.json")))
    if (sheet := folder / "sheet.png").is_file():
        out.print(f"{plain(str(sheet))} (for the owner only: it shows sources)")


@app.command(short_help="Choose a plan by the leakage that you accept.")
@refusals_exit
def choose(
    max_leakage: Annotated[
        float, typer.Option("--max-leakage", help="Largest accepted leakage: SSIM of reconstructions, 0 to 1.")
    ],
    task: Annotated[str, typer.Option("--task", help="What the releases are for: cifar10.")] = "cifar10",
    max_epsilon: Annotated[
        float, typer.Option("--max-epsilon", help="Largest eps per released pixel.", show_default="no limit")
    ] = NO_LIMIT,
    results: Annotated[
        Path | None,
        typer.Option("--results", help="A folder with tradeoff.json.", show_default="measurements in this package"),
    ] = None,
) -> None:
    """`ldp-slicing lab choose --max-leakage 0.7`

    Choose the plan with the highest validation accuracy among those that leak no more than you accept, from the measurements of
    `lab reproduce tradeoff`. They are from CIFAR-10 and one attack: a guide, not a guarantee. Needs no extra.
    """
    from ldp_slicing.lab.choose import choose as choose_point
    from ldp_slicing.lab.plans import measured

    chosen, count = choose_point(measured(task, results), max_leakage, max_epsilon)
    dedicated = chosen.dedicated_leakage
    alone = "" if dedicated is None else f" ({dedicated:.3f} by a network for this plan alone)"
    out.print(f"{chosen.candidate.name}")
    out.print(f"test accuracy {100 * chosen.test_accuracy:.2f} %, leakage (SSIM) {chosen.leakage:.3f}{alone}")
    out.print(plain(chosen.candidate.command))
    out.print(plain(chosen.candidate.code))
    limit = "" if max_epsilon == NO_LIMIT else f" and eps {max_epsilon:g}"
    out.print(f"best validation accuracy of {count} measured plans within leakage {max_leakage:g}{limit}")


@app.command(name="results", short_help="Write results/README.md and all pages and figures from the rows.")
@refusals_exit
def write_results(
    folder: Annotated[Path, typer.Argument(help="The folder with the JSON files.")] = Path("results"),
    plans: Annotated[
        Path | None,
        typer.Option("--plans", help="Also write the measured plans that `lab choose` reads.", show_default="no"),
    ] = None,
) -> None:
    """`ldp-slicing lab results`

    Write the page and figure of every experiment again, and one page with all of them.
    """
    try:
        from ldp_slicing.lab.results import write_summary
    except ModuleNotFoundError as error:
        raise missing(error) from None
    out.print(plain(str(write_summary(folder))))
    if plans:
        from ldp_slicing.lab.plans import to_json
        from ldp_slicing.lab.rows import read_rows

        plans.write_text(to_json(read_rows(folder / "tradeoff.json")), encoding="utf-8")
        out.print(plain(str(plans)))
