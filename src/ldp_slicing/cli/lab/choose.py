from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import out, plain, refusals_exit
from ldp_slicing.cli.lab.options import NO_LIMIT


@refusals_exit
def choose(
    max_leakage: Annotated[
        float, typer.Option("--max-leakage", help="Largest accepted leakage: SSIM of reconstructions, 0 to 1.")
    ],
    task: Annotated[str, typer.Option("--task", help="What the releases are for: cifar10.")] = "cifar10",
    max_epsilon: Annotated[
        float, typer.Option("--max-epsilon", help="Largest eps per released pixel.", show_default="no limit")
    ] = NO_LIMIT,
    results: Annotated[
        Path | None,
        typer.Option("--results", help="A folder with tradeoff.json.", show_default="measurements in this package"),
    ] = None,
) -> None:
    """`ldp-slicing lab choose --max-leakage 0.7`

    Choose the plan with the highest validation accuracy among those that leak no more than you accept, from the
    measurements of `lab reproduce tradeoff`. They are from CIFAR-10 and one attack: a guide, not a guarantee. Works
    without the lab's extra.
    """
    from ldp_slicing.lab.choose import choose as choose_point
    from ldp_slicing.lab.plans import measured

    chosen, count = choose_point(measured(task, results), max_leakage, max_epsilon)
    dedicated = chosen.dedicated_leakage
    alone = "" if dedicated is None else f" ({dedicated:.3f} by a network for this plan alone)"
    out.print(f"{chosen.candidate.name}")
    out.print(f"test accuracy {100 * chosen.test_accuracy:.2f} %, leakage (SSIM) {chosen.leakage:.3f}{alone}")
    out.print(plain(chosen.candidate.command))
    out.print(plain(chosen.candidate.code))
    limit = "" if max_epsilon == NO_LIMIT else f" and eps {max_epsilon:g}"
    out.print(f"best validation accuracy of {count} measured plans within leakage {max_leakage:g}{limit}")
