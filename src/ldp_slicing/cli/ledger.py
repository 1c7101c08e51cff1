from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from ldp_slicing.card import counted, number
from ldp_slicing.cli.common import Json, LedgerOption, out, plain, print_json, refusals_exit
from ldp_slicing.errors import ImageError, LdpSlicingError
from ldp_slicing.files import digest_of, open_regular
from ldp_slicing.formats import KINDS, detect_kind, load_format, read_head
from ldp_slicing.formats.base import Options
from ldp_slicing.formats.single import read_single
from ldp_slicing.ledger import Ledger, Spent
from ldp_slicing.ledger_file import default_ledger
from ldp_slicing.release.digests import digests_of


@refusals_exit
def ledger(
    image: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Show only what was spent on this image or video.", show_default=False),
    ] = None,
    file: LedgerOption = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Number of sources to list, most spent first.")] = 10,
    as_json: Json = False,
) -> None:
    """`ldp-slicing ledger` or `ldp-slicing ledger portrait.jpg`

    Show what was released so far: totals, and the sources on which most was spent; or what was spent on one source.
    `--json` exports every release.

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


def show_one(opened: Ledger, image: Path, *, as_json: bool) -> None:
    spent = spent_on(opened, image)
    if as_json:
        print_json({"source": str(image), **as_dict(spent)})
    elif spent.releases:
        unconfirmed = f" ({spent.unfinished:,} unconfirmed: interrupted run)" if spent.unfinished else ""
        out.print(
            f"{plain(str(image))}: {counted(spent.releases, 'release')}{unconfirmed}, "
            f"epsilon {number(spent.epsilon)} per released pixel, "
            f"{number(spent.source_pixel_epsilon)} per source pixel, last on {_day(spent)}"
        )
    else:
        out.print(f"{plain(str(image))}: not in {plain(str(opened.path))}")


def export(opened: Ledger, most: int) -> None:
    """Print everything as JSON, one release at a time: there may be many millions."""
    head = {
        "ledger": opened.identity,
        "sources": opened.sources(),
        "total": as_dict(opened.total()),
        "plans": opened.plans(),
        "most_spent": [{"source": name, **as_dict(one)} for name, one in opened.most_spent(most)],
    }
    typer.echo(json.dumps(head, indent=2)[:-2] + ',\n  "releases": [', nl=False)
    for position, row in enumerate(opened.rows()):
        typer.echo(f"{',' if position else ''}\n    {json.dumps(row)}", nl=False)
    typer.echo("\n  ]\n}")


def show_all(opened: Ledger, most: int) -> None:
    total, spent = opened.total(), opened.most_spent(most)
    unconfirmed = f", {total.unfinished:,} unconfirmed (interrupted run)" if total.unfinished else ""
    out.print(
        f"{plain(str(opened.path))}: {counted(total.releases, 'release')} of {counted(opened.sources(), 'image')}"
        f"{unconfirmed}"
    )
    columns = (
        Column("source", no_wrap=True),
        "releases",
        "epsilon, released pixel",
        "epsilon, source pixel",
        Column("last", no_wrap=True),
    )
    table = Table(*columns, title="sources on which most was spent", title_justify="left")
    for name, one in spent:
        table.add_row(name, f"{one.releases:,}", number(one.epsilon), number(one.source_pixel_epsilon), _day(one))
    if spent:
        out.print(table)


def spent_on(opened: Ledger, path: Path) -> Spent:
    """Return what was spent on an image, a DICOM file or a video. Other files hold many sources and are refused."""
    try:
        kind = detect_kind(path.name, lambda: read_head(open_regular(path)))
        if kind == "video":
            with open_regular(path) as video:
                frames = load_format(KINDS[kind].reader, KINDS[kind].extra).read(video, Options())
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


def _day(spent: Spent) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(spent.last))


def as_dict(spent: Spent) -> dict[str, float]:
    return {
        "releases": spent.releases,
        "unfinished": spent.unfinished,
        "epsilon_released_pixel": spent.epsilon,
        "epsilon_source_pixel": spent.source_pixel_epsilon,
        "last": spent.last,
    }
