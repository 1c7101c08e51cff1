"""The ledger: the owner's record of what was released from which source. SQLite; several processes may use it at once.

The ledger holds no content and no names. Sources and items appear as digests under the ledger's own key, which lies
beside it. Somebody who has both can test whether a given image was released; somebody who has the ledger alone cannot.
Every release is entered twice: as an *intent*, on disk before anything is written, and as *done* once its file has its
name. A crash can therefore make the ledger count a release that did not get out, never the reverse.

Proof: docs/proofs.md, 13. Tests: tests/test_ledger.py.
"""

from __future__ import annotations

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

from ldp_slicing.card import counted, number
from ldp_slicing.errors import KeyFileError, LedgerError
from ldp_slicing.files import make_folder
from ldp_slicing.keys import frame, new_key_file, read_key_file, tables_digest
from ldp_slicing.plan import Plan
from ldp_slicing.tables import LAYOUT_VERSION, round_up
from ldp_slicing.view import Prune, block_of

LEDGER_VERSION = 1
BUSY_SECONDS = 60.0
Duplicates = Literal["spend", "once"]
Selection = tuple[str, tuple[Any, ...]]  # a table of releases in SQL, and the values it takes

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE plans (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE,
    epsilon REAL NOT NULL, dependents INTEGER NOT NULL, about TEXT NOT NULL
);
CREATE TABLE releases (
    id INTEGER PRIMARY KEY,
    pixels BLOB NOT NULL,                          -- keyed digest of the source's pixels
    file BLOB,                                     -- keyed digest of the bytes they were decoded from
    stream BLOB NOT NULL,                          -- identity of the run key or owner's key behind the noise
    item BLOB NOT NULL,                            -- keyed digest of the item's name, empty for an owner's key
    plan INTEGER NOT NULL REFERENCES plans,
    done INTEGER NOT NULL DEFAULT 0,
    claims INTEGER NOT NULL DEFAULT 1,             -- how often this very release was approved
    time INTEGER NOT NULL,
    UNIQUE (stream, item, pixels, plan)
);
CREATE INDEX by_pixels ON releases (pixels);
CREATE INDEX by_file ON releases (file) WHERE file IS NOT NULL;
"""


@dataclass(frozen=True)
class Intent:
    """A release about to be made.

    ``file`` is the SHA-256 of the bytes that the source was decoded from. ``frame`` is the number of a frame in its
    file, from 1, or 0 for a still image; questions about a whole file are asked with its first frame.
    """

    item: bytes
    source: bytes
    file: bytes | None
    plan: Plan
    prune: Prune
    frame: int = 0


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
    """

    identity: bytes
    is_owners: bool
    spend: bool = False
    duplicates: Duplicates = "spend"


def default_ledger() -> Path:
    """Return the path of the ledger in the owner's data folder, which depends on the operating system."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        configured = Path(os.environ.get("XDG_DATA_HOME") or ".")
        # The XDG standard says to ignore a relative path.
        base = configured if configured.is_absolute() else Path.home() / ".local" / "share"
    return base / "ldp-slicing" / "ledger.sqlite"


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
        self.path = path
        try:
            self._key = self._read_or_make_key(must_exist)
            self._database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._prepare()
        except KeyFileError as error:
            raise LedgerError(
                f"the ledger {path} cannot be used without its key, which lies beside it: "
                f"{str(error).partition(';')[0]}. Restore the key from your backup, readable by you alone; "
                "a new key would not fit"
            ) from None
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(
                f"the ledger {path} cannot be used: {getattr(error, 'strerror', None) or error}"
            ) from None
        self._has_first_number = False
        # By the plan's identity: hashing a plan costs more than a query.
        self._plans: dict[tuple[int, Prune], tuple[Plan, int]] = {}

    def close(self) -> None:
        self._database.close()

    @property
    def identity(self) -> str:
        return bytes(self._meta("id")).hex()

    def keyed(self, kind: str, content: bytes) -> bytes:
        """Return a digest that reveals nothing without the ledger's key. ``kind`` separates pixels, files and names."""
        return hmac.digest(self._key, frame(b"ldp-slicing ledger 1", kind.encode(), content), "sha256")

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

    def spent(self, source: bytes, file: bytes | None = None) -> Spent:
        """Return what was spent on an image, by the digest of its pixels and that of its file."""
        return self._spent(self._of_source(self.keyed("pixels", source), file and self.keyed("file", file)))

    def spent_on_video(self, frames: Iterable[bytes], file: bytes) -> Spent:
        """Return what was spent on a video, by the digests of its frames and that of its file."""
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
        """Return the number of different images, frames included."""
        return int(self._database.execute("SELECT COUNT(DISTINCT pixels) FROM releases").fetchone()[0])

    def most_spent(self, count: int = 10) -> list[tuple[str, Spent]]:
        """Return the ``count`` sources on which most was spent, each under the beginning of its digest.

        A video is one source, named by its file. Its frames are not listed besides, unless also released as images.
        """
        videos = "SELECT file FROM releases WHERE file IS NOT NULL GROUP BY file HAVING COUNT(DISTINCT pixels) > 1"
        stills = f"SELECT pixels AS name, pixels FROM releases WHERE file IS NULL OR file NOT IN ({videos})"  # noqa: S608
        frames = f"SELECT file AS name, pixels FROM releases WHERE file IN ({videos})"  # noqa: S608
        found: dict[str, Spent] = {}
        for kind in (stills, frames):
            query = (
                f"SELECT name, SUM(plans.epsilon) AS total FROM (SELECT DISTINCT name, pixels FROM ({kind})) "  # noqa: S608
                "JOIN releases USING (pixels) JOIN plans ON plans.id = plan "
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
        rows = self._database.execute("SELECT id, about FROM plans ORDER BY id")
        return {number: json.loads(about) for number, about in rows}

    def _approve_one(self, intent: Intent, policy: RunPolicy) -> Approval:
        pixels, file = self.keyed("pixels", intent.source), intent.file and self.keyed("file", intent.file)
        item = b"" if policy.is_owners else self.keyed("item", intent.item)
        plan = self._plan(intent.plan, intent.prune)
        same, values = self._of_source(pixels, file if intent.frame < 2 else None)
        key = (policy.identity, item, pixels, plan)
        # Every question uses an index and stops at its first row: a video may have many equal frames.
        run = self._database.execute
        entry = run("SELECT id FROM releases WHERE (stream, item, pixels, plan) = (?, ?, ?, ?)", key).fetchone()
        if entry is not None:
            run("UPDATE releases SET claims = claims + 1 WHERE id = ?", entry)
            return Approval(entry[0])
        others = f"SELECT 1 FROM {same} WHERE stream <> ? OR (? AND plan <> ?) LIMIT 1"  # noqa: S608
        if not policy.spend and run(others, (*values, policy.identity, policy.is_owners, plan)).fetchone():
            return Approval(problem=self._refusal((same, values), intent))
        copies = "SELECT 1 FROM releases WHERE pixels = ? AND stream = ? LIMIT 1"
        if policy.duplicates == "once" and not intent.frame and run(copies, (pixels, policy.identity)).fetchone():
            return Approval(problem="is a copy of an image released in this run (--duplicates once)", is_copy=True)
        insert = "INSERT INTO releases (id, stream, item, pixels, plan, file, time) VALUES (?, ?, ?, ?, ?, ?, ?)"
        return Approval(int(run(insert, (self._first_number(), *key, file, int(time.time()))).lastrowid or 0))

    def _first_number(self) -> int | None:
        """Return a random number far above all others for the first entry; those after it are consecutive.

        An older ledger that is restored from a backup therefore does not give the same numbers to other releases.
        """
        if self._has_first_number:
            return None
        self._has_first_number = True
        highest = self._database.execute("SELECT COALESCE(MAX(id), 0) FROM releases").fetchone()[0]
        return int(highest) + 1 + secrets.randbits(40)

    def _refusal(self, selection: Selection, intent: Intent) -> str:
        spent, more = self._spent(selection), Fraction(intent.plan.realised_epsilon)
        moment = time.strftime("%Y-%m-%d", time.localtime(spent.last))
        least = "at least " if intent.frame else ""  # the other frames have not been looked up yet
        unconfirmed = f" ({spent.unfinished} unconfirmed: that run was interrupted)" if spent.unfinished else ""
        return (
            f"was released before, {least}{counted(spent.releases, 'time')}{unconfirmed}, last on {moment}; another "
            f"release would add up to {least}epsilon {number(round_up(Fraction(spent.epsilon) + more))} per released "
            "pixel; --spend allows it"
        )

    @staticmethod
    def _of_source(pixels: bytes, file: bytes | None) -> Selection:
        """Select the releases of one source: of the same pixels, and of all pixels (frames) of the same file."""
        if file is None:
            return "(SELECT * FROM releases WHERE pixels = ?)", (pixels,)
        of_file, digest = Ledger._of_file(file)
        return f"(SELECT * FROM releases WHERE pixels = ? UNION SELECT * FROM {of_file})", (pixels, *digest)  # noqa: S608

    @staticmethod
    def _of_file(file: bytes) -> Selection:
        """Select the releases of all pixels that came from a file."""
        return "(SELECT * FROM releases WHERE pixels IN (SELECT pixels FROM releases WHERE file = ?))", (file,)

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
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger {self.path} cannot be written: {error}") from None

    def _read_or_make_key(self, must_exist: bool) -> bytes:
        key_path = self.path.with_name(f"{self.path.name}.key")
        if self.path.exists() or must_exist:
            if not self.path.exists():
                raise LedgerError(
                    f"there is no ledger {self.path} yet; `ldp-slicing privatize` creates one, "
                    "or name another with --ledger"
                )
            return read_key_file(key_path)
        make_folder(self.path.parent)
        if not key_path.exists():
            try:
                new_key_file(key_path)
            except KeyFileError as error:
                if not key_path.exists():  # otherwise another process was faster
                    raise LedgerError(f"no ledger can be created here: {error}") from None
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        return read_key_file(key_path)

    def _prepare(self) -> None:
        run = self._database.execute
        run("PRAGMA journal_mode = WAL")  # one writer and many readers at the same time
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
                f"the ledger {self.path} has version {self._meta('version')}; this software reads {LEDGER_VERSION}"
            )
        if self._meta("check") != check:
            raise LedgerError(f"the key beside the ledger {self.path} belongs to another ledger; restore the right one")

    def _meta(self, name: str) -> Any:  # noqa: ANN401
        return self._database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0]
