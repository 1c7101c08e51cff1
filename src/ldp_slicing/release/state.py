"""The state of a run: its key, its parameters, every source file and what became of it.

It is an SQLite database in a folder of its own.

The folder belongs to the owner alone. It maps names of sources to names of releases, and until the run completes it
holds the run key, with which the noise could be removed. It never lies inside the target, so a target can be handed
on as it is.

The tables hold facts: what was listed, what was released, why something failed. What was found wrong with earlier
releases is looked up anew whenever a run is opened and is kept in a temporary table.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ldp_slicing.errors import ReleaseError
from ldp_slicing.files import lock_folder, sync_folder
from ldp_slicing.keys import Secret, destroy_key_file, new_key_file, read_key_file
from ldp_slicing.ledger import Ledger
from ldp_slicing.release import names
from ldp_slicing.release.ledger_join import LedgerJoin
from ldp_slicing.release.report import FileReport, FileState, FileTask
from ldp_slicing.storage import StoredFile, printable

STATE_VERSION = 9
DATABASE_NAME = "state.sqlite"
WORKERS_END_SECONDS = 5.0
_PAGE = 256

_SCHEMA = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE sources (                             -- files of the source folder, as last listed
    path BLOB PRIMARY KEY,
    kind TEXT NOT NULL,
    size INTEGER NOT NULL,
    stamp TEXT NOT NULL,                           -- changes when the file changes
    listing INTEGER NOT NULL,                      -- number of the last listing that found it
    output BLOB,                                   -- name that its release gets
    state TEXT NOT NULL,                           -- a FileState
    problem TEXT                                   -- why it was not released
) WITHOUT ROWID;
CREATE INDEX by_state ON sources (state, path);
CREATE UNIQUE INDEX by_output ON sources (output) WHERE output IS NOT NULL;
CREATE TABLE outputs (                             -- the last file that was released for each source
    path BLOB PRIMARY KEY,
    name BLOB NOT NULL,
    sha256 BLOB NOT NULL,
    size INTEGER NOT NULL,
    stream BLOB NOT NULL,                          -- identity of the key that its noise came from
    source_stamp TEXT NOT NULL,                    -- of the source when it was released
    source_digest BLOB,                            -- keyed digest of the source file
    replaces INTEGER NOT NULL,                     -- number of lost releases that it replaces
    flushed INTEGER NOT NULL DEFAULT 0             -- 1 if certainly on disk
) WITHOUT ROWID;
CREATE INDEX by_name ON outputs (name);
CREATE INDEX by_source_digest ON outputs (source_digest) WHERE source_digest IS NOT NULL;
CREATE TABLE releases (                            -- what the outputs hold
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL, position INTEGER NOT NULL, member TEXT, entry TEXT NOT NULL,
    width INTEGER NOT NULL, height INTEGER NOT NULL, bits INTEGER NOT NULL, frames INTEGER NOT NULL,
    UNIQUE (path, position)
);
CREATE TABLE ledger_entries (release INTEGER, number INTEGER, PRIMARY KEY (release, number)) WITHOUT ROWID;
CREATE INDEX by_number ON ledger_entries (number);
CREATE TABLE claims (                              -- entries of the ledger for files that are not recorded as released
    number INTEGER PRIMARY KEY, path BLOB NOT NULL, stamp TEXT NOT NULL
);
CREATE INDEX claims_by_path ON claims (path);
CREATE TABLE skipped (                             -- members that an output leaves out
    path BLOB, position INTEGER, member TEXT, problem TEXT, is_copy INTEGER, PRIMARY KEY (path, position)
) WITHOUT ROWID;
CREATE TABLE notices (path BLOB, notice TEXT, PRIMARY KEY (path, notice)) WITHOUT ROWID;
{names.SCHEMA}
"""
_FINDINGS = "CREATE TEMP TABLE findings (path BLOB, finding TEXT, PRIMARY KEY (path, finding)) WITHOUT ROWID"


class Finding(StrEnum):
    """What is wrong with an earlier release."""

    LOST = "lost"  # there is no file of its name
    DAMAGED = "damaged"  # another file has its name
    CHANGED = "changed"  # its source has changed since


@dataclass(frozen=True)
class KnownOutput:
    """An output that was released, with the state of its source. ``has_source`` is false if the source is gone."""

    path: str
    name: str
    sha256: bytes
    size: int
    stream: bytes
    flushed: bool
    state: FileState
    has_source: bool


def encode_path(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def decode_path(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


class RunState:
    """An open state folder. Only one process can have it open; a second one is refused.

    ``lock`` is a descriptor that holds a lock on the folder, or None where folders cannot be locked. The run's worker
    processes inherit it. So while any of them lives, even if the run was killed, no other run can begin.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock: int | None = None
        self._key_path = folder / "key"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(folder / DATABASE_NAME, os.O_RDWR | os.O_CREAT, 0o600))
        self._database = sqlite3.connect(folder / DATABASE_NAME, timeout=0.5, isolation_level=None, uri=True)
        try:
            self._prepare()
            version = self.get("version")
        except sqlite3.Error as error:
            self.close()
            if "locked" in str(error):
                raise ReleaseError(
                    f"another process is working on this release (it holds {folder}); wait for it, or stop it"
                ) from None
            raise ReleaseError(f"the state of this release, {folder}, cannot be used: {error}") from None
        if version == STATE_VERSION:
            try:
                self.lock = self._lock_folder()
            except ReleaseError:
                self.close()
                raise
        else:
            self.close()
            raise ReleaseError(
                f"{folder} was written by another version of this software (format {version}, not {STATE_VERSION}): "
                "continue with that version, or release the rest to another target"
            )
        self.names = names.OutputNames(self.execute)

    def _lock_folder(self) -> int | None:
        """Lock the folder. Workers of a run that was killed end soon, and are waited for."""
        deadline = time.monotonic() + WORKERS_END_SECONDS
        while True:
            try:
                return lock_folder(self.folder)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ReleaseError(
                        f"workers of an earlier run, which was killed, still hold {self.folder}: wait for them, or end "
                        f"them (`fuser -v {self.folder}` lists them), then run the same command again"
                    ) from None
                time.sleep(0.05)

    def _prepare(self) -> None:
        run = self._database.execute
        # The system releases the lock even if the process is killed. "main.": the attached ledger stays shared.
        run("PRAGMA main.locking_mode = EXCLUSIVE")
        run("PRAGMA main.journal_mode = WAL")
        run("PRAGMA main.synchronous = NORMAL")  # what a power cut undoes is noticed and made again, the same
        run("BEGIN EXCLUSIVE")
        if not run("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            for statement in _SCHEMA.split(";"):
                run(statement)
            run("INSERT INTO meta VALUES ('version', ?)", (json.dumps(STATE_VERSION),))
        run("COMMIT")
        run(_FINDINGS)

    def close(self) -> None:
        self._database.close()
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def remove(self) -> None:
        """Close it and delete its files, and its folder if nothing else is in it."""
        self.close()
        for path in (*self.folder.glob(f"{DATABASE_NAME}*"), self._key_path):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def attach(self, ledger: Ledger) -> LedgerJoin:
        """Return the ledger, attached for questions about both."""
        return LedgerJoin(self._database, ledger)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        with self._guarded():
            return self._database.execute(statement, values)

    def _execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._guarded():
            self._database.executemany(statement, rows)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn errors of the database, such as a full disk, into refusals; nothing is written half."""
        try:
            yield
        except sqlite3.Error as error:
            if self._database.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
            raise ReleaseError(f"the state of this release, {self.folder}, cannot be written: {error}") from None

    def pages(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query over ascending paths, a page at a time: rows may be changed meanwhile."""
        last = b""
        while page := self.execute(query, (last, _PAGE)).fetchall():
            yield from page
            last = page[-1][0]

    # Parameters

    def get(self, name: str) -> Any:  # noqa: ANN401
        found = self.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if found is None else json.loads(found[0])

    def _set(self, name: str, value: Any) -> None:  # noqa: ANN401
        self.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, json.dumps(value)))

    def set_durably(self, name: str, value: Any) -> None:  # noqa: ANN401
        self.execute("PRAGMA main.synchronous = FULL")
        self._set(name, value)
        self.execute("PRAGMA main.wal_checkpoint(TRUNCATE)")
        self.execute("PRAGMA main.synchronous = NORMAL")

    # The run key

    @property
    def has_key(self) -> bool:
        return self._key_path.exists()

    def secret(self) -> Secret:
        """Return the run key. A new one is on disk before anything is made with it."""
        if self.has_key:
            return Secret(read_key_file(self._key_path), is_owners=False)
        key = new_key_file(self._key_path)
        sync_folder(self.folder.parent)
        return Secret(key, is_owners=False)

    def salt(self) -> bytes:
        """Return random bytes of this run, which outlive its key."""
        if self.get("salt") is None:
            self.set_durably("salt", os.urandom(16).hex())
        return bytes.fromhex(self.get("salt"))

    def destroy_key(self) -> None:
        """Destroy the run key. Entries that were made under it can be claimed no more."""
        self.execute("DELETE FROM claims")
        if self.has_key:
            destroy_key_file(self._key_path)

    # Listing the sources

    @contextlib.contextmanager
    def listing(self) -> Iterator[int]:
        """Enter what the source holds now, in one transaction. Yields the number of the listing.

        At the end, sources that are gone are forgotten, unless they were released: what was released stays counted.
        """
        number = (self.get("listing") or 0) + 1
        self.execute("BEGIN")
        self._set("listing", number)
        yield number
        for table in ("skipped", "notices"):
            self.execute(f"DELETE FROM {table} WHERE path IN (SELECT path FROM sources WHERE state <> 'released')")  # noqa: S608
        self.execute(
            "UPDATE sources SET state = 'released', problem = NULL "
            "WHERE listing <> ? AND state <> 'released' AND path IN (SELECT path FROM outputs)",
            (number,),
        )
        self.execute("DELETE FROM sources WHERE listing <> ? AND state <> 'released'", (number,))
        self.execute("COMMIT")

    def keep_listed(self, found: StoredFile, number: int, *, retry_copies: bool) -> bool:
        """Enter a source that needs no release, and return whether it is one: released, or a copy as before."""
        updated = self.execute(
            "UPDATE sources SET listing = ?1, size = ?2, stamp = ?3 "
            "WHERE path = ?4 AND (state = 'released' OR (state = 'copy' AND stamp = ?3 AND NOT ?5))",
            (number, found.size, found.stamp, encode_path(found.path), retry_copies),
        )
        return updated.rowcount == 1

    def enter(self, found: StoredFile, number: int, kind: str, problem: str | None) -> None:
        """Enter a source that waits to be released, or cannot be. A source whose kind has changed loses its name."""
        state = FileState.FAILED if problem else FileState.WAITING
        self.execute(
            "INSERT INTO sources (path, kind, size, stamp, listing, state, problem) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (path) DO UPDATE SET output = CASE WHEN excluded.kind IN ('', kind) THEN output END, "
            "kind = CASE excluded.kind WHEN '' THEN kind ELSE excluded.kind END, size = excluded.size, "
            "stamp = excluded.stamp, listing = excluded.listing, state = excluded.state, problem = excluded.problem",
            (encode_path(found.path), kind, found.size, found.stamp, number, state, problem),
        )

    def choose_names(self, choose: Callable[[str, str], str]) -> None:
        """Give each waiting file that has no output name one, by its path and kind."""
        self.execute("BEGIN")
        unnamed = (
            "SELECT path, kind FROM sources "
            "WHERE state = 'waiting' AND output IS NULL AND path > ? ORDER BY path LIMIT ?"
        )
        for path, kind in self.pages(unnamed):
            output = encode_path(choose(decode_path(path), kind))
            self.execute("UPDATE sources SET output = ? WHERE path = ?", (output, path))
        self.names.forget_requests()
        self.execute("COMMIT")

    # Earlier releases

    def known_outputs(self) -> Iterator[KnownOutput]:
        """Yield every output that was released, in the order of the source paths."""
        query = (
            "SELECT path, name, sha256, outputs.size, stream, flushed, state, "
            "listing = (SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'listing') "
            "FROM outputs JOIN sources USING (path) WHERE path > ? ORDER BY path LIMIT ?"
        )
        for path, name, sha256, size, stream, flushed, state, has_source in self.pages(query):
            yield KnownOutput(
                decode_path(path),
                decode_path(name),
                sha256,
                size,
                stream,
                bool(flushed),
                FileState(state),
                bool(has_source),
            )

    def mark_present(self, path: str) -> None:
        """Note that the output of a source is there, as it was released."""
        self.execute("UPDATE sources SET state = 'released', problem = NULL WHERE path = ?", (encode_path(path),))

    def wait_again(self, path: str, kind: str) -> None:
        """Have the output of a source made again. Its name is chosen anew if the kind of the source has changed.

        What is known about the lost one is kept until then: it may come back.
        """
        self.execute(
            "UPDATE sources SET state = 'waiting', output = CASE WHEN kind = ?2 THEN output END, kind = ?2 "
            "WHERE path = ?1",
            (encode_path(path), kind),
        )

    def changed_sources(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield released sources whose stamp has changed since, with the keyed digest of the file that was released."""
        query = (
            "SELECT path, source_digest FROM outputs JOIN sources USING (path) WHERE state = 'released' "
            "AND stamp <> source_stamp AND listing = (SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'listing') "
            "AND path > ? ORDER BY path LIMIT ?"
        )
        for path, digest in self.pages(query):
            yield decode_path(path), digest

    def accept_stamp(self, path: str) -> None:
        """Note that a source has the same content as when it was released."""
        self.execute(
            "UPDATE outputs SET source_stamp = (SELECT stamp FROM sources WHERE path = ?1) WHERE path = ?1",
            (encode_path(path),),
        )

    def find(self, path: str, finding: Finding) -> None:
        self.execute("INSERT INTO findings VALUES (?, ?)", (encode_path(path), finding))

    # Entries of the ledger

    def claim(self, entries: Sequence[tuple[int, str]]) -> None:
        """Note the paths of the files for which entries of the ledger were made. A killed run cannot report them."""
        self.execute("BEGIN")
        self._execute_many(
            "INSERT OR REPLACE INTO claims SELECT ?1, path, stamp FROM sources WHERE path = ?2",
            ((number, encode_path(path)) for number, path in entries),
        )
        self.execute("COMMIT")

    def has_source(self, entry: int) -> bool:
        """Return whether the file that an entry of the ledger was made for is still there, with the same content."""
        is_listed = "listing = (SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'listing')"
        claimed = "SELECT 1 FROM claims JOIN sources USING (path, stamp) WHERE number = ?1"
        released = (
            "SELECT 1 FROM ledger_entries JOIN releases ON releases.id = release JOIN outputs USING (path) "
            "JOIN sources USING (path) WHERE number = ?1 AND stamp = source_stamp"
        )
        query = f"{claimed} AND {is_listed} UNION ALL {released} AND {is_listed} LIMIT 1"
        return self.execute(query, (entry,)).fetchone() is not None

    # The work

    def tasks(self) -> Iterator[FileTask]:
        """Yield the files that wait, in the order of their paths."""
        query = (
            "SELECT path, kind, output, size FROM sources WHERE state = 'waiting' AND path > ? ORDER BY path LIMIT ?"
        )
        for path, kind, output, size in self.pages(query):
            yield FileTask(decode_path(path), kind, decode_path(output), size)

    def record(self, reports: list[FileReport], stream: bytes, keyed: Callable[[bytes], bytes]) -> None:
        """Record what became of some files, in one transaction. Files that were stopped still wait."""
        self.execute("BEGIN")
        for report in reports:
            if report.state is FileState.WAITING:
                continue
            path = encode_path(report.task.path)
            self.execute(
                "UPDATE sources SET state = ?, problem = ? WHERE path = ?", (report.state, report.problem, path)
            )
            if report.state is FileState.RELEASED:
                self._record_output(path, report, stream, report.source_sha256 and keyed(report.source_sha256))
            skipped = (
                (path, position, printable(one.member), printable(one.problem), one.is_copy)
                for position, one in enumerate(report.skipped)
            )
            self._execute_many("INSERT OR REPLACE INTO skipped VALUES (?, ?, ?, ?, ?)", skipped)
            notices = ((path, printable(notice)) for notice in report.notices)
            self._execute_many("INSERT OR IGNORE INTO notices VALUES (?, ?)", notices)
        self.execute("COMMIT")

    def _record_output(self, path: bytes, report: FileReport, stream: bytes, digest: bytes | None) -> None:
        """Replace what is known about the release of a source. Under another key it is a further release."""
        earlier = "COALESCE((SELECT replaces + (stream <> ?4) FROM outputs WHERE path = ?1), 0)"
        self.execute(
            "INSERT OR REPLACE INTO outputs "  # noqa: S608
            "(path, name, sha256, size, stream, source_stamp, source_digest, replaces) "
            f"VALUES (?1, ?6, ?2, ?3, ?4, (SELECT stamp FROM sources WHERE path = ?1), ?5, {earlier})",
            (path, report.sha256, report.size, stream, digest, encode_path(report.task.output)),
        )
        self.execute("DELETE FROM ledger_entries WHERE release IN (SELECT id FROM releases WHERE path = ?)", (path,))
        self.execute("DELETE FROM releases WHERE path = ?", (path,))
        self.execute("DELETE FROM claims WHERE path = ?", (path,))
        for position, one in enumerate(report.releases):
            member = one.member and printable(one.member)
            added = self.execute(
                "INSERT INTO releases (path, position, member, entry, width, height, bits, frames) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (path, position, member, printable(one.entry), one.width, one.height, one.bits, one.frames),
            )
            # Under an owner's key, equal frames are one entry.
            self._execute_many(
                "INSERT OR IGNORE INTO ledger_entries VALUES (?, ?)", ((added.lastrowid, n) for n in one.numbers)
            )

    def mark_flushed(self) -> None:
        """Note that everything released so far is on disk."""
        self.execute("UPDATE outputs SET flushed = 1 WHERE NOT flushed")
