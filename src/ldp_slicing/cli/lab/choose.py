from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import out, plain, refusals_exit
from ldp_slicing.cli.lab.options import NO_LIMIT
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.slicer import Slicer


@refusals_exit
def choose(
    max_leakage: Annotated[
        float, typer.Option("--max-leakage", help="Largest accepted leakage: SSIM of reconstructions, 0 to 1.")
    ],
    task: Annotated[
        str, typer.Option("--task", help="The images that were measured: cifar10, chest or lfw.")
    ] = "cifar10",
    max_linkage: Annotated[
        float | None,
        typer.Option(
            "--max-linkage", help="Largest rank-1 identification rate; for chest and lfw.", show_default="no limit"
        ),
    ] = None,
    max_epsilon: Annotated[
        float, typer.Option("--max-epsilon", help="Largest eps per released pixel.", show_default="no limit")
    ] = NO_LIMIT,
    results: Annotated[
        Path | None,
        typer.Option(
            "--results", help="A folder of results, such as results/.", show_default="measurements in this package"
        ),
    ] = None,
) -> None:
    """Example: `ldp-slicing lab choose --max-leakage 0.7`

    Choose the plan with the highest accuracy among those that leak no more than you accept. For CIFAR-10, the
    measurements are those of `lab reproduce tradeoff`; for chest X-rays and LFW, those of a report of `advise`. They
    are from one data set and a few attacks: a guide, not a guarantee. For CIFAR-10, the last line says what an attacker
    got at the nearest measured setting. Works without the lab's extra.
    """
    from ldp_slicing.lab.choose import choose as choose_point
    from ldp_slicing.lab.choose import choose_from_report
    from ldp_slicing.lab.plans import SIDE, TASK, measured

    if task != TASK:
        for line in choose_from_report(task, results, max_leakage, max_linkage, max_epsilon):
            out.print(plain(line))
        return
    if max_linkage is not None:
        raise LdpSlicingError(f"linkage was not measured for {task}: omit --max-linkage")
    chosen, count = choose_point(measured(task, results), max_leakage, max_epsilon)
    dedicated = chosen.dedicated_leakage
    alone = "" if dedicated is None else f" ({dedicated:.3f} by a network for this plan alone)"
    out.print(f"{chosen.candidate.name}")
    out.print(f"test accuracy {100 * chosen.test_accuracy:.2f} %, leakage (SSIM) {chosen.leakage:.3f}{alone}")
    out.print(plain(chosen.candidate.command))
    out.print(plain(chosen.candidate.code))
    limit = "" if max_epsilon == NO_LIMIT else f" and eps {max_epsilon:g}"
    out.print(
        f"best validation accuracy of {count} plans within leakage {max_leakage:g}{limit}, measured on CIFAR-10 "
        f"({SIDE} x {SIDE} objects)"
    )
    (statement,) = Slicer(chosen.candidate.plan, prune=chosen.candidate.prune).card(SIDE, SIDE).statements
    out.print(plain(statement.risk.sentence))
