from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from ldp_slicing.card import counted, number
from ldp_slicing.cli.common import Json, LedgerOption, out, plain, print_json, refusals_exit
from ldp_slicing.errors import ImageError, LdpSlicingError
from ldp_slicing.files import digest_of, open_regular
from ldp_slicing.formats import KINDS, detect_kind, load_format, read_head
from ldp_slicing.formats.base import Entry, Options
from ldp_slicing.formats.single import read_single
from ldp_slicing.keys import source_digest
from ldp_slicing.ledger import Ledger, Spent, default_ledger
from ldp_slicing.plan import COLOUR_BITS


@refusals_exit
def ledger(
    picture: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Only what was spent on this picture or film.", show_default=False),
    ] = None,
    file: LedgerOption = None,
    most: Annotated[int, typer.Option("--most", min=1, help="How many of the sources with most spent are shown.")] = 10,
    as_json: Json = False,
) -> None:
    """`ldp-slicing ledger` or `ldp-slicing ledger photo.jpg`

    Show what was released so far: totals, and the sources with most spent; or what was spent on one. `--json` exports every release.

    A source is shown by the beginning of a keyed digest of its pixels, or of its file if that is a film. Ledger and key together let
    their holder ask whether a given picture was released: keep them as you keep the sources.
    """
    opened = Ledger(file or default_ledger(), must_exist=True)
    if picture is not None:
        one = spent_on(opened, picture)
        if as_json:
            print_json({"source": str(picture), **as_dict(one)})
        elif one.releases:
            perhaps = f" ({one.unfinished:,} of them perhaps: their run did not finish)" if one.unfinished else ""
            added = (
                f"epsilon {number(one.epsilon)} per released pixel, {number(one.source_pixel_epsilon)} per source pixel"
            )
            out.print(
                f"{plain(str(picture))}: {counted(one.releases, 'release')}{perhaps}, {added}, last on {_day(one)}"
            )
        else:
            out.print(f"{plain(str(picture))}: not in {plain(str(opened.path))}")
        return
    total, sources, spent = opened.total(), opened.sources(), opened.most_spent(most)
    if as_json:
        head = {"ledger": opened.identity, "sources": sources, "total": as_dict(total), "plans": opened.plans()}
        head["most_spent"] = [{"source": name, **as_dict(one)} for name, one in spent]
        typer.echo(json.dumps(head, indent=2)[:-2] + ',\n  "releases": [', nl=False)
        for position, row in enumerate(opened.rows()):  # one at a time: there may be many millions
            typer.echo(f"{',' * (position > 0)}\n    {json.dumps(row)}", nl=False)
        typer.echo("\n  ]\n}")
        return
    out.print(
        f"{plain(str(opened.path))}: {total.releases:,} release{'s' * (total.releases != 1)} of {counted(sources, 'picture')}",
        end="",
    )
    out.print(f", {total.unfinished:,} of them perhaps (their run did not finish)" if total.unfinished else "")
    columns = (
        Column("source", no_wrap=True),
        "releases",
        "epsilon, released pixel",
        "epsilon, source pixel",
        Column("last", no_wrap=True),
    )
    table = Table(*columns, title="most spent", title_justify="left")
    for name, one in spent:
        table.add_row(name, f"{one.releases:,}", number(one.epsilon), number(one.source_pixel_epsilon), _day(one))
    if spent:
        out.print(table)


def spent_on(opened: Ledger, picture: Path) -> Spent:
    """On a picture, a scan or a film; a shard holds many sources."""
    try:
        kind = detect_kind(picture.name, lambda: read_head(open_regular(picture)))
        if kind == "video":
            with open_regular(picture) as film:
                frames = load_format(KINDS[kind].reader, KINDS[kind].extra).read(film, Options())
                return opened.spent_on_film(map(_digest, frames), digest_of(open_regular(picture)))
        if kind in ("tar", "parquet", "cifar"):
            raise ImageError("holds many sources: ask for one of its pictures, as a file of its own")
        source = read_single(picture)
        digest = digest_of(open_regular(picture))
    except LdpSlicingError as error:
        raise type(error)(f"{picture}: {error}") from None
    except OSError as error:
        raise ImageError(f"{picture}: {error.strerror or error}") from None
    return opened.spent(_digest(source), digest)


def _digest(source: Entry) -> bytes:
    return source_digest(source.pixels, 8 if source.bits == COLOUR_BITS else source.bits)


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
