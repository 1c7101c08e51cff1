from __future__ import annotations

import typer

from ldp_slicing.cli.common import Json, out, plain, print_json
from ldp_slicing.selfcheck import check_installation


def doctor(as_json: Json = False) -> None:
    """`ldp-slicing doctor`

    Show which backend is in use and why, and check that it returns the same bytes as the reference. The exit status
    is 1 if it does not.
    """
    findings = check_installation()
    if as_json:
        print_json({"healthy": findings.healthy, **findings.facts})
    else:
        for name, fact in findings.facts.items():
            out.print(f"[bold]{name:<14}[/bold] {plain(fact)}")
        out.print(
            "[green]OK[/green]" if findings.healthy else "[bold red]FAILED: do not use this installation[/bold red]"
        )
    raise typer.Exit(0 if findings.healthy else 1)
