"""The ledger: the owner's record of what was released from which source. SQLite; several processes may use it at once.

The ledger holds no content and no names of sources. Sources and items appear as digests under the ledger's own key,
which lies beside it. Somebody who has both can test whether a given image was released; somebody who has the ledger
alone cannot. Of each run it holds the target and the state folder.

Proof: docs/proofs.md, 13. Tests: tests/ledger/test_ledger.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ldp_slicing.errors import LedgerError
from ldp_slicing.ledger.entries import LedgerEntries, run_id
from ldp_slicing.ledger.file import read_meta
from ldp_slicing.ledger.sums import Spent
from ldp_slicing.wording import counted


@dataclass(frozen=True)
class RunRecord:
    """A run, as the ledger knows it: the identity of its key, where it writes, and whether the owner has voided it.

    All runs with one owner's key are one record.
    """

    stream: bytes
    is_owners: bool
    began: int
    target: str
    state: str
    releases: int
    voided: int | None
    because: str | None

    @property
    def id(self) -> str:
        return run_id(self.stream)


class Ledger(LedgerEntries):
    """An open ledger, and the questions that it answers. It is created if it does not exist, unless ``must_exist``."""

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
                    self._database.executemany(insert, ((content,) for content in self._contents(source, forms)))
                for content in self._contents_of_files(self.keyed_each("file", file)):
                    run(insert, (content,))
            return self._spent(("(SELECT * FROM releases WHERE content IN (SELECT content FROM asked_contents))", ()))

    @property
    def rebuilt(self) -> int | None:
        """When it, or a ledger that was merged into it, was made again from state folders. It may lack releases."""
        with self._reading():
            return None if (moment := read_meta(self._database, "rebuilt")) is None else int(moment)

    @property
    def has_merged(self) -> bool:
        """Whether other ledgers were merged into it. Their digests are under other keys, so a source that both know is
        two sources to ``sources`` and ``most_spent``, until ``approve`` sees it again.
        """
        return len(self.keys) > 1

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
                    selection = self._of_source(digest, ()) if kind is stills else self._of_files([digest])
                    found[digest.hex()[:16]] = self._spent(selection)
        return sorted(found.items(), key=lambda pair: (-pair[1].epsilon, pair[0]))[:count]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every release, for export."""
        query = (
            "SELECT pixels, file, stream, plan, epsilon, done, voided, time "
            "FROM releases JOIN plans ON plans.id = plan ORDER BY releases.id"
        )
        with self._reading():
            for pixels, file, stream, plan, epsilon, done, voided, moment in self._database.execute(query):
                yield {
                    "source": pixels.hex(),
                    "file": file and file.hex(),
                    "run": stream.hex(),
                    "plan": plan,
                    "epsilon": epsilon,
                    "state": "voided" if voided else "done" if done else "intent",
                    "time": moment,
                }

    def plans(self) -> dict[int, Any]:
        with self._reading():
            rows = self._database.execute("SELECT id, about FROM plans ORDER BY id")
            return {number: json.loads(about) for number, about in rows}

    # Runs

    def runs(self) -> list[RunRecord]:
        """Return every run, the latest first."""
        query = (
            "SELECT stream, is_owners, began, target, state, "
            "(SELECT COUNT(*) FROM releases WHERE releases.stream = runs.stream), voided, because "
            "FROM runs ORDER BY began DESC, stream"
        )
        with self._reading():
            rows = self._database.execute(query).fetchall()
            return [RunRecord(stream, bool(is_owners), *others) for stream, is_owners, *others in rows]

    def voided_streams(self) -> set[bytes]:
        """Return the identities of the keys of voided runs."""
        with self._reading():
            return {stream for (stream,) in self._database.execute("SELECT stream FROM runs WHERE voided IS NOT NULL")}

    def find_run(self, name: str) -> RunRecord:
        """Return the run whose id begins with ``name``."""
        found = [run for run in self.runs() if name and run.stream.hex().startswith(name.lower())]
        if len(found) != 1:
            which = f"{counted(len(found), 'run')} begin" if found else "no run begins"
            raise LedgerError(
                f"{which} with {name!r} in {self.path}: `ldp-slicing ledger` lists the runs and their ids"
            )
        return found[0]

    def record_runs(self, streams: Iterable[bytes], *, is_owners: bool, target: str, state: str) -> None:
        """Record where the runs under these keys write. It is durable."""
        upsert = (
            "INSERT INTO runs (stream, is_owners, began, target, state) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (stream) DO UPDATE SET target = excluded.target, state = excluded.state"
        )
        with self._transaction():
            rows = ((stream, is_owners, int(time.time()), target, state) for stream in streams)
            self._database.executemany(upsert, rows)

    def void(self, stream: bytes, because: str) -> int:
        """Record the owner's word that the releases of a run were destroyed before anybody received them.

        Return their number. The entries stay, and sums with and without them are stated from now on.
        """
        with self._transaction():
            run = self._database.execute
            run("UPDATE runs SET voided = ?, because = ? WHERE stream = ?", (int(time.time()), because, stream))
            return run("UPDATE releases SET voided = 1 WHERE stream = ?", (stream,)).rowcount
