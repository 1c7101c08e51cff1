"""The open database of a ledger: its keys, its transactions, and how sources are found in it.

Sources, files and items appear as digests under the ledger's key. A ledger into which others were merged has their keys
too, wrapped under its own; what it is asked is then asked under each key. New entries are made under its own.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

from ldp_slicing.errors import LdpSlicingError, LedgerError
from ldp_slicing.ledger.file import followed, keyed_digest, open_ledger_file, read_meta
from ldp_slicing.ledger.sums import Selection, Spent, add_up, spent_query

_DAMAGED = (
    sqlite3.Error,
    ArithmeticError,
    AttributeError,
    TypeError,
    ValueError,
    InvalidUnwrap,
)  # what damaged values lead to
# The contents of a file, each once. A file may have many equal images: the index is entered once for each content.
_CONTENTS_OF_FILE = """
WITH RECURSIVE held (content) AS (
    SELECT MIN(content) FROM releases WHERE file = ?1
    UNION ALL SELECT (SELECT MIN(content) FROM releases WHERE file = ?1 AND content > held.content)
    FROM held WHERE held.content IS NOT NULL
) SELECT content FROM held WHERE content IS NOT NULL
"""


def wrapping_key(key: bytes) -> bytes:
    """Return the key under which a ledger keeps the keys of ledgers that were merged into it."""
    return keyed_digest(key, "wrapping", b"")


def _follow(became: Mapping[bytes, bytes], content: bytes) -> bytes:
    while content in became:
        content = became[content]
    return content


class LedgerDatabase:
    """An open ledger. It is created if it does not exist, unless ``must_exist``."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = followed(path)
        self._key, self._database = open_ledger_file(self.path, must_exist=must_exist)
        try:
            self.load_keys()
        except BaseException:
            self._database.close()
            raise

    def load_keys(self) -> None:
        """Read the keys of the ledgers that were merged into this one. ``keys`` has them by identity, its own first."""
        with self._reading():
            self.identity = bytes(read_meta(self._database, "id")).hex()
            merged = self._database.execute("SELECT id, key FROM merged ORDER BY id").fetchall()
            wrapping = wrapping_key(self._key)
            others = {identity.hex(): aes_key_unwrap(wrapping, wrapped) for identity, wrapped in merged}
            self.keys = {self.identity: self._key, **others}

    def close(self) -> None:
        """Close the ledger. Its log is merged into its file first, as far as other processes allow."""
        with contextlib.suppress(sqlite3.Error):
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._database.close()

    def keyed(self, kind: str, content: bytes) -> bytes:
        """Return a digest that reveals nothing without the ledger's key. ``kind`` separates pixels, files and names."""
        return keyed_digest(self._key, kind, content)

    def keyed_each(self, kind: str, content: bytes | None) -> tuple[bytes, ...]:
        """Return the digests under its own key, which is first, and under those of merged ledgers."""
        return () if content is None else tuple(keyed_digest(key, kind, content) for key in self.keys.values())

    # Sources

    def _contents(self, source: bytes, forms: Sequence[bytes]) -> set[bytes]:
        """Return the contents that an image is known by, from the digests of its pixels and common forms."""
        run = self._database.execute
        pixels = "SELECT content FROM releases WHERE pixels = ? LIMIT 1"
        rows = [run(pixels, (digest,)).fetchone() for digest in self.keyed_each("pixels", source)]
        for form in forms:
            known = "SELECT content FROM forms WHERE form = ?"
            rows += [run(known, (digest,)).fetchone() for digest in self.keyed_each("form", form)]
        return {row[0] for row in rows if row is not None}

    def _contents_of_files(self, files: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the contents that came from a file, given by its keyed digests, each once."""
        for file in files:
            for (content,) in self._database.execute(_CONTENTS_OF_FILE, (file,)):
                yield content

    @staticmethod
    def _of_source(content: bytes, files: Sequence[bytes]) -> Selection:
        """Select the releases of one source: of the same content, and of all contents (frames) of the same file."""
        if not files:
            return "(SELECT * FROM releases WHERE content = ?)", (content,)
        of_files, digests = LedgerDatabase._of_files(files)
        return f"(SELECT * FROM releases WHERE content = ? UNION SELECT * FROM {of_files})", (content, *digests)  # noqa: S608

    @staticmethod
    def _of_files(files: Sequence[bytes]) -> Selection:
        """Select the releases of all contents that came from a file, given by its keyed digests."""
        places = ", ".join("?" * len(files))
        chosen = f"SELECT content FROM releases WHERE file IN ({places})"  # noqa: S608
        return f"(SELECT * FROM releases WHERE content IN ({chosen}))", tuple(files)  # noqa: S608

    def _spent(self, selection: Selection) -> Spent:
        return add_up(self._database.execute(spent_query(selection[0]), selection[1]).fetchall())

    def unite(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Make the two contents of each pair one: their digests belong to the same source."""
        became = dict[bytes, bytes]()
        run = self._database.execute
        for pair in pairs:
            content, other = sorted(_follow(became, one) for one in pair)
            if content != other:
                became[other] = content
                for table in ("releases", "forms"):
                    run(f"UPDATE {table} SET content = ? WHERE content = ?", (content, other))  # noqa: S608
                run("INSERT OR IGNORE INTO marks SELECT mark, ? FROM marks WHERE content = ?", (content, other))
                run("DELETE FROM marks WHERE content = ?", (other,))

    # Transactions

    @contextmanager
    def attached(self, other: Path) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """Attach another ledger as ``other`` and write in one transaction. Yields what runs a statement."""
        with self._reading():
            self._database.execute("ATTACH ? AS other", (str(other),))
        try:
            with self._transaction():
                yield self._database.execute
        finally:
            self._forget()
            self._database.execute("DETACH other")

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
                self._forget()
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
        except LdpSlicingError:
            raise
        except _DAMAGED as error:
            raise LedgerError(f"the ledger {self.path} cannot be written: {error}") from None

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Write to the tables directly, in one durable transaction."""
        with self._transaction():
            yield self._database

    def _forget(self) -> None:
        """Forget what was remembered of the tables: a transaction was rolled back, or another ledger merged."""
