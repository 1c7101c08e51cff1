"""What the commands share: options, consoles, refusals."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec, cast

import typer
from rich.console import Console
from rich.markup import escape

from ldp_slicing.errors import LdpSlicingError, PlanError
from ldp_slicing.view import Prune

BROKEN_PIPE = 141  # as a shell says of who was stopped by one; 1 would say that something is wrong


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Whoever read has read enough."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            sys.exit(BROKEN_PIPE)


out = _Console(soft_wrap=True, highlight=False, emoji=False)
err = _Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


class PruneChoice(StrEnum):
    haar = "haar"
    haar2 = "haar2"
    haar4 = "haar4"
    haar8 = "haar8"
    dct = "dct"
    none = "none"

    @property
    def prune(self) -> Prune:
        return None if self is PruneChoice.none else cast("Prune", self.value)


def parse_number(text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"a number, such as 20; got {text!r}") from None


def parse_weights(text: str) -> tuple[float, float, float]:
    try:
        y, cb, cr = (float(part) for part in text.split(":"))
    except ValueError:
        raise typer.BadParameter(f"three numbers for Y:Cb:Cr, such as 4:1:1; got {text!r}") from None
    return y, cb, cr


def check_slices(context: typer.Context, slices: str | None) -> None:
    """Refuse slices without a budget: what is usual for 24 slices would leave a single one as good as it is."""
    origin = context.get_parameter_source("epsilon")
    if slices is not None and (origin is None or origin.name == "DEFAULT"):
        raise PlanError(
            "--slices needs its budget, --epsilon: 20 over the paper's 24 slices is much noise, in a single slice hardly any"
        )


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Epsilon = Annotated[
    float,
    typer.Option(
        "--epsilon",
        "-e",
        parser=parse_number,
        metavar="NUMBER",
        help="The budget of one released pixel. Smaller is more private.",
    ),
]
Weights = Annotated[str, typer.Option("--weights", help="Importance of Y:Cb:Cr in splitting the budget.")]
Slices = Annotated[
    str | None,
    typer.Option(
        "--slices",
        metavar="BITS",
        help="Bits to randomise as one, such as Y7+Y4+Cb7+Cr7; the others are dropped. Several, with their shares of the budget: "
        "Y7+Y6=3,Cb7=1. Needs --epsilon.",
        show_default="every bit by itself, as in the paper",
    ),
]
PruneOption = Annotated[
    PruneChoice,
    typer.Option(
        "--prune",
        help="What the view takes away before the noise: the low Haar band (haar2, haar4, haar8: and what is left made so many "
        "times stronger), the DC of 8x8 blocks, or nothing.",
    ),
]
LedgerOption = Annotated[
    Path | None,
    typer.Option("--ledger", metavar="FILE", help="The ledger.", show_default="ledger.sqlite in your data folder"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


Arguments = ParamSpec("Arguments")


def refusals_exit(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """A refusal is one red line and exit status 2; nothing was written."""

    @wraps(command)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except LdpSlicingError as error:
            err.print(f"[bold red]refused:[/bold red] {plain(str(error))}")
            sys.exit(2)
        except BrokenPipeError:
            out.on_broken_pipe()

    return wrapped


@contextmanager
def stop_signals(on_first: Callable[[], None] | None = None) -> Iterator[list[int]]:
    """The interruptions received so far. They only ask: an exception in the middle of something could cost the card, or its report.

    on_first: is called at the first; then the second one is not asked for, but breaks off.
    """
    received: list[int] = []

    def note(number: int, _: object) -> None:
        received.append(number)
        if on_first and len(received) > 1:
            raise KeyboardInterrupt
        if on_first:
            on_first()

    numbers = (
        (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    )  # only there it is allowed
    ours = [
        number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN
    ]  # whoever started this wants no others
    before = {number: signal.signal(number, note) for number in ours}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def plain(text: str) -> str:
    """Text from outside, so that its brackets are not taken for markup and its control characters do nothing."""
    return escape("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))


def print_json(content: dict[str, Any]) -> None:
    out.out(json.dumps(content, indent=2), highlight=False)
