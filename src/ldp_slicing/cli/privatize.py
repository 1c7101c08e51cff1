from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Collection
from contextlib import closing
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from ldp_slicing.card import counted
from ldp_slicing.cli.common import (
    Epsilon,
    Json,
    LedgerOption,
    PruneChoice,
    PruneOption,
    Slices,
    Weights,
    check_slices,
    err,
    out,
    parse_weights,
    plain,
    print_json,
    processors,
    refusals_exit,
    stop_signals,
)
from ldp_slicing.errors import LdpSlicingError, ReleaseError
from ldp_slicing.release import records
from ldp_slicing.release.records import FileCounts
from ldp_slicing.release.run import Engine, Run, on_this_machine, prepare
from ldp_slicing.release.settings import ReleaseSettings

SHOWN = 20  # problems listed by name; the rest are counted, and --json lists all of them


class NamesChoice(StrEnum):
    keep = "keep"
    random = "random"


class DuplicatesChoice(StrEnum):
    spend = "spend"
    once = "once"


class EngineChoice(StrEnum):
    local = "local"
    ray = "ray"


class Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{1 / pace:.1f} files/s" if (pace := _pace(task)) else "- files/s")


class Remaining(ProgressColumn):
    def render(self, task: Task) -> Text:
        pace = _pace(task)
        return Text(str(timedelta(seconds=round(pace * (task.remaining or 0)))) if pace else "-:--:--")


def _pace(task: Task) -> float:
    """Return the seconds per file over the whole run. Files are done in batches, so the last few say nothing."""
    return (task.elapsed or 0.0) / task.completed if task.completed else 0.0


@refusals_exit
def privatize(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SRC", help="A file, or a folder of files.", show_default=False)],
    target: Annotated[
        str,
        typer.Argument(metavar="DST", help="A new file or folder, or that of a run to resume.", show_default=False),
    ],
    epsilon: Epsilon = 20.0,
    weights: Weights = "4:1:1",
    slices: Slices = None,
    prune: PruneOption = PruneChoice.haar,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            help="Number of worker processes.",
            show_default="all processors of the machine or cluster",
        ),
    ] = None,
    engine: Annotated[EngineChoice, typer.Option("--engine", help="Where the workers run.")] = EngineChoice.local,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            help="Address of the Ray cluster. All its nodes must see SRC and DST.",
            show_default="Ray is started on this machine",
        ),
    ] = None,
    names: Annotated[
        NamesChoice, typer.Option("--names", help="Names of the releases: those of the sources, or random ones.")
    ] = NamesChoice.keep,
    duplicates: Annotated[
        DuplicatesChoice,
        typer.Option("--duplicates", help="Equal images in a run: release each one, or only the first."),
    ] = DuplicatesChoice.spend,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="NAME",
            help="Other data to pass on unprotected: an extension in a shard, a column in a table. May be repeated.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="An owner's key. With it, equal pixels give equal releases.",
            show_default=False,
        ),
    ] = None,
    spend: Annotated[
        bool,
        typer.Option("--spend", help="Also release sources that were released before; the ledger adds up their eps."),
    ] = False,
    ledger: LedgerOption = None,
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="FOLDER", help="The state folder of the run.", show_default="DST.owner"),
    ] = None,
    as_json: Json = False,
) -> None:
    """`ldp-slicing privatize images/ releases/ --epsilon 20`

    Release a file, or every file below a folder. Each source is released once.

    Images (JPEG, PNG, WebP, TIFF, BMP, GIF) become PNG: orientation and colour profile are applied, and all metadata
    is removed. WebDataset shards (.tar), Parquet, CIFAR pickles, DICOM and video are read too. SRC and DST may be
    remote (s3://...). A file that cannot be read is reported and nothing is written for it; the other files are
    released, and the exit status is 1. A card beside the releases states their privacy, and a manifest lists them.

    Run the same command again to resume after an interruption, or to release new files. The folder DST.owner is
    private: until the run completes, it holds the key that can remove the noise. Do not share it.
    """
    check_slices(context, slices)
    settings = ReleaseSettings(
        epsilon,
        parse_weights(weights),
        prune.prune,
        names=names.value,
        duplicates=duplicates.value,
        keep=tuple(sorted({name.lstrip(".") for name in keep or ()})),
        slices=slices,
    )
    on_ray = engine is EngineChoice.ray
    if address is not None and not on_ray:
        raise ReleaseError("--address is the address of a Ray cluster: add --engine ray")
    chosen = choose_ray(address, workers) if on_ray else on_this_machine(workers or processors())
    started = time.monotonic()
    with stop_signals() as received:
        run = prepare(
            source,
            target,
            settings,
            ledger=ledger,
            key=key,
            state=state,
            spend=spend,
            shared=on_ray,
            stop=lambda: bool(received),
        )
        with closing(run):
            said = release(run, chosen, received, quiet=as_json)
            seconds = time.monotonic() - started
            problems = list(records.problems(run.state))
            if as_json:
                print_json(summary(run, seconds, problems))
            else:
                print_report(run, seconds, problems, target, said)
    if run.stopped and received:
        raise typer.Exit(128 + received[0])
    raise typer.Exit(1 if problems or run.result.problem or run.stopped else 0)


def choose_ray(address: str | None, workers: int | None) -> Engine:
    from ldp_slicing.release.cluster import on_ray  # an extra, slow to import

    return on_ray(address, workers)


def release(run: Run, engine: Engine, received: list[int], *, quiet: bool) -> set[str]:
    """Do the run, with a progress bar on a terminal. Return the notices that were printed.

    Each is printed as soon as it is known, with the first file it is about, before anything is spent on that file.
    """
    said = set[str]()

    def advise(path: str, notice: str) -> None:
        if notice not in said and not quiet:
            said.add(notice)
            err.print(f"[yellow]notice:[/yellow] {plain(path)}: {plain(notice)}")

    columns = (TextColumn("releasing"), BarColumn(), MofNCompleteColumn(), Rate(), Remaining())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal, transient=True) as progress:
        bar = progress.add_task("releasing", total=run.inventory.waiting)
        try:
            for _ in run.run(engine, stop=lambda: bool(received), advise=advise):
                progress.advance(bar)
        except LdpSlicingError as error:  # not a refusal: something may have been released by now
            err.print(f"[bold red]aborted:[/bold red] {plain(str(error))}")
    return said


def summary(run: Run, seconds: float, problems: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the content of --json."""
    counts, card = records.count_files(run.state), run.result.card
    return {
        "released": counts.released,
        "kept": run.inventory.kept,
        "lost": counts.lost,
        "failed": counts.failed,
        "waiting": counts.waiting,
        "total": counts.total,
        "changed": counts.changed,
        "members_failed": counts.members_failed,
        "copies": list(records.copies(run.state)),
        "stopped": run.stopped,
        "complete": run.result.complete,
        "seconds": round(seconds, 3),
        "card": run.paths.card_path if card else None,
        "card_problem": run.result.problem,
        "promise": card.to_dict()["statements"] if card else None,
        "remarks": [remark for one in (card.statements if card else ()) if (remark := one.plan.remark)],
        "problems": [{"source": source, "problem": problem} for source, problem in problems],
        "notices": [{"source": source, "notice": notice} for source, notice in records.notices(run.state)],
    }


def describe_counts(counts: FileCounts, kept: int, seconds: float) -> str:
    """Return a line about all files, which add up, and about the released ones."""
    before = f", {kept:,} of them earlier" if kept else ""
    files = [f"{counts.released:,} of {counted(counts.total, 'file')} released in {seconds:.1f} s{before}"]
    if counts.lost:
        files.append(f"{counts.lost:,} lost or damaged")
    if counts.failed:
        files.append(f"{counts.failed:,} not released")
    if counts.copies:
        files.append(f"{counted(counts.copies, 'copy', 'copies')} left out")
    if counts.waiting:
        files.append(f"{counts.waiting:,} still waiting")
    released = []
    if counts.changed:
        released.append(f"{counts.changed:,} changed since then")
    if counts.members_failed:
        released.append(f"without {counted(counts.members_failed, 'member')} that cannot be released")
    if counts.members_copies:
        are = "is a copy" if counts.members_copies == 1 else "are copies"
        released.append(f"without {counted(counts.members_copies, 'member')} that {are}")
    return "; of the released files: ".join(", ".join(part) for part in (files, released) if part)


def print_report(run: Run, seconds: float, problems: list[tuple[str, str]], target: str, said: Collection[str]) -> None:
    """Print what was released and what was not, then the promise. The notices in ``said`` were printed before."""
    for source, problem in problems[:SHOWN]:
        err.print(f"[bold red]not released:[/bold red] {plain(source)}: {plain(problem)}")
    if len(problems) > SHOWN:
        err.print(f"[bold red]not released:[/bold red] {len(problems) - SHOWN:,} more; --json lists them all")
    print_notices(run, said)
    print_ending(run)
    out.print(describe_counts(records.count_files(run.state), run.inventory.kept, seconds))
    if run.result.problem:
        err.print(
            f"[bold red]no card:[/bold red] {plain(run.result.problem)}; do not share these releases without a card"
        )
    elif card := run.result.card:
        out.print(f"written to {plain(target)}; {plain(run.paths.card_path)} states the promise:\n")
        for statement in card.statements:
            out.print(str(statement), markup=False)


def print_notices(run: Run, said: Collection[str]) -> None:
    """Print each notice once, with the first file it is about; then equal files and copies.

    Of those that were printed before, only the number of files is new.
    """
    first: dict[str, str] = {}
    counts = Counter[str]()
    for source, notice in records.notices(run.state):
        first.setdefault(notice, source)
        counts[notice] += 1
    for notice, count in counts.items():
        if notice in said and count == 1:
            continue
        more = f" and {count - 1:,} more" if count > 1 else ""
        err.print(f"[yellow]notice:[/yellow] {plain(first[notice])}{more}: {plain(notice)}")
    equal = [] if run.secret.is_owners else list(records.equal_files(run.state))
    for path, other in equal[:1]:
        such = f" ({len(equal):,} such files)" if len(equal) > 1 else ""
        err.print(
            f"[yellow]notice:[/yellow] {plain(path)} equals {plain(other)}{such}: each was released with its own "
            "noise, and their budgets add up; --duplicates once releases only the first"
        )
    for copy in itertools.islice(records.copies(run.state), SHOWN):
        err.print(f"[yellow]copy:[/yellow] {plain(copy)} equals an image that was released")


def print_ending(run: Run) -> None:
    """Say why a run is not complete, and what to do."""
    if run.disk_full:
        err.print(
            "[bold red]no space left[/bold red] on the target's disk: free some, then run the same command to resume"
        )
    elif run.stopped:
        whole = "; finished releases are complete and on the card" if run.result.card else ""
        err.print(f"[bold red]stopped[/bold red] before the end{whole}. Run the same command to resume")
    elif records.is_unfinished(run.state):
        err.print(
            "[bold red]not complete[/bold red]: run the same command to retry what failed, or remove it from the "
            "sources; until then the state folder keeps the key that can remove the noise"
        )
