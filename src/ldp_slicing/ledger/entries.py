"""The entries of a ledger: which releases it approves, and what becomes of them.

Every release is entered twice: as an *intent*, on disk before anything is written, and as *done* once its file has its
name. A crash can therefore make the ledger count a release that did not get out, never the reverse.

Proof: docs/proofs.md, 13. Tests: tests/ledger/test_ledger.py.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

from ldp_slicing.digests import frame, tables_digest
from ldp_slicing.errors import LedgerError, Reason
from ldp_slicing.fingerprint import ENOUGH_MARKS
from ldp_slicing.ledger.database import LedgerDatabase
from ldp_slicing.ledger.file import read_meta
from ldp_slicing.ledger.sums import Spent
from ldp_slicing.plan import Plan
from ldp_slicing.tables import LAYOUT_VERSION, round_up
from ldp_slicing.view import Prune, Size, block_of, sizing
from ldp_slicing.wording import number, times

Duplicates = Literal["spend", "once"]
REFUSALS_REMEMBERED = 1000
RUN_ID_DIGITS = 12
UNDER_OWNERS_KEY = "under the owner's key"  # in a refusal: releases under such a key cannot be voided
RESEMBLES = (
    "may be a shrunk or re-encoded copy of another image of this run or of an earlier one; if so, their eps add up, "
    "and the ledger does not count this"
)


@dataclass(frozen=True)
class Intent:
    """A release about to be made.

    ``file`` is the SHA-256 of the bytes that the source was decoded from. ``released`` is the number of pixels of the
    release. ``frame`` is the number of a frame in its file, from 1, or 0 for a still image; questions about a whole
    file are asked with its first frame. ``forms`` are the digests of its common forms (``digests.common_digests``): the
    same values at another bit depth have one in common. ``marks`` are the parts of its coarse fingerprint, none for a
    frame. ``size`` is what the source is shrunk to, as in ``Slicer``, or None if it keeps its size: it is part of the
    view. ``mapping`` says how its values are mapped to a range, if they are; it is part of the view, too.
    """

    item: bytes
    source: bytes
    file: bytes | None
    plan: Plan
    prune: Prune
    released: int
    frame: int = 0
    forms: tuple[bytes, ...] = ()
    marks: tuple[bytes, ...] = ()
    size: Size = None
    mapping: str = ""


@dataclass(frozen=True)
class Approval:
    """The answer to an intent: the number of its entry in the ledger, or the reason why it is refused.

    ``notice`` is what the owner should know about a release that is approved.
    """

    entry: int = 0
    problem: str | None = None
    is_copy: bool = False
    reason: Reason = Reason.RELEASED_BEFORE
    notice: str | None = None


@dataclass(frozen=True)
class RunPolicy:
    """Under which key a run releases, and whether it may release a source again.

    ``identity`` is that of the run key or of the owner's key. ``spend`` allows sources that were released before.
    ``duplicates="once"`` refuses equal images within the run. ``cap`` is the largest eps per released pixel that all
    releases of one source may add up to, voided ones included.

    A run that is resumed has a further ``session`` (``Ledger.begin_session``). What an earlier session released is
    released again, under another name, only if ``has_source`` says that its own source is still there: then the two are
    copies. Otherwise the source was renamed, and the second release would be one of the same source.
    """

    identity: bytes
    is_owners: bool
    spend: bool = False
    duplicates: Duplicates = "spend"
    session: int = 0
    has_source: Callable[[int], bool] = lambda entry: False
    cap: float | None = None


class LedgerEntries(LedgerDatabase):
    """A ledger that entries are made in."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        super().__init__(path, must_exist=must_exist)
        self._has_first_number = False
        # By the plan's identity: hashing a plan costs more than a query.
        self._plans: dict[tuple[int, Prune, Size, str], tuple[Plan, int]] = {}
        self._refusals: dict[tuple[bytes, tuple[bytes, ...]], tuple[Spent, str]] = {}  # of refused sources

    def _forget(self) -> None:
        self._plans.clear()
        self._has_first_number = False

    def begin_session(self) -> int:
        """Return the number of a new session, higher than all before it. It is durable."""
        with self._transaction():
            self._database.execute("UPDATE meta SET value = value + 1 WHERE name = 'session'")
            return int(read_meta(self._database, "session"))

    def approve(self, intents: Sequence[Intent], policy: RunPolicy) -> list[Approval]:
        """Enter the intents that are allowed, durably, in one transaction; refuse the others with a reason."""
        with self._transaction():
            self._check_not_voided(policy.identity)
            return [self._approve_one(intent, policy) for intent in intents]

    def check_not_voided(self, identity: bytes) -> None:
        """Refuse a key whose run was voided: what it made would not count in the sums without voided releases."""
        with self._reading():
            self._check_not_voided(identity)

    def _check_not_voided(self, identity: bytes) -> None:
        query = "SELECT because FROM runs WHERE stream = ? AND voided IS NOT NULL"
        if found := self._database.execute(query, (identity,)).fetchone():
            raise LedgerError(
                f"this run was voided ({found[0]}), and its key, which should be gone, is used again: delete its state "
                "folder and its outputs, and release to another target"
            )

    def finish(self, entries: Sequence[int]) -> None:
        """Mark releases as done: their files have their names.

        Not flushed. What a power cut undoes is an intent again, and still counts.
        """
        with self._transaction(flush=False):
            self._database.executemany("UPDATE releases SET done = 1 WHERE id = ?", ((entry,) for entry in entries))

    def withdraw(self, entries: Sequence[int]) -> None:
        """Remove intents whose files were never given their names.

        An intent that was approved more than once stays: an earlier attempt may have succeeded.
        """
        with self._transaction(flush=False):
            self._database.executemany(
                "DELETE FROM releases WHERE id = ? AND done = 0 AND claims = 1", ((entry,) for entry in entries)
            )

    def _approve_one(self, intent: Intent, policy: RunPolicy) -> Approval:
        plan = self._plan(intent.plan, intent.prune, intent.size, intent.mapping)
        content = self._enter_content(intent)
        files = self.keyed_each("file", intent.file)
        # Every question uses an index and stops at its first row: a file may have many equal images.
        run = self._database.execute
        if (entry := self._find(intent, plan, policy)) is not None:
            run("UPDATE releases SET claims = claims + 1, session = ? WHERE id = ?", (policy.session, entry))
            return Approval(entry)
        if refused := self._refuse(content, files, intent, plan, policy):
            return refused
        copies = "SELECT 1 FROM releases WHERE content = ? AND voided = 0 AND stream = ? LIMIT 1"
        if policy.duplicates == "once" and not intent.frame and run(copies, (content, policy.identity)).fetchone():
            return Approval(
                problem="is a copy of an image released in this run (--duplicates once)",
                is_copy=True,
                reason=Reason.COPY,
            )
        insert = (
            "INSERT INTO releases (id, stream, item, pixels, plan, content, session, file, time, released) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        self._refusals.clear()
        item = b"" if policy.is_owners else self.keyed("item", intent.item)
        key = (policy.identity, item, self.keyed("pixels", intent.source), plan)
        seen = (content, policy.session, files[0] if files else None, int(time.time()), intent.released)
        values = (self._first_number(), *key, *seen)
        return Approval(int(run(insert, values).lastrowid or 0), notice=self._enter_marks(content, intent.marks))

    def _enter_marks(self, content: bytes, marks: Sequence[bytes]) -> str | None:
        """Enter the marks of a source. Return a notice if it resembles another source that was released."""
        if not marks:
            return None
        run = self._database.execute
        asked = [digest for mark in marks for digest in self.keyed_each("mark", mark)]
        resembling = (
            f"SELECT content FROM marks WHERE mark IN ({', '.join('?' * len(asked))}) AND content <> ? "  # noqa: S608
            "GROUP BY content HAVING COUNT(*) >= ?"
        )
        is_released = "SELECT 1 FROM releases WHERE content = ? LIMIT 1"  # not if its entry was withdrawn
        found = run(resembling, (*asked, content, ENOUGH_MARKS)).fetchall()
        resembles = any(run(is_released, one).fetchone() for one in found)
        entered = ((self.keyed("mark", mark), content) for mark in marks)
        self._database.executemany("INSERT OR IGNORE INTO marks VALUES (?, ?)", entered)
        return RESEMBLES if resembles else None

    def _find(self, intent: Intent, plan: int, policy: RunPolicy) -> int | None:
        """Return the entry of this very release, if it was approved before."""
        query = "SELECT id FROM releases WHERE (stream, item, pixels, plan) = (?, ?, ?, ?)"
        items = self.keyed_each("item", intent.item)
        for item, pixels in zip(items, self.keyed_each("pixels", intent.source), strict=True):
            values = (policy.identity, b"" if policy.is_owners else item, pixels, plan)
            if (found := self._database.execute(query, values).fetchone()) is not None:
                return int(found[0])
        return None

    def _refuse(
        self, content: bytes, files: tuple[bytes, ...], intent: Intent, plan: int, policy: RunPolicy
    ) -> Approval | None:
        """Refuse a source that may not be released once more. The cap comes first: --spend does not lift it."""
        if policy.cap is not None and (problem := self._over_cap(content, files, intent, policy.cap)):
            return Approval(problem=problem, reason=Reason.CAP)
        if policy.spend:
            return None
        asked = files if intent.frame < 2 else ()
        for one in {content, *self._contents_of_files(asked)}:
            if self._is_of_another_run(one, plan, policy):
                return Approval(problem=self._refusal(content, asked, intent))
            if self._is_renamed(one, policy):
                gone = " by this run, under a name that is gone"
                return Approval(problem=self._refusal(content, asked, intent, gone))
        return None

    def _over_cap(self, content: bytes, files: tuple[bytes, ...], intent: Intent, cap: float) -> str | None:
        """Return why a release would exceed the cap, if so. At most cap / eps entries of a source are ever added up."""
        spent, more = self._spent(self._of_source(content, files)), Fraction(intent.plan.realised_epsilon)
        total = Fraction(spent.epsilon) + more
        if total <= Fraction(cap):
            return None
        before = f"was released {times(spent.releases)}{_remarks(spent)}, and " if spent.releases else ""
        return (
            f"{before}would reach epsilon {number(round_up(total))} per released pixel, above the cap of "
            f"{number(cap)}: choose a smaller --epsilon, or raise --cap"
        )

    def _is_of_another_run(self, content: bytes, plan: int, policy: RunPolicy) -> bool:
        """Return whether a source was released under another key, or under this owner's key with another plan."""
        run, stream = self._database.execute, policy.identity
        of_content = "SELECT 1 FROM releases WHERE content = ? AND voided = 0"
        for other in ("stream < ?", "stream > ?"):
            if run(f"{of_content} AND {other} LIMIT 1", (content, stream)).fetchone():
                return True
        query = f"{of_content} AND stream = ? AND plan <> ? LIMIT 1"
        return policy.is_owners and run(query, (content, stream, plan)).fetchone() is not None

    def _is_renamed(self, content: bytes, policy: RunPolicy) -> bool:
        """Return whether an earlier session of this run released a source that is no longer there under its name.

        What is still there is marked with this session, so that it is asked about once.
        """
        run = self._database.execute
        earlier = "SELECT id FROM releases WHERE content = ? AND voided = 0 AND stream = ? AND session < ? LIMIT 1"
        while not policy.is_owners and (found := run(earlier, (content, policy.identity, policy.session)).fetchone()):
            if not policy.has_source(found[0]):
                return True
            run("UPDATE releases SET session = ? WHERE id = ?", (policy.session, *found))
        return False

    def _enter_content(self, intent: Intent) -> bytes:
        """Return the content of a source. If its digests are known by several contents, these become one."""
        found = self._contents(intent.source, intent.forms)
        content = min(found, default=self.keyed("pixels", intent.source))
        self.unite((content, other) for other in found)
        entered = ((self.keyed("form", form), content) for form in intent.forms)
        self._database.executemany("INSERT OR IGNORE INTO forms VALUES (?, ?)", entered)
        return content

    def _first_number(self) -> int | None:
        """Return a random number far above all others for the first entry; those after it are consecutive.

        An older ledger that is restored from a backup therefore does not give the same numbers to other releases.
        """
        if self._has_first_number:
            return None
        self._has_first_number = True
        highest = self._database.execute("SELECT COALESCE(MAX(id), 0) FROM releases").fetchone()[0]
        return int(highest) + 1 + secrets.randbits(40)

    def _refusal(self, content: bytes, files: tuple[bytes, ...], intent: Intent, gone: str = "") -> str:
        if (content, files) not in self._refusals:
            if len(self._refusals) >= REFUSALS_REMEMBERED:
                self._refusals.clear()
            chosen, values = self._of_source(content, files)
            last = f"SELECT time, stream FROM {chosen} ORDER BY voided, time DESC, id DESC LIMIT 1"  # noqa: S608
            moment, stream = self._database.execute(last, values).fetchone()
            owners = self._database.execute("SELECT is_owners FROM runs WHERE stream = ?", (stream,)).fetchone()
            how = UNDER_OWNERS_KEY if owners == (1,) else "by run"
            when = f"on {time.strftime('%Y-%m-%d', time.localtime(moment))} {how} {run_id(stream)}"
            self._refusals[content, files] = self._spent((chosen, values)), when
        (spent, when), more = self._refusals[content, files], Fraction(intent.plan.realised_epsilon)
        least = "at least " if intent.frame else ""  # the other frames have not been looked up yet
        last = "last " if spent.releases > 1 else ""
        return (
            f"was released before{gone}, {least}{times(spent.releases)}{_remarks(spent)}, {last}{when}; "
            f"another release would add up to {least}epsilon {number(round_up(Fraction(spent.epsilon) + more))} per "
            "released pixel; --spend allows it"
        )

    def _plan(self, plan: Plan, prune: Prune, size: Size, mapping: str) -> int:
        """Return the number of a plan and view in the ledger; enter them if they are new."""
        known = (id(plan), prune, size, mapping)
        if known in self._plans:
            return self._plans[known][1]
        about = {
            **plan.to_dict(),
            "prune": prune or "none",
            "keystream_layout": LAYOUT_VERSION,
        }
        view = [(prune or "none").encode(), bytes([LAYOUT_VERSION])]
        if size is not None:
            about["size"] = sizing(size)
            view.append(f"size {sizing(size)}".encode())
        if mapping:
            about["range"] = mapping
            view.append(f"range {mapping}".encode())
        digest = hashlib.sha256(frame(tables_digest(plan.tables), *view)).digest()
        insert = "INSERT OR IGNORE INTO plans (digest, epsilon, dependents, about) VALUES (?, ?, ?, ?)"
        self._database.execute(insert, (digest, plan.realised_epsilon, block_of(prune) ** 2, json.dumps(about)))
        (entered,) = self._database.execute("SELECT id FROM plans WHERE digest = ?", (digest,)).fetchone()
        self._plans[known] = plan, int(entered)
        return int(entered)


def run_id(stream: bytes) -> str:
    """Return the name of a run in messages: the first digits of the identity of its key."""
    return stream.hex()[:RUN_ID_DIGITS]


def _remarks(spent: Spent) -> str:
    """Return what is to be said about a number of releases: how many are unconfirmed or voided."""
    remarks = [f"{spent.unfinished} unconfirmed: that run was interrupted"] if spent.unfinished else []
    if spent.voided:
        remarks.append(f"{spent.voided} voided")
    return f" ({', '.join(remarks)})" if remarks else ""
