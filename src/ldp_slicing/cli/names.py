from __future__ import annotations

import csv
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import refusals_exit
from ldp_slicing.release.opening import open_state
from ldp_slicing.release.records import output_names
from ldp_slicing.wording import visible


@refusals_exit
def names(
    target: Annotated[str, typer.Argument(metavar="DST", help="A folder of your releases.", show_default=False)],
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="FOLDER", help="The state folder of the run.", show_default="DST.owner"),
    ] = None,
) -> None:
    """Example: `ldp-slicing names releases/ > names.csv`

    List which release was made from which source, as CSV, for example to join labels to releases with random names.

    For files of many images, `member` is the name of the release within its file, and `entry` the name of its source. A
    video, or a DICOM file with frames, has one line.

    On a terminal, control characters in names are shown as escapes; in a file, names are as they are.

    The table is read from the state folder of the run. It is private: it reveals the names of the sources.
    """
    with closing(open_state(target, state)) as opened:
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow(("release", "member", "source", "entry"))
        shown = visible if sys.stdout.isatty() else str  # a file has the names as they are
        table.writerows(map(shown, row) for row in output_names(opened))
