"""The ledger: the owner's record of what was released from which source. SQLite; several processes may use it at once.

The ledger holds no content and no names. Sources and items appear as digests under the ledger's own key, which lies
beside it. Somebody who has both can test whether a given image was released; somebody who has the ledger alone cannot.
Every release is entered twice: as an *intent*, on disk before anything is written, and as *done* once its file has its
name. A crash can therefore make the ledger count a release that did not get out, never the reverse.

Proof: docs/proofs.md, 13. Tests: tests/test_ledger.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from ldp_slicing.card import counted, number
from ldp_slicing.errors import LdpSlicingError, LedgerError
from ldp_slicing.keys import frame, tables_digest
from ldp_slicing.ledger_file import keyed_digest, open_ledger_file, read_meta
from ldp_slicing.plan import Plan
from ldp_slicing.tables import LAYOUT_VERSION, round_up
from ldp_slicing.view import Prune, block_of

Duplicates = Literal["spend", "once"]
Selection = tuple[str, tuple[Any, ...]]  # a table of releases in SQL, and the values it takes
REFUSALS_REMEMBERED = 1000
_DAMAGED = (sqlite3.Error, ArithmeticError, AttributeError, TypeError, ValueError)  # what damaged values lead to
# The contents of a file, each once. A file may have many equal images: the index is entered once for each content.
_CONTENTS_OF_FILE = """
WITH RECURSIVE held (content) AS (
    SELECT MIN(content) FROM releases WHERE file = ?1
    UNION ALL SELECT (SELECT MIN(content) FROM releases WHERE file = ?1 AND content > held.content)
    FROM held WHERE held.content IS NOT NULL
) SELECT content FROM held WHERE content IS NOT NULL
"""


@dataclass(frozen=True)
class Intent:
    """A release about to be made.

    ``file`` is the SHA-256 of the bytes that the source was decoded from. ``frame`` is the number of a frame in its
    file, from 1, or 0 for a still image; questions about a whole file are asked with its first frame. ``forms`` are the
    digests of its common forms (``keys.common_digests``): the same values at another bit depth have one in common.
    """

    item: bytes
    source: bytes
    file: bytes | None
    plan: Plan
    prune: Prune
    frame: int = 0
    forms: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Approval:
    """The answer to an intent: the number of its entry in the ledger, or the reason why it is refused."""

    entry: int = 0
    problem: str | None = None
    is_copy: bool = False


@dataclass(frozen=True)
class Spent:
    """Releases of one source, or of all, with the sums of eps per released pixel and per source pixel.

    ``unfinished`` of the releases are intents of runs that were interrupted: they may or may not exist.
    """

    releases: int
    unfinished: int
    epsilon: float
    source_pixel_epsilon: float
    last: int


@dataclass(frozen=True)
class RunPolicy:
    """Under which key a run releases, and whether it may release a source again.

    ``identity`` is that of the run key or of the owner's key. ``spend`` allows sources that were released before.
    ``duplicates="once"`` refuses equal images within the run.

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


def spent_query(selection: str, *, plans: str = "plans") -> str:
    """Return SQL for the rows that ``add_up`` takes, from a table of releases and the table of plans."""
    return (
        "SELECT COUNT(*), SUM(1 - done), MAX(time), plans.epsilon, plans.dependents "  # noqa: S608
        f"FROM {selection} AS chosen JOIN {plans} AS plans ON plans.id = chosen.plan GROUP BY plan"
    )


def add_up(rows: Sequence[tuple[Any, ...]]) -> Spent:
    """Add up what was spent, in rationals and rounded up: the sum is never less than what was spent."""
    epsilon = sum((Fraction(row[3]) * row[0] for row in rows), Fraction(0))
    source = sum((Fraction(row[3]) * row[0] * row[4] for row in rows), Fraction(0))
    last = max((row[2] for row in rows), default=0)
    return Spent(sum(row[0] for row in rows), sum(row[1] for row in rows), round_up(epsilon), round_up(source), last)


class Ledger:
    """An open ledger. It is created if it does not exist, unless ``must_exist``."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path.resolve() if path.is_symlink() else path
        self._key, self._database = open_ledger_file(self.path, must_exist=must_exist)
        self._has_first_number = False
        # By the plan's identity: hashing a plan costs more than a query.
        self._plans: dict[tuple[int, Prune], tuple[Plan, int]] = {}
        self._refusals: dict[tuple[bytes, bytes | None], Spent] = {}  # what was spent on sources that were refused

    def close(self) -> None:
        """Close the ledger. Its log is merged into its file first, as far as other processes allow."""
        with contextlib.suppress(sqlite3.Error):
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._database.close()

    @property
    def identity(self) -> str:
        with self._reading():
            return bytes(read_meta(self._database, "id")).hex()

    def keyed(self, kind: str, content: bytes) -> bytes:
        """Return a digest that reveals nothing without the ledger's key. ``kind`` separates pixels, files and names."""
        return keyed_digest(self._key, kind, content)

    def begin_session(self) -> int:
        """Return the number of a new session, higher than all before it. It is durable."""
        with self._transaction():
            self._database.execute("UPDATE meta SET value = value + 1 WHERE name = 'session'")
            return int(read_meta(self._database, "session"))

    def approve(self, intents: Sequence[Intent], policy: RunPolicy) -> list[Approval]:
        """Enter the intents that are allowed, durably, in one transaction; refuse the others with a reason."""
        with self._transaction():
            return [self._approve_one(intent, policy) for intent in intents]

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

    def spent(self, source: bytes, file: bytes | None = None, forms: Sequence[bytes] = ()) -> Spent:
        """Return what was spent on an image, by the digests of its pixels, of its file and of its common forms."""
        return self.spent_on_frames([(source, forms)], file)

    def spent_on_frames(self, frames: Iterable[tuple[bytes, Sequence[bytes]]], file: bytes | None) -> Spent:
        """Return what was spent on the frames of a file, by the digests of their pixels, common forms and file."""
        with self._reading():
            run = self._database.execute
            run("CREATE TEMP TABLE IF NOT EXISTS asked_contents (content BLOB PRIMARY KEY)")
            insert = "INSERT OR IGNORE INTO asked_contents VALUES (?)"
            with self._database:
                run("DELETE FROM asked_contents")
                for source, forms in frames:
                    found = self._contents(self.keyed("pixels", source), [self.keyed("form", form) for form in forms])
                    self._database.executemany(insert, ((content,) for content in found))
                for content in self._contents_of_file(file and self.keyed("file", file)):
                    run(insert, (content,))
            return self._spent(("(SELECT * FROM releases WHERE content IN (SELECT content FROM asked_contents))", ()))

    def total(self) -> Spent:
        with self._reading():
            return self._spent(("releases", ()))

    def sources(self) -> int:
        """Return the number of different images, frames included."""
        with self._reading():
            return int(self._database.execute("SELECT COUNT(DISTINCT content) FROM releases").fetchone()[0])

    def most_spent(self, count: int = 10) -> list[tuple[str, Spent]]:
        """Return the ``count`` sources on which most was spent, each under the beginning of its digest.

        A video is one source, named by its file. Its frames are not listed besides, unless also released as images.
        """
        videos = "SELECT file FROM releases WHERE file IS NOT NULL GROUP BY file HAVING COUNT(DISTINCT content) > 1"
        stills = f"SELECT content AS name, content FROM releases WHERE file IS NULL OR file NOT IN ({videos})"  # noqa: S608
        frames = f"SELECT file AS name, content FROM releases WHERE file IN ({videos})"  # noqa: S608
        found: dict[str, Spent] = {}
        with self._reading():
            for kind in (stills, frames):
                query = (
                    f"SELECT name, SUM(plans.epsilon) AS total FROM (SELECT DISTINCT name, content FROM ({kind})) "  # noqa: S608
                    "JOIN releases USING (content) JOIN plans ON plans.id = plan "
                    "GROUP BY name ORDER BY total DESC, name LIMIT ?"
                )
                for digest, _ in self._database.execute(query, (count,)).fetchall():
                    selection = self._of_source(digest, None) if kind is stills else self._of_file(digest)
                    found[digest.hex()[:16]] = self._spent(selection)
        return sorted(found.items(), key=lambda pair: (-pair[1].epsilon, pair[0]))[:count]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every release, for export."""
        query = (
            "SELECT pixels, file, stream, plan, epsilon, done, time "
            "FROM releases JOIN plans ON plans.id = plan ORDER BY releases.id"
        )
        with self._reading():
            for pixels, file, stream, plan, epsilon, done, moment in self._database.execute(query):
                yield {
                    "source": pixels.hex(),
                    "file": file and file.hex(),
                    "run": stream.hex(),
                    "plan": plan,
                    "epsilon": epsilon,
                    "state": "done" if done else "intent",
                    "time": moment,
                }

    def plans(self) -> dict[int, Any]:
        with self._reading():
            rows = self._database.execute("SELECT id, about FROM plans ORDER BY id")
            return {number: json.loads(about) for number, about in rows}

    def _approve_one(self, intent: Intent, policy: RunPolicy) -> Approval:
        pixels, file = self.keyed("pixels", intent.source), intent.file and self.keyed("file", intent.file)
        item = b"" if policy.is_owners else self.keyed("item", intent.item)
        plan = self._plan(intent.plan, intent.prune)
        content = self._enter_content(pixels, [self.keyed("form", form) for form in intent.forms])
        key = (policy.identity, item, pixels, plan)
        # Every question uses an index and stops at its first row: a file may have many equal images.
        run = self._database.execute
        entry = run("SELECT id FROM releases WHERE (stream, item, pixels, plan) = (?, ?, ?, ?)", key).fetchone()
        if entry is not None:
            run("UPDATE releases SET claims = claims + 1, session = ? WHERE id = ?", (policy.session, *entry))
            return Approval(entry[0])
        asked = file if intent.frame < 2 else None
        if not policy.spend:
            for one in {content, *self._contents_of_file(asked)}:
                if self._is_of_another_run(one, plan, policy):
                    return Approval(problem=self._refusal(content, asked, intent))
                if self._is_renamed(one, policy):
                    gone = " by this run, under a name that is gone"
                    return Approval(problem=self._refusal(content, asked, intent, gone))
        copies = "SELECT 1 FROM releases WHERE content = ? AND stream = ? LIMIT 1"
        if policy.duplicates == "once" and not intent.frame and run(copies, (content, policy.identity)).fetchone():
            return Approval(problem="is a copy of an image released in this run (--duplicates once)", is_copy=True)
        insert = (
            "INSERT INTO releases (id, stream, item, pixels, plan, content, session, file, time) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        self._refusals.clear()
        values = (self._first_number(), *key, content, policy.session, file, int(time.time()))
        return Approval(int(run(insert, values).lastrowid or 0))

    def _is_of_another_run(self, content: bytes, plan: int, policy: RunPolicy) -> bool:
        """Return whether a source was released under another key, or under this owner's key with another plan."""
        run, stream = self._database.execute, policy.identity
        for other in ("stream < ?", "stream > ?"):
            if run(f"SELECT 1 FROM releases WHERE content = ? AND {other} LIMIT 1", (content, stream)).fetchone():  # noqa: S608
                return True
        query = "SELECT 1 FROM releases WHERE content = ? AND stream = ? AND plan <> ? LIMIT 1"
        return policy.is_owners and run(query, (content, stream, plan)).fetchone() is not None

    def _is_renamed(self, content: bytes, policy: RunPolicy) -> bool:
        """Return whether an earlier session of this run released a source that is no longer there under its name.

        What is still there is marked with this session, so that it is asked about once.
        """
        run = self._database.execute
        earlier = "SELECT id FROM releases WHERE content = ? AND stream = ? AND session < ? LIMIT 1"
        while not policy.is_owners and (found := run(earlier, (content, policy.identity, policy.session)).fetchone()):
            if not policy.has_source(found[0]):
                return True
            run("UPDATE releases SET session = ? WHERE id = ?", (policy.session, *found))
        return False

    def _contents(self, pixels: bytes, forms: Sequence[bytes]) -> set[bytes]:
        """Return the contents that these keyed digests are known by."""
        run = self._database.execute
        rows = [run("SELECT content FROM releases WHERE pixels = ? LIMIT 1", (pixels,)).fetchone()]
        rows += [run("SELECT content FROM forms WHERE form = ?", (form,)).fetchone() for form in forms]
        return {row[0] for row in rows if row is not None}

    def _enter_content(self, pixels: bytes, forms: Sequence[bytes]) -> bytes:
        """Return the content of a source. If its digests are known by several contents, these become one."""
        found = self._contents(pixels, forms)
        content = min(found, default=pixels)
        for other in found - {content}:
            for table in ("releases", "forms"):
                self._database.execute(f"UPDATE {table} SET content = ? WHERE content = ?", (content, other))  # noqa: S608
        entered = ((form, content) for form in forms)
        self._database.executemany("INSERT OR IGNORE INTO forms VALUES (?, ?)", entered)
        return content

    def _contents_of_file(self, file: bytes | None) -> Iterator[bytes]:
        """Yield the contents that came from a file, each once."""
        if file is not None:
            for (content,) in self._database.execute(_CONTENTS_OF_FILE, (file,)):
                yield content

    def _first_number(self) -> int | None:
        """Return a random number far above all others for the first entry; those after it are consecutive.

        An older ledger that is restored from a backup therefore does not give the same numbers to other releases.
        """
        if self._has_first_number:
            return None
        self._has_first_number = True
        highest = self._database.execute("SELECT COALESCE(MAX(id), 0) FROM releases").fetchone()[0]
        return int(highest) + 1 + secrets.randbits(40)

    def _refusal(self, content: bytes, file: bytes | None, intent: Intent, gone: str = "") -> str:
        if (content, file) not in self._refusals:
            if len(self._refusals) >= REFUSALS_REMEMBERED:
                self._refusals.clear()
            self._refusals[content, file] = self._spent(self._of_source(content, file))
        spent, more = self._refusals[content, file], Fraction(intent.plan.realised_epsilon)
        moment = time.strftime("%Y-%m-%d", time.localtime(spent.last))
        least = "at least " if intent.frame else ""  # the other frames have not been looked up yet
        unconfirmed = f" ({spent.unfinished} unconfirmed: that run was interrupted)" if spent.unfinished else ""
        return (
            f"was released before{gone}, {least}{counted(spent.releases, 'time')}{unconfirmed}, last on {moment}; "
            f"another release would add up to {least}epsilon {number(round_up(Fraction(spent.epsilon) + more))} per "
            "released pixel; --spend allows it"
        )

    @staticmethod
    def _of_source(content: bytes, file: bytes | None) -> Selection:
        """Select the releases of one source: of the same content, and of all contents (frames) of the same file."""
        if file is None:
            return "(SELECT * FROM releases WHERE content = ?)", (content,)
        of_file, digest = Ledger._of_file(file)
        return f"(SELECT * FROM releases WHERE content = ? UNION SELECT * FROM {of_file})", (content, *digest)  # noqa: S608

    @staticmethod
    def _of_file(file: bytes) -> Selection:
        """Select the releases of all contents that came from a file."""
        return "(SELECT * FROM releases WHERE content IN (SELECT content FROM releases WHERE file = ?))", (file,)

    def _spent(self, selection: Selection) -> Spent:
        return add_up(self._database.execute(spent_query(selection[0]), selection[1]).fetchall())

    def _plan(self, plan: Plan, prune: Prune) -> int:
        """Return the number of a plan and view in the ledger; enter them if they are new."""
        if (id(plan), prune) in self._plans:
            return self._plans[id(plan), prune][1]
        about = {
            **plan.to_dict(),
            "prune": prune or "none",
            "keystream_layout": LAYOUT_VERSION,
        }
        digest = hashlib.sha256(
            frame(tables_digest(plan.tables), (prune or "none").encode(), bytes([LAYOUT_VERSION]))
        ).digest()
        insert = "INSERT OR IGNORE INTO plans (digest, epsilon, dependents, about) VALUES (?, ?, ?, ?)"
        self._database.execute(insert, (digest, plan.realised_epsilon, block_of(prune) ** 2, json.dumps(about)))
        (entered,) = self._database.execute("SELECT id FROM plans WHERE digest = ?", (digest,)).fetchone()
        self._plans[id(plan), prune] = plan, int(entered)
        return int(entered)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn whatever damage leads to into a LedgerError."""
        try:
            yield
        except LedgerError:
            raise
        except _DAMAGED as error:
            raise LedgerError(
                f"the ledger {self.path} cannot be read: {error}. It may be damaged: restore it from your backup"
            ) from None

    @contextmanager
    def _transaction(self, *, flush: bool = True) -> Iterator[None]:
        """Write in one transaction. With ``flush`` it is on disk when this returns, as an intent must be."""
        try:
            self._database.execute(f"PRAGMA synchronous = {'FULL' if flush else 'NORMAL'}")
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                self._plans.clear()  # what was entered is rolled back
                self._has_first_number = False
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
        except LdpSlicingError:
            raise
        except _DAMAGED as error:
            raise LedgerError(f"the ledger {self.path} cannot be written: {error}") from None
