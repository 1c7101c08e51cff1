from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any

import typer

from ldp_slicing.cli.common import Json, Strict, err, out, plain, print_json, refusals_exit
from ldp_slicing.cli.exit_status import TABLE, ExitStatus
from ldp_slicing.errors import ReleaseError
from ldp_slicing.storage import LocalStorage, Storage, is_remote, local_path, remote
from ldp_slicing.verify import NOT_CHECKED, VerifyReport, verify_file
from ldp_slicing.verify import verify as check
from ldp_slicing.wording import counted

SHOWN = 20
LITTER = "was left by a file manager, and may hold a source: remove it before you hand the folder on"
EPILOG = TABLE


@refusals_exit
def verify(
    target: Annotated[
        str,
        typer.Argument(metavar="DST", help="A folder of releases, or one file with its card.", show_default=False),
    ],
    fast: Annotated[
        bool, typer.Option("--fast", help="Compare names and checksums only; do not look into files or at the card.")
    ] = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Examples: `ldp-slicing verify releases/`, `ldp-slicing verify release.png`

    Check every release against the manifest, look for anything that is not a release, and recompute the card.

    It needs neither sources nor keys. What releases do not show rests on the owner's word: the plan and its epsilon
    (`audit` notices only large differences), pruning and shrinking before the noise, how often a source was released,
    whose key was used, and whether the run is complete. A file on its own has no manifest, so `verify` cannot check
    whether these are the pixels that were released.
    """
    target = local_path(target)
    folder, _, name = target.rstrip("/").rpartition("/")
    is_single = not (remote(target).is_folder() if is_remote(target) else Path(target).is_dir())
    try:
        with err.status("checking") as status:
            if is_single:
                if fast:
                    raise ReleaseError("has no manifest, so there are no checksums to compare: leave out --fast")
                report = verify_file(remote(folder) if is_remote(target) else LocalStorage(Path(folder or ".")), name)
            else:
                place: Storage = remote(target) if is_remote(target) else LocalStorage(Path(target))
                checked = itertools.count(1)
                report = check(
                    place,
                    fast=fast,
                    strict=strict,
                    progress=lambda: status.update(f"checking: {next(checked):,} files"),
                )
    except ReleaseError as error:  # no manifest, or a library is missing: the message lacks the path
        raise ReleaseError(f"{target} {error}") from None
    if as_json:
        print_json(as_dict(report, is_single=is_single, fast=fast))
    else:
        print_report(report, is_single=is_single, fast=fast, strict=strict)
    if report.problems:
        raise typer.Exit(ExitStatus.FAILED)
    raise typer.Exit(ExitStatus.OK if report.complete else ExitStatus.INCOMPLETE)


def as_dict(report: VerifyReport, *, is_single: bool, fast: bool) -> dict[str, Any]:
    """Return what was found as JSON values."""
    return {
        "compared": "checksums" if fast else "every byte",
        "manifest": not is_single,
        "files": report.files,
        "missing": report.missing,
        "releases": report.releases,
        "complete": None if fast else report.complete,
        "problems": [{"file": file, "problem": problem} for file, problem in report.problems],
        "litter": [{"file": file, "bytes": size} for file, size in report.litter],
        "not_checked": list(NOT_CHECKED),
    }


def print_report(report: VerifyReport, *, is_single: bool, fast: bool, strict: bool) -> None:
    """Print each problem, and what was found in one line."""
    for file, problem in report.problems[:SHOWN]:
        err.print(f"[bold red]wrong:[/bold red] {plain(file)} {plain(problem)}")
    if len(report.problems) > SHOWN:
        err.print(f"[bold red]wrong:[/bold red] {len(report.problems) - SHOWN:,} more; --json lists them all")
    print_litter(report.litter, strict=strict)
    if report.problems:
        verdict = f"[bold red]{counted(len(report.problems), 'problem')}[/bold red]"
    elif fast:
        verdict = "checksums match"
    elif report.complete:
        verdict = "[green]OK[/green]"
    else:
        verdict = "[yellow]intact, not complete[/yellow]: its owner may release more"
    if fast:
        verdict += "; --fast compared checksums only, not what files hold and not the card"
    elif is_single:
        verdict += "; there is no manifest to compare its pixels with"
    files = counted(report.files + report.missing, "file")
    found = f"{report.files:,} of {files}" if report.missing else files
    out.print(f"{counted(report.releases, 'release')}, {found}: {verdict}")


def print_litter(litter: list[tuple[str, int]], *, strict: bool) -> None:
    """Name what file managers left. With --strict these are problems, which were printed."""
    for file, size in () if strict else litter[:SHOWN]:
        err.print(f"[yellow]not a release:[/yellow] {plain(file)} ({size:,} bytes) {LITTER}")
    if not strict and len(litter) > SHOWN:
        err.print(f"[yellow]not a release:[/yellow] {len(litter) - SHOWN:,} more; --json lists them all")
