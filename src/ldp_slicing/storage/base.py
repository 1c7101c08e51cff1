"""What local and remote storage share: the interface, files being written, and names."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol
from urllib.request import url2pathname

from ldp_slicing.errors import ImageError, LdpSlicingError

PARTIAL = ".ldp-slicing-partial"  # the folder of temporary files, where they must lie inside the target
_SMALL_BYTES = 1 << 12
_LARGE_BYTES = 1 << 19
SYSTEM_FILES = (".ds_store", "thumbs.db", "desktop.ini")  # a Thumbs.db holds small copies of images
_APPLE_DOUBLE = b"\0\5\x16\7"
_hashing = ThreadPoolExecutor(1, "hashing")


def _restart_hashing() -> None:
    """Give a forked process a hashing thread of its own: threads are not inherited."""
    global _hashing
    _hashing = ThreadPoolExecutor(1, "hashing")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_hashing)


@dataclass(frozen=True)
class StoredFile:
    """A file in a storage. Undecodable bytes of its path are surrogates, as ``os.fsdecode`` gives them.

    ``stamp`` changes when the file does, as far as the file system knows. ``problem``: why it cannot be a source.
    """

    path: str
    size: int = 0
    stamp: str = ""
    problem: str | None = None


class WatchedFile(io.RawIOBase):
    """A file that is read, and ``trouble``: the first error of its storage while it was read.

    A decoder may report such an error as damage, or ignore it. Conversely, an error of the decoder's own, such as a
    wrong position in a damaged file, is not the storage's.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.trouble: Exception | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(position, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self._read(-1)

    def _read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except LdpSlicingError:  # damage that the storage itself found
            raise
        except Exception as error:
            self.trouble = self.trouble or error
            raise

    def close(self) -> None:
        self._file.close()
        super().close()


class TemporaryFile:
    """A file being written. It gets its name from ``commit``; without that, it is removed.

    ``is_visible``: others can read what is written at once, so it counts as released even without its name.
    """

    is_visible = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> bytes:
        return self._hash.digest()

    def write(self, data: Any) -> int:  # noqa: ANN401
        """Write bytes, or any object with the buffer interface."""
        piece = memoryview(data).cast("B")
        if len(piece) < _LARGE_BYTES:
            self._hash.update(piece)
            self._file.write(piece)
        else:  # hash and write at the same time: both release the interpreter lock
            hashed = _hashing.submit(self._hash.update, piece)
            self._file.write(piece)
            hashed.result()
        self.size += len(piece)
        return len(piece)

    def writelines(self, pieces: Iterable[bytes | memoryview]) -> None:
        """Write pieces. Small ones are joined first: each write costs more than copying them."""
        small = bytearray()
        for piece in pieces:
            if len(piece) + len(small) <= _SMALL_BYTES:
                small += piece
            else:
                self.write(small)
                self.write(piece)
                small = bytearray()
        self.write(small)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Do nothing: what is not committed may be lost."""

    def close(self) -> None:
        """Do nothing: a library that writes may close the file, but ``commit`` or ``abort`` ends it."""

    @property
    def closed(self) -> bool:
        return False

    def commit(self, *, replace: bool = False) -> None:
        """Give the file its name.

        Unless ``replace``, another file of that name is not overwritten. The same file, whole or torn, is.
        """
        raise NotImplementedError

    def abort(self) -> None:
        """Remove the file."""
        raise NotImplementedError


class Readable(Protocol):
    """Files to read. Paths use slashes. ``is_local``: reading twice costs no transfer."""

    @property
    def is_local(self) -> bool: ...
    def files(self) -> Iterator[StoredFile]: ...
    def open(self, path: str) -> BinaryIO: ...


class Storage(Readable, Protocol):
    """A folder of files. Paths are relative to it."""

    def create(self, path: str) -> TemporaryFile: ...
    def size(self, path: str) -> int | None: ...
    def exists(self, path: str) -> bool: ...
    def remove(self, path: str) -> None: ...
    def remove_temporary_files(self) -> None: ...
    def remove_if_empty(self) -> None: ...
    def sync(self) -> None: ...


def name_in_use(path: str) -> FileExistsError:
    """Return the error for a name that another file has."""
    return FileExistsError(errno.EEXIST, f"another file has its name, {path}: nothing is overwritten")


def write_file(storage: Storage, path: str, pieces: Iterable[bytes]) -> None:
    """Write a whole file under its name, or nothing. An existing file is replaced."""
    file = storage.create(path)
    try:
        file.writelines(pieces)
        file.commit(replace=True)
    except BaseException:
        file.abort()
        raise


def is_litter(path: str) -> bool:
    """Return whether a file has the name of those that file managers leave in folders. It may hold anything."""
    name = path.rpartition("/")[2]
    return name.casefold() in SYSTEM_FILES or name.startswith("._")


def is_apple_double(storage: Readable, path: str) -> bool:
    """Return whether macOS put the file beside another one for its metadata, judged by its name and first bytes."""
    if not path.rpartition("/")[2].startswith("._"):
        return False
    try:
        with storage.open(path) as file:
            return file.read(len(_APPLE_DOUBLE)) == _APPLE_DOUBLE
    except (ImageError, OSError):
        return False


def is_remote(path: str) -> bool:
    """Return whether a path is an address such as s3://bucket. A scheme of one letter is a Windows drive."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and len(scheme) > 1


def local_path(path: str) -> str:
    """Return the path of a file:// address of this machine, so that it is treated as a path; others unchanged."""
    scheme, separator, rest = path.partition("://")
    host, slash, below = rest.partition("/")
    here = separator and slash and scheme.lower() in ("file", "local") and host in ("", "localhost")
    return url2pathname(f"/{below}") if here else path


def printable(name: str) -> str:
    """Return ``name`` with undecodable bytes written as escapes: neither SQLite nor JSON can store lone surrogates."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
