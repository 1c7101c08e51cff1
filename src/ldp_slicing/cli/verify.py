from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.card import counted
from ldp_slicing.cli.common import Json, err, out, plain, print_json, refusals_exit
from ldp_slicing.errors import ReleaseError
from ldp_slicing.storage import LocalStorage, Storage, is_remote, local_path, remote
from ldp_slicing.verify import verify as check

SHOWN = 20


@refusals_exit
def verify(
    target: Annotated[str, typer.Argument(metavar="DST", help="A folder of releases.", show_default=False)],
    fast: Annotated[
        bool, typer.Option("--fast", help="Compare names and checksums only; do not look into files or at the card.")
    ] = False,
    as_json: Json = False,
) -> None:
    """`ldp-slicing verify releases/`

    Check every release against the manifest, look for anything that is not a release, and recompute the card.

    Needs neither sources nor keys. The exit status is 1 if something is wrong.
    """
    target = local_path(target)
    if not is_remote(target) and not Path(target).is_dir():
        advice = (
            "; to check a single PNG file against its card, use `ldp-slicing audit`" if Path(target).is_file() else ""
        )
        raise ReleaseError(f"{target} is not a folder of releases{advice}")
    place: Storage = remote(target) if is_remote(target) else LocalStorage(Path(target))
    try:
        with err.status("checking") as status:
            checked = itertools.count(1)
            report = check(place, fast=fast, progress=lambda: status.update(f"checking: {next(checked):,} files"))
    except ReleaseError as error:  # no manifest, or a library is missing: the message lacks the folder
        raise ReleaseError(f"{target} {error}") from None
    if as_json:
        problems = [{"file": file, "problem": problem} for file, problem in report.problems]
        compared = "checksums" if fast else "every byte"
        print_json({"compared": compared, "files": report.files, "releases": report.releases, "problems": problems})
    else:
        for file, problem in report.problems[:SHOWN]:
            err.print(f"[bold red]wrong:[/bold red] {plain(file)} {plain(problem)}")
        if len(report.problems) > SHOWN:
            err.print(f"[bold red]wrong:[/bold red] {len(report.problems) - SHOWN:,} more; --json lists them all")
        verdict = (
            f"[bold red]{counted(len(report.problems), 'problem')}[/bold red]"
            if report.problems
            else "checksums match"
            if fast
            else "[green]OK[/green]"
        )
        limits = "; --fast compared checksums only, not what files hold and not the card" if fast else ""
        out.print(f"{counted(report.releases, 'release')}, {counted(report.files, 'file')}: {verdict}{limits}")
    raise typer.Exit(1 if report.problems else 0)
