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
    refusals_exit,
)
from ldp_slicing.cli.lab.options import (
    NO_LIMIT,
    Compile,
    Data,
    Device,
    Epochs,
    LogChoice,
    LogOption,
    Minutes,
    ModeChoice,
    ReleaseChoice,
    ReleaseOption,
    RunFolder,
    Seed,
    SetName,
    from_command_line,
    missing_extra,
)
from ldp_slicing.cli.lab.training import print_spent, train_with_progress
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.learners.recipes import recipes_for
from ldp_slicing.wording import counted

RELEASE_OPTIONS = ("epsilon", "weights", "slices", "prune", "release")


@refusals_exit
def train(
    context: typer.Context,
    name: SetName,
    data: Data,
    folder: RunFolder = Path("lab-run"),
    epsilon: Epsilon = 20.0,
    weights: Weights = "4:1:1",
    slices: Slices = None,
    prune: PruneOption = PruneChoice.haar,
    release: ReleaseOption = ReleaseChoice.once,
    mode: Annotated[
        ModeChoice,
        typer.Option(
            "--mode",
            help="How to process the releases before training. This costs no privacy. raw: not at all. decoded: "
            "expected values, given the plan. reconstructed: the same, computed by a network trained on the releases. "
            "reconstructed-public: the same, by a network trained on public images (see --public). All but raw need "
            "--release once.",
        ),
    ] = ModeChoice.decoded,
    public: Annotated[
        str | None,
        typer.Option("--public", help="A set in the data folder that needs no protection, for reconstructed-public."),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            "--recipe",
            help=f"How to train: {', '.join(recipes_for('classes'))}.",
            show_default="small-set for up to 5,000 training images, medium-set for up to 25,000; for more "
            "cifar-decoded, cifar-reconstructed or cifar-once, by mode; chest-small for grey images",
        ),
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="resnet56, resnet9, resnet9-narrow, wrn28, resnet50-grey or five-blocks-grey.",
            show_default="the recipe's",
        ),
    ] = "",
    epochs: Epochs = None,
    learning_rate: Annotated[
        float | None,
        typer.Option("--lr", min=0, help="Largest learning rate of the schedule.", show_default="the recipe's"),
    ] = None,
    validation: Annotated[
        float, typer.Option("--validation", help="Share of the training images held out to choose the epoch.")
    ] = 0.1,
    seed: Seed = 0,
    log: LogOption = LogChoice.csv,
    compiled: Compile = False,
    minutes: Minutes = NO_LIMIT,
    device: Device = "",
) -> None:
    """Example: `ldp-slicing lab train cifar10 --data data/ --epsilon 20`

    Train a classifier on releases and measure its test accuracy on releases. Held-out training images choose the epoch;
    the test set is used once, at the end. If the set holds sources, they are released first. If it was written by
    `ldp-slicing privatize` and has its card, the releases are used as they are.
    """
    check_slices(context, slices)
    if (public is None) == (mode is ModeChoice.reconstructed_public):
        raise LdpSlicingError(
            f"--mode reconstructed-public needs --public SET, and no other mode takes it; got --mode {mode.value}"
        )
    try:
        from ldp_slicing.lab.train_command import make_task, open_set
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    images = open_set(name, data)
    if images.release_info is not None:
        for option in RELEASE_OPTIONS:
            if from_command_line(context, option):
                raise LdpSlicingError(f"{name} holds releases, and their card states the plan: leave out --{option}")
    elif mode is not ModeChoice.raw and release is not ReleaseChoice.once and from_command_line(context, "mode"):
        raise LdpSlicingError(f"--mode {mode.value} needs --release once; got --release {release.value}")
    task = make_task(
        images,
        epsilon=epsilon,
        weights=parse_weights(weights),
        slices=slices,
        prune=prune.prune,
        release=release.value,
        mode=mode.value,
        public=open_set(public, data) if public else None,
        recipe_name=recipe,
        model=model,
        epochs=epochs,
        learning_rate=learning_rate,
        validation=validation,
        seed=seed,
    )
    row = train_with_progress(task, folder, minutes, compiled=compiled, device=device, log=log.value)
    if row is not None and row.training is not None:
        training = row.training
        last = training.epochs - 1 if training.chosen_epoch is None else training.chosen_epoch
        chosen = f"after {last + 1} of {counted(training.epochs, 'epoch')}"
        held_out = f"chosen on {training.held_out} held-out images"
        out.print(f"test accuracy {100 * row.metrics['test_accuracy']:.2f} % ({chosen}, {held_out})")
        print_spent(row, folder, task)
