from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from ldp_slicing.cli.common import err, out, plain, refusals_exit
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.wording import counted


@refusals_exit
def decode(
    releases: Annotated[
        str,
        typer.Argument(
            metavar="RELEASES",
            help="A folder of releases, a part of it, one file with its card, or a store of `ReleasedDataset`.",
            show_default=False,
        ),
    ],
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder for the guesses.", show_default=False)],
    public: Annotated[
        Path | None,
        typer.Option(
            "--public",
            metavar="FOLDER",
            help="Public images of the same kind: their values are the prior.",
            show_default="estimated from the releases",
        ),
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option(
            "--network",
            metavar="FILE",
            help="A `Reconstructor` that was trained for this plan: it also uses the pixels around each pixel.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Example: `ldp-slicing decode releases/ guesses/`

    Compute the expected pixels before the noise (posterior means) from releases and their card, and write them as
    images to look at. It needs neither sources nor keys, and reveals nothing that the releases do not. The files are
    guesses, not releases: they are called NAME.guess.png, have no card, and `verify` refuses them.
    """
    try:
        from ldp_slicing.opened import open_set
        from ldp_slicing.torch.guesses import write_guesses
        from ldp_slicing.torch.store import is_store, open_store
    except ModuleNotFoundError as error:
        raise LdpSlicingError(f"decode needs {error.name}: pip install 'ldp-slicing[torch]'") from None
    if public is not None and network is not None:
        raise LdpSlicingError("--public and --network exclude each other: leave one out")
    opened = open_store(Path(releases)) if is_store(releases) else open_set(releases)
    with Progress(console=err, disable=not err.is_terminal, transient=True) as progress:
        bar = progress.add_task("decoding", total=len(opened))
        count = write_guesses(
            opened,
            folder,
            public=public,
            network=network,
            progress=lambda done, _: progress.update(bar, completed=done),
        )
    out.print(
        f"{counted(count, 'guess', 'guesses')} in {plain(str(folder))}: the expected pixels before the noise, "
        "given the plan on the card. Guesses are neither releases nor sources. They have no card; do not hand them on "
        "as releases."
    )
    out.print("\n".join(dict.fromkeys(one.risk.sentence for one in opened.card.statements)), markup=False)
    if network is None:
        out.print("A network that was trained for the plan usually recovers more than these guesses show.")
    for prune in sorted({one.prune for one in opened.card.statements if one.prune}):
        out.print(
            f"Pruning before the noise ({prune}) removed brightness and large shapes: what remains is detail around "
            "middle grey."
        )
