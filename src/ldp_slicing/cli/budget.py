"""The options that choose a budget, and the presets as the commands print them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from ldp_slicing.cli.common import err, is_default, parse_number, parse_weights, plain
from ldp_slicing.errors import PresetError
from ldp_slicing.presets import Preset, get_preset, no_budget, presets
from ldp_slicing.view import Prune, Size

OPTIONS = ("epsilon", "weights", "slices", "prune", "max_side", "fit", "pad")  # what a preset decides

Budget = Annotated[
    float | None,
    typer.Option(
        "--epsilon",
        "-e",
        parser=parse_number,
        metavar="NUMBER",
        help="Budget of one released pixel. Within one plan, a smaller budget is more private.",
        show_default=False,
    ),
]
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset",
        "-p",
        metavar="NAME",
        help="Instead of --epsilon: a view, a plan and a budget by name, as `plan --presets` lists them, or a preset "
        "file (.json).",
        show_default=False,
    ),
]


def choose_budget(
    context: typer.Context,
    preset: str | None,
    epsilon: float | None,
    weights: str,
    slices: str | None,
    prune: Prune,
    size: Size = None,
) -> Preset:
    """Return the named preset, or one made of the options. Refuse if neither names a budget."""
    given = [name for name in OPTIONS if not is_default(context, name)]
    if preset is not None and given:
        raise PresetError(f"a preset has its own view, plan and budget: leave out --{given[0].replace('_', '-')}")
    if preset is not None:
        return get_preset(preset)
    if epsilon is None:
        err.print(describe_presets(), markup=False)
        raise no_budget("give --epsilon NUMBER or --preset NAME", listed=True)
    return Preset("options", "", epsilon, parse_weights(weights), slices, prune, size)


def describe_presets() -> str:
    """Return the presets and what an attacker got at each, as lines of text."""
    lines = [
        "No preset is a promise against recognition. Each states what an attacker got from one release of each image."
    ]
    for one in presets():
        lines += ["", f"{one.name}: {one.setting}", f"  {one.about}", *(f"  {sentence}" for sentence in one.measured)]
    return "\n".join(lines)


def print_preset(preset: Preset, named: str) -> None:
    """Say which preset was chosen, what it is for, and what was measured for it. ``named``: as the option names it."""
    err.print(f"preset {plain(preset.name)}: {plain(preset.setting)}")
    for sentence in as_said(preset, named, filter(None, (preset.about, *preset.measured))):
        err.print(f"  {plain(sentence)}")


def as_said(preset: Preset, named: str, sentences: Iterable[str]) -> list[str]:
    """Return sentences of a preset. What a preset file says, nobody has checked."""
    start = "" if preset in presets() else f"{named} says, unchecked: "
    return [f"{start}{one}" for one in sentences]
