"""The command line: one small file per command, no logic."""

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
    pretty_exceptions_show_locals=False,  # a local could be a source
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
    """`ldp-slicing privatize photos/ releases/ --epsilon 20`

    Turns images, on your own machine, into ordinary images of the same size in which every released pixel is
    epsilon-locally-differentially private, and says exactly what that promises.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file's name must not stop the report that names it
    silence_decoders()


for command, summary in (
    (privatize, "Release an image, or a folder of images."),
    (plan, "Show what a budget buys: slices, flip rates, promises."),
    (show, "Draw what the mechanism does to an image, for its owner."),
    (verify, "Check releases against their manifest and card."),
    (names, "Say which release was made from which source, for their owner."),
    (ledger, "Show what was released so far, and from which sources most."),
    (doctor, "Say which path is in use and check it."),
    (audit, "Check whether the promise holds, here or in a folder of releases."),
):
    app.command(short_help=summary)(command)
app.add_typer(key.app, name="key")
app.add_typer(lab.app, name="lab")
