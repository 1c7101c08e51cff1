from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from ldp_slicing.cli.budget import Budget, PresetOption, as_said, choose_budget, describe_presets
from ldp_slicing.cli.common import (
    Json,
    PruneChoice,
    PruneOption,
    Slices,
    Weights,
    check_kind,
    err,
    is_default,
    out,
    plain,
    print_json,
    refusals_exit,
)
from ldp_slicing.cli.shrinking import Fit, Lowered, MaxSide, Pad, choose_size, parse_size
from ldp_slicing.errors import PlanError
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.presets import Preset, presets, unlike_measured
from ldp_slicing.slicer import Slicer
from ldp_slicing.view import pruning
from ldp_slicing.wording import number


@refusals_exit
def plan(
    context: typer.Context,
    epsilon: Budget = None,
    preset: PresetOption = None,
    weights: Weights = "4:1:1",
    slices: Slices = None,
    prune: PruneOption = PruneChoice.haar,
    grey: Annotated[
        int | None,
        typer.Option(
            "--grey",
            parser=parse_bits,
            metavar="BITS",
            help="Plan for grey images of this many bits, 1 to 16.",
            show_default="colour, or the kind of image for which the preset was measured",
        ),
    ] = None,
    size: Annotated[
        str,
        typer.Option(
            "--size",
            metavar="WxH",
            help="Width and height of the source that the promise is about.",
            show_default="112x112, or the size to which the preset shrinks",
        ),
    ] = "112x112",
    max_side: MaxSide = None,
    fit: Fit = None,
    pad: Pad = False,
    list_presets: Annotated[
        bool, typer.Option("--presets", help="List the presets and what an attacker got at each of them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Examples: `ldp-slicing plan --epsilon 5.2`, `ldp-slicing plan --presets`

    Show each slice of a plan with its epsilon and how often the noise changes it, and the promise for a slice, a
    released pixel, a source pixel and a whole image; then what an attacker got at the nearest measured setting. Nothing
    is released.
    """
    if list_presets:
        if as_json:
            print_json({"presets": [one.to_dict() for one in presets()]})
        else:
            out.print(describe_presets(), markup=False)
        return
    if grey is not None and not is_default(context, "weights"):
        raise PlanError("--weights applies to colour images only: leave it out with --grey")
    setting = choose_budget(context, preset, epsilon, weights, slices, prune.prune, choose_size(max_side, fit, pad))
    grey, size = _as_measured(context, setting, grey, size)
    check_kind(setting.slices, grey)
    chosen = setting.plan(COLOUR_BITS if grey is None else grey)
    if unlike := unlike_measured(setting.measured_bits, chosen.word_bits):
        err.print(f"[yellow]notice:[/yellow] an image for this plan {unlike}")
    width, height = parse_size(size, "--size")
    slicer = Slicer(chosen, prune=setting.prune, size=setting.size)
    card = slicer.card(width, height)
    (statement,) = card.statements
    probabilities = [float(chosen.tables.change_probability(part.bits)) for part in chosen.slices]
    if as_json:
        content = card.to_dict()
        for row, probability in zip(content["statements"][0]["plan"]["slices"], probabilities, strict=True):
            row["change_probability"] = probability
        print_json(content)
        return
    table = Table(
        "slice",
        "bits",
        "epsilon",
        "changed",
        title=f"plan: epsilon {number(setting.epsilon)} requested, {number(chosen.realised_epsilon)} realised",
        title_justify="left",
    )
    for part, probability in zip(chosen.slices, probabilities, strict=True):
        table.add_row(chosen.slice_name(part), f"0x{part.bits:06x}", number(part.epsilon), f"{100 * probability:.4f} %")
    source, released = f"{width} x {height}", f"{statement.width[0]} x {statement.height[0]}"
    shrunk = "" if released == source else f", shrunk to {released}"
    levels = Table(
        "unit",
        "epsilon",
        "two values told apart",
        "why",
        title=f"the promise, {source}{shrunk}, pruning: {pruning(setting.prune)}",
        title_justify="left",
    )
    for level in statement.levels:
        levels.add_row(
            level.unit,
            number(level.epsilon),
            level.limit,
            level.why,
        )
    out.print(table)
    out.print(levels)
    for lowered in Lowered.by(statement, width * height):
        out.print(lowered.sentence)
    out.print(statement.risk.sentence, markup=False)
    others = [one for one in setting.measured if one != statement.risk.sentence]
    for sentence in as_said(setting, preset or "", others):
        out.print(f"Measured for the preset {plain(setting.name)}: {plain(sentence)}")
    if chosen.remark:
        out.print(f"This plan {chosen.remark}.")


def _as_measured(context: typer.Context, setting: Preset, grey: int | None, size: str) -> tuple[int | None, str]:
    """Return the kind and the size of image that a preset was measured for, as far as nobody has named another."""
    if is_default(context, "preset"):
        return grey, size
    if is_default(context, "grey") and setting.measured_bits and COLOUR_BITS not in setting.measured_bits:
        grey = max(setting.measured_bits)
    if is_default(context, "size") and isinstance(setting.size, int):
        size = f"{setting.size}x{setting.size}"
    return grey, size


def parse_bits(text: str) -> int:
    """Return the number of bits of a grey pixel, or report it as invalid."""
    if text.isdecimal() and 1 <= int(text) <= 16:
        return int(text)
    raise typer.BadParameter(f"expected a number of bits from 1 to 16; got {text!r}")
