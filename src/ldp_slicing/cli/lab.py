from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import err, out, plain, refusals_exit
from ldp_slicing.errors import LdpSlicingError

app = typer.Typer(
    no_args_is_help=True, help="The analyst's side: train on releases and measure. Needs the extra: pip install 'ldp-slicing[lab]'."
)


@app.command(name="results", short_help="Make results/README.md from the numbers there.")
def make_readme(folder: Annotated[Path, typer.Argument(help="Where the numbers are.")] = Path("results")) -> None:
    """`ldp-slicing lab results`

    Write one page with the tables of all experiments.
    """
    from ldp_slicing.lab.results import summarise

    out.print(plain(str(summarise(folder))))


@app.command(short_help="Run one experiment of the paper; resumes where it stopped.")
@refusals_exit
def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="fidelity", show_default=False)],
    data: Annotated[Path, typer.Option("--data", help="The folder that holds the data sets.", show_default=False)],
    results: Annotated[Path, typer.Option("--results", help="Where the numbers go.")] = Path("results"),
    work: Annotated[Path, typer.Option("--work", help="Where checkpoints go.")] = Path("lab-work"),
    minutes: Annotated[float, typer.Option("--minutes", help="Stop after so long; run again to go on.", show_default="no limit")] = float(
        "inf"
    ),
    epochs: Annotated[int | None, typer.Option("--epochs", help="Fewer epochs, to try it out.", show_default=False)] = None,
    device: Annotated[str, typer.Option("--device", help="cuda or cpu", show_default="cuda where there is one")] = "",
) -> None:
    """`ldp-slicing lab reproduce fidelity --data data/`

    Train what a table or figure of the paper needs, side by side, and write the numbers beside the paper's.
    """
    try:
        from ldp_slicing.lab.reproduce import reproduce as run
    except ModuleNotFoundError as error:
        raise LdpSlicingError(f"the lab needs {error.name}: pip install 'ldp-slicing[lab]'") from None
    done, path = run(name, data, results, work, minutes=minutes, epochs=epochs, device=device, say=lambda line: err.print(plain(line)))
    out.print(f"{plain(str(path))}{'' if done else ' (not finished: run again to go on)'}")
