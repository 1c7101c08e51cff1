"""A lost ledger is made again from the state folders of its runs.

Each state folder has copies of its entries, as digests under the key of the lost ledger. With that key the copies are
used. Without it, or where a run was killed before it could copy, the sources are read again and entered anew. If
neither is possible for one release, nothing is made: such a ledger would count less than was spent.

The new ledger is made in a folder of its own and gets its name last. If this is interrupted, it can be done again: what
a state folder says about its sources does not change. docs/proofs.md, 13.2.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ldp_slicing.errors import ImageError, LedgerError, PlanError
from ldp_slicing.files import digest_of, sync_folder
from ldp_slicing.formats import KINDS, load_format
from ldp_slicing.formats.base import Damaged, Reader
from ldp_slicing.keys import read_key_file
from ldp_slicing.ledger import Intent, Ledger, RunPolicy
from ldp_slicing.ledger.file import create_again, key_beside, keyed_digest
from ldp_slicing.release.ledger_client import intent_of, request_for
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.sources import open_sources
from ldp_slicing.release.state import RunState, decode_path
from ldp_slicing.release.state_file import LEDGER_CHECK, SETTINGS
from ldp_slicing.sets import STATE_NAME
from ldp_slicing.storage import EVERYTHING, SourceFiles, printable

# Into which table of the ledger, and from which copies. The entries come last: they refer to plans.
_COPIES = {
    "plans (digest, epsilon, dependents, about) VALUES (?, ?, ?, ?)": "SELECT * FROM copied_plans",
    "forms VALUES (?, ?)": "SELECT * FROM copied_forms",
    "marks VALUES (?, ?)": "SELECT * FROM copied_marks",
    "merged VALUES (?, ?)": "SELECT * FROM copied_merged",
    "releases (id, pixels, file, stream, item, plan, time, content, released, done) "
    "VALUES (?, ?, ?, ?, ?, (SELECT id FROM plans WHERE digest = ?), ?, ?, ?, 1)": "SELECT * FROM copied_releases",
}
# Copies of a source, and under which content the ledger knows it already.
_KNOWN = {
    "SELECT * FROM copied_forms": "SELECT content FROM forms WHERE form = ?",
    "SELECT DISTINCT pixels, content FROM copied_releases": "SELECT content FROM releases WHERE pixels = ? LIMIT 1",
}
# Releases that were replaced, of sources that no recorded release has.
_UNMATCHED = """
SELECT COUNT(*) FROM copied_releases WHERE pixels NOT IN (
    SELECT pixels FROM copied_releases JOIN ledger_entries ON number = copied_releases.id)
"""
_BESIDE = {
    "plans": "SELECT digest, epsilon, dependents, about FROM plans",
    "forms": "SELECT * FROM forms",
    "marks": "SELECT * FROM marks",
    "merged": "SELECT * FROM merged",
}
_COPY_ENTRY = """
SELECT releases.id, pixels, file, stream, item, plans.digest, time, content, released
FROM releases JOIN plans ON plans.id = plan WHERE releases.id = ?
"""


@dataclass(frozen=True)
class RebuiltLedger:
    """What a new ledger holds: releases, and how many source files had to be read again for it."""

    releases: int
    sources_read: int


def rebuild(path: Path, folders: Sequence[Path], key: Path | None) -> RebuiltLedger:
    """Make the ledger at ``path`` again from these state folders. ``key``: its old key, if it is not beside it."""
    # SQLite would add the log of the lost ledger to the new one.
    places = [path, *(Path(f"{path}{suffix}") for suffix in ("-wal", "-journal"))]
    left = [one.name for one in places if one.exists() and (one == path or one.stat().st_size)]
    if left:
        raise LedgerError(
            f"{' and '.join(left)} in {path.parent} must be moved away before a ledger is rebuilt there; its key may "
            "stay. If the ledger is not damaged, use it as it is"
        )
    beside = key_beside(path)
    if key is None and beside.exists():
        key = beside
    work = path.with_name(f"{path.name}.rebuilding")
    shutil.rmtree(work, ignore_errors=True)
    with ExitStack() as undo:
        states = [undo.enter_context(closing(_open(folder))) for folder in folders]
        identity = _identity(states, key)
        work.mkdir(parents=True, mode=0o700)
        undo.callback(shutil.rmtree, work, ignore_errors=True)
        create_again(work / path.name, key, identity)
        with closing(Ledger(work / path.name, must_exist=True)) as ledger:
            read = sum([_Restorer(ledger, state, has_key=key is not None).restore() for state in states])
            releases = ledger.total().releases
        sync_folder(work)
        (work / path.name).replace(path)
        sync_folder(path.parent)
        (work / beside.name).replace(beside)
        sync_folder(path.parent)
    return RebuiltLedger(releases, read)


def _open(folder: Path) -> RunState:
    if not (folder / STATE_NAME).exists():
        raise LedgerError(
            f"{folder} is not a state folder: name the folders DST.owner that runs left beside their targets"
        )
    return RunState(folder)


def _identity(states: Sequence[RunState], key: Path | None) -> bytes | None:
    """Return the identity of the ledger under its old key; refuse states of several ledgers, and another key."""
    if key is None:
        return None
    merged = {one.hex() for state in states for (one,) in state.execute("SELECT id FROM copied_merged")}
    found = {parameters["ledger"] for state in states if (parameters := state.get("parameters"))} - merged
    if len(found) > 1:
        raise LedgerError("these state folders belong to different ledgers: rebuild each on its own, then merge them")
    check = keyed_digest(read_key_file(key), "check", b"").hex()
    for state in states:
        if state.get(LEDGER_CHECK) not in (None, check):
            raise LedgerError(
                f"{key} is not the key of the ledger that {state.folder} was made with: name the right one with --key, "
                "or move it away, and the sources are read again"
            )
    return bytes.fromhex(*found) if found else None


@dataclass
class _Restorer:
    """Restores the entries of one state folder: from its copies if ``has_key``, otherwise from the sources."""

    ledger: Ledger
    state: RunState
    has_key: bool
    numbers: set[int] = field(default_factory=set)  # of the entries that were made anew

    @property
    def is_owners(self) -> bool:
        return bool(self.state.get("parameters")["key"] != "run")

    def restore(self) -> int:
        """Return how many source files were read again."""
        parameters = self.state.get("parameters")
        if parameters is None:  # killed before it had begun
            return 0
        if self.has_key:
            self._restore_copies()
        elif lost := self.state.execute(_UNMATCHED).fetchone()[0]:
            raise self._lost(f"{lost} earlier releases", "their sources are not known any more")
        claims = {decode_path(path): stamp for path, stamp in self.state.execute("SELECT path, stamp FROM claims")}
        outputs = {decode_path(row[0]): row[1:] for row in self.state.execute(self._recorded())}
        if wanted := sorted({*claims, *outputs}):
            sources = open_sources(parameters["sources"], EVERYTHING, into_folder=False).files
            stamps = {found.path: found.stamp for found in sources.files()}
            settings = ReleaseSettings.from_record(self.state.get(SETTINGS))
            for path in wanted:
                stamp = claims.get(path) or outputs[path][1]
                if stamps.get(path) != stamp or (path in outputs and outputs[path][1] != stamp):
                    raise self._lost(path, "its source is gone, or has changed since")
                self._read_again(sources, settings, path, is_claimed=path in claims, is_output=path in outputs)
        self._update_state({**parameters, "ledger": self.ledger.identity})
        return len(wanted)

    def _recorded(self) -> str:
        """Return SQL for the path and source stamp of released files without a usable copy of their entries."""
        unusable = " WHERE number NOT IN (SELECT id FROM copied_releases)" if self.has_key else ""
        return (
            "SELECT DISTINCT path, stream, source_stamp FROM ledger_entries JOIN releases ON releases.id = release "  # noqa: S608
            f"JOIN outputs USING (path){unusable}"
        )

    def _restore_copies(self) -> None:
        run = self.state.execute
        with self.ledger.writing() as database:
            same = list[tuple[bytes, bytes]]()
            for query, known in _KNOWN.items():
                for digest, content in run(query):
                    same += ((found, content) for (found,) in database.execute(known, (digest,)))
            for table, query in _COPIES.items():
                database.executemany(f"INSERT OR IGNORE INTO {table}", run(query))
            self.ledger.unite(same)
        self.ledger.load_keys()

    def _read_again(
        self, sources: SourceFiles, settings: ReleaseSettings, path: str, *, is_claimed: bool, is_output: bool
    ) -> None:
        """Enter the releases of one source file anew, under the keys that they were made with."""
        released = self.state.released_entries(path) if is_output else {}
        streams = self.state.streams_of(path) if is_output else []  # the last one first, then those it replaced
        if is_claimed and not self.state.has_key:
            raise self._lost(path, "its run was killed, and the key of that run is gone")
        own = self.state.secret().identity() if is_claimed else b""
        kind, by_name, claimed = self.state.kind_of(path), dict[str, list[int]](), list[int]()
        name = ""
        try:
            with sources.open(path) as file:
                read: Reader = load_format(KINDS[kind].reader, KINDS[kind].extra).read
                for entry in read(file, settings.options()):
                    if isinstance(entry, Damaged):
                        continue
                    slicer = settings.slicer(entry.bits)
                    sized = replace(entry, shrinking=slicer.shrinking(*entry.pixels.shape[:2]))
                    intent = intent_of(request_for(path, sized), slicer)
                    name = name if entry.frame > 1 else printable(entry.name)  # frames are one release
                    if name in released:
                        by_name.setdefault(name, []).extend(self._enter(intent, streams, done=True))
                    if is_claimed:
                        claimed += self._enter(intent, [own], done=False)
            digest = self.ledger.keyed("file", digest_of(sources.open(path)))
        except (ImageError, PlanError, OSError) as error:
            raise self._lost(path, f"its source cannot be read: {error}") from None
        if missing := sorted(released.keys() - by_name.keys()):
            raise self._lost(path, f"its source does not hold {missing[0]!r} any more")
        self.state.renumber(path, {released[name]: numbers for name, numbers in by_name.items()}, digest)
        self.state.claim([(number, path) for number in claimed])

    def _enter(self, intent: Intent, streams: Sequence[bytes], *, done: bool) -> list[int]:
        """Enter a release under each key that it was made with. Return the entry under the first."""
        approvals = [
            self.ledger.approve([intent], RunPolicy(stream, self.is_owners, spend=True))[0] for stream in streams
        ]
        self.numbers |= {approval.entry for approval in approvals}
        self.ledger.finish([approval.entry for approval in approvals if done])
        return [approvals[0].entry]

    def _update_state(self, parameters: dict[str, Any]) -> None:
        """Let the state know the new ledger, and have copies of the entries that were made anew."""
        with self.ledger.writing() as database:
            entered = [database.execute(_COPY_ENTRY, (number,)).fetchone() for number in sorted(self.numbers)]
            others = {table: database.execute(query).fetchall() for table, query in _BESIDE.items()}
        self.state.replace_copies({"releases": entered, **others}, keep_others=self.has_key)
        self.state.set_durably(LEDGER_CHECK, self.ledger.keyed("check", b"").hex())
        self.state.set_durably("parameters", parameters)
        places = {"target": self.state.get("target"), "state": str(self.state.folder.absolute())}
        self.ledger.record_runs(self.state.streams(), is_owners=self.is_owners, **places)

    def _lost(self, what: str, why: str) -> LedgerError:
        how = "" if self.has_key else ", and the old key of the ledger is not there (--key FILE names it)"
        return LedgerError(f"no ledger was made: {what} in {self.state.folder} cannot be counted: {why}{how}")
