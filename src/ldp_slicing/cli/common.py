"""Options, consoles and error reports that the commands share."""

from __future__ import annotations

import json
import os
import re
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

from ldp_slicing.cli.exit_status import ExitStatus
from ldp_slicing.errors import LdpSlicingError, PlanError, ReleaseError
from ldp_slicing.files import try_to_create_in
from ldp_slicing.view import Prune
from ldp_slicing.wording import visible

JSON_VERSION = 1

out = Console(soft_wrap=True, highlight=False, emoji=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


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
    """Return the number of an option, or report it as invalid."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number, such as 20; got {text!r}") from None


def parse_weights(text: str) -> tuple[float, float, float]:
    """Return the three numbers of Y:Cb:Cr, or report them as invalid."""
    try:
        y, cb, cr = (float(part) for part in text.split(":"))
    except ValueError:
        raise typer.BadParameter(
            f"expected three numbers for Y:Cb:Cr, such as 4:1:1; got {text!r}", param_hint="--weights"
        ) from None
    return y, cb, cr


def is_default(context: typer.Context, option: str) -> bool:
    """Return whether nobody gave the option. It is also true of options that the command does not have."""
    origin = context.get_parameter_source(option)
    return origin is None or origin.name == "DEFAULT"


def check_slices(context: typer.Context, slices: str | None) -> None:
    """Refuse --slices without --epsilon: the default for 24 slices would leave one thick slice almost without noise."""
    if slices is not None and is_default(context, "epsilon"):
        raise PlanError(
            "--slices needs --epsilon: the default of 20 is for the paper's 24 slices, "
            "and would leave a single slice almost without noise"
        )


def check_kind(slices: str | None, grey: int | None) -> None:
    """Refuse slices of a grey pixel, such as 11+10, without --grey: the plan would be one for colour images."""
    numbers = [int(bit) for bit in re.findall(r"\b[0-9]{1,2}\b", re.sub(r"=[^,]*", "", slices or ""))]
    if grey is None and numbers:
        raise PlanError(
            f"--slices {slices} names bits of a grey pixel: add --grey BITS, the bits of your images, such as "
            f"--grey {max(max(numbers) + 1, 8)}"
        )


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Epsilon = Annotated[
    float,
    typer.Option(
        "--epsilon",
        "-e",
        parser=parse_number,
        metavar="NUMBER",
        help="Budget of one released pixel. Within one plan, a smaller budget is more private.",
    ),
]
Weights = Annotated[
    str, typer.Option("--weights", metavar="Y:Cb:Cr", help="Weights of Y:Cb:Cr when the budget is split.")
]
Slices = Annotated[
    str | None,
    typer.Option(
        "--slices",
        metavar="BITS",
        help="Bits to randomise as one thick slice, such as Y7+Y4+Cb7+Cr7. Other bits are dropped. Give several slices "
        "with their shares of the budget as Y7+Y6=3,Cb7=1. Requires --epsilon. Compare epsilon only "
        "within one plan; between plans, compare what attacks recovered.",
        show_default="one slice per bit, as in the paper",
    ),
]
PruneOption = Annotated[
    PruneChoice,
    typer.Option(
        "--prune",
        metavar="METHOD",
        help="What to remove before the noise is added: the mean of each 2x2 block (haar; haar2, haar4 and haar8 also "
        "amplify what remains by that factor), the mean of each 8x8 block (dct), or nothing (none).",
    ),
]
LedgerOption = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="FILE",
        envvar="LDP_SLICING_LEDGER",
        help="Path of the ledger.",
        show_default="ledger.sqlite in your data folder",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Fail if file managers left files in the folder (Thumbs.db, .DS_Store, ...).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


Arguments = ParamSpec("Arguments")


def refusals_exit(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Report an LdpSlicingError of the command as one line, and to --json, with exit status 2.

    An OSError is reported as one line, too, but with exit status 74: something may have been written before it.
    """

    @wraps(command)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except LdpSlicingError as error:
            err.print(f"[bold red]refused:[/bold red] {plain(str(error))}")
            if kwargs.get("as_json"):
                print_json(refusal(command.__name__, error))
            sys.exit(ExitStatus.REFUSED)
        except OSError as error:  # in the middle: a full disk, or one that was removed
            where = f"{plain(str(error.filename))}: " if error.filename else ""
            err.print(f"[bold red]aborted:[/bold red] {where}{plain(error.strerror or str(error))}")
            sys.exit(ExitStatus.IO_ERROR)

    return wrapped


def check_new_file(path: Path) -> None:
    """Refuse a file that exists or cannot be written, before the work for it begins."""
    if os.path.lexists(path):
        raise ReleaseError(f"{path} exists and is not overwritten: choose another name")
    try:
        try_to_create_in(path.parent)
    except OSError as error:
        raise ReleaseError(f"{path} cannot be written: {error.strerror}; choose another name") from None


@contextmanager
def stop_signals(on_first: Callable[[], None] | None = None) -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of raising, so that an interruption does not lose the card or the report.

    Yield the list of signals received so far. With ``on_first``, the first signal calls it and the second raises
    KeyboardInterrupt.
    """
    received: list[int] = []

    def note(number: int, _: object) -> None:
        received.append(number)
        if on_first and len(received) > 1:
            raise KeyboardInterrupt
        if on_first:
            on_first()

    in_main_thread = threading.current_thread() is threading.main_thread()  # only there handlers can be set
    numbers = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
    # A signal that the parent process ignores, as under nohup, stays ignored.
    ours = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in ours}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def naming_new_ledger(path: Path, *, quiet: bool) -> Iterator[None]:
    """Print the path of a ledger that is created meanwhile, even if what created it fails afterwards."""
    is_new = not path.exists()
    try:
        yield
    finally:
        if is_new and path.exists() and not quiet:
            err.print(
                f"[yellow]notice:[/yellow] new ledger: {plain(str(path))}; back it up, and keep a copy of its key, "
                f"{plain(path.name)}.key, elsewhere"
            )


def plain(text: str) -> str:
    """Escape untrusted text, so that brackets are not markup and control characters have no effect."""
    return escape(visible(text))


def refusal(command: str, error: LdpSlicingError) -> dict[str, Any]:
    """Return what --json says if a command refuses to start."""
    return {"command": command, "refused": {"reason": error.reason, "message": str(error)}}


def to_json(content: dict[str, Any]) -> str:
    """Return the output of --json. Its version rises when a name or a meaning in it changes, not when one is added."""
    return json.dumps({"version": JSON_VERSION, **content}, indent=2)


def print_json(content: dict[str, Any]) -> None:
    """Print JSON without markup or line breaks of the console."""
    out.out(to_json(content), highlight=False)
