"""Storage that fsspec reaches."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from ldp_slicing.errors import ImageError, LdpSlicingError, ReleaseError
from ldp_slicing.files import check_name_encoding, digest_of
from ldp_slicing.storage.base import PARTIAL, StoredFile, TemporaryFile, name_in_use


@dataclass(frozen=True)
class RemoteStorage:
    """A folder at an address of fsspec, such as s3://bucket/folder, or with ``only`` a single file in it."""

    address: str
    only: str | None = None
    partial: str = PARTIAL
    is_local = False

    @property
    def _system(self) -> tuple[Any, str]:
        import fsspec  # an extra

        system, root = fsspec.core.url_to_fs(self.address)
        return system, root.rstrip("/")

    def is_folder(self) -> bool:
        system, root = self._system
        return bool(system.isdir(root))

    def files(self) -> Iterator[StoredFile]:
        system, root = self._system
        if self.only is not None:
            yield self._describe(self.only, system.info(f"{root}/{self.only}"))
            return
        system.invalidate_cache()  # others may have written meanwhile
        for folder, _, files in system.walk(root, detail=True, on_error=_raise_unless_missing):
            below = folder.rstrip("/").removeprefix(root).lstrip("/")
            for name, about in files.items():
                path = f"{below}/{name}" if below else name
                if name and about.get("type") == "file":
                    yield self._describe(path, about)
                elif name:
                    yield StoredFile(path, problem="is not a regular file; links are not followed")

    @staticmethod
    def _describe(path: str, about: dict[str, Any]) -> StoredFile:
        keys = ("ETag", "etag", "mtime", "LastModified", "created")
        version = next((about[key] for key in keys if about.get(key)), "")
        return StoredFile(path, about.get("size") or 0, f"{about.get('size')} {version}")

    def open(self, path: str) -> BinaryIO:
        system, root = self._system
        try:
            opened: BinaryIO = system.open(f"{root}/{path}", "rb")
        except OSError as error:
            raise ImageError(error.strerror or str(error) or type(error).__name__) from None
        return opened

    def create(self, path: str) -> TemporaryFile:
        system, root = self._system
        system.makedirs(f"{root}/{self.partial}", exist_ok=True)
        return RemoteTemporaryFile(system, f"{root}/{self.partial}/{secrets.token_hex(16)}", f"{root}/{path}")

    def size(self, path: str) -> int | None:
        system, root = self._system
        try:
            size = system.info(f"{root}/{path}").get("size")
        except OSError:
            return None
        return None if size is None else int(size)

    def exists(self, path: str) -> bool:
        system, root = self._system
        return bool(system.exists(f"{root}/{path}"))

    def remove(self, path: str) -> None:
        system, root = self._system
        with contextlib.suppress(FileNotFoundError):
            system.rm_file(f"{root}/{path}")

    def remove_temporary_files(self) -> None:
        system, root = self._system
        if system.exists(f"{root}/{self.partial}"):
            system.rm(f"{root}/{self.partial}", recursive=True)
        if self.partial != PARTIAL:
            # Some storages have no empty folders, and some delete the content with a folder.
            with contextlib.suppress(Exception):
                if not system.ls(f"{root}/{PARTIAL}", refresh=True):
                    system.rmdir(f"{root}/{PARTIAL}")

    def remove_if_empty(self) -> None:
        """Do nothing: most remote storages have no empty folders."""

    def sync(self) -> None:
        """Do nothing: what a remote storage has acknowledged is durable."""


class RemoteTemporaryFile(TemporaryFile):
    is_visible = True

    def __init__(self, system: Any, temporary: str, target: str) -> None:  # noqa: ANN401
        self._system, self._temporary, self._target = system, temporary, target
        super().__init__(system.open(temporary, "wb"))

    def commit(self, *, replace: bool = False) -> None:
        self._file.close()
        in_use = not replace and self._system.exists(self._target)
        if in_use and digest_of(self._system.open(self._target, "rb")) != self.sha256:
            raise name_in_use(self._target)
        self._system.makedirs(self._target.rpartition("/")[0], exist_ok=True)
        self._system.mv(self._temporary, self._target)

    def abort(self) -> None:
        self._file.close()
        if self._system.exists(self._temporary):
            self._system.rm_file(self._temporary)


def _raise_unless_missing(error: OSError) -> None:
    """Treat a folder that does not exist as empty, but not one that cannot be listed."""
    if not isinstance(error, FileNotFoundError):
        raise error


def remote(address: str, only: str | None = None) -> RemoteStorage:
    """Return the storage at an address; refuse an address that cannot be reached.

    The storage is asked about the address. Any answer will do: a target need not exist, nor be listable.
    """
    check_name_encoding()
    storage = RemoteStorage(address.rstrip("/"), only)
    failure: BaseException | None = None
    try:
        system, root = storage._system
        system.info(root)
    except ModuleNotFoundError as error:
        raise ReleaseError(f"{address} needs {error.name}: pip install 'ldp-slicing[remote]'") from None
    except LdpSlicingError:
        raise
    except OSError as error:
        failure = _failed_connection(error)
    except Exception as error:  # an unknown scheme, missing credentials: whatever the library raises
        failure = error
    if failure is not None:
        reason = " ".join(str(failure).split()) or type(failure).__name__
        raise ReleaseError(f"{address} cannot be reached: {reason}")
    return storage


def _failed_connection(error: BaseException | None) -> BaseException | None:
    """Return the failed connection that an error came from, if any. fsspec may report one as a missing file."""
    while error is not None and not isinstance(error, ConnectionError | TimeoutError | socket.gaierror):
        error = error.__cause__ or error.__context__
    return error
