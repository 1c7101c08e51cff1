from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from ldp_slicing.card import Card, Statement, number
from ldp_slicing.cli.common import (
    Epsilon,
    Json,
    PruneChoice,
    PruneOption,
    Slices,
    Weights,
    check_slices,
    out,
    parse_weights,
    print_json,
    refusals_exit,
)
from ldp_slicing.errors import PlanError
from ldp_slicing.plan import COLOUR_BITS, plan_for
from ldp_slicing.view import pruning


@refusals_exit
def plan(
    context: typer.Context,
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
            help="Plan for grey images of this many bits, 8 to 16, instead of colour.",
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        str, typer.Option("--size", help="Width x height of the image that the promise is about.")
    ] = "112x112",
    as_json: Json = False,
) -> None:
    """`ldp-slicing plan --epsilon 20`

    Show each slice of a plan with its epsilon and how often the noise changes it, and the promise for a slice, a
    released pixel, a source pixel and a whole image. Nothing is released.
    """
    check_slices(context, slices)
    if grey is not None and (origin := context.get_parameter_source("weights")) and origin.name == "COMMANDLINE":
        raise PlanError("--weights applies to colour images only: leave it out with --grey")
    chosen = plan_for(COLOUR_BITS if grey is None else grey, epsilon, parse_weights(weights), slices)
    statement = Statement.of(chosen, prune.prune, "rgb", (parse_size(size),))
    probabilities = [float(chosen.tables.change_probability(part.bits)) for part in chosen.slices]
    if as_json:
        content = Card((statement,)).to_dict()
        for row, probability in zip(content["statements"][0]["plan"]["slices"], probabilities, strict=True):
            row["change_probability"] = probability
        print_json(content)
        return
    table = Table(
        "slice",
        "bits",
        "epsilon",
        "changed",
        title=f"plan: epsilon {epsilon:g} requested, {chosen.realised_epsilon:.9g} realised",
        title_justify="left",
    )
    for part, probability in zip(chosen.slices, probabilities, strict=True):
        table.add_row(chosen.slice_name(part), f"0x{part.bits:06x}", f"{part.epsilon:.4f}", f"{probability:.4%}")
    levels = Table(
        "unit",
        "epsilon",
        "advantage over guessing, at most",
        "why",
        title=f"the promise, {size}, pruning: {pruning(prune.prune)}",
        title_justify="left",
    )
    for level in statement.levels:
        levels.add_row(
            level.unit,
            number(level.epsilon),
            f"{level.printed_bound} (vacuous)" if level.is_vacuous else level.printed_bound,
            level.why,
        )
    out.print(table)
    out.print(levels)
    if chosen.remark:
        out.print(f"This plan {chosen.remark}.")


def parse_bits(text: str) -> int:
    """Return the number of bits of a grey pixel, or report it as invalid."""
    if text.isdecimal() and 8 <= int(text) <= 16:
        return int(text)
    raise typer.BadParameter(f"expected a number of bits from 8 to 16; got {text!r}")


def parse_size(text: str) -> tuple[int, int]:
    """Return width and height, or report them as invalid."""
    try:
        width, height = (int(part) for part in text.lower().split("x"))
    except ValueError:
        raise typer.BadParameter(f"expected width x height, such as 112x112; got {text!r}") from None
    return width, height
