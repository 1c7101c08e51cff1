from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import out, plain, refusals_exit
from ldp_slicing.cli.lab.options import missing_extra


@refusals_exit
def results(
    folder: Annotated[Path, typer.Argument(help="The folder with the JSON files.")] = Path("results"),
    plans: Annotated[
        Path | None,
        typer.Option("--plans", help="Also write the measured plans that `lab choose` reads.", show_default="no"),
    ] = None,
) -> None:
    """Example: `ldp-slicing lab results`

    Write the page and figure of every experiment again, and one page with all of them.
    """
    try:
        from ldp_slicing.lab.results import write_summary
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    out.print(plain(str(write_summary(folder))))
    if plans:
        from ldp_slicing.lab.plans import to_json
        from ldp_slicing.lab.rows import read_rows

        plans.write_text(to_json(read_rows(folder / "tradeoff.json")), encoding="utf-8")
        out.print(plain(str(plans)))
