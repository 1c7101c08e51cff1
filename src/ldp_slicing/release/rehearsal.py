"""A dry run: the whole run, on copies of its state and ledger, with a target that keeps nothing.

So a dry run reads, decodes, asks and encodes as the run itself would, and says the same. It touches neither the target
nor the state folder nor the ledger. The copies lie in a private temporary folder and are removed when it ends. Keys are
not copied.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from ldp_slicing.errors import Reason, ReleaseError
from ldp_slicing.files import lock_folder
from ldp_slicing.keys import Secret, read_key_file
from ldp_slicing.ledger import Ledger
from ldp_slicing.ledger.file import followed, key_beside
from ldp_slicing.randomness import KEY_BYTES
from ldp_slicing.release.state import RunState
from ldp_slicing.release.state_file import KEY_NAME
from ldp_slicing.sets import STATE_NAME
from ldp_slicing.storage import LocalStorage, Storage, StoredFile, TemporaryFile

ATTEMPTS = 10  # to copy a ledger while nobody writes to it


@dataclass(frozen=True)
class DiscardingStorage:
    """A storage as it is. Whatever is written to it is counted and forgotten."""

    inner: Storage

    @property
    def is_local(self) -> bool:
        return self.inner.is_local

    def files(self) -> Iterator[StoredFile]:
        if isinstance(self.inner, LocalStorage) and not self.inner.root.exists():
            return iter(())  # the run would create it
        return self.inner.files()

    def open(self, path: str) -> BinaryIO:
        return self.inner.open(path)

    def size(self, path: str) -> int | None:
        return self.inner.size(path)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def create(self, path: str) -> TemporaryFile:
        return _Discarded()

    def remove(self, path: str) -> None:
        """Do nothing."""

    def remove_temporary_files(self) -> None:
        """Do nothing."""

    def remove_if_empty(self) -> None:
        """Do nothing."""

    def sync(self) -> None:
        """Do nothing."""


class _Discarded(TemporaryFile):
    def __init__(self) -> None:
        super().__init__(open(os.devnull, "wb"))  # noqa: SIM115 - commit or abort closes it

    def commit(self, *, replace: bool = False) -> None:
        self._file.close()

    def abort(self) -> None:
        self._file.close()


class RehearsedState(RunState):
    """A copy of a run's state. The run key is read where it lies; a new one is kept in memory alone."""

    def __init__(self, copy: Path, original: Path) -> None:
        self._original_key = original / KEY_NAME
        self._new: Secret | None = None
        super().__init__(copy)

    @property
    def has_key(self) -> bool:
        return self._new is not None or self._original_key.exists()

    def secret(self) -> Secret:
        if self._new is None and self._original_key.exists():
            return Secret(read_key_file(self._original_key), is_owners=False)
        self._new = self._new or Secret(os.urandom(KEY_BYTES), is_owners=False)
        return self._new

    def destroy_key(self) -> None:
        """Forget the key that was never on a disk. That of the run itself stays."""
        self._new = None


def open_copies(state: Path, ledger: Path, folder: TemporaryDirectory[str]) -> tuple[Ledger | None, RunState]:
    """Return copies of ledger and state in a folder; new ones if there are none yet.

    The ledger of a run that was begun must exist: without it, None is returned.
    """
    copies = Path(folder.name)
    is_known = (state / STATE_NAME).exists()
    if is_known:
        with _nobody_works_on(state):
            (copies / "state").mkdir(mode=0o700)
            for part in state.glob(f"{STATE_NAME}*"):
                shutil.copy(part, copies / "state" / part.name)
    copied = RehearsedState(copies / "state", state)
    try:
        place = followed(ledger)
        if not place.exists() and (is_known or not key_beside(place).exists()):
            return None if is_known else Ledger(copies / ledger.name), copied
        return _copy_ledger(place, copies), copied
    except BaseException:
        copied.close()
        raise


def _copy_ledger(ledger: Path, copies: Path) -> Ledger:
    key = key_beside(ledger)
    if not (key.exists() and ledger.exists()):
        Ledger(ledger, must_exist=True).close()  # raises, and says what to do, unless they were made at this moment
    try:
        (copies / key.name).symlink_to(key.absolute())  # a dry run that is killed leaves no copy of a key
    except OSError:  # not allowed on some systems
        shutil.copy(key, copies / key.name)
    log = ledger.with_name(f"{ledger.name}-wal")
    for _ in range(ATTEMPTS):
        before = _stamps(ledger, log)
        for part in (log, ledger):
            (copies / part.name).unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):  # another process has merged its log
                shutil.copy(part, copies / part.name)
        if _stamps(ledger, log) == before:
            return Ledger(copies / ledger.name, must_exist=True)
    raise ReleaseError(f"the ledger {ledger} is in use: wait until other runs have ended, then try again", Reason.BUSY)


def _stamps(*paths: Path) -> list[tuple[int, int] | None]:
    """Return what changes when somebody writes to one of the files: the time and the size of each."""
    return [(about.st_mtime_ns, about.st_size) if path.exists() and (about := path.stat()) else None for path in paths]


@contextlib.contextmanager
def _nobody_works_on(state: Path) -> Iterator[None]:
    try:
        held = lock_folder(state)
    except BlockingIOError:
        raise ReleaseError(
            f"another process is working on this release (it holds {state}); wait for it, or stop it", Reason.BUSY
        ) from None
    try:
        yield
    finally:
        if held is not None:
            os.close(held)


def free_bytes(target: Storage) -> int | None:
    """Return the free space on the disk of a target, or None if it cannot be told."""
    inner = target.inner if isinstance(target, DiscardingStorage) else target
    if not isinstance(inner, LocalStorage):
        return None
    root = inner.root.absolute()
    place = next(one for one in (root, *root.parents) if one.exists())
    return shutil.disk_usage(place).free
