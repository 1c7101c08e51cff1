"""What is known of a run on the owner's side: its secret, its parameters, every file and what became of it. In a folder beside the target.

The folder belongs to the owner alone: it maps names of sources to names of releases, and until the run completes it holds the run key, with
which the noise could be removed. It is never inside the target, so that a target can be handed on as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ldp_slicing.errors import ReleaseError
from ldp_slicing.files import sync_folder
from ldp_slicing.keys import Secret, destroy_key_file, new_key_file, read_key_file
from ldp_slicing.manifest import AGAIN, LOST
from ldp_slicing.release import names
from ldp_slicing.release.worker import Outcome, Task
from ldp_slicing.storage import Found, printable

JOURNAL_VERSION = 7
WAITING, RELEASED, PROBLEM, COPY = range(4)
_PAGE = 256
_WHOLE = b"."  # in place of a file's path: the source as a whole

_SCHEMA = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE files (
    path BLOB PRIMARY KEY, kind TEXT NOT NULL, size INTEGER NOT NULL, stamp TEXT NOT NULL, output BLOB,
    state INTEGER NOT NULL, problem TEXT, passing INTEGER NOT NULL DEFAULT 0, digest BLOB, sha256 BLOB, bytes INTEGER,
    settled INTEGER NOT NULL DEFAULT 0, seen INTEGER NOT NULL, changed TEXT, remark TEXT, wrong TEXT, status TEXT, run BLOB
) WITHOUT ROWID;
CREATE INDEX by_state ON files (state, path);
CREATE INDEX by_digest ON files (digest) WHERE digest IS NOT NULL;
CREATE UNIQUE INDEX by_output ON files (output) WHERE output IS NOT NULL;
CREATE TABLE releases (
    path BLOB, position INTEGER, member TEXT, width INTEGER, height INTEGER, bits INTEGER, frames INTEGER,
    numbers BLOB, entry TEXT,
    PRIMARY KEY (path, position)
) WITHOUT ROWID;
CREATE TABLE skipped (
    path BLOB, position INTEGER, member TEXT, problem TEXT, is_copy INTEGER, PRIMARY KEY (path, position)
) WITHOUT ROWID;
CREATE TABLE notices (path BLOB, notice TEXT, PRIMARY KEY (path, notice)) WITHOUT ROWID;
{names.SCHEMA}
"""


@dataclass(frozen=True)
class Tally:
    """Each file in one of the first five, which add up to ``total``; ``lost``: released, and the release is gone or damaged. The rest are
    about released files: sources that have changed since, and members (of shards) that are not in their releases.
    """

    released: int
    lost: int
    failed: int
    copies: int
    waiting: int
    changed: int
    members_failed: int
    members_copies: int

    @property
    def total(self) -> int:
        return self.released + self.lost + self.failed + self.copies + self.waiting


@dataclass(frozen=True)
class Kept:
    """A file that was released: its output with checksum and size; ``settled``: surely on the disk; ``run``: which key it is from."""

    path: str
    output: str
    sha256: bytes
    size: int
    settled: bool
    run: bytes


def encode(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def decode(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


class Journal:
    """An open journal. One process at a time: a second is refused while the first runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key_path = folder / "key"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(folder / "journal.sqlite", os.O_RDWR | os.O_CREAT, 0o600))
        self._database = sqlite3.connect(folder / "journal.sqlite", timeout=0.5, isolation_level=None)
        try:
            run = self._database.execute
            run("PRAGMA locking_mode = EXCLUSIVE")  # released by the system, also when the process is killed
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = NORMAL")  # what a power cut takes from it is found out and made again, the same
            run("BEGIN EXCLUSIVE")
            if not run("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                for statement in _SCHEMA.split(";"):
                    run(statement)
                run("INSERT INTO meta VALUES ('version', ?)", (json.dumps(JOURNAL_VERSION),))
            run("COMMIT")
            version = self.get("version")
        except sqlite3.Error as error:
            self.close()
            if "locked" in str(error):
                raise ReleaseError(
                    f"another process is at work on this release (it holds {folder}); wait for it, or stop it"
                ) from None
            raise ReleaseError(f"the state of this release, {folder}, cannot be used: {error}") from None
        if version != JOURNAL_VERSION:
            self.close()
            raise ReleaseError(
                f"{folder} was left by another version of this software ({version}, not {JOURNAL_VERSION}): go on with that one, "
                "or release what is left to another target"
            )
        self.namer = names.Namer(self._run)

    def close(self) -> None:
        self._database.close()

    def remove(self) -> None:
        """Close it, and take away what it put into its folder, and the folder if nothing else is there."""
        self.close()
        for path in (*self.folder.glob("journal.sqlite*"), self._key_path):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        with self._writing():
            return self._database.execute(statement, values)

    def _run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._writing():
            self._database.executemany(statement, rows)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A disk that is full is said, and leaves what was there before."""
        try:
            yield
        except sqlite3.Error as error:
            if self._database.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
            raise ReleaseError(f"the state of this release, {self.folder}, cannot be written: {error}") from None

    def get(self, name: str) -> Any:  # noqa: ANN401
        found = self._run("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if found is None else json.loads(found[0])

    def _set(self, name: str, value: Any) -> None:  # noqa: ANN401
        self._run(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, json.dumps(value)),
        )

    def set_durably(self, name: str, value: Any) -> None:  # noqa: ANN401
        self._run("PRAGMA synchronous = FULL")
        self._set(name, value)
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")
        self._run("PRAGMA synchronous = NORMAL")

    # The run key

    @property
    def has_key(self) -> bool:
        return self._key_path.exists()

    def secret(self) -> Secret:
        """The run key: the one that is there, or a new one, on the disk before anything is made with it."""
        if self.has_key:
            return Secret(read_key_file(self._key_path), is_owners=False)
        key = new_key_file(self._key_path)
        sync_folder(self.folder.parent)
        return Secret(key, is_owners=False)

    def salt(self) -> bytes:
        """Random bytes of this run's own, which outlast its key."""
        if self.get("salt") is None:
            self.set_durably("salt", os.urandom(16).hex())
        return bytes.fromhex(self.get("salt"))

    def destroy_key(self) -> None:
        if self.has_key:
            destroy_key_file(self._key_path)

    # Files

    def list_files(
        self,
        found: Iterator[Found],
        kind_of: Callable[[Found], tuple[str, str]],
        in_the_way: Callable[[str], str | None],
        is_litter: Callable[[Found], bool],
        *,
        copies_again: bool,
    ) -> None:
        """Enter what the source holds now. ``kind_of`` gives a file's kind and the ending of what is made from it; litter is only counted.

        Whatever has no release waits again; but copies only where their first may still fail.
        """
        generation = (self.get("generation") or 0) + 1
        self._run("BEGIN")
        self._set("generation", generation)
        litter = 0
        for item in found:
            if is_litter(item):
                litter += 1
                continue
            path, problem = encode(item.path), item.problem or in_the_way(item.path)
            known = generation > 1 and self._run("SELECT state, stamp FROM files WHERE path = ?", (path,)).fetchone()
            if known and known[0] == RELEASED:
                changed = item.stamp if item.stamp != known[1] else None
                self._run("UPDATE files SET seen = ?, changed = ? WHERE path = ?", (generation, changed, path))
                continue
            if known and known == (COPY, item.stamp) and not copies_again:
                self._run("UPDATE files SET seen = ? WHERE path = ?", (generation, path))
                continue
            kind, suffix = ("", "") if problem else kind_of(item)
            state = PROBLEM if problem else WAITING
            self._run(
                "INSERT INTO files (path, kind, size, stamp, state, problem, seen) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO "
                "UPDATE SET output = CASE WHEN excluded.kind IN ('', kind) THEN output END, "  # another kind is written as something else
                "kind = CASE excluded.kind WHEN '' THEN kind ELSE excluded.kind END, "
                "size = excluded.size, stamp = excluded.stamp, state = excluded.state, "
                "problem = excluded.problem, passing = 0, seen = excluded.seen",
                (path, kind, item.size, item.stamp, state, problem, generation),
            )
            if not problem:
                self.namer.wish(item.path, suffix)
        for table in ("skipped", "notices"):
            self._run(f"DELETE FROM {table} WHERE path IN (SELECT path FROM files WHERE state <> ?)", (RELEASED,))  # noqa: S608
        gone = "UPDATE files SET state = ?, status = NULL, wrong = ?, remark = ? WHERE seen <> ? AND state <> ? AND status = ?"
        remark = "its release is lost, and its source is gone, too"
        self._run(gone, (RELEASED, LOST, remark, generation, RELEASED, AGAIN))  # what was released once stays counted
        self._run("DELETE FROM files WHERE seen <> ? AND state <> ?", (generation, RELEASED))  # gone from the source
        self._run("UPDATE files SET changed = NULL WHERE seen <> ?", (generation,))
        self._run("DELETE FROM notices WHERE path = ?", (_WHOLE,))
        if litter:
            left = "1 file that is no source is" if litter == 1 else f"{litter:,} files that are no sources are"
            self._run(
                "INSERT INTO notices VALUES (?, ?)",
                (
                    _WHOLE,
                    f"{left} left out (.DS_Store, Thumbs.db, desktop.ini, AppleDouble ._*, CIFAR's names of classes)",
                ),
            )
        self._run("COMMIT")

    def name_files(self, name: Callable[[str, str], str]) -> None:
        """An output for each file that waits and has none."""
        self._run("BEGIN")
        for path, kind in self._pages(
            "SELECT path, kind FROM files WHERE state = 0 AND output IS NULL AND path > ? ORDER BY path LIMIT ?"
        ):
            self._run("UPDATE files SET output = ? WHERE path = ?", (encode(name(decode(path), kind)), path))
        self.namer.forget_wishes()
        self._run("COMMIT")

    def _pages(self, query: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query over ascending paths, a page at a time: rows may be changed meanwhile."""
        last = b""
        while page := self._run(query, (last, _PAGE)).fetchall():
            yield from page
            last = page[-1][0]

    def waiting(self) -> Iterator[Task]:
        query = "SELECT path, kind, output, size FROM files WHERE state = 0 AND path > ? ORDER BY path LIMIT ?"
        for path, kind, output, size in self._pages(query):
            yield Task(decode(path), kind, decode(output), size)

    def waiting_from(self, size: int) -> tuple[int, int]:
        """How many of the files that wait are at least so large, and how many wait."""
        larger, waiting = self._run(
            "SELECT COALESCE(SUM(size >= ?), 0), COUNT(*) FROM files WHERE state = 0", (size,)
        ).fetchone()
        return larger, waiting

    def released(self) -> Iterator[Kept]:
        query = "SELECT path, output, sha256, bytes, settled, run FROM files WHERE state = 1 AND path > ? ORDER BY path LIMIT ?"
        for path, output, sha256, size, settled, run in self._pages(query):
            yield Kept(decode(path), decode(output), sha256, size, bool(settled), run)

    def changed(self) -> Iterator[tuple[str, bytes | None, str]]:
        """Files that were released and have another stamp now: path, keyed digest of the file that was released, new stamp."""
        for path, digest, stamp in self._pages(
            "SELECT path, digest, changed FROM files WHERE state = 1 AND changed IS NOT NULL AND path > ? ORDER BY path LIMIT ?"
        ):
            yield decode(path), digest, stamp

    def unchanged_after_all(self, path: str, stamp: str) -> None:
        self._run("UPDATE files SET stamp = ?, changed = NULL WHERE path = ?", (stamp, encode(path)))

    def remark(self, path: str, remark: str, wrong: str | None = None) -> None:
        """What is wrong with a file that was released; ``wrong``: with its output, in a word, for the manifest."""
        query = "UPDATE files SET remark = COALESCE(remark || '; ', '') || ?, wrong = COALESCE(wrong, ?) WHERE path = ?"
        self._run(query, (remark, wrong, encode(path)))  # of a lost release the source may have changed, too

    def forget_remarks(self) -> None:
        self._run("UPDATE files SET remark = NULL, wrong = NULL WHERE remark IS NOT NULL")

    def wait_again(self, path: str, status: str) -> None:
        """Make its release again: under the same key the same bytes, else a new release, which ``status`` then says.

        What was known of the one before is kept until then: it may come back.
        """
        self._run(
            "UPDATE files SET state = 0, settled = 0, remark = NULL, status = ? WHERE path = ?", (status, encode(path))
        )

    def missed(self) -> Iterator[Kept]:
        """Releases that were lost, and were to be made again, and have not been yet."""
        query = (
            "SELECT path, output, sha256, bytes, settled, run FROM files WHERE state IN (0, 2) AND LENGTH(sha256) = 32 "
            "AND output IS NOT NULL AND path IN (SELECT path FROM releases) AND path > ? ORDER BY path LIMIT ?"
        )
        for path, output, sha256, size, settled, run in self._pages(query):
            yield Kept(decode(path), decode(output), sha256, size, bool(settled), run)

    def has_come_back(self, path: str) -> None:
        self._run(
            "UPDATE files SET state = 1, problem = NULL, passing = 0, status = NULL WHERE path = ?", (encode(path),)
        )

    def record(self, outcomes: list[Outcome], run: bytes, digest: Callable[[bytes], bytes]) -> None:
        """What became of some files, in one transaction. Whoever was stopped still waits."""
        self._run("BEGIN")
        for outcome in outcomes:
            if outcome.stopped:
                continue
            path = encode(outcome.task.path)
            state = COPY if outcome.is_copy else RELEASED if outcome.problem is None else PROBLEM
            self._run(
                "UPDATE files SET state = ?, problem = ?, passing = ? WHERE path = ?",
                (state, outcome.problem, outcome.passing, path),
            )
            if state == RELEASED:
                self._run(
                    "UPDATE files SET sha256 = ?, bytes = ?, run = ?, digest = ?, changed = NULL WHERE path = ?",
                    (outcome.sha256, outcome.size, run, outcome.file and digest(outcome.file), path),
                )
                self._run("DELETE FROM releases WHERE path = ?", (path,))  # of one that was lost
            made = [
                (
                    path,
                    i,
                    one.member and printable(one.member),
                    one.width,
                    one.height,
                    one.bits,
                    one.frames,
                    array("q", one.numbers).tobytes(),
                    printable(one.entry),
                )
                for i, one in enumerate(outcome.made)
            ]
            self._run_many("INSERT OR REPLACE INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", made)
            skipped = [
                (path, i, printable(one.member), printable(one.problem), one.is_copy)
                for i, one in enumerate(outcome.skipped)
            ]
            self._run_many("INSERT OR REPLACE INTO skipped VALUES (?, ?, ?, ?, ?)", skipped)
            self._run_many(
                "INSERT OR IGNORE INTO notices VALUES (?, ?)", [(path, printable(notice)) for notice in outcome.notices]
            )
        self._run("COMMIT")

    def settle(self) -> None:
        """What was released so far is on the disk."""
        self._run("UPDATE files SET settled = 1 WHERE state = 1 AND NOT settled")

    # Sums

    def counts(self) -> Counter[int]:
        return Counter(dict(self._run("SELECT state, COUNT(*) FROM files GROUP BY state").fetchall()))

    def tally(self) -> Tally:
        counts = self.counts()
        query = "SELECT COUNT(wrong), COUNT(*) - COUNT(wrong) FROM files WHERE state = 1 AND remark IS NOT NULL"
        lost, changed = self._run(query).fetchone()
        query = "SELECT is_copy, COUNT(*) FROM skipped JOIN files USING (path) WHERE state = 1 GROUP BY is_copy"
        members = dict(self._run(query).fetchall())
        released = counts[RELEASED] - lost
        return Tally(
            released,
            lost,
            counts[PROBLEM],
            counts[COPY],
            counts[WAITING],
            changed,
            members.get(0, 0),
            members.get(1, 0),
        )

    @property
    def unfinished(self) -> bool:
        """Whether there is something that trying again may bring."""
        return (
            self._run("SELECT 1 FROM files WHERE state = 0 OR (state = 2 AND passing) LIMIT 1").fetchone() is not None
        )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Files without a release, and members left out, with the reason."""
        for path, problem in self._run("SELECT path, problem FROM files WHERE state = 2 ORDER BY path"):
            yield decode(path), problem
        for path, remark in self._run(
            "SELECT path, remark FROM files WHERE state = 1 AND remark IS NOT NULL ORDER BY path"
        ):
            yield decode(path), remark
        for path, member, problem in self._run(
            "SELECT path, member, problem FROM skipped WHERE NOT is_copy ORDER BY path, position"
        ):
            yield f"{decode(path)}: {member}", problem

    def copies(self) -> Iterator[str]:
        """Files, and members of shards, that were left out because they equal one that was released."""
        for (path,) in self._run("SELECT path FROM files WHERE state = 3 ORDER BY path"):
            yield decode(path)
        query = "SELECT path, member FROM skipped JOIN files USING (path) WHERE is_copy AND state = 1 ORDER BY path, position"
        for path, member in self._run(query):
            yield f"{decode(path)}: {member}"

    def equal_files(self) -> Iterator[tuple[str, str]]:
        """Files that were released although another one, which was too, is the same byte for byte: each with that one."""
        query = (
            "SELECT files.path, MIN(others.path) FROM files JOIN files AS others ON others.digest = files.digest AND others.state = 1 "
            "WHERE files.state = 1 AND files.digest IN (SELECT digest FROM files WHERE state = 1 GROUP BY digest HAVING COUNT(*) > 1) "
            "GROUP BY files.path HAVING files.path <> MIN(others.path) ORDER BY files.path"
        )
        for path, first in self._run(query):
            yield decode(path), decode(first)

    def notices(self) -> Iterator[tuple[str, str]]:
        for path, notice in self._run("SELECT path, notice FROM notices ORDER BY path, notice"):
            yield decode(path), notice

    def manifest(self) -> Iterator[dict[str, Any]]:
        """One line for each release, by the names of the outputs."""
        query = (
            "SELECT output, sha256, COALESCE(wrong, status, 'released'), member, frames, width, height, bits "
            "FROM files JOIN releases USING (path) WHERE state = 1 ORDER BY output, position"
        )
        for output, sha256, status, member, frames, width, height, bits in self._run(query):
            line = {"output": decode(output), "sha256": sha256.hex(), "status": status}
            if status == LOST:  # nobody can look; but the card counts it
                line |= {"width": width, "height": height, "word_bits": bits}
            yield line | ({"member": member} if member is not None else {}) | ({"frames": frames} if frames > 1 else {})

    def outputs(self) -> Iterator[str]:
        """All names that releases have, or are to have."""
        for (output,) in self._run("SELECT output FROM files WHERE output IS NOT NULL ORDER BY output"):
            yield decode(output)

    def damaged(self) -> str | None:
        """The name of a release that something else has now."""
        found = self._run(
            "SELECT output FROM files WHERE state = 1 AND wrong = 'damaged' ORDER BY output LIMIT 1"
        ).fetchone()
        return decode(found[0]) if found else None

    def is_released(self, output: str) -> bool:
        """Whether that is the name of a release that is known to be whole."""
        return self._run("SELECT 1 FROM files WHERE output = ? AND state = 1", (encode(output),)).fetchone() is not None

    def names(self) -> Iterator[tuple[str, str, str, str]]:
        """Of each release its output and member, and the file and entry that it was made from."""
        query = "SELECT output, member, path, entry FROM files JOIN releases USING (path) WHERE state = 1 ORDER BY output, position"
        for output, member, path, entry in self._run(query):
            yield decode(output), member or "", decode(path), entry

    def statements(self) -> Iterator[tuple[int, int, int, list[tuple[int, int]]]]:
        """For each kind of word: its bits, how many releases (frames), the most frames of a film, and the different sizes."""
        query = "SELECT bits, SUM(frames), MAX(frames) FROM releases JOIN files USING (path) WHERE state = 1 GROUP BY bits ORDER BY bits DESC"
        for bits, count, frames in self._run(query).fetchall():
            sizes = "SELECT DISTINCT width, height FROM releases JOIN files USING (path) WHERE state = 1 AND bits = ?"
            yield bits, count, frames, self._run(sizes, (bits,)).fetchall()

    def numbers(self, bits: int | None = None) -> Iterator[tuple[bytes, Sequence[int]]]:
        """Of each release of such words: the run or owner's key that it is from, and its numbers in the ledger; without ``bits`` of all
        that were ever made, lost ones, too.
        """
        query = (
            "SELECT run, numbers FROM releases JOIN files USING (path) WHERE ?1 IS NULL OR (state = 1 AND bits = ?1)"
        )
        for run, numbers in self._run(query, (bits,)):
            yield run, array("q", numbers)
