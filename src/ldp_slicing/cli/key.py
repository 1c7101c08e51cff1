from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import out, plain, refusals_exit
from ldp_slicing.cli.lazy import SETTINGS, Command, CommandGroup
from ldp_slicing.keys import new_key_file
from ldp_slicing.sets import check_outside_sets

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, **SETTINGS)


@app.callback()
def key() -> None:
    """Create an owner's key for `privatize --key`. With it, equal pixels always give equal releases, on any machine."""


@app.command(cls=Command, short_help="Create a key file that only you can read.")
@refusals_exit
def new(file: Annotated[Path, typer.Argument(metavar="FILE", help="New key file.", show_default=False)]) -> None:
    """Example: `ldp-slicing key new my.key`

    Create a 256-bit key from the operating system's random numbers. The key is never printed.

    Under one key, equal sources have equal releases, so use it only for sources whose owners trust each other. Anybody
    who has the key can remove the noise from every release made with it. Without it, no release can be repeated.
    """
    check_outside_sets(file)
    new_key_file(file)
    out.print(f"written to {plain(str(file))} (mode 0600): anybody who has this key can remove the noise")
