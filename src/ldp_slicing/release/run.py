"""A run: a set of sources to a set of releases, each source once, whatever happens in between.

A run has a state folder beside its target (state.py). The order of writing for every source: the intent enters the
ledger, on disk; the release is written to a temporary file; the file gets its name; the ledger says done; the state
says released. Whatever is interrupted is released again under the same key, with the same bytes. Outputs are not
flushed to disk one by one, which would cost more than making them. A power cut can take some of them, but the key is
destroyed only after everything was flushed; until then they are noticed and made again. docs/proofs.md, 13.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ldp_slicing.errors import Reason, ReleaseError
from ldp_slicing.keys import Secret
from ldp_slicing.ledger import Ledger, RunPolicy, run_id
from ldp_slicing.release import records
from ldp_slicing.release.closing import Closing, close_run, withdraw_card
from ldp_slicing.release.inventory import Inventory, Stop
from ldp_slicing.release.ledger_client import LedgerClient, LocalLedgerClient
from ldp_slicing.release.ledger_join import LedgerJoin
from ldp_slicing.release.pool import batch_bytes, batches, run_here, run_in_processes
from ldp_slicing.release.report import FileReport, FileState
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.state import RunState
from ldp_slicing.release.target import ReleasePaths
from ldp_slicing.release.worker import WorkerContext

FLUSH_SECONDS = 30.0
Advise = Callable[[str, str], None]
Engine = Callable[[WorkerContext, LedgerClient, RunState, Stop], Generator[list[FileReport]]]


def on_this_machine(workers: int) -> Engine:
    """Return an engine that releases in this process, or in ``workers`` processes."""
    if workers < 1:
        raise ReleaseError(f"workers must be at least 1; got {workers}", Reason.SETTINGS)

    def engine(
        context: WorkerContext, ledger: LedgerClient, state: RunState, stop: Stop
    ) -> Generator[list[FileReport]]:
        waiting = batches(state.tasks(), batch_bytes(state.waiting_bytes(), workers))
        if workers == 1:
            return run_here(context, ledger, waiting, stop)
        return run_in_processes(context, ledger, waiting, stop, workers, lock=state.lock)

    return engine


@dataclass
class Run:
    """A run that is ready. ``run`` releases; when it ends, card and manifest are true of whatever was released by then.

    ``result`` says how the run ended. ``unlock`` unlocks the target; it is None if the target cannot be locked.
    ``copied_ledger``: in a dry run, the ledger of which ``ledger`` is a copy. ``written`` counts the bytes of the new
    releases.
    """

    paths: ReleasePaths
    settings: ReleaseSettings
    state: RunState
    ledger: Ledger
    joined: LedgerJoin
    secret: Secret
    spend: bool
    inventory: Inventory
    unlock: Callable[[], None] | None
    cap: float | None = None
    copied_ledger: Path | None = None
    written: int = 0
    disk_full: bool = False
    stopped: bool = False
    result: Closing = field(default_factory=Closing)

    @property
    def is_dry(self) -> bool:
        """Whether nothing is kept of what is released."""
        return self.copied_ledger is not None

    @property
    def id(self) -> str | None:
        """The id of the run in the ledger, or None if it has nothing to release."""
        return run_id(self.secret.identity()) if self.secret.key and not self.is_dry else None

    def run(
        self, engine: Engine, stop: Stop = lambda: False, advise: Advise = lambda path, notice: None
    ) -> Generator[FileReport]:
        """Yield a report on each file as it is done. After a stop, all files are whole and the run can be resumed.

        ``advise`` is given the path and each notice of a source before anything is spent on it.
        """
        if self.inventory.interrupted:
            self.stopped = True
            return
        problem = None
        try:
            if self.inventory.waiting:
                withdraw_card(self.paths)
                yield from self._release(engine, stop, advise)
        except ReleaseError as error:
            problem = str(error)  # files may have their names without being recorded: no card can be true of them
            raise
        finally:
            self._close_run(problem)

    def _release(self, engine: Engine, stop: Stop, advise: Advise) -> Generator[FileReport]:
        policy = RunPolicy(
            self.secret.identity(),
            self.secret.is_owners,
            self.spend,
            self.settings.duplicates,
            session=self.ledger.begin_session(),
            has_source=self.state.has_source,
            cap=self.cap,
        )
        self.ledger.record_runs([policy.identity], is_owners=policy.is_owners, **self.paths.places)
        context = WorkerContext(self.paths.source, self.paths.target, self.settings, self.secret)
        client = LocalLedgerClient(self.ledger, policy, self.settings, self.state.claim, advise)
        flushed = time.monotonic()
        with closing(engine(context, client, self.state, lambda: self.disk_full or stop())) as batches:
            for reports in batches:
                self.written += sum(report.size for report in reports)
                self.disk_full = self.disk_full or any(report.disk_full for report in reports)
                self.state.record(reports, policy.identity, lambda file: self.ledger.keyed("file", file))
                if time.monotonic() - flushed > FLUSH_SECONDS:  # so that resuming need not read every output
                    self.paths.target.sync()
                    self.state.mark_flushed()
                    flushed = time.monotonic()
                yield from reports

    def _close_run(self, problem: str | None) -> None:
        self.stopped = records.count_states(self.state)[FileState.WAITING] > 0
        if problem is not None:
            with contextlib.suppress(OSError):
                self.paths.target.remove_temporary_files()
            self.result = Closing(problem=problem)
            return
        is_owners, locked = self.secret.is_owners, self.unlock is not None
        self.result = close_run(self.paths, self.settings, self.state, self.joined, owners_key=is_owners, locked=locked)

    def close(self) -> None:
        """Close ledger and state. A complete run of a single file, or without a release, leaves no state."""
        released_nothing = self.result.complete and not records.count_states(self.state)[FileState.RELEASED]
        created_target = bool(self.state.get("created target"))
        self.ledger.close()
        if released_nothing or (self.result.complete and self.paths.is_single):
            self.state.remove()
        else:
            self.state.close()
        if released_nothing and created_target:
            self.paths.target.remove_if_empty()
        if self.unlock:
            self.unlock()
