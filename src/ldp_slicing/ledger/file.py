"""The file of a ledger and the key beside it: how both are created, checked, opened and brought up to date.

A new ledger is written under a temporary name and is on disk before it gets its own; its key gets its name last. So a
ledger with a key was complete once. If it is missing, empty or cut off, it was damaged, and it is refused: a new one
would count less than was spent. A crash before the key has its name leaves nothing that counts, and the next process
begins again. Creation is locked, so of two first runs one creates and the other one opens.

Proof: docs/proofs.md, 13.2. Tests: tests/ledger/test_ledger.py, tests/power.
"""

from __future__ import annotations

import hmac
import os
import secrets
import sqlite3
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ldp_slicing.digests import frame
from ldp_slicing.errors import KeyFileError, LedgerError
from ldp_slicing.files import (
    check_name_encoding,
    create_durably,
    dangling,
    lock_folder,
    make_folder,
    sync_file,
    sync_folder,
)
from ldp_slicing.keys import new_key_file, read_key_file
from ldp_slicing.ledger.schema import LEDGER_VERSION, SCHEMA

BUSY_SECONDS = 60.0
VARIABLE = "LDP_SLICING_LEDGER"
ADVICE = f"name the ledger with --ledger FILE, or set {VARIABLE}=FILE"


def default_ledger() -> Path:
    """Return the path of the ledger: LDP_SLICING_LEDGER, or a file in the owner's data folder.

    The data folder depends on the operating system. Without a home there is none, and nothing is guessed.
    """
    if configured := os.environ.get(VARIABLE):
        return Path(configured).expanduser()
    if sys.platform == "darwin":
        base = _home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local")
    else:
        folder = Path(os.environ.get("XDG_DATA_HOME") or ".")
        # The XDG standard says to ignore a relative path.
        base = folder if folder.is_absolute() else _home() / ".local" / "share"
    return base / "ldp-slicing" / "ledger.sqlite"


def _home() -> Path:
    """Return the owner's home folder. Services and containers often have none, or one that is not theirs."""
    name = os.environ.get("USERPROFILE" if sys.platform == "win32" else "HOME", "")
    if not name or Path(name) == Path("/") or not Path(name).is_dir():
        problem = f"HOME is {name!r}, which is not a folder of yours" if name else "HOME is not set"
        raise LedgerError(f"there is no place for the ledger, because {problem}: {ADVICE}")
    return Path(name)


def keyed_digest(key: bytes, kind: str, content: bytes) -> bytes:
    """Return a digest that reveals nothing without the ledger's key. ``kind`` separates pixels, files and names."""
    return hmac.digest(key, frame(b"ldp-slicing ledger 1", kind.encode(), content), "sha256")


def followed(path: Path) -> Path:
    """Return where a ledger lies: its key and its log are beside the file, not beside a symbolic link to it.

    A link to nothing is refused, because a new ledger in its place would not know what was released.
    """
    if (problem := dangling(path)) is not None:
        raise LedgerError(f"the ledger {path} {problem}")
    return path.resolve() if path.is_symlink() else path


def key_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.key")


def open_ledger_file(path: Path, *, must_exist: bool) -> tuple[bytes, sqlite3.Connection]:
    """Return the key and the database of a ledger. It is created if neither exists, unless ``must_exist``."""
    check_name_encoding()
    try:
        key = _read_or_make_key(path, must_exist)
        _check_whole(path)
        database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            _prepare(path, key, database)
        except BaseException:
            database.close()
            raise
    except KeyFileError as error:
        raise LedgerError(
            f"the ledger {path} cannot be used without its key, which lies beside it: "
            f"{str(error).partition(';')[0]}. Restore the key from your backup, readable by you alone; "
            "a new key would not fit"
        ) from None
    except (sqlite3.Error, OSError) as error:
        advice = "" if path.exists() else f"; {ADVICE}"
        reason = getattr(error, "strerror", None) or error
        raise LedgerError(f"the ledger {path} cannot be used: {reason}{advice}") from None
    return key, database


def _read_or_make_key(path: Path, must_exist: bool) -> bytes:
    key_path = key_beside(path)
    has_key = key_path.exists()  # asked first: a ledger that is being created has its name before its key
    if has_key and not path.exists():
        raise LedgerError(
            f"the ledger {path} is missing, but its key is there: restore the ledger from your backup, or make it "
            "again with `ldp-slicing ledger rebuild`. A new ledger would not know what was released. If nothing was "
            "ever released with the old one, move the key away"
        )
    if not path.exists() and must_exist:
        raise LedgerError(
            f"there is no ledger {path} yet; `ldp-slicing privatize` creates one, or name another with --ledger"
        )
    if not has_key and not must_exist:
        make_folder(path.parent)
        with _creation_lock(path):
            if not key_path.exists():  # otherwise another process was faster
                _create(path, key_path)
    return read_key_file(key_path)


@contextmanager
def _creation_lock(path: Path) -> Iterator[None]:
    """Hold the lock of the ledger's folder, where folders can be locked; wait for a process that holds it."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            held = lock_folder(path.parent)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LedgerError(
                    f"no ledger can be created in {path.parent}: another process has locked the folder; "
                    "wait for it, or choose another place with --ledger"
                ) from None
            time.sleep(0.02)
    try:
        yield
    finally:
        if held is not None:
            os.close(held)


def _create(path: Path, key_path: Path) -> None:
    """Create ledger and key, each on disk before it has its name, and the key last."""
    if path.exists() and _has_entries(path):
        read_key_file(key_path)  # raises: there is none
    new, new_key = path.with_name(f"{path.name}.new"), path.with_name(f"{path.name}.key.new")
    left_over = [
        new_key,
        new,
        *(Path(f"{one}{suffix}") for one in (new, path) for suffix in ("-wal", "-shm", "-journal")),
    ]
    try:
        for one in left_over:  # of a process that was killed here; SQLite would add an old log to the new file
            one.unlink(missing_ok=True)
        key = new_key_file(new_key)
        _write_new(new, key)
        new.replace(path)
        sync_folder(path.parent)
        new_key.replace(key_path)
        sync_folder(path.parent)
    except (KeyFileError, OSError) as error:
        raise LedgerError(f"the ledger {path} cannot be created: {error}; {ADVICE}") from None


def create_again(path: Path, key: Path | None, identity: bytes | None) -> None:
    """Create a ledger that was lost, under its old key and identity or under new ones. It is marked as rebuilt."""
    key_path = key_beside(path)
    _write_new(path, new_key_file(key_path) if key is None else read_key_file(key), identity, rebuilt=int(time.time()))
    if key is not None:
        create_durably(key_path, key.read_bytes(), mode=0o600)


def _has_entries(path: Path) -> bool:
    """Return whether something was released with a ledger. Raise an error unless the file is a ledger, or empty."""
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as database:
        if database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0:
            return False
        return database.execute("SELECT 1 FROM releases LIMIT 1").fetchone() is not None


def _write_new(path: Path, key: bytes, identity: bytes | None = None, **marks: int) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")  # one writer and many readers at the same time
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN IMMEDIATE")
        lines = (line.partition("--")[0] for line in SCHEMA.splitlines())
        for statement in "\n".join(lines).split(";"):  # ``executescript`` would commit the transaction
            database.execute(statement)
        check = keyed_digest(key, "check", b"")
        values = {"version": LEDGER_VERSION, "id": identity or secrets.token_bytes(16), "check": check, "session": 0}
        database.executemany("INSERT INTO meta VALUES (?, ?)", (values | marks).items())
        database.execute("COMMIT")
    with path.open("rb+") as file:  # SQLite has merged and removed the log
        sync_file(file)


def _check_whole(path: Path) -> None:
    """Refuse a file that is empty or cut off, or that has a second name."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise LedgerError(f"the ledger {path} cannot be used: it is not a regular file")
    if about.st_nlink > 1:
        raise LedgerError(
            f"the ledger {path} has a second name (a hard link): SQLite keeps a log beside each name, so entries would "
            "be lost. Remove the other name; a symbolic link is safe"
        )
    if about.st_size == 0:
        raise LedgerError(f"the ledger {path} is empty, but its key is there: restore the ledger from your backup")
    if _is_cut_off(path):
        time.sleep(0.1)  # another process may be merging its log
        if _is_cut_off(path):
            raise LedgerError(f"the ledger {path} is cut off before its end: restore it from your backup")


def _is_cut_off(path: Path) -> bool:
    """Return whether the file is shorter than its header says, and no log holds the rest."""
    with path.open("rb") as file:
        header = file.read(100)
        size = os.fstat(file.fileno()).st_size
    log = path.with_name(f"{path.name}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big") if header[24:28] == header[92:96] else 0
    return not has_log and size < (65536 if page == 1 else page) * pages


def _prepare(path: Path, key: bytes, database: sqlite3.Connection) -> None:
    """Check version and key."""
    database.execute("PRAGMA journal_mode = WAL")
    if read_meta(database, "check") != keyed_digest(key, "check", b""):
        raise LedgerError(f"the key beside the ledger {path} belongs to another ledger; restore the right one")
    if (version := read_meta(database, "version")) != LEDGER_VERSION:
        raise LedgerError(
            f"the ledger {path} has version {version}, and this software reads version {LEDGER_VERSION}: use the "
            "version of the software that wrote it"
        )


def read_meta(database: sqlite3.Connection, name: str) -> Any:  # noqa: ANN401
    """Return a value of the ledger's own, or None if it has none of that name."""
    found = database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if found is None else found[0]
