from __future__ import annotations

import json
import time
from typing import Annotated

import typer
from rich.table import Column, Table

from ldp_slicing.card import number
from ldp_slicing.cli.common import Json, LedgerOption, out, plain, refusals_exit
from ldp_slicing.ledger import Ledger, Spent, default_ledger


@refusals_exit
def ledger(
    file: LedgerOption = None,
    most: Annotated[int, typer.Option("--most", min=1, help="How many of the sources with most spent are shown.")] = 10,
    as_json: Json = False,
) -> None:
    """`ldp-slicing ledger`

    Show what was released so far: totals, and the sources with most spent. `--json` exports every release.

    A source is shown by the beginning of a keyed digest of its pixels. Ledger and key together let their holder ask whether a given
    picture was released: keep them as you keep the sources.
    """
    opened = Ledger(file or default_ledger(), must_exist=True)
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
        f"{plain(str(opened.path))}: {total.releases:,} release{'s' * (total.releases != 1)} of {sources:,} source{'s' * (sources != 1)}",
        end="",
    )
    out.print(f", {total.unfinished:,} of them perhaps (their run did not finish)" if total.unfinished else "")
    columns = (Column("source", no_wrap=True), "releases", "epsilon, released pixel", "epsilon, source pixel", Column("last", no_wrap=True))
    table = Table(*columns, title="most spent", title_justify="left")
    for name, one in spent:
        day = time.strftime("%Y-%m-%d", time.localtime(one.last))
        table.add_row(name, f"{one.releases:,}", number(one.epsilon), number(one.source_pixel_epsilon), day)
    if spent:
        out.print(table)


def as_dict(spent: Spent) -> dict[str, float]:
    return {
        "releases": spent.releases,
        "unfinished": spent.unfinished,
        "epsilon_released_pixel": spent.epsilon,
        "epsilon_source_pixel": spent.source_pixel_epsilon,
        "last": spent.last,
    }
