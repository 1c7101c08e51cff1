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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ldp_slicing.errors import ReleaseError
from ldp_slicing.keys import Secret, read_key_file
from ldp_slicing.ledger import Ledger, RunPolicy
from ldp_slicing.ledger_file import default_ledger
from ldp_slicing.release import records
from ldp_slicing.release.closing import Closing, close_run, withdraw_card
from ldp_slicing.release.inventory import Inventory, Stop, is_ignored, take_inventory
from ldp_slicing.release.ledger_join import LedgerJoin
from ldp_slicing.release.pool import run_here, run_in_processes
from ldp_slicing.release.report import FileReport, FileState
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.state import DATABASE_NAME, RunState
from ldp_slicing.release.target import (
    ReleasePaths,
    check_above,
    check_location,
    check_new,
    check_own_card,
    check_private_files,
    default_state,
    lock,
    resolve_paths,
)
from ldp_slicing.release.worker import LedgerClient, LocalLedgerClient, WorkerContext
from ldp_slicing.storage import PARTIAL, LocalStorage, RemoteStorage, local_path

FLUSH_SECONDS = 30.0
Advise = Callable[[str, str], None]
Engine = Callable[[WorkerContext, LedgerClient, RunState, Stop], Generator[list[FileReport]]]


def on_this_machine(workers: int) -> Engine:
    """Return an engine that releases in this process, or in ``workers`` processes."""
    if workers < 1:
        raise ReleaseError(f"workers must be at least 1; got {workers}")

    def engine(
        context: WorkerContext, ledger: LedgerClient, state: RunState, stop: Stop
    ) -> Generator[list[FileReport]]:
        if workers == 1:
            return run_here(context, ledger, state.tasks(), stop)
        return run_in_processes(context, ledger, state.tasks(), stop, workers, lock=state.lock)

    return engine


@dataclass
class Run:
    """A run that is ready. ``run`` releases; when it ends, card and manifest are true of whatever was released by then.

    ``result`` says how the run ended. ``unlock`` unlocks the target; it is None if the target cannot be locked.
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
    disk_full: bool = False
    stopped: bool = False
    result: Closing = field(default_factory=Closing)

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
        )
        context = WorkerContext(self.paths.source, self.paths.target, self.settings, self.secret)
        client = LocalLedgerClient(self.ledger, policy, self.settings, self.state.claim, advise)
        flushed = time.monotonic()
        with closing(engine(context, client, self.state, lambda: self.disk_full or stop())) as batches:
            for reports in batches:
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


def prepare(
    source: str | Path,
    target: str | Path,
    settings: ReleaseSettings,
    *,
    ledger: Path | None = None,
    key: Path | None = None,
    state: Path | None = None,
    spend: bool = False,
    shared: bool = False,
    stop: Stop = lambda: False,
) -> Run:
    """Check everything that can be checked before a source is opened, then find out what there is to do.

    ``shared``: workers on other machines write to the target.
    """
    settings.check()
    source, target = local_path(str(source)), local_path(str(target))
    if not (source and target):
        raise ReleaseError("a source and a target must be named; one of them is empty")
    owners = None if key is None else Secret(read_key_file(key), is_owners=True)
    if owners and settings.duplicates == "once":
        raise ReleaseError(
            "under an owner's key, copies have equal releases and cost nothing more: leave out --duplicates once"
        )
    try:
        paths = resolve_paths(source, target, state, shared=shared)
        ledger = ledger or default_ledger()
        check_private_files(paths, target, [ledger, *([key] if key else [])])
        check_above(paths)
        is_known = (paths.state / DATABASE_NAME).exists()
        if not is_known:
            check_new(paths)
            if all(is_ignored(paths, found) for found in paths.source.files()):
                raise ReleaseError(f"{source} holds no files")
        return _open_run(paths, settings, ledger, owners, is_known=is_known, spend=spend, stop=stop)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to one another
        where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
        raise ReleaseError(
            f"{source} cannot be released to {target}: {getattr(error, 'strerror', None) or error}{where}"
        ) from None


def _open_run(
    paths: ReleasePaths,
    settings: ReleaseSettings,
    ledger_path: Path,
    owners: Secret | None,
    *,
    is_known: bool,
    spend: bool,
    stop: Stop,
) -> Run:
    with contextlib.ExitStack() as undo:
        ledger, state = _open_databases(paths, ledger_path, undo, is_known=is_known)
        key = owners.identity().hex() if owners else "run"
        parameters = {**settings.parameters(), "source": paths.source_name, "key": key, "ledger": ledger.identity}
        _check_parameters(paths, state, parameters, ledger_path)
        unlock = lock(paths)
        if unlock:
            undo.callback(unlock)
        check_own_card(paths, state.get("cards") or [])
        check_location(paths, state.get("target"), lambda: _releases(state))
        if state.get("target") != paths.location:
            state.set_durably("target", paths.location)
        joined = state.attach(ledger)
        joined.check_knows(records.ledger_entries())  # an older ledger is refused before anything is spent
        if isinstance(paths.target, LocalStorage | RemoteStorage):  # not the temporary files of another run
            own = replace(paths.target, partial=f"{PARTIAL}/{state.salt().hex()[:16]}")
            paths = replace(paths, target=own.with_usable_scratch() if isinstance(own, LocalStorage) else own)
        inventory, secret = take_inventory(paths, settings, state, ledger, owners, spend=spend, stop=stop)
        undo.pop_all()
        return Run(paths, settings, state, ledger, joined, secret, spend, inventory, unlock)


def _releases(state: RunState) -> Generator[tuple[str, int, bytes]]:
    """Yield name, size and SHA-256 of each recorded release."""
    for known in state.known_outputs():
        if known.state is FileState.RELEASED:
            yield known.name, known.size, known.sha256


def _open_databases(
    paths: ReleasePaths, ledger_path: Path, undo: contextlib.ExitStack, *, is_known: bool
) -> tuple[Ledger, RunState]:
    """Open ledger and state. A new state folder is created only if the ledger can be used."""
    ledger = None if is_known else Ledger(ledger_path)
    if ledger is not None:
        undo.callback(ledger.close)
    state = RunState(paths.state)
    undo.callback(state.close)
    if ledger is None:
        if not ledger_path.exists():
            raise _wrong_ledger(state, f"and {ledger_path} does not exist")
        ledger = Ledger(ledger_path, must_exist=True)
        undo.callback(ledger.close)
    return ledger, state


def _wrong_ledger(state: RunState, but: str) -> ReleaseError:
    begun = state.get("ledger path")
    return ReleaseError(f"this release was begun with the ledger {begun}, {but}: name the right one with --ledger")


def _check_parameters(paths: ReleasePaths, state: RunState, parameters: dict[str, Any], ledger_path: Path) -> None:
    """Record the parameters of a new run; refuse other parameters for one that is resumed."""
    before = state.get("parameters")
    if before is None:  # new, or killed before it had begun
        if isinstance(paths.target, LocalStorage) and not paths.target.root.exists():
            paths.target.root.mkdir(parents=True)
            state.set_durably("created target", True)
        state.set_durably("ledger path", str(ledger_path.resolve()))
        state.set_durably("parameters", parameters)
    elif before.get("ledger") != parameters["ledger"]:
        raise _wrong_ledger(state, f"not with {ledger_path}")
    elif before != parameters:
        values = "; ".join(
            f"{name}: {_shown(before.get(name))} then, {_shown(value)} now"
            for name, value in parameters.items()
            if before.get(name) != value
        )
        raise ReleaseError(f"this release was begun with other parameters ({values}); use the same, or another target")


def _shown(value: Any) -> str:  # noqa: ANN401
    if not isinstance(value, list):
        return str(value)
    return ":".join(f"{part:g}" if isinstance(part, float) else str(part) for part in value)


def open_state(target: str, state: Path | None) -> RunState:
    """Open the state of an earlier run, for its owner to look at."""
    folder = state or default_state(local_path(target))
    if not (folder / DATABASE_NAME).exists():
        raise ReleaseError(
            f"there is no {folder}, the state folder that `ldp-slicing privatize` leaves beside {target}"
        )
    try:
        return RunState(folder)
    except OSError as error:
        raise ReleaseError(f"{folder} cannot be opened: {error.strerror}") from None
