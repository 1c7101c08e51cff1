from __future__ import annotations

import time
from collections import Counter
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
from ldp_slicing.release.inventory import prepare
from ldp_slicing.release.run import Engine, Job, on_this_machine
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.state import Tally

SHOWN = 20  # problems by name; the rest are counted, and --json has them all


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
    """Seconds for a file, over the whole run: they come in batches, so that the last few say nothing."""
    return (task.elapsed or 0.0) / task.completed if task.completed else 0.0


@refusals_exit
def privatize(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SRC", help="A file, or a folder of them.", show_default=False)],
    target: Annotated[
        str, typer.Argument(metavar="DST", help="A new file or folder; or one to go on with.", show_default=False)
    ],
    epsilon: Epsilon = 20.0,
    weights: Weights = "4:1:1",
    slices: Slices = None,
    prune: PruneOption = PruneChoice.haar,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", min=1, help="Processes at work.", show_default="all processors of machine or cluster"
        ),
    ] = None,
    engine: Annotated[EngineChoice, typer.Option("--engine", help="Where the work is done.")] = EngineChoice.local,
    address: Annotated[
        str | None,
        typer.Option(
            "--address", help="Of the Ray cluster; it must see SRC and DST.", show_default="a Ray of this machine"
        ),
    ] = None,
    compress: Annotated[
        int,
        typer.Option(
            "--compress", min=0, max=9, help="PNG compression. Releases are noise: 0 is fastest and loses little."
        ),
    ] = 0,
    names: Annotated[
        NamesChoice, typer.Option("--names", help="Names of releases: those of the sources, or random ones.")
    ] = NamesChoice.keep,
    duplicates: Annotated[
        DuplicatesChoice, typer.Option("--duplicates", help="Equal pictures in a run: release each, or the first only.")
    ] = DuplicatesChoice.spend,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep", metavar="NAME", help="What else to keep of a shard: an ending, a column.", show_default=False
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="Your own key: equal pixels, equal releases.", show_default=False),
    ] = None,
    spend: Annotated[
        bool, typer.Option("--spend", help="Release again what was released before; the ledger adds it up.")
    ] = False,
    ledger: LedgerOption = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FOLDER", help="The run's own folder.", show_default="DST.owner")
    ] = None,
    as_json: Json = False,
) -> None:
    """`ldp-slicing privatize photos/ releases/ --epsilon 20`

    Release a file, or every file of a folder tree, each source once.

    Images become PNG: JPEG, PNG, WebP, TIFF, BMP and GIF are read, orientation and colour profile applied, then all metadata is gone. Also
    WebDataset shards (.tar), Parquet, CIFAR's pickles, DICOM and video; SRC and DST may be remote (s3://...). A file that cannot be read
    is named, nothing is written for it, the others go on, and the exit status is 1. A card beside the releases says what is promised
    about them, a manifest lists them.

    Run the same command again to go on after an interruption, or to release what is new. The folder DST.owner is yours: until the run
    completes it holds the key that could remove the noise. Do not hand it on.
    """
    check_slices(context, slices)
    kept = tuple(sorted({name.lstrip(".") for name in keep or ()}))
    settings = ReleaseSettings(
        epsilon,
        parse_weights(weights),
        prune.prune,
        compress,
        names=names.value,
        duplicates=duplicates.value,
        keep=kept,
        slices=slices,
    )
    on_ray = engine is EngineChoice.ray
    if address is not None and not on_ray:
        raise ReleaseError("--address is that of a Ray cluster: say --engine ray, too")
    place_of_work = choose_ray(address, workers) if on_ray else on_this_machine(workers or processors())
    started = time.monotonic()
    with stop_signals() as received:
        job = prepare(
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
        with closing(job):
            run(job, place_of_work, received, quiet=as_json)
            seconds = time.monotonic() - started
            problems = list(job.journal.problems())
            if as_json:
                print_json(summary(job, seconds, problems))
            else:
                report(job, seconds, problems, target)
    if job.stopped and received:
        raise typer.Exit(128 + received[0])
    raise typer.Exit(1 if problems or job.card_problem or job.stopped else 0)


def choose_ray(address: str | None, workers: int | None) -> Engine:
    from ldp_slicing.release.cluster import on_ray  # an extra, slow to import

    return on_ray(address, workers)


def run(job: Job, engine: Engine, received: list[int], *, quiet: bool) -> None:
    columns = (TextColumn("releasing"), BarColumn(), MofNCompleteColumn(), Rate(), Remaining())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal, transient=True) as progress:
        bar = progress.add_task("releasing", total=job.waiting)
        try:
            for _ in job.run(engine, stop=lambda: bool(received)):
                progress.advance(bar)
        except LdpSlicingError as error:  # no refusal: something may have been released by now
            err.print(f"[bold red]broke off:[/bold red] {plain(str(error))}")


def summary(job: Job, seconds: float, problems: list[tuple[str, str]]) -> dict[str, Any]:
    tally = job.journal.tally()
    return {
        "released": tally.released,
        "kept": job.kept,
        "lost": tally.lost,
        "failed": tally.failed,
        "waiting": tally.waiting,
        "total": tally.total,
        "changed": tally.changed,
        "members_failed": tally.members_failed,
        "copies": list(job.journal.copies()),
        "stopped": job.stopped,
        "complete": job.complete,
        "seconds": round(seconds, 3),
        "card": job.card_path if job.last_card else None,
        "card_problem": job.card_problem,
        "promise": job.last_card.to_dict()["statements"] if job.last_card else None,
        "remarks": [
            remark for one in (job.last_card.statements if job.last_card else ()) if (remark := one.plan.remark)
        ],
        "problems": [{"source": source, "problem": problem} for source, problem in problems],
        "notices": [{"source": source, "notice": notice} for source, notice in job.journal.notices()],
    }


def sum_up(tally: Tally, kept: int, seconds: float) -> str:
    """Files, which add up; then what there is to say of the released ones."""
    files = [
        f"{tally.released:,} of {counted(tally.total, 'file')} released in {seconds:.1f} s"
        + f", {kept:,} of them before" * bool(kept),
        f"{tally.lost:,} lost or damaged" * bool(tally.lost),
        f"{tally.failed:,} not released" * bool(tally.failed),
        f"{counted(tally.copies, 'copy', 'copies')} left out" * bool(tally.copies),
        f"{tally.waiting:,} still waiting" * bool(tally.waiting),
    ]
    released = [
        f"{tally.changed:,} changed since" * bool(tally.changed),
        f"without {counted(tally.members_failed, 'member')} that cannot be released" * bool(tally.members_failed),
        f"without {counted(tally.members_copies, 'member')} that {'is a copy' if tally.members_copies == 1 else 'are copies'}"
        * bool(tally.members_copies),
    ]
    return "; of the released: ".join(", ".join(filter(None, part)) for part in (files, released) if any(part))


def report(job: Job, seconds: float, problems: list[tuple[str, str]], target: str) -> None:
    for source, problem in problems[:SHOWN]:
        err.print(f"[bold red]not released:[/bold red] {plain(source)}: {plain(problem)}")
    if len(problems) > SHOWN:
        err.print(f"[bold red]not released:[/bold red] {len(problems) - SHOWN:,} more; --json names them all")
    first: dict[str, str] = {}
    notices = Counter[str]()
    for source, notice in job.journal.notices():
        first.setdefault(notice, source)
        notices[notice] += 1
    for notice, count in notices.items():
        err.print(
            f"[yellow]notice:[/yellow] {plain(first[notice])}{f' and {count - 1:,} more' if count > 1 else ''}: {plain(notice)}"
        )
    equal = [] if job.secret.is_owners else list(job.journal.equal_files())
    for path, other in equal[:1]:
        such = f" ({len(equal):,} such files)" if len(equal) > 1 else ""
        err.print(
            f"[yellow]notice:[/yellow] {plain(path)} equals {plain(other)}{such}: each was released with its own noise, and they add up; "
            "--duplicates once releases only the first"
        )
    copies = list(job.journal.copies())
    for copy in copies[:SHOWN]:
        err.print(f"[yellow]copy:[/yellow] {plain(copy)} equals a picture that was released")
    if job.is_full:
        err.print(
            "[bold red]no space left[/bold red] on the target's disk: make some, then run the same command to go on"
        )
    elif job.stopped:
        whole = "; what was released is whole and on the card" if job.last_card else ""
        err.print(f"[bold red]stopped[/bold red] before the end{whole}. Run the same command to go on")
    elif job.journal.unfinished:
        err.print(
            "[bold red]not complete[/bold red]: run the same command to try again what failed, or take it away from the sources; "
            "until then the run's own folder keeps the key that could remove the noise"
        )
    out.print(sum_up(job.journal.tally(), job.kept, seconds))
    if job.card_problem:
        err.print(f"[bold red]no card:[/bold red] {plain(job.card_problem)}; do not hand these releases on without one")
    elif card := job.last_card:
        out.print(f"to {plain(target)}; the promise is in {plain(job.card_path)}:\n")
        for statement in card.statements:
            out.print(str(statement), markup=False)
