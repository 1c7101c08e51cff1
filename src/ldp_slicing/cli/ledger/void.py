from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from ldp_slicing.cli.common import LedgerOption, out, refusals_exit
from ldp_slicing.ledger import Ledger, default_ledger
from ldp_slicing.release.voiding import void_run
from ldp_slicing.wording import counted


@refusals_exit
def void(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of the run, or its first digits.")],
    because: Annotated[
        str, typer.Option("--because", metavar="TEXT", help="Why nobody can have received its releases.")
    ],
    file: LedgerOption = None,
) -> None:
    """Example: `ldp-slicing ledger void 3f9ac2 --because "wrong folder, deleted at once"`

    Record your word that all releases of a run were destroyed before anybody received them. This is refused while the
    outputs or the key of the run exist, and for a run with an owner's key.

    The entries stay in the ledger. The sources of the run can be released again without `--spend`, and from then on
    cards and `ldp-slicing ledger` state two sums: of all releases, and without the voided ones. The second sum is
    right only if your word is true.
    """
    with closing(Ledger(file or default_ledger(), must_exist=True)) as opened:
        voided, releases = void_run(opened, run, because)
    out.print(f"run {voided.id}: {counted(releases, 'release')} voided; the ledger keeps the record")
