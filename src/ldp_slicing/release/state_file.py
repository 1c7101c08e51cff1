"""The state folder of a run: its database, the lock on it, the run's parameters and its key.

The folder belongs to the owner alone. It maps names of sources to names of releases, and until the run completes it
holds the run key, with which the noise could be removed. It never lies inside the target, so a target can be handed
on as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ldp_slicing.errors import Reason, ReleaseError
from ldp_slicing.files import OWNERS_NOTE, check_name_encoding, lock_folder, sync_folder, write_atomically
from ldp_slicing.keys import Secret, destroy_key_file, new_key_file, read_key_file
from ldp_slicing.release import names
from ldp_slicing.sets import STATE_NAME

STATE_VERSION = 14
KEY_NAME = "key"
WORKERS_END_SECONDS = 5.0
SETTINGS, LEDGER_CHECK = "settings", "ledger check"  # what is needed to make a lost ledger again
ACTORS = "actors"  # set while a run has actors on a cluster
ACTORS_END_SECONDS = 10.0  # Ray ends the actors of a killed run within 5 seconds, even one that hangs
_PAGE = 256
_NOTE = b"""This folder belongs to the owner of the sources. It is the state of a run of `ldp-slicing privatize`.
It holds the names of its sources and, until the run completes, the key that can remove the noise. Do not share it.
Keep it to resume or void the run, and to make a lost ledger again.
"""

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
    problem TEXT,                                  -- why it was not released
    reason TEXT                                    -- the same as a Reason
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
    source_pixels INTEGER NOT NULL,                -- before the source was shrunk
    UNIQUE (path, position)
);
CREATE TABLE kept (path BLOB, name TEXT, PRIMARY KEY (path, name)) WITHOUT ROWID;  -- data beside the images
CREATE TABLE ledger_entries (release INTEGER, number INTEGER, PRIMARY KEY (release, number)) WITHOUT ROWID;
CREATE INDEX by_number ON ledger_entries (number);
CREATE TABLE claims (                              -- entries of the ledger for files that are not recorded as released
    number INTEGER PRIMARY KEY, path BLOB NOT NULL, stamp TEXT NOT NULL
);
CREATE INDEX claims_by_path ON claims (path);
CREATE TABLE copied_releases (                     -- this run's entries of the ledger, should the ledger be lost
    id INTEGER PRIMARY KEY, pixels BLOB, file BLOB, stream BLOB, item BLOB, plan BLOB, time INTEGER, content BLOB,
    released INTEGER
);
CREATE INDEX copied_by_pixels ON copied_releases (pixels);
CREATE TABLE copied_plans (digest BLOB PRIMARY KEY, epsilon REAL, dependents INTEGER, about TEXT) WITHOUT ROWID;
CREATE TABLE copied_forms (form BLOB PRIMARY KEY, content BLOB) WITHOUT ROWID;
CREATE TABLE copied_marks (mark BLOB, content BLOB, PRIMARY KEY (mark, content)) WITHOUT ROWID;
CREATE TABLE copied_merged (id BLOB PRIMARY KEY, key BLOB) WITHOUT ROWID;
CREATE TABLE skipped (                             -- members that an output leaves out
    path BLOB, position INTEGER, member TEXT, problem TEXT, reason TEXT, is_copy INTEGER, PRIMARY KEY (path, position)
) WITHOUT ROWID;
CREATE TABLE notices (                             -- images: how many of the file, 0 if about the whole file
    path BLOB, notice TEXT, images INTEGER, PRIMARY KEY (path, notice)
) WITHOUT ROWID;
{names.SCHEMA}
"""
_FINDINGS = "CREATE TEMP TABLE findings (path BLOB, finding TEXT, PRIMARY KEY (path, finding)) WITHOUT ROWID"


class StateFile:
    """The open database of a state folder. Only one process can have it open; a second one is refused.

    ``lock`` is a descriptor that holds a lock on the folder, or None where folders cannot be locked. The run's worker
    processes inherit it. So while any of them lives, even if the run was killed, no other run can begin.
    """

    def __init__(self, folder: Path) -> None:
        check_name_encoding()
        self.folder = folder
        self.lock: int | None = None
        self._key_path = folder / KEY_NAME
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(folder / STATE_NAME, os.O_RDWR | os.O_CREAT, 0o600))
        self._database = sqlite3.connect(folder / STATE_NAME, timeout=0.5, isolation_level=None, uri=True)
        try:
            self._prepare()
            version = self.get("version")
        except sqlite3.Error as error:
            self.close()
            if "locked" in str(error):
                raise ReleaseError(
                    f"another process is working on this release (it holds {folder}); wait for it, or stop it",
                    Reason.BUSY,
                ) from None
            raise ReleaseError(f"the state of this release, {folder}, cannot be used: {error}", Reason.STATE) from None
        if version == STATE_VERSION:
            try:
                self.lock = self._lock_folder()
            except ReleaseError:
                self.close()
                raise
            if self.get(ACTORS):  # on other machines, where they cannot hold the lock
                time.sleep(ACTORS_END_SECONDS)
                self.set_durably(ACTORS, False)
        else:
            self.close()
            raise ReleaseError(
                f"{folder} was written by another version of this software (format {version}, not {STATE_VERSION}): "
                "continue with that version, or release the rest to another target",
                Reason.STATE,
            )

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
                        f"them (`fuser -v {self.folder}` lists them), then run the same command again",
                        Reason.BUSY,
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
            write_atomically(self.folder / OWNERS_NOTE, [_NOTE])
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
        for path in (self.folder / OWNERS_NOTE, *self.folder.glob(f"{STATE_NAME}*"), self._key_path):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

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
            raise ReleaseError(
                f"the state of this release, {self.folder}, cannot be written: {error}", Reason.STATE
            ) from None

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
