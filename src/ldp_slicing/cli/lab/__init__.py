"""The commands of the lab, one small file each."""

from __future__ import annotations

import typer

from ldp_slicing.cli.lazy import SETTINGS, lazy_group

COMMANDS = {
    "train": "Train a classifier on releases.",
    "train-faces": "Train a face recogniser on releases.",
    "verify-faces": "Measure face verification on releases of any set.",
    "attack": "Attack releases of a data set. Run again to resume.",
    "reproduce": "Run one experiment. Run again to resume.",
    "page-network": "Train the network of the page's attack view.",
    "choose": "Choose a plan by the leakage that you accept.",
    "results": "Write results/README.md and all pages and figures from the rows.",
}

app = typer.Typer(no_args_is_help=True, cls=lazy_group(__name__, COMMANDS), **SETTINGS)


@app.callback()
def lab() -> None:
    """The analyst's side: train on releases, attack them and measure the results.

    Install it from a clone with `pip install '.[lab]'`. `lab choose` works without it.
    """
