from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.card import counted
from ldp_slicing.cli.common import Json, err, out, plain, print_json, refusals_exit
from ldp_slicing.errors import ReleaseError
from ldp_slicing.manifest import verify as check
from ldp_slicing.storage import LocalStorage, Storage, is_remote, local_path, remote

SHOWN = 20


@refusals_exit
def verify(
    target: Annotated[str, typer.Argument(metavar="DST", help="A folder of releases.", show_default=False)],
    as_json: Json = False,
) -> None:
    """`ldp-slicing verify releases/`

    Check every release against the manifest, that nothing else is in or beside them, and that the card's sums are right.

    Needs neither sources nor keys. Exit status 1 if something is wrong.
    """
    target = local_path(target)
    if not is_remote(target) and not Path(target).is_dir():
        alone = "; `ldp-slicing audit` checks a single PNG file against its card" if Path(target).is_file() else ""
        raise ReleaseError(f"{target} is not a folder of releases{alone}")
    place: Storage = remote(target) if is_remote(target) else LocalStorage(Path(target))
    try:
        with err.status("checking") as status:
            seen = itertools.count(1)
            findings = check(place, progress=lambda: status.update(f"checking: {next(seen):,} files"))
    except ReleaseError as error:
        raise ReleaseError(f"{target} {error}") from None  # has no manifest, or needs a library to be looked into
    if as_json:
        problems = [{"file": file, "problem": problem} for file, problem in findings.problems]
        print_json({"files": findings.files, "releases": findings.releases, "problems": problems})
    else:
        for file, problem in findings.problems[:SHOWN]:
            err.print(f"[bold red]wrong:[/bold red] {plain(file)} {plain(problem)}")
        if len(findings.problems) > SHOWN:
            err.print(f"[bold red]wrong:[/bold red] {len(findings.problems) - SHOWN:,} more; --json names them all")
        verdict = (
            "[green]all well[/green]" if not findings.problems else "[bold red]not as they were released[/bold red]"
        )
        out.print(f"{counted(findings.releases, 'release')}, {counted(findings.files, 'file')}: {verdict}")
    raise typer.Exit(1 if findings.problems else 0)
