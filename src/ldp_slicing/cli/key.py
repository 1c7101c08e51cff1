from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import out, plain, refusals_exit
from ldp_slicing.keys import new_key_file

app = typer.Typer(no_args_is_help=True, help="An owner's own key, for `privatize --key`.")


@app.callback()
def key() -> None:
    """An owner's own key, for `privatize --key`: the same pixels always give the same release, on any machine."""


@app.command(short_help="Make a key, readable by you only.")
@refusals_exit
def new(file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.", show_default=False)]) -> None:
    """`ldp-slicing key new my.key`

    Make a 256-bit key with the operating system's randomness. It is never printed.

    Under one key equal sources have equal releases, so use it only for sources whose owners trust each other. Whoever has the key can
    remove the noise from every release made with it; without it no release can be made again.
    """
    new_key_file(file)
    out.print(f"{plain(str(file))} (mode 0600; whoever has it can remove the noise)")
