"""Files: atomic and durable writing, opening regular files only, locks and digests.

Every other module uses these functions, so that each rule about files has one home.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from ldp_slicing.errors import ImageError, LdpSlicingError, Reason

if sys.platform != "win32":
    import fcntl

CHUNK_BYTES = 1 << 20
OWNERS_NOTE = "FOR THE OWNER ONLY.txt"  # the name of the file that says so in a folder that must not be shared


def check_name_encoding() -> None:
    """Refuse to work with names of files unless Python decodes them as UTF-8.

    Manifest, ledger and keys contain names. If they depended on the locale, a set that was released under one locale
    would look damaged under another, and a path in the ledger would lead to another file, or to none.
    """
    encoding = sys.getfilesystemencoding()
    if codecs.lookup(encoding).name != "utf-8":
        raise LdpSlicingError(
            f"names of files are read as {encoding} here, so those in other alphabets would be taken for different "
            "ones: set the variable PYTHONUTF8=1 and run the same command again",
            Reason.SETTINGS,
        )


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``. The file written there is renamed to ``path`` when the block succeeds.

    >>> with atomic_path(Path("weights.pt")) as temporary:       # doctest: +SKIP
    ...     torch.save(weights, temporary)

    If the block raises, the temporary file is removed and ``path`` stays as it was. An error of the operating system
    names ``path``: that of a write to a full disk names no file.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}.partial{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        is_of_it = error.filename is None or str(error.filename) == str(temporary)
        if error.errno is not None and is_of_it:
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a whole file, or nothing. An existing file is replaced."""
    with atomic_path(path) as temporary, open(temporary, "xb") as file:
        file.writelines(pieces)


def create_durably(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Create a file that is on the disk when this returns. Raise FileExistsError if ``path`` exists.

    Of several processes that create the same file, the first wins.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            sync_file(file)
        os.link(temporary, path)  # unlike a rename, this fails if the file exists
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_file(file: BinaryIO) -> None:
    """Flush an open file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush a folder to the disk. The name of a new file is durable only after that."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a private folder and its parents, each durable under its name."""
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(exist_ok=True, mode=0o700)
        sync_folder(missing.parent)


def dangling(path: Path) -> str | None:
    """Return what is wrong with a path that is, or is below, a symbolic link to nothing, or None."""
    for place in (path, *path.parents):
        if place.is_symlink() and not place.exists():
            what = "is" if place == path else f"is below {place},"
            leads = f"{what} a symbolic link to {place.readlink()}, which does not exist"
            return f"{leads}: mount its disk, or remove the link"
    return None


def try_to_create_in(folder: Path) -> None:
    """Raise OSError if no file can be created in a folder. Nothing is left of the file that is tried."""
    TemporaryFile(dir=folder).close()


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading, or raise ImageError. ``follow``: whether it may be a symbolic link to one."""

    def open_now(path: str, flags: int) -> int:
        """Open without blocking: a pipe would otherwise wait for somebody to write to it."""
        return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))

    try:
        file = io.FileIO(path, opener=open_now)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise ImageError("is a symbolic link; links are not followed") from None
        raise ImageError(error.strerror or type(error).__name__) from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ImageError("is not a regular file")
    return io.BufferedReader(file)


def read_limited(file: BinaryIO, most_bytes: int) -> bytes:
    """Return the content of an open file, and close it. Raise ImageError if it has more than ``most_bytes`` bytes."""
    with file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ImageError(f"has more than {most_bytes:,} bytes")
    return content


def limited_lines(file: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    """Yield the lines of an open file, with their line feeds. Raise ImageError if one has more than ``most_bytes``."""
    rest = b""
    while piece := file.read(CHUNK_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(rest) > most_bytes:
            raise ImageError(f"has a line of more than {most_bytes:,} bytes")
    if rest:
        yield rest


def lock_folder(folder: Path) -> int | None:
    """Lock a folder and return the descriptor that holds the lock. Raise BlockingIOError if another process holds it.

    The lock ends when every process that has the descriptor has closed it or has ended. Return None where folders
    cannot be locked: on Windows and on some network disks.
    """
    if sys.platform == "win32":
        return None
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise
    except OSError:
        os.close(held)
        return None
    return held


def digest_of(file: BinaryIO) -> bytes:
    """Return the SHA-256 of an open file, and close it."""
    with file:
        return _digest(file)


def digest_of_open(file: BinaryIO) -> bytes:
    """Return the SHA-256 of an open file, and rewind it to its beginning."""
    digest = _digest(file)
    file.seek(0)
    return digest


def _digest(file: BinaryIO) -> bytes:
    digest = hashlib.sha256()
    while piece := file.read(CHUNK_BYTES):
        digest.update(piece)
    return digest.digest()
