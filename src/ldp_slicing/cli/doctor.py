from __future__ import annotations

import typer

from ldp_slicing.cli.common import Json, out, plain, print_json
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.ledger import default_ledger
from ldp_slicing.selfcheck import check_installation


def doctor(as_json: Json = False) -> None:
    """`ldp-slicing doctor`

    Show which backend is in use and why, and check that it returns the same bytes as the reference. The exit status
    is 1 if it does not. Show also where the ledger lies.
    """
    findings = check_installation()
    facts = {**findings.facts, "ledger": where_ledger_lies()}
    if as_json:
        print_json({"healthy": findings.healthy, **facts})
    else:
        for name, fact in facts.items():
            out.print(f"[bold]{name:<14}[/bold] {plain(fact)}")
        out.print(
            "[green]OK[/green]" if findings.healthy else "[bold red]FAILED: do not use this installation[/bold red]"
        )
    raise typer.Exit(0 if findings.healthy else 1)


def where_ledger_lies() -> str:
    try:
        path = default_ledger()
    except LdpSlicingError as error:
        return f"none: {error}"
    return str(path) if path.exists() else f"{path} (none yet: the first run creates it)"
