"""The state of a run: every source file and what became of it. It is kept in an SQLite database (state_file.py).

The tables hold facts: what was listed, what was released, why something failed. What was found wrong with earlier
releases is looked up anew whenever a run is opened and is kept in a temporary table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ldp_slicing.errors import Reason
from ldp_slicing.formats import KINDS
from ldp_slicing.ledger import Ledger
from ldp_slicing.release import names
from ldp_slicing.release.ledger_join import LedgerJoin
from ldp_slicing.release.report import FileReport, FileState, FileTask
from ldp_slicing.release.state_file import StateFile
from ldp_slicing.storage import StoredFile, printable


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


class RunState(StateFile):
    """An open state folder, and the facts in it. Only one process can have it open; a second one is refused."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.names = names.OutputNames(self.execute)

    def attach(self, ledger: Ledger) -> LedgerJoin:
        """Return the ledger, attached for questions about both."""
        return LedgerJoin(self._database, ledger)

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

    def enter(self, found: StoredFile, number: int, kind: str, problem: tuple[str, Reason] | None) -> None:
        """Enter a source that waits to be released, or cannot be. A source whose kind has changed loses its name."""
        message, reason = problem or (None, None)
        state = FileState.SKIPPED if reason is Reason.UNKNOWN else FileState.FAILED if problem else FileState.WAITING
        self.execute(
            "INSERT INTO sources (path, kind, size, stamp, listing, state, problem, reason) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (path) DO UPDATE SET output = CASE WHEN excluded.kind IN ('', kind) THEN output END, "
            "kind = CASE excluded.kind WHEN '' THEN kind ELSE excluded.kind END, size = excluded.size, "
            "stamp = excluded.stamp, listing = excluded.listing, state = excluded.state, problem = excluded.problem, "
            "reason = excluded.reason",
            (encode_path(found.path), kind, found.size, found.stamp, number, state, message, reason),
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

    def streams(self) -> list[bytes]:
        """Return the identities of the keys that the known outputs were made with."""
        return [stream for (stream,) in self.execute("SELECT DISTINCT stream FROM outputs")]

    def released_sources(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield every released source with the keyed digest of its file, if that is known."""
        for path, digest in self.pages("SELECT path, source_digest FROM outputs WHERE path > ? ORDER BY path LIMIT ?"):
            yield decode_path(path), digest

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

    def claimed_outputs(self) -> list[str]:
        """Return the names of outputs that were begun and are not recorded as released."""
        query = "SELECT DISTINCT output FROM claims JOIN sources USING (path) WHERE output IS NOT NULL"
        return [decode_path(output) for (output,) in self.execute(query)]

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

    # A ledger that is made again

    def kind_of(self, path: str) -> str:
        return str(self.execute("SELECT kind FROM sources WHERE path = ?", (encode_path(path),)).fetchone()[0])

    def released_entries(self, path: str) -> dict[str, int]:
        """Return the releases that an output holds, by the names of their entries in the source."""
        return dict(self.execute("SELECT entry, id FROM releases WHERE path = ?", (encode_path(path),)).fetchall())

    def streams_of(self, path: str) -> list[bytes]:
        """Return the keys under which a source was released: that of its output, then those of replaced ones."""
        (last,) = self.execute("SELECT stream FROM outputs WHERE path = ?", (encode_path(path),)).fetchone()
        pixels = (
            "SELECT pixels FROM copied_releases JOIN ledger_entries ON number = copied_releases.id "
            "JOIN releases ON releases.id = release WHERE path = ?"
        )
        query = f"SELECT DISTINCT stream FROM copied_releases WHERE stream <> ? AND pixels IN ({pixels})"  # noqa: S608
        return [last, *(stream for (stream,) in self.execute(query, (last, encode_path(path))))]

    def renumber(self, path: str, numbers: Mapping[int, Sequence[int]], digest: bytes) -> None:
        """Note the new entries of an output's releases in the ledger, and the new keyed digest of its source."""
        self.execute("BEGIN")
        for release, entries in numbers.items():
            self.execute("DELETE FROM ledger_entries WHERE release = ?", (release,))
            self._execute_many("INSERT OR IGNORE INTO ledger_entries VALUES (?, ?)", ((release, n) for n in entries))
        self.execute("UPDATE outputs SET source_digest = ? WHERE path = ?", (digest, encode_path(path)))
        self.execute("DELETE FROM claims WHERE path = ?", (encode_path(path),))
        self.execute("COMMIT")

    def replace_copies(self, rows: Mapping[str, Sequence[Sequence[Any]]], *, keep_others: bool) -> None:
        """Copy these rows of tables of the ledger. Others, under the key of another ledger, are removed."""
        self.execute("BEGIN")
        for table, copies in rows.items():
            if not keep_others:
                self.execute(f"DELETE FROM copied_{table}")  # noqa: S608
            if copies:
                places = ", ".join("?" * len(copies[0]))
                self._execute_many(f"INSERT OR REPLACE INTO copied_{table} VALUES ({places})", copies)  # noqa: S608
        self.execute("COMMIT")

    # The work

    def tasks(self) -> Iterator[FileTask]:
        """Yield the files that wait, in the order of their paths."""
        query = (
            "SELECT path, kind, output, size FROM sources WHERE state = 'waiting' AND path > ? ORDER BY path LIMIT ?"
        )
        for path, kind, output, size in self.pages(query):
            yield FileTask(decode_path(path), kind, decode_path(output), size)

    def waiting_bytes(self) -> int:
        """Return how large the files are that wait, in all, without those that are batches of their own."""
        query = "SELECT kind, SUM(size) FROM sources WHERE state = 'waiting' GROUP BY kind"
        return sum(size for kind, size in self.execute(query) if not KINDS[kind].goes_alone)

    def record(self, reports: list[FileReport], stream: bytes, keyed: Callable[[bytes], bytes]) -> None:
        """Record what became of some files, in one transaction. Files that were stopped still wait."""
        self.execute("BEGIN")
        for report in reports:
            if report.state is FileState.WAITING:
                continue
            path = encode_path(report.task.path)
            self.execute(
                "UPDATE sources SET state = ?, problem = ?, reason = ? WHERE path = ?",
                (report.state, report.problem, report.reason, path),
            )
            if report.state is FileState.RELEASED:
                self._record_output(path, report, stream, report.source_sha256 and keyed(report.source_sha256))
            skipped = (
                (path, position, printable(one.member), printable(one.problem), one.reason, one.is_copy)
                for position, one in enumerate(report.skipped)
            )
            self._execute_many("INSERT OR REPLACE INTO skipped VALUES (?, ?, ?, ?, ?, ?)", skipped)
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
        self.execute("DELETE FROM kept WHERE path = ?", (path,))
        self._execute_many("INSERT INTO kept VALUES (?, ?)", ((path, name) for name in report.kept))
        self.execute("DELETE FROM notices WHERE path = ?", (path,))
        notices = ((path, printable(notice), images) for notice, images in report.notices.items())
        self._execute_many("INSERT OR REPLACE INTO notices VALUES (?, ?, ?)", notices)
        for position, one in enumerate(report.releases):
            member = one.member and printable(one.member)
            size = (one.width, one.height, one.bits, one.frames, one.source_pixels)
            added = self.execute(
                "INSERT INTO releases (path, position, member, entry, width, height, bits, frames, source_pixels) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (path, position, member, printable(one.entry), *size),
            )
            # Under an owner's key, equal frames are one entry.
            self._execute_many(
                "INSERT OR IGNORE INTO ledger_entries VALUES (?, ?)", ((added.lastrowid, n) for n in one.numbers)
            )

    def mark_flushed(self) -> None:
        """Note that everything released so far is on disk."""
        self.execute("UPDATE outputs SET flushed = 1 WHERE NOT flushed")
