"""The commands of the ledger. Without the name of one, ``show`` is meant."""

from __future__ import annotations

from typing import Any

import typer

from ldp_slicing.cli.lazy import SETTINGS, lazy_group

COMMANDS = {
    "show": "Show what was released so far, or what was spent on one source.",
    "void": "Record that the releases of a run were destroyed before anybody received them.",
    "merge": "Add the entries of another ledger to this one.",
    "rebuild": "Recreate a lost ledger from the state folders of its runs.",
}


class LedgerGroup(lazy_group(__name__, COMMANDS)):  # type: ignore[misc]
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        is_named = bool(args) and (args[0] in COMMANDS or args[0] in ctx.help_option_names)
        return list(super().parse_args(ctx, args if is_named else ["show", *args]))


app = typer.Typer(cls=LedgerGroup, **SETTINGS)


@app.callback()
def ledger() -> None:
    """Examples: `ldp-slicing ledger`, `ldp-slicing ledger portrait.jpg`

    Show what was released so far, or what was spent on one source; void a run; merge two ledgers; rebuild a lost one.

    The ledger is the file that `--ledger` names, or that the variable LDP_SLICING_LEDGER names, or `ledger.sqlite` in
    your data folder.
    """
