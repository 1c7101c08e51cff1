"""Where sources lie and releases go: a folder of this machine, or a remote one through fsspec. Files by their path below it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.request import url2pathname

import numpy as np

from ldp_slicing.errors import ImageError, LdpSlicingError, ReleaseError
from ldp_slicing.files import CHUNK_BYTES, digest_of, open_regular, sync_folder

PARTIAL = ".ldp-slicing-partial"  # the folder for unfinished files, where they cannot lie outside the target
_TOGETHER = 1 << 12
_LARGE = 1 << 19
_APPLE_DOUBLE = b"\0\5\x16\7"
_hashing = ThreadPoolExecutor(1, "hashing")


def _hash_anew() -> None:
    """A fork has this, but not its thread."""
    global _hashing
    _hashing = ThreadPoolExecutor(1, "hashing")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hash_anew)


@dataclass(frozen=True)
class Found:
    """A file, by its path below the place (odd bytes as ``os.fsdecode`` gives them); ``problem`` says why it cannot be a source.

    ``stamp`` changes when the file does, as far as the file system knows.
    """

    path: str
    size: int = 0
    stamp: str = ""
    problem: str | None = None


class Draft:
    """A file being written. It has no name until ``commit``; what is not committed is gone.

    ``is_seen``: others may read what is written at once, name or not, so that it counts as released.
    """

    is_seen = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> bytes:
        return self._hash.digest()

    def write(self, data: Any) -> int:  # noqa: ANN401
        """Bytes, or anything that holds them."""
        piece = memoryview(data).cast("B")
        if len(piece) < _LARGE:
            self._hash.update(piece)
            self._file.write(piece)
        else:  # at the same time: neither needs Python
            hashed = _hashing.submit(self._hash.update, piece)
            self._file.write(piece)
            hashed.result()
        self.size += len(piece)
        return len(piece)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        """Small pieces together: each write costs more than copying them."""
        small = bytearray()
        for piece in pieces:
            if len(piece) + len(small) <= _TOGETHER:
                small += piece
            else:
                self.write(small)
                self.write(piece)
                small = bytearray()
        self.write(small)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Nothing waits: what is not committed may be lost."""

    def close(self) -> None:
        """Whoever writes may think it is done; ``commit`` decides."""

    @property
    def closed(self) -> bool:
        return False

    def commit(self, *, replace: bool = False) -> None:
        """Give it its name. Another file of that name is not overwritten, unless it is to be replaced; the same one is, torn or whole."""
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError


class Storage(Protocol):
    def files(self) -> Iterator[Found]: ...
    def open(self, path: str) -> BinaryIO: ...
    def draft(self, path: str) -> Draft: ...
    def size(self, path: str) -> int | None: ...
    def is_taken(self, path: str) -> bool: ...
    def clear_drafts(self) -> None: ...
    def remove_if_empty(self) -> None: ...
    def sync(self) -> None: ...
    def remove(self, path: str) -> None: ...


@dataclass(frozen=True)
class LocalStorage:
    """A folder of this machine. ``scratch``: where unfinished files lie, on the same file system; ``only``: one file of it, not all.

    ``partial``: without scratch they lie in the folder itself, where others may see them, below this name.
    """

    root: Path
    scratch: Path | None = None
    only: str | None = None
    partial: str = PARTIAL

    def files(self) -> Iterator[Found]:
        """Every file below the root. Links are not followed: they could lead out of the tree, or to the same source twice."""
        if self.only is not None:
            yield self._found(self.only, (self.root / self.only).stat())
            return
        folders = [""]
        while folders:
            below = folders.pop()
            try:
                with os.scandir(self.root / below) as entries:
                    for entry in entries:
                        path = f"{below}{entry.name}"
                        if entry.is_symlink():
                            yield Found(path, problem="is a symbolic link; links are not followed")
                        elif entry.is_dir():
                            folders.append(f"{path}/")
                        elif entry.is_file():
                            yield self._found(path, entry.stat(follow_symlinks=False))
                        else:
                            yield Found(path, problem="is not a regular file")
            except OSError as error:
                yield Found(below.rstrip("/") or ".", problem=f"folder cannot be read: {error.strerror}")

    @staticmethod
    def _found(path: str, about: os.stat_result) -> Found:
        return Found(path, about.st_size, f"{about.st_size} {about.st_mtime_ns} {about.st_ino}")

    def open(self, path: str) -> BinaryIO:
        """For reading; a regular file only, and in a tree no link, even if it became one a moment ago."""
        return open_regular(self.root / path, follow=self.only is not None)

    def draft(self, path: str) -> Draft:
        scratch, name = self.scratch or self.root / self.partial, secrets.token_hex(16)
        try:
            draft = _LocalDraft(f"{scratch}/{name}", f"{self.root}/{path}")
        except FileNotFoundError:
            scratch.mkdir(parents=True, exist_ok=True)
            draft = _LocalDraft(f"{scratch}/{name}", f"{self.root}/{path}")
        draft.is_seen = self.scratch is None
        return draft

    def size(self, path: str) -> int | None:
        try:
            about = os.lstat(self.root / path)
        except OSError:
            return None
        return about.st_size if stat.S_ISREG(about.st_mode) else None

    def is_taken(self, path: str) -> bool:
        """Whether anything has that name, a link, too."""
        return os.path.lexists(self.root / path)

    def clear_drafts(self) -> None:
        """What a killed process of this run left behind."""
        shutil.rmtree(self.scratch or self.root / self.partial, ignore_errors=True)
        if self.scratch is None:
            with contextlib.suppress(OSError):  # others are at work
                (self.root / PARTIAL).rmdir()

    def remove_if_empty(self) -> None:
        with contextlib.suppress(OSError):
            self.root.rmdir()

    def remove(self, path: str) -> None:
        """A file that may be there; it is gone from the disk, too, when this returns."""
        if os.path.lexists(self.root / path):
            (self.root / path).unlink()
            with contextlib.suppress(OSError):  # some disks cannot do it
                sync_folder(self.root)

    def sync(self) -> None:
        """Everything that was written is on the disk: one call for many files, since one each would cost more than making them."""
        if hasattr(os, "sync"):
            os.sync()


class _LocalDraft(Draft):
    def __init__(self, temporary: str, target: str) -> None:
        self._temporary, self._target = temporary, target
        super().__init__(io.BufferedWriter(io.FileIO(temporary, "x")))

    def commit(self, *, replace: bool = False) -> None:
        self._file.close()
        if not replace and os.path.lexists(self._target) and not self._is_ours():
            raise FileExistsError(errno.EEXIST, f"another file has its name, {self._target}: nothing is overwritten")
        try:
            os.replace(self._temporary, self._target)
        except FileNotFoundError:
            Path(self._target).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._temporary, self._target)

    def _is_ours(self) -> bool:
        """Whether this very file is there, or what a power cut left of it: cut off, or zeros. This run was ended before it could say so."""
        try:
            with open_regular(Path(self._target), follow=False) as there, Path(self._temporary).open("rb") as mine:
                while len(piece := np.frombuffer(there.read(CHUNK_BYTES), np.uint8)):
                    wanted = np.frombuffer(mine.read(CHUNK_BYTES), np.uint8)[: len(piece)]
                    if len(wanted) < len(piece) or np.any((piece != wanted) & (piece != 0)):
                        return False
        except (ImageError, OSError):
            return False
        return True

    def abort(self) -> None:
        try:
            self._file.close()  # which may want to write what it holds, to a disk that is full
        finally:
            Path(self._temporary).unlink(missing_ok=True)


@dataclass(frozen=True)
class RemoteStorage:
    """A place that fsspec reaches, by its address, such as s3://bucket/folder."""

    address: str
    only: str | None = None
    partial: str = PARTIAL

    @property
    def _system(self) -> tuple[Any, str]:
        import fsspec  # an extra

        system, root = fsspec.core.url_to_fs(self.address)
        return system, root.rstrip("/")

    def is_folder(self) -> bool:
        system, root = self._system
        return bool(system.isdir(root))

    def has(self, path: str) -> bool:
        system, root = self._system
        return bool(system.exists(f"{root}/{path}"))

    def files(self) -> Iterator[Found]:
        system, root = self._system
        if self.only is not None:
            yield self._found(self.only, system.info(f"{root}/{self.only}"))
            return
        system.invalidate_cache()  # what others have put there meanwhile
        for folder, _, files in system.walk(root, detail=True, on_error=_unless_missing):
            below = folder.rstrip("/").removeprefix(root).lstrip("/")
            for name, about in files.items():
                path = f"{below}/{name}" if below else name
                if name and about.get("type") == "file":
                    yield self._found(path, about)
                elif name:
                    yield Found(path, problem="is not a regular file; links are not followed")

    @staticmethod
    def _found(path: str, about: dict[str, Any]) -> Found:
        version = next(
            (about[key] for key in ("ETag", "etag", "mtime", "LastModified", "created") if about.get(key)), ""
        )
        return Found(path, about.get("size") or 0, f"{about.get('size')} {version}")

    def open(self, path: str) -> BinaryIO:
        system, root = self._system
        try:
            opened: BinaryIO = system.open(f"{root}/{path}", "rb")
        except OSError as error:
            raise ImageError(error.strerror or str(error) or type(error).__name__) from None
        return opened

    def draft(self, path: str) -> Draft:
        system, root = self._system
        system.makedirs(f"{root}/{self.partial}", exist_ok=True)
        return _RemoteDraft(system, f"{root}/{self.partial}/{secrets.token_hex(16)}", f"{root}/{path}")

    def size(self, path: str) -> int | None:
        system, root = self._system
        try:
            size = system.info(f"{root}/{path}").get("size")
        except OSError:
            return None
        return None if size is None else int(size)

    def is_taken(self, path: str) -> bool:
        return self.has(path)

    def clear_drafts(self) -> None:
        system, root = self._system
        if system.exists(f"{root}/{self.partial}"):
            system.rm(f"{root}/{self.partial}", recursive=True)
        if self.partial != PARTIAL:
            with contextlib.suppress(
                Exception
            ):  # there may be no such folder, nor any empty ones; and some remove what is in one
                if not system.ls(f"{root}/{PARTIAL}", refresh=True):
                    system.rmdir(f"{root}/{PARTIAL}")

    def remove_if_empty(self) -> None:
        """There are no empty folders in most."""

    def remove(self, path: str) -> None:
        system, root = self._system
        with contextlib.suppress(FileNotFoundError):
            system.rm_file(f"{root}/{path}")

    def sync(self) -> None:
        """What a remote place has acknowledged is its own to keep."""


def _unless_missing(error: OSError) -> None:
    """What cannot be listed is not taken for empty; what is not there is."""
    if not isinstance(error, FileNotFoundError):
        raise error


class _RemoteDraft(Draft):
    is_seen = True

    def __init__(self, system: Any, temporary: str, target: str) -> None:  # noqa: ANN401
        self._system, self._temporary, self._target = system, temporary, target
        super().__init__(system.open(temporary, "wb"))

    def commit(self, *, replace: bool = False) -> None:
        self._file.close()
        if (
            not replace
            and self._system.exists(self._target)
            and digest_of(self._system.open(self._target, "rb")) != self.sha256
        ):
            raise FileExistsError(errno.EEXIST, f"another file has its name, {self._target}: nothing is overwritten")
        self._system.makedirs(self._target.rpartition("/")[0], exist_ok=True)
        self._system.mv(self._temporary, self._target)

    def abort(self) -> None:
        self._file.close()
        if self._system.exists(self._temporary):
            self._system.rm_file(self._temporary)


def printable(name: str) -> str:
    """Return ``name`` with undecodable bytes written as escapes: neither SQLite nor JSON can store lone surrogates."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_remote(path: str) -> bool:
    """An address with a scheme of two letters or more; a single one is a drive."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and len(scheme) > 1


def local_path(path: str) -> str:
    """The path of a file:// address of this machine, so that what is asked of paths is asked of it; anything else as it is."""
    scheme, separator, rest = path.partition("://")
    host, slash, below = rest.partition("/")
    here = separator and slash and scheme.lower() in ("file", "local") and host in ("", "localhost")
    return url2pathname(f"/{below}") if here else path


def remote(address: str, only: str | None = None) -> RemoteStorage:
    try:
        place = RemoteStorage(address.rstrip("/"), only)
        place._system  # noqa: B018
    except ModuleNotFoundError as error:
        raise ReleaseError(f"{address} needs {error.name}: pip install 'ldp-slicing[remote]'") from None
    except LdpSlicingError:
        raise
    except Exception as error:  # an unknown scheme, no credentials: whatever the library raises
        raise ReleaseError(f"{address} cannot be reached: {error}") from None
    return place


def is_apple_double(place: Storage, path: str) -> bool:
    """Whether it is a file that macOS put beside another, for what the file system cannot hold: by its name and how it begins."""
    if not path.rpartition("/")[2].startswith("._"):
        return False
    try:
        with place.open(path) as file:
            return file.read(len(_APPLE_DOUBLE)) == _APPLE_DOUBLE
    except (ImageError, OSError):
        return False


def write_whole(place: Storage, path: str, pieces: Iterable[bytes]) -> None:
    """The whole file under its name, or nothing."""
    draft = place.draft(path)
    try:
        draft.writelines(pieces)
        draft.commit(replace=True)
    except BaseException:
        draft.abort()
        raise
