"""The command line: one small file per command, no logic."""

from __future__ import annotations

import typer

from ldp_slicing.cli.lazy import SETTINGS, lazy_group
from ldp_slicing.version import __version__

COMMANDS = {
    "privatize": "Release an image, or a folder of images.",
    "plan": "Show the slices, flip rates and promises of a plan.",
    "show": "Draw the views, bit-planes and releases of an image, for its owner.",
    "verify": "Check releases against their manifest and card.",
    "decode": "Write best guesses of what releases show, to look at. Needs the extra `torch`.",
    "names": "List which release was made from which source, for their owner.",
    "ledger": "Show what was released so far, and on which sources most was spent.",
    "doctor": "Show which backend is in use, and check it.",
    "audit": "Test the privacy promise of this installation or of a folder of releases.",
    "key": "Create an owner's key for `privatize --key`.",
    "studio": "Privatise images in a browser, on this machine. Needs the extra `studio`.",
    "advise": "Measure on your own images which setting to choose. Needs the extra `lab`.",
    "lab": "Train on releases, attack them and measure the results. Needs the extra `lab`.",
}

app = typer.Typer(name="ldp-slicing", no_args_is_help=True, cls=lazy_group(__name__, COMMANDS), **SETTINGS)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ldp-slicing {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Example: `ldp-slicing privatize images/ releases/ --epsilon 2.4 --max-side 112`

    Add noise to images on your own machine. The results are ordinary images, of the same size unless you shrink them,
    in which every released pixel is locally differentially private at a budget epsilon that you choose. A card beside
    them states exactly what that promises.

    This is not anonymisation: networks recognise people in releases. `ldp-slicing plan --presets` lists what attackers
    got.
    """
    from ldp_slicing.images import silence_decoders

    silence_decoders()
