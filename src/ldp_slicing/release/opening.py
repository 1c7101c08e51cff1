"""Opening a run: everything that can be checked before a source is opened, and then what there is to do.

A dry run is opened on copies of state and ledger (rehearsal.py).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ldp_slicing.errors import Reason, ReleaseError
from ldp_slicing.keys import Secret, read_key_file
from ldp_slicing.ledger import Ledger, default_ledger
from ldp_slicing.release import records
from ldp_slicing.release.inventory import Stop, check_keep_names, check_voided, is_source, take_inventory
from ldp_slicing.release.parameters import check_parameters, wrong_ledger
from ldp_slicing.release.rehearsal import DiscardingStorage, open_copies
from ldp_slicing.release.report import FileState
from ldp_slicing.release.run import Run
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.state import RunState
from ldp_slicing.release.state_file import LEDGER_CHECK, SETTINGS
from ldp_slicing.release.target import (
    ReleasePaths,
    check_above,
    check_location,
    check_new,
    check_own_card,
    check_private_files,
    check_writable,
    default_state,
    lock,
    resolve_paths,
)
from ldp_slicing.sets import STATE_NAME
from ldp_slicing.storage import EVERYTHING, PARTIAL, LocalStorage, RemoteStorage, Selection, is_remote, local_path


def prepare(
    source: str | Path | Sequence[str | Path],
    target: str | Path,
    settings: ReleaseSettings,
    *,
    selection: Selection = EVERYTHING,
    ledger: Path | None = None,
    key: Path | None = None,
    state: Path | None = None,
    spend: bool = False,
    cap: float | None = None,
    shared: bool = False,
    dry_run: bool = False,
    stop: Stop = lambda: False,
) -> Run:
    """Check everything that can be checked before a source is opened, then find out what there is to do.

    ``source``: a file, a folder or a zip file, or several of them. ``selection``: which of their files are meant.
    ``cap``: the largest eps per released pixel that the releases of one source may add up to. ``shared``: workers on
    other machines write to the target. ``dry_run``: nothing is touched (rehearsal.py).
    """
    settings.check()
    if cap is not None and not (math.isfinite(cap) and cap > 0):
        raise ReleaseError(f"the cap must be a number above 0, such as 20; got {cap}")
    several = [source] if isinstance(source, str | Path) else source
    sources, target = [local_path(str(one)) for one in several], local_path(str(target))
    if not (sources and all(sources) and target):
        raise ReleaseError("a source and a target must be named; one of them is empty", Reason.SETTINGS)
    owners = None if key is None else Secret(read_key_file(key), is_owners=True)
    if owners and settings.duplicates == "once":
        raise ReleaseError(
            "under an owner's key, copies have equal releases and cost nothing more: leave out --duplicates once",
            Reason.SETTINGS,
        )
    try:
        paths = resolve_paths(sources, target, state, selection, shared=shared, frames=settings.frames)
        ledger = ledger or default_ledger()
        check_private_files(paths, target, [ledger, *([key] if key else [])])
        check_above(paths)
        paths.source.check_selection()
        is_known = (paths.state / STATE_NAME).exists()
        if not is_known:
            check_new(paths)
            check_writable(paths)
            if not any(is_source(paths, found) for found in paths.source.files()):
                formats = ": `ldp-slicing privatize --help` lists the formats that are read"
                which = " and is selected by --include and --exclude" if selection else formats
                raise ReleaseError(
                    f"{' and '.join(sources)} holds no file that can be released{which}", Reason.NO_FILES
                )
            check_keep_names(paths, settings.keep)
        open_run = _open_rehearsal if dry_run else _open_run
        run = open_run(paths, settings, ledger, owners, is_known=is_known, spend=spend, stop=stop)
        return replace(run, cap=cap)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to one another
        where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
        reason = getattr(error, "strerror", None) or error
        raise ReleaseError(
            f"{' and '.join(sources)} cannot be released to {target}: {reason}{where}", Reason.OTHER
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
        check_parameters(paths, state, ledger, _parameters(paths, settings, owners))
        if state.get(SETTINGS) is None:
            state.set_durably(SETTINGS, settings.record())
        state.set_durably(LEDGER_CHECK, ledger.keyed("check", b"").hex())
        unlock = lock(paths)
        if unlock:
            undo.callback(unlock)
        check_own_card(paths, state.get("cards") or [])
        check_location(paths, state.get("target"), lambda: _releases(state))
        check_voided(paths, state, ledger)
        if unlock is None and isinstance(paths.target, LocalStorage):  # its owner may have deleted it
            paths.target.root.mkdir(parents=True, exist_ok=True)
            unlock = lock(paths)
            if unlock:
                undo.callback(unlock)
        if state.get("target") != paths.location:
            state.set_durably("target", paths.location)
            if streams := state.streams():
                ledger.record_runs(streams, is_owners=owners is not None, **paths.places)
        joined = state.attach(ledger)
        joined.check_knows(records.ledger_entries())  # an older ledger is refused before anything is spent
        if isinstance(paths.target, LocalStorage | RemoteStorage):  # not the temporary files of another run
            own = replace(paths.target, partial=f"{PARTIAL}/{state.salt().hex()[:16]}")
            paths = replace(paths, target=own.with_usable_scratch() if isinstance(own, LocalStorage) else own)
        inventory, secret = take_inventory(paths, settings, state, ledger, owners, spend=spend, stop=stop)
        ledger.check_not_voided(secret.identity())
        undo.pop_all()
        return Run(paths, settings, state, ledger, joined, secret, spend, inventory, unlock)


def _open_rehearsal(
    paths: ReleasePaths,
    settings: ReleaseSettings,
    ledger_path: Path,
    owners: Secret | None,
    *,
    is_known: bool,
    spend: bool,
    stop: Stop,
) -> Run:
    """Open a run that touches nothing: on copies of its databases, and with a target that keeps nothing."""
    with contextlib.ExitStack() as undo:
        folder = TemporaryDirectory(prefix="ldp-slicing-")
        undo.callback(folder.cleanup)
        ledger, state = open_copies(paths.state, ledger_path, folder)
        undo.callback(state.close)
        if ledger is None:
            raise wrong_ledger(state, f"and {ledger_path} does not exist")
        undo.callback(ledger.close)
        begun = state.get("parameters")
        if begun is not None and begun["ledger"] not in ledger.keys:
            raise wrong_ledger(state, f"not with {ledger_path}")
        dry = replace(paths, target=DiscardingStorage(paths.target))
        check_parameters(dry, state, ledger, _parameters(paths, settings, owners))
        check_own_card(paths, state.get("cards") or [])
        if is_known:
            check_location(paths, state.get("target"), lambda: _releases(state))
        check_voided(paths, state, ledger)
        joined = state.attach(ledger)
        joined.check_knows(records.ledger_entries())
        inventory, secret = take_inventory(dry, settings, state, ledger, owners, spend=spend, stop=stop)
        ledger.check_not_voided(secret.identity())
        undo.pop_all()
        return Run(
            dry, settings, state, ledger, joined, secret, spend, inventory, folder.cleanup, copied_ledger=ledger_path
        )


def _parameters(paths: ReleasePaths, settings: ReleaseSettings, owners: Secret | None) -> dict[str, Any]:
    """Return what must not change when a run is resumed."""
    key = owners.identity().hex() if owners else "run"
    return {**settings.parameters(), "sources": list(paths.source_names), "key": key}


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
            raise wrong_ledger(state, f"and {ledger_path} does not exist")
        ledger = Ledger(ledger_path, must_exist=True)
        undo.callback(ledger.close)
    return ledger, state


def open_state(target: str, state: Path | None) -> RunState:
    """Open the state of an earlier run, for its owner to look at."""
    folder = state or default_state(local_path(target))
    if not (folder / STATE_NAME).exists():
        if not is_remote(target) and Path(local_path(target)).is_file():
            raise ReleaseError(
                f"there is no {folder}: a complete run of a single file leaves no state folder. The only release of "
                f"such a run is {target}",
                Reason.STATE,
            )
        raise ReleaseError(
            f"{folder}, the state folder of the run, does not exist: `ldp-slicing privatize` leaves it beside "
            f"{target}. If it was moved, name it with --state",
            Reason.STATE,
        )
    try:
        return RunState(folder)
    except OSError as error:
        raise ReleaseError(f"{folder} cannot be opened: {error.strerror}", Reason.STATE) from None
