from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import err, out, plain, refusals_exit
from ldp_slicing.cli.lab.options import (
    NO_LIMIT,
    Compile,
    Data,
    Device,
    Epochs,
    Minutes,
    exit_if_interrupted,
    interruptible,
    missing_extra,
)


@refusals_exit
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="An experiment, such as curves. An unknown name lists them all.",
            show_default=False,
        ),
    ],
    data: Data,
    results: Annotated[
        Path, typer.Option("--results", help="Folder for the numbers. Finished rows there are not measured again.")
    ] = Path("results"),
    work: Annotated[Path, typer.Option("--work", help="Folder for checkpoints, which experiments share.")] = Path(
        "lab-work"
    ),
    minutes: Minutes = NO_LIMIT,
    epochs: Epochs = None,
    side_by_side: Annotated[int, typer.Option("--side-by-side", min=1, help="Networks to train at once.")] = 4,
    compiled: Compile = False,
    only: Annotated[
        str,
        typer.Option(
            "--only", help="Only rows with these fields, such as 'dataset=cifar10 epsilon=20'.", show_default="all"
        ),
    ] = "",
    device: Device = "",
) -> None:
    """Example: `ldp-slicing lab reproduce curves --data data/`

    Run the experiment behind a table or figure, and write its numbers beside the paper's. The attacks are experiments
    too: averaging, bayes, black-box, white-box, bit-unet, identity.
    """
    try:
        from ldp_slicing.lab.reproduce import reproduce as run
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    with interruptible() as received:
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
            stop_requested=lambda: bool(received),
        )
    out.print(plain(str(path)) if done else f"{plain(str(path))} (not finished: run again to resume)")
    if not done:
        exit_if_interrupted(received)
