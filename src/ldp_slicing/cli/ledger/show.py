from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from ldp_slicing.cli.common import Json, LedgerOption, out, plain, print_json, refusals_exit
from ldp_slicing.errors import ImageError, LdpSlicingError
from ldp_slicing.files import digest_of, open_regular
from ldp_slicing.formats import KINDS, load_format
from ldp_slicing.formats.base import Options
from ldp_slicing.formats.single import read_single
from ldp_slicing.ledger import Ledger, RunRecord, Spent, default_ledger
from ldp_slicing.release.ledger_client import digests_of
from ldp_slicing.release.sources import source_kind
from ldp_slicing.storage import LocalStorage
from ldp_slicing.wording import counted, number


@refusals_exit
def show(
    image: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Show only what was spent on this image or video.", show_default=False),
    ] = None,
    file: LedgerOption = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Number of sources to list, most spent first.")] = 10,
    as_json: Json = False,
) -> None:
    """Examples: `ldp-slicing ledger`, `ldp-slicing ledger portrait.jpg`

    Show what was released so far: totals, and the sources on which most was spent; or what was spent on one source.
    `--json` exports every release.

    Runs are listed with their ids. Where a run was voided, both sums are shown: of all releases, and of those that are
    not voided.

    The table identifies a source by the first digits of a keyed digest of its pixels or, for a video, of its file.
    Anyone who has both the ledger and its key can test whether a given image was released: keep them as private as the
    sources.
    """
    with closing(Ledger(file or default_ledger(), must_exist=True)) as opened:
        if image is not None:
            show_one(opened, image, as_json=as_json)
        elif as_json:
            export(opened, most)
        else:
            show_all(opened, most)
        if not as_json and opened.rebuilt is not None:
            out.print(
                f"This ledger was rebuilt on {_day(opened.rebuilt)}. Runs whose state folders were not named then, and "
                "runs of single files, are missing."
            )


def show_one(opened: Ledger, image: Path, *, as_json: bool) -> None:
    spent = spent_on(opened, image)
    if as_json:
        print_json({"source": str(image), "rebuilt": opened.rebuilt, **as_dict(spent)})
    elif spent.releases:
        unconfirmed = f" ({spent.unfinished:,} unconfirmed: interrupted run)" if spent.unfinished else ""
        out.print(
            f"{plain(str(image))}: {counted(spent.releases, 'release')}{unconfirmed}, "
            f"epsilon {number(spent.epsilon)} per released pixel, "
            f"{number(spent.source_pixel_epsilon)} per source pixel, last on {_day(spent.last)}"
        )
        if kept := spent.unvoided:
            out.print(
                f"without {counted(spent.voided, 'voided release')}: {counted(kept.releases, 'release')}, "
                f"epsilon {number(kept.epsilon)} per released pixel, "
                f"{number(kept.source_pixel_epsilon)} per source pixel"
            )
    else:
        out.print(f"{plain(str(image))}: not in {plain(str(opened.path))}")


def export(opened: Ledger, most: int) -> None:
    """Print everything as JSON, one release at a time: there may be many millions."""
    head = {
        "ledger": opened.identity,
        "path": str(opened.path.absolute()),
        "rebuilt": opened.rebuilt,
        "has_merged": opened.has_merged,  # then a source may be listed and counted once for each ledger
        "sources": opened.sources(),
        "total": as_dict(opened.total()),
        "plans": opened.plans(),
        "runs": [
            {"run": run.id, "stream": run.stream.hex(), "owners_key": run.is_owners, "releases": run.releases}
            | {"began": run.began, "target": run.target, "state": run.state}
            | {"voided": run.voided, "because": run.because}
            for run in opened.runs()
        ],
        "most_spent": [{"source": name, **as_dict(one)} for name, one in opened.most_spent(most)],
    }
    typer.echo(json.dumps(head, indent=2)[:-2] + ',\n  "releases": [', nl=False)
    for position, row in enumerate(opened.rows()):
        typer.echo(f"{',' if position else ''}\n    {json.dumps(row)}", nl=False)
    typer.echo("\n  ]\n}")


def show_all(opened: Ledger, most: int) -> None:
    total, spent = opened.total(), opened.most_spent(most)
    unconfirmed = f", {total.unfinished:,} unconfirmed (interrupted run)" if total.unfinished else ""
    voided = f", {total.voided:,} voided" if total.voided else ""
    out.print(
        f"{plain(str(opened.path))}: {counted(total.releases, 'release')} of {counted(opened.sources(), 'source')}"
        f"{unconfirmed}{voided}"
    )
    if not total.releases:
        return
    columns: list[Column | str] = [
        Column("source", no_wrap=True),
        "releases",
        "epsilon, released pixel",
        "epsilon, source pixel",
        Column("last", no_wrap=True),
    ]
    table = Table(*columns, title="sources on which most was spent", title_justify="left")
    for name, one in spent:
        epsilon, source, releases = number(one.epsilon), number(one.source_pixel_epsilon), f"{one.releases:,}"
        if kept := one.unvoided:
            epsilon += f" ({number(kept.epsilon)} not voided)"
            source += f" ({number(kept.source_pixel_epsilon)} not voided)"
            releases += f" ({one.voided:,} voided)"
        table.add_row(name, releases, epsilon, source, _day(one.last))
    out.print(table)
    if opened.has_merged:
        out.print(
            "A source that is also in a merged ledger may be listed and counted separately for each ledger: "
            "`ldp-slicing ledger FILE` states the sum."
        )
    show_runs([run for run in opened.runs() if run.releases][:most])  # others released nothing


def show_runs(runs: list[RunRecord]) -> None:
    """Print a line for each run. Paths are not wrapped, so that they can be copied."""
    out.print("latest runs")
    for run in runs:
        where = "an owner's key" if run.is_owners else run.target
        voided = "" if run.voided is None else f", voided on {_day(run.voided)}: {run.because}"
        out.print(f"{run.id}  {_day(run.began)}  {counted(run.releases, 'release')}  {plain(where + voided)}")


def spent_on(opened: Ledger, path: Path) -> Spent:
    """Return what was spent on an image, an animation, a DICOM file or a video. Other files hold many sources."""
    if not path.exists():
        raise ImageError(f"{path} does not exist")
    if path.is_dir():
        raise ImageError(f"{path} is a folder: name one image, DICOM file or video in it")
    try:
        kind = source_kind(LocalStorage(path.parent), path.name, frames=True)
        if kind in ("video", "animation"):
            with open_regular(path) as file:
                frames = load_format(KINDS[kind].reader, KINDS[kind].extra).read(file, Options())
                return opened.spent_on_frames(map(digests_of, frames), digest_of(open_regular(path)))
        if kind in ("tar", "parquet", "cifar"):
            raise ImageError("holds many sources: ask about one of its images, as a file of its own")
        source = read_single(path)
        digest = digest_of(open_regular(path))
    except LdpSlicingError as error:
        raise type(error)(f"{path}: {error}") from None
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror or error}") from None
    return opened.spent_on_frames([digests_of(source)], digest)


def _day(moment: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment))


def as_dict(spent: Spent) -> dict[str, Any]:
    """Return the sums as JSON values; those without voided releases only if there are any."""
    unvoided = {} if spent.unvoided is None else {"not_voided": as_dict(spent.unvoided)}
    return {
        "releases": spent.releases,
        "unfinished": spent.unfinished,
        "epsilon_released_pixel": spent.epsilon,
        "epsilon_source_pixel": spent.source_pixel_epsilon,
        "last": spent.last,
    } | unvoided
