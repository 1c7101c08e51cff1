"""Voiding a run: the owner says that its releases were destroyed before anybody received them.

Nothing can prove that. What can be checked is checked: no output of the run is where it was written, and its key is
gone. Under an owner's key the releases can be made again at any time, so they are never voided. docs/proofs.md, 13.2.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from ldp_slicing.errors import LdpSlicingError, ReleaseError
from ldp_slicing.ledger import Ledger, RunRecord
from ldp_slicing.release.state import RunState
from ldp_slicing.sets import STATE_NAME
from ldp_slicing.storage import LocalStorage, Storage, is_remote, remote


def void_run(ledger: Ledger, name: str, because: str) -> tuple[RunRecord, int]:
    """Void the run whose id begins with ``name``. Return it, and the number of its releases."""
    run = ledger.find_run(name)
    if not because.strip():
        raise ReleaseError("say why nobody can have received the releases: --because TEXT is kept in the ledger")
    if run.voided is not None:
        raise ReleaseError(f"run {run.id} was voided already: {run.because}")
    if run.is_owners:
        raise ReleaseError(
            f"{run.id} is an owner's key, not a run: whoever has the key can make its releases again at any time"
        )
    try:
        _check_destroyed(run)
    except OSError as error:
        raise ReleaseError(
            f"run {run.id} cannot be voided, because nobody can see whether its outputs are gone: "
            f"{error.strerror or error}"
        ) from None
    return run, ledger.void(run.stream, because.strip())


def _check_destroyed(run: RunRecord) -> None:
    """Refuse a run whose key or any of whose outputs is where the run left it."""
    folder, _, output = run.target.rpartition("/")
    target: Storage = remote(folder) if is_remote(folder) else LocalStorage(Path(folder or "/"))
    state = Path(run.state)
    names = _outputs_by_state(run, state) if (state / STATE_NAME).exists() else []
    if output or names:
        left = next((name for name in [output, *names] if name and target.exists(name)), None)
    else:  # nobody knows the names of its outputs any more; another run may have the state folder now
        left = next((found.path for found in target.files()), None) if _is_there(target) else None
    if left is not None:
        raise ReleaseError(
            f"run {run.id} cannot be voided: {left} is still in {folder or '/'}. A run can be voided once all of its "
            "outputs are deleted, wherever they are"
        )


def _outputs_by_state(run: RunRecord, folder: Path) -> list[str]:
    """Return the names of the run's outputs that are in the state folder. Refuse a run that has its key."""
    with closing(RunState(folder)) as state:
        if state.has_key:
            raise ReleaseError(
                f"run {run.id} cannot be voided: its key is in {folder}, so its releases can be made again. "
                f"Delete {folder} as well"
            )
        recorded = [known.name for known in state.known_outputs() if known.stream == run.stream]
        return recorded + state.claimed_outputs()  # a killed run may have named these without recording them


def _is_there(target: Storage) -> bool:
    try:
        return target.root.is_dir() if isinstance(target, LocalStorage) else next(target.files(), None) is not None
    except LdpSlicingError:
        return False
