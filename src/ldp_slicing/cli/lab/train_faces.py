from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import (
    Epsilon,
    PruneChoice,
    PruneOption,
    Slices,
    Weights,
    check_slices,
    out,
    parse_weights,
    plain,
    refusals_exit,
)
from ldp_slicing.cli.lab.options import (
    NO_LIMIT,
    Data,
    Device,
    Epochs,
    LogChoice,
    LogOption,
    Minutes,
    ReleaseChoice,
    ReleaseOption,
    RunFolder,
    Seed,
    missing_extra,
)
from ldp_slicing.cli.lab.training import print_spent, train_with_progress
from ldp_slicing.lab.learners.recipes import recipes_for


@refusals_exit
def train_faces(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="SET", help="A folder inside --data with one folder per person.", show_default=False),
    ],
    data: Data,
    verify: Annotated[
        list[Path] | None,
        typer.Option("--verify", help="A verification set, as for `lab verify-faces`. May be repeated."),
    ] = None,
    folder: RunFolder = Path("lab-run"),
    epsilon: Epsilon = 20.0,
    weights: Weights = "4:1:1",
    slices: Slices = None,
    prune: PruneOption = PruneChoice.haar,
    release: ReleaseOption = ReleaseChoice.once,
    recipe: Annotated[
        str, typer.Option("--recipe", help=f"How to train: {', '.join(recipes_for('arcface'))}.")
    ] = "faces-paper",
    start: Annotated[
        Path | None, typer.Option("--start", help="A file with the initial weights.", show_default="random weights")
    ] = None,
    epochs: Epochs = None,
    seed: Seed = 0,
    log: LogOption = LogChoice.csv,
    minutes: Minutes = NO_LIMIT,
    device: Device = "",
) -> None:
    """Example: `ldp-slicing lab train-faces ms1m --data data/ --verify data/lfw.bin --start ir50.pt`

    Train a face recogniser with the ArcFace loss on releases of 112 x 112 faces, and measure its verification accuracy
    on pairs of releases, in ten folds. Each image is released once; its mirror image is made from that release.
    """
    check_slices(context, slices)
    try:
        from ldp_slicing.lab.train_faces_command import make_face_task, open_people, verification_on
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
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
    measure = verification_on(verify or [], folder)
    row = train_with_progress(task, folder, minutes, device=device, log=log.value, measure=measure)
    if row is not None:
        for found in row.metrics["verification"]:
            accuracy = f"{100 * found['accuracy']:.2f} ± {100 * found['standard_error']:.2f} %"
            out.print(f"{plain(found['set'])}: verification accuracy {accuracy} ({found['pairs']} pairs)")
        print_spent(row, folder, task)
