from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import err, out, refusals_exit
from ldp_slicing.cli.lab.options import NO_LIMIT, Data, Device, missing_extra

TESTED = 256  # images whose reconstructed versions are compared with their sources
REPORTED = 500  # steps between two lines


@refusals_exit
def page_network(
    images: Annotated[
        str,
        typer.Argument(
            metavar="SET", help="cifar10, cifar100, or a folder of images inside --data.", show_default=False
        ),
    ],
    data: Data,
    file: Annotated[Path, typer.Option("--out", help="The file to write.")] = Path("page-network.bin"),
    steps: Annotated[int, typer.Option("--steps", min=1, help="Number of training steps.")] = 30_000,
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Pixels per step, as a number of images of 112 x 112 pixels.")
    ] = 64,
    minutes: Annotated[
        float,
        typer.Option(
            "--minutes",
            min=0.001,
            help="End the training after this time. The learning rate falls to 0 by then, so the network is finished.",
            show_default="no limit",
        ),
    ] = NO_LIMIT,
    licence: Annotated[str, typer.Option("--licence", help="The licence of the weights.")] = "Apache-2.0",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the training.")] = 0,
    device: Device = "",
) -> None:
    """Example: `ldp-slicing lab page-network cifar100 --data data/`

    Train the network with which `ldp-slicing studio` shows what an attacker sees, and write it to a file of 2 MB, which
    the page can open. It learns to reconstruct images like those in SET from one release each, for several plans and
    prunings. Do not publish a network that was trained on images whose licence does not allow it.
    """
    try:
        from ldp_slicing.lab import page_network as lab
        from ldp_slicing.lab.learners.training import find_device
        from ldp_slicing.lab.run_folder import check_writable
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    check_writable(file.parent)
    place = find_device(device)
    sources, tested = lab.load_sources(images, data)

    taken = 0

    def report(step: int, loss: float) -> None:
        nonlocal taken
        taken = step
        if step in (1, steps) or step % REPORTED == 0:
            err.print(f"step {step:,} of {steps:,}: loss {loss:.4f}")

    how = lab.NetworkTraining(steps, place, batch, 60 * minutes, seed, report=report)
    network = lab.train_network(sources, how)
    side = int(sources.shape[2])
    about = f"trained on {len(sources):,} images of {images}, {side} x {side} pixels, for {taken:,} steps"
    digest = lab.export_network(network, file, name=images, about=about, licence=licence, side=side)
    out.print(f"SSIM of {min(TESTED, len(tested))} reconstructed test images, pruning: haar")
    for plan, score in lab.scores(network, tested[:TESTED].to(place), "haar"):
        slices = "paper's plan" if len(plan.slices) == 24 else plan.slice_name(plan.slices[0])
        out.print(f"  eps {plan.epsilon:<4g}  {score:.3f}  {slices}")
    out.print(f"{file}: {file.stat().st_size:,} bytes, SHA-256 {digest}")
    out.print("open it in the attack view of `ldp-slicing studio`")
