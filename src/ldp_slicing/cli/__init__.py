"""The command line. One small file per command; the logic is elsewhere."""

from __future__ import annotations

import io
import sys

import typer

from ldp_slicing.cli import key, lab
from ldp_slicing.cli.audit import audit
from ldp_slicing.cli.doctor import doctor
from ldp_slicing.cli.ledger import ledger
from ldp_slicing.cli.names import names
from ldp_slicing.cli.plan import plan
from ldp_slicing.cli.privatize import privatize
from ldp_slicing.cli.show import show
from ldp_slicing.cli.verify import verify
from ldp_slicing.release.pool import silence_decoders
from ldp_slicing.version import __version__

app = typer.Typer(
    name="ldp-slicing",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,  # a local variable could be a source
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    """`ldp-slicing privatize images/ releases/ --epsilon 20`

    Turn images, on your own machine, into ordinary images of the same size in which every released pixel is
    epsilon-locally-differentially private. A card beside them states exactly what that promises.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no file name may stop the report that contains it
    silence_decoders()


for command, summary in (
    (privatize, "Release an image, or a folder of images."),
    (plan, "Show the slices, flip rates and promises of a plan."),
    (show, "Draw the views, bit-planes and releases of an image, for its owner."),
    (verify, "Check releases against their manifest and card."),
    (names, "List which release was made from which source, for their owner."),
    (ledger, "Show what was released so far, and the sources with most releases."),
    (doctor, "Show which backend is in use, and check it."),
    (audit, "Test the privacy promise of this installation or of a folder of releases."),
):
    app.command(short_help=summary)(command)
app.add_typer(key.app, name="key")
app.add_typer(lab.app, name="lab")
