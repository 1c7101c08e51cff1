from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import LedgerOption, out, plain, refusals_exit
from ldp_slicing.ledger import Ledger, default_ledger
from ldp_slicing.ledger.merge import merge as merge_ledgers
from ldp_slicing.wording import counted


@refusals_exit
def merge(
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="The ledger to add, with its key beside it.")],
    file: LedgerOption = None,
) -> None:
    """Example: `ldp-slicing ledger merge /media/old/ledger.sqlite`

    Add the entries of another ledger to this one. OTHER is only read. This ledger keeps the key of OTHER, encrypted
    under its own key, and recognises sources under every key. Runs that were begun with OTHER continue with this
    ledger.

    Use only this ledger from then on. If OTHER was used meanwhile, merge it again.
    """
    with closing(Ledger(file or default_ledger(), must_exist=True)) as opened:
        added = merge_ledgers(opened, other)
        total = opened.total().releases
    out.print(f"{plain(str(opened.path))}: {counted(added, 'release')} added, {total:,} in all")
