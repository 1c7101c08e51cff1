from __future__ import annotations

import typer

from ldp_slicing.cli.common import Json, out, plain, print_json
from ldp_slicing.selfcheck import checkup


def doctor(as_json: Json = False) -> None:
    """`ldp-slicing doctor`

    Say which path is in use and why, and check that it gives the bytes it must. Exit status 1 if it does not.
    """
    findings = checkup()
    if as_json:
        print_json({"healthy": findings.healthy, **findings.facts})
    else:
        for name, fact in findings.facts.items():
            out.print(f"[bold]{name:<14}[/bold] {plain(fact)}")
        out.print(
            "[green]all well[/green]" if findings.healthy else "[bold red]do not use this installation[/bold red]"
        )
    raise typer.Exit(0 if findings.healthy else 1)
