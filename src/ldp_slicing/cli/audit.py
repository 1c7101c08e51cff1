from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.audit.build import FEWEST, PIXELS, audit_build
from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.audit.selftest import self_test
from ldp_slicing.audit.subject import installed
from ldp_slicing.cli.common import (
    Epsilon,
    Json,
    PruneChoice,
    PruneOption,
    Slices,
    Weights,
    check_slices,
    err,
    out,
    parse_weights,
    print_json,
    refusals_exit,
)
from ldp_slicing.cli.plan import parse_bits
from ldp_slicing.errors import AuditError
from ldp_slicing.files import write_atomically
from ldp_slicing.plan import COLOUR_BITS, plan_for
from ldp_slicing.release.settings import ReleaseSettings

# They say nothing about releases that are there already.
OF_THE_INSTALLATION = ("epsilon", "weights", "slices", "prune", "grey", "pixels", "selftest")


@refusals_exit
def audit(
    context: typer.Context,
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DST]",
            help="A folder of releases, or one release with its card. Without it: this installation.",
            show_default=False,
        ),
    ] = None,
    epsilon: Epsilon = 20.0,
    weights: Weights = "4:1:1",
    slices: Slices = None,
    prune: PruneOption = PruneChoice.haar,
    grey: Annotated[
        int | None,
        typer.Option(
            "--grey",
            parser=parse_bits,
            metavar="BITS",
            help="The plan of grey images of 8 to 16 bits.",
            show_default=False,
        ),
    ] = None,
    pixels: Annotated[
        int, typer.Option("--pixels", min=FEWEST, help="How many to measure on each path. More see smaller faults.")
    ] = PIXELS,
    selftest: Annotated[
        bool, typer.Option("--self-test", help="Plant every known fault and see whether the audit rejects it.")
    ] = False,
    report_path: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Also write the JSON report to this new file.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """`ldp-slicing audit` or `ldp-slicing audit releases/`

    Check whether the promise holds. Exit status 1 if it does not.

    Without DST: the tables of the plan, exactly, and every path of this installation, by measurement. With DST: the card, the files and
    what releases alone can tell. The chance of a false alarm is stated.
    """
    if report_path is not None and os.path.lexists(report_path):
        raise AuditError(f"{report_path} exists already: nothing is overwritten")
    given = [
        name
        for name in OF_THE_INSTALLATION
        if (origin := context.get_parameter_source(name)) and origin.name == "COMMANDLINE"
    ]
    if target is not None and given:
        raise AuditError(
            f"{target} is audited by its own card: leave out --{given[0].replace('selftest', 'self-test')}"
        )
    if selftest and (grey is not None or "pixels" in given):
        raise AuditError("the self-test has pictures and sizes of its own: leave out --grey and --pixels")
    check_slices(context, slices)
    recipe = ReleaseSettings(epsilon, parse_weights(weights), prune.prune, slices=slices)
    with err.status("auditing") as status:
        if target is not None:
            report = audit_releases(target)
        elif selftest:
            report = self_test(recipe, say=lambda what: status.update(f"planting: {what}"))
        else:
            plan = plan_for(COLOUR_BITS if grey is None else grey, epsilon, recipe.weights, slices)
            report = audit_build(
                installed(plan, recipe.prune), pixels=pixels, say=lambda what: status.update(f"auditing: {what}")
            )
    if report_path is not None:
        try:
            write_atomically(report_path, [report.to_json().encode() + b"\n"])
        except OSError as error:
            raise AuditError(f"{report_path} cannot be written: {error.strerror}") from None
    if as_json:
        print_json(report.to_dict())
    else:
        out.print(str(report), markup=False)
        out.print()
        out.print(f"[green]{report.verdict}[/green]" if report.holds else f"[bold red]{report.verdict}[/bold red]")
    raise typer.Exit(0 if report.holds else 1)
