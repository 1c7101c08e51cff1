from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.audit.backends import this_installation
from ldp_slicing.audit.installation import MIN_PIXELS, PIXELS, audit_installation
from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.audit.report import UNDECIDED
from ldp_slicing.audit.selftest import self_test
from ldp_slicing.cli.common import (
    Epsilon,
    Json,
    PruneChoice,
    PruneOption,
    Slices,
    Strict,
    Weights,
    check_kind,
    check_new_file,
    check_slices,
    err,
    out,
    parse_weights,
    print_json,
    refusals_exit,
)
from ldp_slicing.cli.exit_status import TABLE
from ldp_slicing.cli.plan import parse_bits
from ldp_slicing.errors import AuditError
from ldp_slicing.files import write_atomically
from ldp_slicing.plan import COLOUR_BITS, plan_for

# Options that describe this installation. Releases are audited by their own card.
INSTALLATION_OPTIONS = ("epsilon", "weights", "slices", "prune", "grey", "pixels", "selftest")

STYLES = {0: "green", 1: "bold red", UNDECIDED: "yellow"}  # by exit status


EPILOG = TABLE


@refusals_exit
def audit(
    context: typer.Context,
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="DST",
            help="A folder of releases, or one file with its card. Without it, this installation is audited.",
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
            help="Audit the plan for grey images of 1 to 16 bits.",
            show_default=False,
        ),
    ] = None,
    pixels: Annotated[
        int,
        typer.Option(
            "--pixels", min=MIN_PIXELS, help="Pixels to measure on each backend. More pixels reveal smaller faults."
        ),
    ] = PIXELS,
    selftest: Annotated[
        bool, typer.Option("--self-test", help="Plant every known fault and check that the audit rejects it.")
    ] = False,
    report_path: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Also write the JSON report to this new file.", show_default=False
        ),
    ] = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Examples: `ldp-slicing audit`, `ldp-slicing audit releases/`

    Look for evidence against the promise.

    Without DST, check this installation: the tables of the plan exactly, and every backend by measurement. With DST,
    check releases: their card, their files, and whether their pixels show missing or repeated noise. The report states
    the probability of a false alarm and, with DST, what would have been detected.

    The exit status is 0 if every check passes, 1 if one fails, 2 if the command refuses to run, and 3 if every check of
    DST passes but an unprotected image might pass, too.
    """
    if report_path is not None:
        check_new_file(report_path)
    given = [
        name
        for name in INSTALLATION_OPTIONS
        if (origin := context.get_parameter_source(name)) and origin.name == "COMMANDLINE"
    ]
    if target is not None and given:
        option = given[0].replace("selftest", "self-test")
        raise AuditError(f"{target} is audited against its own card: leave out --{option}")
    if selftest and (grey is not None or "pixels" in given):
        raise AuditError("the self-test has its own images and sizes: leave out --grey and --pixels")
    check_slices(context, slices)
    with err.status("auditing") as status:
        if target is not None:
            report = audit_releases(target, strict=strict, progress=lambda which: status.update(f"auditing: {which}"))
        else:
            check_kind(slices, grey)
            plan = plan_for(COLOUR_BITS if grey is None else grey, epsilon, parse_weights(weights), slices)
            if selftest:
                report = self_test(plan, prune.prune, progress=lambda name: status.update(f"planting: {name}"))
            else:
                installation = this_installation(plan, prune.prune)
                report = audit_installation(
                    installation, pixels=pixels, progress=lambda name: status.update(f"auditing: {name}")
                )
    if report_path is not None:
        write_atomically(report_path, [report.to_json().encode() + b"\n"])
    if as_json:
        print_json(report.to_dict())
    else:
        out.print(str(report), markup=False)
        out.print()
        out.print(report.verdict, style=STYLES[report.exit_status], markup=False)
    raise typer.Exit(report.exit_status)
