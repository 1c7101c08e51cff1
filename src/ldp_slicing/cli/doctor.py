from __future__ import annotations

import os

import typer

from ldp_slicing.cli.common import Json, out, plain, print_json
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.files import check_name_encoding
from ldp_slicing.ledger import default_ledger
from ldp_slicing.ledger.file import ADVICE
from ldp_slicing.selfcheck import check_installation


def doctor(as_json: Json = False) -> None:
    """Example: `ldp-slicing doctor`

    Show which backend is in use and why, and check that it returns the same bytes as the reference. Also show where
    the ledger is. The exit status is 1 if the bytes differ, or if there is no place for the ledger.
    """
    findings = check_installation()
    ledger, has_place = where_ledger_lies()
    facts, healthy = {**findings.facts, "ledger": ledger}, findings.healthy and has_place
    if as_json:
        print_json({"healthy": healthy, **facts})
    else:
        for name, fact in facts.items():
            out.print(f"[bold]{name:<15}[/bold] {plain(fact)}")
        failed = "there is no place for the ledger" if findings.healthy else "do not use this installation"
        out.print("[green]OK[/green]" if healthy else f"[bold red]FAILED: {failed}[/bold red]")
    raise typer.Exit(0 if healthy else 1)


def where_ledger_lies() -> tuple[str, bool]:
    """Return where the ledger lies, in words, and whether there is a place for one."""
    try:
        check_name_encoding()
        path = default_ledger()
    except LdpSlicingError as error:
        return f"none: {error}", False
    nearest = next(place for place in (path, *path.absolute().parents) if os.access(place, os.F_OK))
    if not os.access(nearest, os.W_OK) or nearest.is_dir() == (nearest == path):
        return f"none: {path} cannot be used, because {nearest} cannot be written to: {ADVICE}", False
    return str(path) if nearest == path else f"{path} (none yet: the first run creates it)", True
