from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from ldp_slicing.cli.common import (
    Epsilon,
    Json,
    PruneChoice,
    PruneOption,
    Weights,
    err,
    out,
    parse_weights,
    plain,
    print_json,
    processors,
    refusals_exit,
)
from ldp_slicing.release.run import Item, Job, Recipe, prepare


class Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f} images/s" if task.speed else "- images/s")


@refusals_exit
def privatize(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="An image file, or a folder of them.", show_default=False)],
    target: Annotated[Path, typer.Argument(metavar="DST", help="A new .png file, or a new or empty folder.", show_default=False)],
    epsilon: Epsilon = 20.0,
    weights: Weights = "4:1:1",
    prune: PruneOption = PruneChoice.haar,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Images in work at once.", show_default="all processors")] = processors(),
    compress: Annotated[
        int,
        typer.Option("--compress", min=0, max=9, help="PNG compression. Releases are noise: 0 is fastest and loses little."),
    ] = 0,
    as_json: Json = False,
) -> None:
    """`ldp-slicing privatize photos/ releases/ --epsilon 20`

    Release an image, or every image of a folder tree, as PNG.

    Reads JPEG, PNG, WebP, TIFF, BMP and GIF. Orientation and colour profile are applied, then all metadata is gone. A file that cannot be
    read is named, nothing is written for it, the others go on, and the exit status is 1. A card beside the releases
    says what is promised about them.
    """
    job = prepare(source, target, Recipe(epsilon, parse_weights(weights), prune.prune, compress))
    started = time.monotonic()
    with stop_signals() as received:
        run(job, workers, received, quiet=as_json)
        seconds, stopped = time.monotonic() - started, len(job.items) < job.total
        if as_json:
            print_json(summary(job, seconds, stopped))
        else:
            report(job, seconds, stopped)
    if stopped:
        raise typer.Exit(128 + received[0])
    raise typer.Exit(1 if job.problems or job.card_problem else 0)


def run(job: Job, workers: int, received: list[int], *, quiet: bool) -> None:
    columns = (TextColumn("releasing"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal, transient=True) as progress:
        bar = progress.add_task("releasing", total=len(job.pairs))
        with closing(job.run(workers)) as items:
            for _ in items:
                progress.advance(bar)
                if received:
                    break


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """The interruptions received so far. They only ask: an exception in the middle of something could cost the card, or its report."""
    received: list[int] = []
    before = {number: signal.signal(number, lambda number, _: received.append(number)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def summary(job: Job, seconds: float, stopped: bool) -> dict[str, Any]:
    return {
        "released": len(job.released),
        "failed": len(job.problems),
        "total": job.total,
        "stopped": stopped,
        "seconds": round(seconds, 3),
        "card": str(job.card_path) if job.released and not job.card_problem else None,
        "card_problem": job.card_problem,
        "problems": [{"source": str(item.source), "problem": item.problem} for item in job.problems],
        "notices": [{"source": str(item.source), "notices": list(item.notices)} for item in job.released if item.notices],
    }


def report(job: Job, seconds: float, stopped: bool) -> None:
    for item in job.problems:
        err.print(f"[bold red]not released:[/bold red] {plain(str(item.source))}: {plain(item.problem or '')}")
    for notice, count in Counter(notice for item in job.released for notice in item.notices).items():
        first: Item = next(item for item in job.released if notice in item.notices)
        err.print(f"[yellow]notice:[/yellow] {plain(str(first.source))}{f' and {count - 1} more' if count > 1 else ''}: {plain(notice)}")
    if stopped:
        err.print("[bold red]stopped[/bold red] before the end; what was released is whole and on the card")
    out.print(f"{len(job.released)} of {job.total} released in {seconds:.1f} s" + (f", {len(job.problems)} not" if job.problems else ""))
    if job.card_problem:
        err.print(f"[bold red]no card:[/bold red] {plain(job.card_problem)}; do not hand these releases on without one")
    elif card := job.card():
        out.print(f"to {plain(str(job.target))}; the promise is in {plain(str(job.card_path))}:\n")
        for statement in card.statements:
            out.print(str(statement), markup=False)
