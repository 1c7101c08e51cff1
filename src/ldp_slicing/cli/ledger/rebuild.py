from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import LedgerOption, out, plain, refusals_exit
from ldp_slicing.ledger import default_ledger
from ldp_slicing.release.rebuild import rebuild as rebuild_ledger
from ldp_slicing.sets import check_outside_sets
from ldp_slicing.wording import counted


@refusals_exit
def rebuild(
    states: Annotated[list[Path], typer.Argument(metavar="STATE", help="State folders of runs, DST.owner.")],
    key: Annotated[
        Path | None,
        typer.Option(
            "--key", metavar="FILE", help="The old key of the ledger.", show_default="the one beside the ledger"
        ),
    ] = None,
    file: LedgerOption = None,
) -> None:
    """Example: `ldp-slicing ledger rebuild releases.owner/ others.owner/`

    Recreate a lost ledger from the state folders of its runs. With the old key of the ledger, the copies of its
    entries in the state folders are used. Without this key, all sources are read again; they must be where they were,
    unchanged. If a release cannot be counted in either way, no ledger is made.

    Runs whose state folders you do not name are not in the new ledger. Runs whose target was a
    single file leave no state folder.
    """
    path = file or default_ledger()
    check_outside_sets(path)
    made = rebuild_ledger(path, states, key)
    read = f", {counted(made.sources_read, 'source file')} read again" if made.sources_read else ""
    out.print(
        f"{plain(str(path))}: {counted(made.releases, 'release')} of {counted(len(states), 'state folder')}{read}; "
        "releases of other runs, and of single files, are not in it"
    )
