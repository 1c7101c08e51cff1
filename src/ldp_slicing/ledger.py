"""The ledger: the owner's record of what was released from which source. SQLite; several processes may use it at once.

It holds no content and no names: sources and items are in it as digests under the ledger's own key, which lies beside it. Whoever has
both can ask whether a given picture was released (a membership test); whoever has the ledger alone cannot. Every release is entered
twice: as an *intent*, on the disk before anything is written, and as *done* when its file has its name. So a crash can make the ledger
count a release that did not get out, never the reverse.

Proof: docs/proofs.md, 13. Tests: tests/test_ledger.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from ldp_slicing.card import number
from ldp_slicing.errors import KeyFileError, LedgerError
from ldp_slicing.files import make_folder
from ldp_slicing.keys import frame, new_key_file, read_key_file, tables_digest
from ldp_slicing.plan import Plan
from ldp_slicing.tables import LAYOUT_VERSION, round_up
from ldp_slicing.view import Prune, block_of

LEDGER_VERSION = 1
BUSY_SECONDS = 60.0
Duplicates = Literal["spend", "once"]

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE plans (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, epsilon REAL NOT NULL, dependents INTEGER NOT NULL, about TEXT NOT NULL
);
CREATE TABLE releases (
    id INTEGER PRIMARY KEY,
    pixels BLOB NOT NULL,                          -- keyed digest of the source's pixels
    file BLOB,                                     -- and of the bytes they were decoded from
    stream BLOB NOT NULL,                          -- the run, or the owner's key, that the noise came from
    item BLOB NOT NULL,                            -- keyed digest of the item's name, empty for an owner's key
    plan INTEGER NOT NULL REFERENCES plans,
    done INTEGER NOT NULL DEFAULT 0,
    claims INTEGER NOT NULL DEFAULT 1,             -- how often this very release was set about
    time INTEGER NOT NULL,
    UNIQUE (stream, item, pixels, plan)
);
CREATE INDEX by_pixels ON releases (pixels);
CREATE INDEX by_file ON releases (file) WHERE file IS NOT NULL;
"""


# The pixels of each source that is asked about: those of its releases, and all that their files gave; and what was spent on each source.
_PIXELS = """
CREATE TEMP TABLE held (unit INTEGER, pixels BLOB, PRIMARY KEY (unit, pixels)) WITHOUT ROWID;
INSERT OR IGNORE INTO held SELECT unit, pixels FROM asked CROSS JOIN releases ON releases.id = asked.id;
INSERT OR IGNORE INTO held SELECT unit, others.pixels FROM asked CROSS JOIN releases ON releases.id = asked.id
    CROSS JOIN releases AS others INDEXED BY by_file ON others.file = releases.file AND others.file IS NOT NULL;
CREATE TEMP TABLE totals (pixels BLOB PRIMARY KEY, times INTEGER, epsilon REAL, source REAL) WITHOUT ROWID;
INSERT INTO totals SELECT mine.pixels, COUNT(*), SUM(epsilon), SUM(epsilon * dependents)
    FROM (SELECT DISTINCT pixels FROM held) AS mine CROSS JOIN releases INDEXED BY by_pixels ON releases.pixels = mine.pixels
    CROSS JOIN plans ON plans.id = plan GROUP BY mine.pixels;
CREATE TEMP TABLE added AS SELECT unit, SUM(times) AS times, SUM(epsilon) AS epsilon, SUM(source) AS source
    FROM held CROSS JOIN totals ON totals.pixels = held.pixels GROUP BY unit
"""


@dataclass(frozen=True)
class Intent:
    """A release about to be made. ``file``: SHA-256 of the bytes the source was decoded from; ``frame``: its number among several in
    that file, from 1, or 0 for a still. What is asked about a file is asked with its first frame.
    """

    item: bytes
    source: bytes
    file: bytes | None
    plan: Plan
    prune: Prune
    frame: int = 0


@dataclass(frozen=True)
class Verdict:
    """The ledger's number for a release that is allowed; else why not."""

    entry: int = 0
    problem: str | None = None
    is_copy: bool = False


@dataclass(frozen=True)
class Spent:
    """What the ledger says of one source, or of all: eps per released and per source pixel, added up."""

    releases: int
    unfinished: int
    epsilon: float
    source_pixel_epsilon: float
    last: int


@dataclass(frozen=True)
class Stream:
    """Where a run's noise comes from, and what it may do: ``identity`` of the run or of the owner's key."""

    identity: bytes
    is_owners: bool
    spend: bool = False
    duplicates: Duplicates = "spend"


def default_ledger() -> Path:
    """In the owner's data folder, by the custom of the system."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        told = Path(os.environ.get("XDG_DATA_HOME") or ".")
        base = (
            told if told.is_absolute() else Path.home() / ".local" / "share"
        )  # a relative one is to be ignored, by the standard
    return base / "ldp-slicing" / "ledger.sqlite"


class Ledger:
    """An open ledger. Made where there is none, unless ``must_exist``."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        try:
            self._key = self._read_or_make_key(must_exist)
            self._database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._prepare()
        except KeyFileError as error:
            raise LedgerError(
                f"the ledger {path} cannot be used without its key, which lies beside it: {str(error).partition(';')[0]}. Put the key back "
                "from your backup, readable by you alone; a new one would not fit"
            ) from None
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(
                f"the ledger {path} cannot be used: {getattr(error, 'strerror', None) or error}"
            ) from None
        self._has_numbers = False  # for what is entered from now on
        self._plans: dict[
            tuple[int, Prune], tuple[Plan, int]
        ] = {}  # by identity: hashing a plan costs more than a query

    def close(self) -> None:
        self._database.close()

    @property
    def identity(self) -> str:
        return bytes(self._meta("id")).hex()

    def keyed(self, kind: str, content: bytes) -> bytes:
        """A digest that tells nothing without this ledger's key; ``kind`` keeps pixels, files and names apart."""
        return hmac.digest(self._key, frame(b"ldp-slicing ledger 1", kind.encode(), content), "sha256")

    def approve(self, intents: Sequence[Intent], stream: Stream) -> list[Verdict]:
        """Enter the intents that are allowed, durably, in one transaction; say why the others are not."""
        with self._transaction():
            return [self._approve_one(intent, stream) for intent in intents]

    def finish(self, entries: Sequence[int]) -> None:
        """These releases have their files under their names. Not flushed: what a power cut takes back is an intent again, and counts."""
        with self._transaction(flush=False):
            self._database.executemany("UPDATE releases SET done = 1 WHERE id = ?", ((entry,) for entry in entries))

    def withdraw(self, entries: Sequence[int]) -> None:
        """These came to nothing: no file was given its name. What was set about more than once stays: the other time may have succeeded."""
        with self._transaction(flush=False):
            self._database.executemany(
                "DELETE FROM releases WHERE id = ? AND done = 0 AND claims = 1", ((entry,) for entry in entries)
            )

    def most_of(self, sources: Iterable[tuple[bytes, Iterable[int]]]) -> list[Spent]:
        """Of sources, each given by its releases (of a film all frames), what was spent on those that have most: releases, or either eps.

        They come with their stream: an older ledger that was put back does not know them, or others by their numbers, and is refused.
        SQLite finds them, in floating point and a few more than one each; what is told of them is added up exactly.
        """
        run = self._database.execute
        with self._asked(sources):
            for statement in _PIXELS.split(";"):
                run(statement)
            orders = ("times", "epsilon", "source")
            units = {
                unit
                for order in orders
                for (unit,) in run(f"SELECT unit FROM added ORDER BY {order} DESC LIMIT 4").fetchall()  # noqa: S608
            }
            mine = "(SELECT * FROM releases WHERE pixels IN (SELECT pixels FROM held WHERE unit = ?))"
            return [self._spent((mine, (unit,))) for unit in sorted(units)]

    def check_knows(self, sources: Iterable[tuple[bytes, Iterable[int]]]) -> None:
        """Refuse to be an older ledger that was put back: one that does not know these releases."""
        with self._asked(sources):
            pass

    @contextmanager
    def _asked(self, sources: Iterable[tuple[bytes, Iterable[int]]]) -> Iterator[None]:
        """A table of the releases, each of which this ledger knows."""
        run = self._database.execute
        try:
            run("CREATE TEMP TABLE asked (unit INTEGER, id INTEGER, stream BLOB)")
            run("BEGIN")
            rows = ((unit, entry, stream) for unit, (stream, entries) in enumerate(sources) for entry in entries)
            self._database.executemany("INSERT INTO asked VALUES (?, ?, ?)", rows)
            unknown = (
                "SELECT COUNT(*) FROM asked LEFT JOIN releases USING (id) WHERE releases.stream IS NOT asked.stream"
            )
            if missing := run(unknown).fetchone()[0]:
                raise LedgerError(
                    f"the ledger {self.path} does not know {missing} of these releases: an older one seems to have been put in its place. "
                    "Put the newest back; this one counts less than was spent"
                )
            yield
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger {self.path} cannot be read: {error}") from None
        finally:
            with contextlib.suppress(sqlite3.Error):
                if self._database.in_transaction:
                    run("COMMIT")
                for table in ("asked", "held", "totals", "added"):
                    run(f"DROP TABLE IF EXISTS temp.{table}")

    def spent(self, source: bytes, file: bytes | None = None) -> Spent:
        """What was spent on a source, by its digest or that of its file."""
        return self._spent(self._same(self.keyed("pixels", source), file and self.keyed("file", file)))

    def spent_on_film(self, frames: Iterable[bytes], file: bytes) -> Spent:
        """What was spent on a film, by the digests of its frames and that of its file."""
        run = self._database.execute
        run("CREATE TEMP TABLE IF NOT EXISTS frames (pixels BLOB PRIMARY KEY)")
        with self._database:
            run("DELETE FROM frames")
            self._database.executemany(
                "INSERT OR IGNORE INTO frames VALUES (?)", ((self.keyed("pixels", frame),) for frame in frames)
            )
        chosen = "SELECT pixels FROM frames UNION SELECT pixels FROM releases WHERE file = ?"
        return self._spent((f"(SELECT * FROM releases WHERE pixels IN ({chosen}))", (self.keyed("file", file),)))  # noqa: S608

    def total(self) -> Spent:
        return self._spent(("releases", ()))

    def sources(self) -> int:
        """How many different pictures, frames among them, are in it."""
        return int(self._database.execute("SELECT COUNT(DISTINCT pixels) FROM releases").fetchone()[0])

    def most_spent(self, count: int = 10) -> list[tuple[str, Spent]]:
        """The sources with most spent: a name for each, the beginning of a digest, and what was spent.

        A film is one, by its file; of pictures that were released as frames only, nothing is said besides.
        """
        films = "SELECT file FROM releases WHERE file IS NOT NULL GROUP BY file HAVING COUNT(DISTINCT pixels) > 1"
        stills = f"SELECT pixels AS name, pixels FROM releases WHERE file IS NULL OR file NOT IN ({films})"  # noqa: S608
        frames = f"SELECT file AS name, pixels FROM releases WHERE file IN ({films})"  # noqa: S608
        found: dict[str, Spent] = {}
        for kind in (stills, frames):
            query = (
                f"SELECT name, SUM(plans.epsilon) AS total FROM (SELECT DISTINCT name, pixels FROM ({kind})) "  # noqa: S608
                "JOIN releases USING (pixels) JOIN plans ON plans.id = plan GROUP BY name ORDER BY total DESC, name LIMIT ?"
            )
            for digest, _ in self._database.execute(query, (count,)).fetchall():
                found[digest.hex()[:16]] = self._spent(
                    self._same(digest, None) if kind is stills else self._of_file(digest)
                )
        return sorted(found.items(), key=lambda pair: (-pair[1].epsilon, pair[0]))[:count]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Everything that is in it, release by release, for export."""
        query = "SELECT pixels, file, stream, plan, epsilon, done, time FROM releases JOIN plans ON plans.id = plan ORDER BY releases.id"
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
        return {
            number: json.loads(about)
            for number, about in self._database.execute("SELECT id, about FROM plans ORDER BY id")
        }

    def _approve_one(self, intent: Intent, stream: Stream) -> Verdict:
        pixels, file = self.keyed("pixels", intent.source), intent.file and self.keyed("file", intent.file)
        item = b"" if stream.is_owners else self.keyed("item", intent.item)
        plan = self._plan(intent.plan, intent.prune)
        same, values = self._same(pixels, file if intent.frame < 2 else None)
        key = (stream.identity, item, pixels, plan)
        run = (
            self._database.execute
        )  # each question by an index, and the first answer is enough: a film may have many equal frames
        entry = run("SELECT id FROM releases WHERE (stream, item, pixels, plan) = (?, ?, ?, ?)", key).fetchone()
        if entry is not None:
            run("UPDATE releases SET claims = claims + 1 WHERE id = ?", entry)
            return Verdict(entry[0])
        others = f"SELECT 1 FROM {same} WHERE stream <> ? OR (? AND plan <> ?) LIMIT 1"  # noqa: S608
        if not stream.spend and run(others, (*values, stream.identity, stream.is_owners, plan)).fetchone():
            return Verdict(problem=self._refusal((same, values), intent))
        copies = "SELECT 1 FROM releases WHERE pixels = ? AND stream = ? LIMIT 1"
        if stream.duplicates == "once" and not intent.frame and run(copies, (pixels, stream.identity)).fetchone():
            return Verdict(problem="is a copy of a picture released in this run (--duplicates once)", is_copy=True)
        insert = "INSERT INTO releases (id, stream, item, pixels, plan, file, time) VALUES (?, ?, ?, ?, ?, ?, ?)"
        return Verdict(int(run(insert, (self._first_number(), *key, file, int(time.time()))).lastrowid or 0))

    def _first_number(self) -> int | None:
        """Far from all others, at random; then they follow each other. So an older ledger that is put back gives none of them again."""
        if self._has_numbers:
            return None
        self._has_numbers = True
        highest = self._database.execute("SELECT COALESCE(MAX(id), 0) FROM releases").fetchone()[0]
        return int(highest) + 1 + secrets.randbits(40)

    def _refusal(self, chosen: tuple[str, tuple[Any, ...]], intent: Intent) -> str:
        spent, more = self._spent(chosen), Fraction(intent.plan.realised_epsilon)
        moment = time.strftime("%Y-%m-%d", time.localtime(spent.last))
        least = "at least " * (intent.frame > 0)  # its other frames have not been seen yet
        perhaps = f" ({spent.unfinished} of them perhaps: that run did not finish)" if spent.unfinished else ""
        return (
            f"was released before, {least}{spent.releases} time{'s' * (spent.releases > 1)}{perhaps}, last on {moment}; another release "
            f"would add up to {least}epsilon {number(round_up(Fraction(spent.epsilon) + more))} per released pixel; --spend allows it"
        )

    @staticmethod
    def _same(pixels: bytes, file: bytes | None) -> tuple[str, tuple[Any, ...]]:
        """The releases of one source, as a table: those of the same pixels, and of all pixels (frames) that the same file gave."""
        if file is None:
            return "(SELECT * FROM releases WHERE pixels = ?)", (pixels,)
        of_file, digest = Ledger._of_file(file)
        return f"(SELECT * FROM releases WHERE pixels = ? UNION SELECT * FROM {of_file})", (pixels, *digest)  # noqa: S608

    @staticmethod
    def _of_file(file: bytes) -> tuple[str, tuple[Any, ...]]:
        """The releases of all pixels that a file gave."""
        return "(SELECT * FROM releases WHERE pixels IN (SELECT pixels FROM releases WHERE file = ?))", (file,)

    def _spent(self, chosen: tuple[str, tuple[Any, ...]]) -> Spent:
        """Added up in rationals and rounded up: the sum is never less than what was spent."""
        query = (
            f"SELECT COUNT(*), SUM(1 - done), MAX(time), plans.epsilon, plans.dependents FROM {chosen[0]} AS chosen "  # noqa: S608
            "JOIN plans ON plans.id = chosen.plan GROUP BY plan"
        )
        rows = self._database.execute(query, chosen[1]).fetchall()
        epsilon = sum((Fraction(row[3]) * row[0] for row in rows), Fraction(0))
        source = sum((Fraction(row[3]) * row[0] * row[4] for row in rows), Fraction(0))
        last = max((row[2] for row in rows), default=0)
        return Spent(
            sum(row[0] for row in rows), sum(row[1] for row in rows), round_up(epsilon), round_up(source), last
        )

    def _plan(self, plan: Plan, prune: Prune) -> int:
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
        (number,) = self._database.execute("SELECT id FROM plans WHERE digest = ?", (digest,)).fetchone()
        self._plans[id(plan), prune] = plan, int(number)
        return int(number)

    @contextmanager
    def _transaction(self, *, flush: bool = True) -> Iterator[None]:
        """``flush``: on the disk when it returns, as an intent must be."""
        try:
            self._database.execute(f"PRAGMA synchronous = {'FULL' if flush else 'NORMAL'}")
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                self._plans.clear()  # what was entered is gone
                self._has_numbers = False
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger {self.path} cannot be written: {error}") from None

    def _read_or_make_key(self, must_exist: bool) -> bytes:
        key_path = self.path.with_name(f"{self.path.name}.key")
        if self.path.exists() or must_exist:
            if not self.path.exists():
                raise LedgerError(
                    f"there is no ledger {self.path} yet; `ldp-slicing privatize` makes one, or name another with --ledger"
                )
            return read_key_file(key_path)
        make_folder(self.path.parent)
        if not key_path.exists():
            try:
                new_key_file(key_path)
            except KeyFileError as error:
                if not key_path.exists():  # else another process was first
                    raise LedgerError(f"no ledger can be made here: {error}") from None
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        return read_key_file(key_path)

    def _prepare(self) -> None:
        run = self._database.execute
        run("PRAGMA journal_mode = WAL")  # readers and one writer at once
        run("BEGIN IMMEDIATE")
        check = self.keyed("check", b"")
        if run("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in _SCHEMA.split(";"):
                run(statement)
            values = {"version": LEDGER_VERSION, "id": secrets.token_bytes(16), "check": check}
            self._database.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
        run("COMMIT")
        if self._meta("version") != LEDGER_VERSION:
            raise LedgerError(
                f"the ledger {self.path} has version {self._meta('version')}; this software knows {LEDGER_VERSION}"
            )
        if self._meta("check") != check:
            raise LedgerError(f"the key beside the ledger {self.path} is not its own; put the right one back")

    def _meta(self, name: str) -> Any:  # noqa: ANN401
        return self._database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0]
