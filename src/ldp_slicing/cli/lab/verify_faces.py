from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import PruneChoice, PruneOption, out, plain, refusals_exit
from ldp_slicing.cli.lab.options import (
    NO_LIMIT,
    Device,
    Minutes,
    exit_if_interrupted,
    interruptible,
    missing_extra,
)


@refusals_exit
def verify_faces(
    sets: Annotated[
        list[Path],
        typer.Argument(
            metavar="SET",
            help="InsightFace .bin files; folders of people, with or without pairs.txt; lists of images and people.",
            show_default=False,
        ),
    ],
    recogniser: Annotated[
        Path,
        typer.Option(
            "--recogniser",
            help="A folder with dlib's weights, or the output folder of `lab train-faces`.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Output folder for rows and table. Later runs add to it.",
        ),
    ] = Path("lab-faces"),
    epsilon: Annotated[
        list[float] | None,
        typer.Option("--epsilon", help="Budget per released pixel. May be repeated.", show_default="the paper's seven"),
    ] = None,
    prune: PruneOption = PruneChoice.haar,
    public: Annotated[
        Path | None,
        typer.Option(
            "--public",
            help="A folder of public faces. A network trained on them first reconstructs each face from its release.",
        ),
    ] = None,
    pairs: Annotated[
        int,
        typer.Option(
            "--pairs",
            min=1,
            help="Pairs of the same person in each fold, for sets without a list of pairs.",
        ),
    ] = 300,
    minutes: Minutes = NO_LIMIT,
    device: Device = "",
) -> None:
    """Example: `ldp-slicing lab verify-faces agedb_30.bin celeba/ --recogniser data/`

    Measure verification accuracy on sets of aligned 112 x 112 faces, in ten folds: on the sources, and on one release
    of each face at every budget. For sets without a list of pairs, pairs are drawn. No code in a .bin file is run.
    """
    try:
        from ldp_slicing.lab.verify_faces_command import verify_sets
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    with interruptible() as received:
        complete, path = verify_sets(
            sets,
            recogniser,
            folder,
            epsilons=epsilon,
            prune=prune.prune,
            public=public,
            count=pairs,
            minutes=minutes,
            device=device,
            say=lambda line: out.print(plain(line)),
            stop_requested=lambda: bool(received),
        )
    if not complete:
        out.print("stopped; run the same command again to resume")
        exit_if_interrupted(received)
    out.print(plain(str(path)))
