"""What ``privatize`` says: its progress, its report and the content of --json."""

from __future__ import annotations

import itertools
import textwrap
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from ldp_slicing.card import Card
from ldp_slicing.card.prose import EXPLANATION
from ldp_slicing.cli.common import err, out, plain
from ldp_slicing.cli.shrinking import Lowered
from ldp_slicing.errors import Reason
from ldp_slicing.ledger.entries import UNDER_OWNERS_KEY
from ldp_slicing.plan import kind_of_pixels
from ldp_slicing.release import records
from ldp_slicing.release.records import FileCounts
from ldp_slicing.release.rehearsal import free_bytes
from ldp_slicing.release.report import FileState
from ldp_slicing.release.run import Run
from ldp_slicing.wording import counted

LINE_SECONDS = 30.0
SHOWN = 20  # problems listed by name; the rest are counted, and --json lists all of them
OF_RELEASES = (Reason.LOST, Reason.DAMAGED, Reason.CHANGED)  # of what was released, and counts
OF_THE_RUN = (Reason.LEDGER, Reason.DISK_FULL)  # they say nothing about the file that met them
SHARED_BY_MANY = (Reason.RELEASED_BEFORE, Reason.SETTINGS)  # of many files, one mistake of the command
SHORT = 70  # characters of a notice that was printed before


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


def progress_bar(*, quiet: bool) -> Progress:
    """Return a progress bar that is shown on a terminal only."""
    columns = (TextColumn("releasing"), BarColumn(), MofNCompleteColumn(), Rate(), Remaining())
    return Progress(*columns, console=err, disable=quiet or not err.is_terminal, transient=True)


class ProgressLines:
    """A line of progress every 30 seconds, for a log file. ``say`` prints one; without it, nothing is printed."""

    def __init__(
        self, total: int, say: Callable[[str], None] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total, self._say, self._clock = total, say, clock
        self._done, self._began = 0, clock()
        self._said = self._began

    def advance(self) -> None:
        """Count a file that is done."""
        self._done += 1
        now = self._clock()
        if self._say is not None and now - self._said >= LINE_SECONDS:
            self._said = now
            left = timedelta(seconds=round((now - self._began) / self._done * (self._total - self._done)))
            self._say(f"releasing: {self._done:,} of {counted(self._total, 'file')}, about {left} left")


def lacks_space(run: Run) -> bool:
    """Return whether a dry run found that its releases would not fit on the target's disk."""
    free = free_bytes(run.paths.target) if run.is_dry else None
    return free is not None and run.written > free


def summary(run: Run, seconds: float, status: int) -> dict[str, Any]:
    """Return the content of --json."""
    counts, card = records.count_files(run.state), run.result.card
    return {
        "command": "privatize",
        "exit_status": int(status),
        "dry_run": run.is_dry,
        "bytes": run.written,
        "free_bytes": free_bytes(run.paths.target),
        "released": counts.released,
        "kept": run.inventory.kept,
        "lost": counts.lost,
        "failed": counts.failed,
        "waiting": counts.waiting,
        "total": counts.total,
        "changed": counts.changed,
        "members_failed": counts.members_failed,
        "copies": list(records.copies(run.state)),
        "equal": [list(pair) for pair in equal_files(run)],
        "skipped": list(records.skipped(run.state)),
        "not_kept": records.not_kept(run.state),
        "stopped": run.stopped,
        "complete": run.result.complete,
        "seconds": round(seconds, 3),
        "run": run.id,
        "ledger": str((run.copied_ledger or run.ledger.path).absolute()),
        "card": run.paths.card_path if card else None,
        "card_problem": run.result.problem,
        "promise": card.to_dict()["statements"] if card else None,
        "lowered_by_shrinking": [asdict(one) for one in lowered_by_shrinking(run)],
        "remarks": [remark for one in (card.statements if card else ()) if (remark := one.plan.remark)],
        "problems": [asdict(problem) for problem in records.problems(run.state)],
        "notices": [
            {"notice": text, "images": sum(one.images for one in about), "sources": [one.source for one in about]}
            for text, about in notices_by_text(run).items()
        ],
    }


def notices_by_text(run: Run) -> dict[str, list[records.Notice]]:
    """Return the notices by their texts, since many files may have the same one."""
    found: dict[str, list[records.Notice]] = {}
    for notice in records.notices(run.state):
        found.setdefault(notice.notice, []).append(notice)
    return found


def lowered_by_shrinking(run: Run) -> Iterator[Lowered]:
    """Yield what shrinking has changed, for each word length."""
    statements = {one.plan.word_bits: one for one in (run.result.card.statements if run.result.card else ())}
    for words in records.statements(run.state):
        if words.bits in statements:
            yield from Lowered.by(statements[words.bits], words.source_pixels)


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


def print_report(run: Run, seconds: float, target: str, said: Collection[str]) -> None:
    """Print what was released and what was not, then the promise. The notices in ``said`` were printed before."""
    problems = list(records.problems(run.state))
    groups = group_problems(problems)
    for one, *others in groups[:SHOWN]:
        what = one.reason.value if one.reason in OF_RELEASES else "not released"
        more = f" and {len(others):,} more" if others else ""
        err.print(f"[bold red]{what}:[/bold red] {plain(one.source)}{more}: {plain(one.problem)}")
    if hidden := sum(map(len, groups[SHOWN:])):
        err.print(f"[bold red]problems:[/bold red] {hidden:,} more; --json lists them all")
    if any(one.reason is Reason.RELEASED_BEFORE and UNDER_OWNERS_KEY not in one.problem for one in problems):
        err.print(
            "[yellow]notice:[/yellow] a release that nobody has received can be deleted, and its run voided: "
            "ldp-slicing ledger void RUN --because WHY"
        )
    print_skipped(list(records.skipped(run.state)))
    print_notices(run, said)
    print_ending(run)
    if run.is_dry:
        print_dry(run)
        return
    counts = records.count_files(run.state)
    out.print(describe_counts(counts, run.inventory.kept, seconds))
    if run.result.problem:
        err.print(
            f"[bold red]no card:[/bold red] {plain(run.result.problem)}; do not share these releases without a card"
        )
    elif card := run.result.card:
        for lowered in lowered_by_shrinking(run):
            out.print(lowered.sentence)
        is_new = counts.released > run.inventory.kept
        written = f"written to {plain(target)}{f' by run {run.id}' if run.id else ''}"
        news = written if is_new else f"nothing new in {plain(target)}"
        out.print(f"{news}; {plain(run.paths.card_path)} states the promise:\n")
        print_statements(card)
        if missing := sum(one.reason not in OF_RELEASES for one in problems):
            what = (
                counted(missing, "file or member", "files or members")
                if counts.members_failed
                else (counted(missing, "file"))
            )
            err.print(f"\n[bold red]not released:[/bold red] {what}, for the reasons above")


def group_problems(problems: Sequence[records.Problem]) -> list[list[records.Problem]]:
    """Group equal problems that are not about a single file. All other problems are alone in their group.

    Whoever names another target by mistake then reads one line, not a line for each file. Of few problems, those about
    earlier releases and unsuitable plans are listed one by one.
    """
    reasons = (*OF_THE_RUN, *SHARED_BY_MANY) if len(problems) > SHOWN else OF_THE_RUN
    groups: dict[str | int, list[records.Problem]] = {}
    for position, one in enumerate(problems):
        groups.setdefault(one.problem if one.reason in reasons else position, []).append(one)
    return list(groups.values())


def print_statements(card: Card) -> None:
    """Print the statement of a card, or several in brief. The last lines are what an attacker got."""
    if len(card.statements) == 1:
        out.print(str(card.statements[0]), markup=False)
        return
    for one in card.statements:
        out.print(one.brief, markup=False)
    out.print(EXPLANATION, markup=False)
    risks: dict[str, list[str]] = {}
    for one in card.statements:
        risks.setdefault(one.risk.sentence, []).append(kind_of_pixels(one.plan.word_bits))
    for sentence, kinds in risks.items():
        out.print(f"{', '.join(kinds)}: {sentence}", markup=False)


def print_dry(run: Run) -> None:
    """Print what a run would do, and that nothing was done."""
    counts, card, free = records.count_files(run.state), run.result.card, free_bytes(run.paths.target)
    new = counts.released - run.inventory.kept
    before = f" ({run.inventory.kept:,} are released already)" if run.inventory.kept else ""
    out.print(f"dry run: {new:,} of {counted(counts.total, 'file')} would be released{before}")
    room = "" if free is None else f"; {bytes_in_words(free)} are free on the target's disk"
    out.print(f"they would take {bytes_in_words(run.written)}{room}")
    if lacks_space(run):
        err.print("[bold red]not enough space:[/bold red] free some, choose another target, or release smaller images")
    if run.result.problem:
        err.print(f"[bold red]there would be no card:[/bold red] {plain(run.result.problem)}")
    elif card is not None:
        out.print("the card would state:\n")
        print_statements(card)
    out.print("\nNothing was written or spent.")


def bytes_in_words(size: int) -> str:
    """Return a number of bytes in MB or GB, rounded up."""
    unit, name = (10**9, "GB") if size >= 10**9 else (10**6, "MB")
    return f"{-(-size * 10 // unit) / 10:,.1f} {name}"


def print_skipped(paths: list[str]) -> None:
    """Name the files that are no sources, in one line."""
    if paths:
        more = f" and {len(paths) - SHOWN:,} more" if len(paths) > SHOWN else ""
        named = plain(", ".join(paths[:SHOWN]))
        err.print(f"[yellow]skipped:[/yellow] {counted(len(paths), 'file')} of other formats: {named}{more}")


def print_notices(run: Run, said: Collection[str]) -> None:
    """Print each notice once, with the number of images or files it is about; then equal files and copies.

    Of those that were printed before, only the number is new, and their text is cut short.
    """
    images, files = records.count_images(run.state), records.count_states(run.state)[FileState.RELEASED]
    for text, about in notices_by_text(run).items():
        subject = describe_subject(about, images, files)
        if text not in said:
            print_notice(subject, text)
        elif len(about) > 1 or about[0].images > 1:
            print_notice(subject, textwrap.shorten(text, SHORT, placeholder=" ..."))
    for path, other in (equal := equal_files(run))[:SHOWN]:
        err.print(f"[yellow]notice:[/yellow] {plain(path)} equals {plain(other)}")
    if equal:
        each = "each would get" if run.is_dry else "each has"
        err.print(
            f"[yellow]notice:[/yellow] {counted(len(equal), 'file')} with the same content as another: {each} its own "
            "noise, and their budgets add up; --duplicates once releases only the first"
        )
    for copy in itertools.islice(records.copies(run.state), SHOWN):
        err.print(f"[yellow]copy:[/yellow] {plain(copy)} equals an image that was released")


def equal_files(run: Run) -> list[tuple[str, str]]:
    """Return released files that equal another one, each with that one. Under an owner's key they cost nothing more."""
    return [] if run.secret.is_owners else list(records.equal_files(run.state))


def print_notice(subject: str, text: str) -> None:
    """Print a notice about a file or some images; the subject "." means all of them, and is not printed."""
    about = "" if subject == "." else f"{plain(subject)}: "
    err.print(f"[yellow]notice:[/yellow] {about}{plain(text)}")


def describe_subject(notices: Sequence[records.Notice], images: int, files: int) -> str:
    """Return what these equal notices are about: one file, or how many of all images or files, with the first file."""
    first, count = notices[0].source, sum(one.images for one in notices)
    share = f"{count:,} of {counted(images, 'image')}" if count else f"{len(notices):,} of {counted(files, 'file')}"
    if len(notices) > 1:
        return f"{share} ({first}, ...)"
    return first if count == 0 or images == 1 else f"{share} ({first})"


def print_ending(run: Run) -> None:
    """Say why a run is not complete, and what to do."""
    if run.disk_full:
        err.print(
            "[bold red]no space left[/bold red] on the target's disk: free some, then run the same command to resume"
            f"{keeps_key(run)}"
        )
    elif run.stopped:
        whole = "; finished releases are complete and on the card" if run.result.card else ""
        err.print(f"[bold red]stopped[/bold red] before the end{whole}. Run the same command to resume{keeps_key(run)}")
    elif records.is_unfinished(run.state):
        err.print(
            "[bold red]not complete[/bold red]: run the same command to retry what failed, or remove it from the "
            f"sources{keeps_key(run)}"
        )


def keeps_key(run: Run) -> str:
    """Return a warning about the state folder of a run that is not complete, if it holds a run key."""
    if run.is_dry or run.secret.is_owners or not run.state.has_key:
        return ""
    return f"; until then {plain(str(run.paths.state))} holds the key that can remove the noise: do not share it"
