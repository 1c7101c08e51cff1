from __future__ import annotations

import csv
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import refusals_exit
from ldp_slicing.release.inventory import open_state


@refusals_exit
def names(
    target: Annotated[
        str, typer.Argument(metavar="DST", help="A folder of releases that you made.", show_default=False)
    ],
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FOLDER", help="The run's own folder.", show_default="DST.owner")
    ] = None,
) -> None:
    """`ldp-slicing names releases/ > names.csv`

    Which release was made from which source, as CSV: to join labels to releases, above all where their names are random.

    Of a shard, `member` is the release within the file, and `entry` what its source was called there; of a film, or a scan with frames,
    there is one line.

    It is read from the run's own folder. For the owner: whoever has the table knows the names of the sources.
    """
    with closing(open_state(target, state)) as journal:
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow(("release", "member", "source", "entry"))
        table.writerows(journal.names())
