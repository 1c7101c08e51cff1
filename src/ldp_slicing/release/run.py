"""A set of sources to a set of releases, each source once, whatever happens in between.

A run has a state folder beside its target (state.py). Order of writing, for every source: the intent is in the ledger, on the disk; the
release is written without a name; it gets its name; the ledger says done; the journal says released. Whatever is interrupted is made
again from the same key, with the same bytes. Outputs are not flushed to the disk one by one, which would cost more than making them:
a power cut can take some, but the key is destroyed only after everything was flushed at once, and until then they are found out and
made again. docs/proofs.md, 13.
"""

from __future__ import annotations

import hashlib
import time
import unicodedata
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction

from ldp_slicing.card import Card, Statement
from ldp_slicing.errors import LdpSlicingError, ReleaseError
from ldp_slicing.formats import WRITERS, kept_names
from ldp_slicing.keys import Secret
from ldp_slicing.ledger import Ledger, Stream
from ldp_slicing.manifest import BLANK, has_card, read_or_empty, write_manifest
from ldp_slicing.release.pool import run_here, run_in_processes
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.state import RELEASED, WAITING, Journal
from ldp_slicing.release.worker import Gate, LedgerGate, Outcome, Setting, Task
from ldp_slicing.storage import PARTIAL, Found, Storage, is_apple_double, write_whole
from ldp_slicing.tables import round_up
from ldp_slicing.view import block_of

SETTLE_SECONDS = 30.0
NO_ROOM = 5  # files in a row that find the disk full: it is
Stop = Callable[[], bool]
Engine = Callable[[Setting, Gate, Journal, Stop], Generator[list[Outcome]]]


def check_card(target: Storage, path: str, journal: Journal) -> None:
    """Refuse a target whose card is not one that this run wrote: what it promises would be lost."""
    content = read_or_empty(target, path)
    if content.strip(BLANK) and hashlib.sha256(content).hexdigest() not in (journal.get("cards") or ()):
        what = "another run wrote it, or somebody changed it" if has_card(target, path) else "it is no card"
        raise ReleaseError(f"{path} is there, and {what}: one target is one run's. Move it away if it is of no use")


def on_this_machine(workers: int) -> Engine:
    if workers < 1:
        raise ReleaseError(f"workers must be at least 1; got {workers}")

    def engine(setting: Setting, gate: Gate, journal: Journal, stop: Stop) -> Generator[list[Outcome]]:
        tasks = journal.waiting()
        return (
            run_here(setting, gate, tasks, stop)
            if workers == 1
            else run_in_processes(setting, gate, tasks, stop, workers)
        )

    return engine


@dataclass
class Job:
    """A release to be made. ``run`` makes it; when it ends, card and manifest are true of whatever was released by then.

    ``waiting``: files to do; ``kept``: files with a release from before. ``card_problem`` says why card or manifest could not be written.
    """

    source: Storage
    target: Storage
    settings: ReleaseSettings
    journal: Journal
    ledger: Ledger
    secret: Secret
    spend: bool
    card_path: str
    single: bool
    waiting: int = 0
    kept: int = 0
    interrupted: bool = False  # before it was known what is to be done
    is_full: bool = False  # the target's disk
    done: int = 0
    stopped: bool = False
    complete: bool = False
    card_problem: str | None = None
    last_card: Card | None = None  # as it was written
    let_go: Callable[[], None] | None = None  # of the target; without it another run may be at work there
    _settled: float = field(default_factory=time.monotonic)
    _without_room: list[Task] = field(default_factory=list)  # files in a row
    _withdrawn: bool = False
    _said: dict[str, tuple[int, float, float]] = field(default_factory=dict)  # of each kind of word, on the card

    def run(self, engine: Engine, stop: Stop = lambda: False) -> Generator[Outcome]:
        """Yields the outcome of each file as it is done. Stopping leaves whole files, and a run that can be resumed."""
        stream = Stream(self.secret.identity(), self.secret.is_owners, self.spend, self.settings.duplicates)
        setting = Setting(self.source, self.target, self.settings, self.secret)
        gate = LedgerGate(self.ledger, stream, self.settings, self._withdraw_card)
        if self.interrupted:
            self.stopped = True
            return
        try:
            if self.waiting:
                with closing(engine(setting, gate, self.journal, lambda: stop() or self.is_full)) as results:
                    for outcomes in results:
                        self._look_for_room(outcomes)
                        self.journal.record(outcomes, stream.identity, lambda file: self.ledger.keyed("file", file))
                        self._settle()
                        for outcome in outcomes:
                            self.done += not outcome.stopped
                            yield outcome
        except ReleaseError as error:
            self.card_problem = str(error)  # what has its name may not be known: no card can be true of it
            raise
        finally:
            self._end()

    def _settle(self) -> None:
        """From time to time flush everything, so that resuming after a power cut need not read all of it again."""
        if time.monotonic() - self._settled > SETTLE_SECONDS:
            self.target.sync()
            self.journal.settle()
            self._settled = time.monotonic()

    def _end(self) -> None:
        counts = self.journal.counts()
        self.stopped = counts[WAITING] > 0
        try:
            self.target.clear_drafts()
            if self._all_is_counted() and (card := self.card()):
                self._write_card(card)
                if not self.let_go:  # another run, if one is at work here, lists after it has named something, and this one now: one sees it
                    self._all_is_counted()
            if not self.card_problem and not self.journal.unfinished:
                self._complete()
        except (OSError, LdpSlicingError) as error:
            self.card_problem = f"the card could not be written: {getattr(error, 'strerror', None) or error}"

    def _all_is_counted(self) -> bool:
        """Whether a card would be true of what lies there. If not, none may lie there, whoever wrote it."""
        if not self.card_problem and (problem := self._not_counted()):
            self.card_problem, self.last_card = problem, None
            if has_card(self.target, self.card_path):
                self.target.remove(self.card_path)
        return not self.card_problem

    def _write_card(self, card: Card) -> None:
        content = card.to_json().encode() + b"\n"
        check_card(self.target, self.card_path, self.journal)
        self.journal.set_durably(
            "cards", [*(self.journal.get("cards") or [])[-9:], hashlib.sha256(content).hexdigest()]
        )
        self.journal.set_durably("said", self._said)
        if not self.single:
            write_manifest(self.target, self.journal.manifest())
        write_whole(self.target, self.card_path, [content])
        self.last_card = card
        self.target.clear_drafts()

    def _look_for_room(self, outcomes: Sequence[Outcome]) -> None:
        """Where one file after the other finds the disk full, so will the rest, unless most of them are smaller."""
        for outcome in outcomes:
            if outcome.no_room:
                self._without_room.append(outcome.task)
            elif not outcome.stopped:
                self._without_room.clear()
        if len(self._without_room) >= NO_ROOM:
            larger, waiting = self.journal.waiting_from(min(task.size for task in self._without_room))
            self.is_full = 2 * larger >= waiting

    def _withdraw_card(self) -> None:
        """An earlier card does not count what is released from now on, and whatever happens nobody may be left with it."""
        if self._withdrawn:
            return
        try:
            self.target.remove(self.card_path)
            self._withdrawn = True
        except OSError as error:
            raise ReleaseError(
                f"{self.card_path} cannot be removed, and would not count what comes: {error.strerror or error}"
            ) from None

    def _not_counted(self) -> str | None:
        """What lies among the releases and is not known as one: of it no card would be true.

        A worker that was killed, or a ledger that failed, may leave files that have their names and are made again, the same, next time.
        """
        if other := self.journal.damaged():
            return f"{other} is not what was released under that name: move it away, or bring the release back, and run the same command again"
        for found in map(Found, self.journal.outputs()) if self.single else self.target.files():
            if found.problem:  # there may be anything behind it
                return f"{found.path} {found.problem}"
            path = found.path
            ending = path[path.rfind(".") :].lower()
            if ending not in WRITERS or path.startswith(f"{PARTIAL}/") or is_apple_double(self.target, path):
                continue
            if any(
                map(
                    self.journal.is_released,
                    (path, unicodedata.normalize("NFC", path), unicodedata.normalize("NFD", path)),
                )
            ):
                continue  # some disks give accents another form
            if not self.single or self.target.size(path) is not None:
                return f"{path} is there and not counted: run the same command again, or, if it is no release of this run, move it away"
        return None

    def _complete(self) -> None:
        """Everything is on the disk; from now on nothing can be made again without spending."""
        self.target.sync()
        self.journal.settle()
        self.journal.set_durably("complete", True)
        self.journal.destroy_key()
        self.complete = True

    def close(self) -> None:
        """Of a single file nothing is left to know once it is released, and of a run that came to nothing neither."""
        nothing = self.complete and not self.journal.counts()[RELEASED]
        made_target = bool(self.journal.get("made target"))
        self.ledger.close()
        if nothing or (self.complete and self.single):
            self.journal.remove()
        else:
            self.journal.close()
        if nothing and made_target:
            self.target.remove_if_empty()
        if self.let_go:
            self.let_go()

    def card(self) -> Card | None:
        """The statement about what was released, if anything was. What its sources have cost is asked of the ledger, now."""
        statements = []
        for bits, count, frames, sizes in self.journal.statements():
            slicer, known = self.settings.slicer(bits), self.ledger.most_of(self.journal.numbers(bits))
            film = Fraction(slicer.plan.realised_epsilon) * frames  # under an owner's key equal frames are one entry
            spent = (
                max([round_up(film), *(one.epsilon for one in known)]),
                max([round_up(film * block_of(slicer.prune) ** 2), *(one.source_pixel_epsilon for one in known)]),
            )
            times = max([frames, *(one.releases for one in known)])
            before = (self.journal.get("said") or {}).get(
                str(bits), (0, 0.0, 0.0)
            )  # no card says less than the one before it
            times, spent = max(times, before[0]), (max(spent[0], before[1]), max(spent[1], before[2]))
            self._said[str(bits)] = (times, *spent)
            statements.append(Statement(slicer.plan, slicer.prune, slicer.output, tuple(sizes), count, times, spent))
        if not statements:
            return None
        return Card(
            tuple(statements),
            random_names=self.settings.names == "random",
            owners_key=self.secret.is_owners,
            kept=kept_names(self.settings.keep),
        )
