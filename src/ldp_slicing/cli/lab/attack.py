from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

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
)
from ldp_slicing.cli.lab.options import (
    NO_LIMIT,
    Data,
    Device,
    Epochs,
    Minutes,
    epoch_progress,
    exit_if_interrupted,
    interruptible,
    missing_extra,
)
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.wording import counted

FEW_STEPS = 1_000  # of training: the result of a network with fewer says little


@refusals_exit
def attack(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="averaging, bayes, black-box, white-box, bit-unet or identity.", show_default=False
        ),
    ],
    images: Annotated[
        str,
        typer.Argument(
            metavar="SET", help="cifar10, cifar100, chest, lfw, or a folder inside --data.", show_default=False
        ),
    ],
    data: Data,
    folder: Annotated[
        Path, typer.Option("--out", help="Output folder for checkpoint, result and contact sheet. Run again to resume.")
    ] = Path("lab-attack"),
    epsilon: Epsilon = 20.0,
    weights: Weights = "4:1:1",
    slices: Slices = None,
    prune: PruneOption = PruneChoice.haar,
    epochs: Epochs = None,
    minutes: Minutes = NO_LIMIT,
    device: Device = "",
) -> None:
    """Example: `ldp-slicing lab attack white-box cifar10 --data data/ --epsilon 5.2`

    Train on the training images of the set, which the adversary has, and reconstruct the test images from one release
    each (averaging: from several). The attack `identity` predicts whether a release and another image show the same
    person or class. Use public data sets that resemble your images: you do not need your own sources to measure what
    such images leak.
    """
    check_slices(context, slices)
    try:
        from ldp_slicing.lab.attack_command import AttackRequest, open_attacked, result_table, run_attack
        from ldp_slicing.lab.learners.training import Limits
        from ldp_slicing.lab.train_command import plan_for_set
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    err.print(f"reading {plain(images)} in {plain(str(data))}")
    chosen = open_attacked(images, data)
    if chosen.release_info is not None:
        raise LdpSlicingError(
            f"{images} holds releases: an attack is measured against sources, so name a set of sources"
        )
    plan = plan_for_set(chosen, epsilon, parse_weights(weights), slices)
    request = AttackRequest(name, chosen, plan, prune.prune, epochs)
    public, tested = (f"{len(split.labels):,}" for split in (chosen.train, chosen.test))
    err.print(f"attack {name}: the adversary has {public} images to train on, and attacks {tested} others")
    with interruptible() as received, epoch_progress("attacking") as (report, _):
        limits = Limits(60 * minutes, stop_requested=lambda: bool(received))
        row = run_attack(request, folder, limits, device=device, report=report)
    if row is None:
        out.print("stopped; run the same command again to resume")
        exit_if_interrupted(received)
        return
    head, lines = result_table(row)
    table = Table(*(Column(words, justify="right" if i else "left") for i, words in enumerate(head)))
    for line in lines:
        table.add_row(*map(plain, line))
    out.print(table)
    if row.training and (steps := row.training.steps):
        out.print(f"trained for {counted(steps, 'step')} on {counted(row.training.images, 'public image')}")
        if steps < FEW_STEPS:
            out.print(
                "[bold red]too few steps to learn much:[/bold red] use more images or --epochs before you rely on this"
            )
    out.print(plain(str(folder / "result.json")))
    if (sheet := folder / "sheet.png").is_file():
        out.print(f"written to {plain(str(sheet))}, for the owner only: it shows sources")
