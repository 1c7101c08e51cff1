"""A zip file, read as a folder."""

from __future__ import annotations

import contextlib
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from ldp_slicing.errors import ImageError, Reason, ReleaseError
from ldp_slicing.files import open_regular
from ldp_slicing.storage.base import StoredFile

_DAMAGE = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError)  # NotImplementedError: a compression method
_MOST_EXPANSION = 1100  # deflate reaches 1,032
_LARGE_BYTES, _LARGE_EXPANSION = 1 << 28, 4  # a larger member may not expand as much: some are read as a whole
_ENCRYPTED, _UTF8 = 1, 1 << 11  # flags


@dataclass(frozen=True)
class ZipStorage:
    """The members of a zip file of this machine. Nothing is unpacked to a disk."""

    path: Path
    is_local = True

    def files(self) -> Iterator[StoredFile]:
        """Yield every file. Of several members with one name, none can be told to be the one that is meant."""
        opened = self._opened()
        names = Counter(member.filename for member in opened.infolist())
        for member in opened.infolist():
            if not member.filename or not member.is_dir():
                problem = _problem(member, is_repeated=names[member.filename] > 1)
                yield StoredFile(
                    member.filename or ".", member.file_size, f"{member.file_size} {member.CRC:08x}", problem
                )

    def open(self, path: str) -> BinaryIO:
        try:
            opened = self._opened()
            member = opened.getinfo(path)
            if problem := _problem(member, is_repeated=False):
                raise ImageError(problem)
            return cast("BinaryIO", _Member(opened.open(member)))
        except KeyError:
            raise ImageError("is no longer in the zip file") from None
        except _DAMAGE as error:
            raise ImageError(f"is damaged in its zip file: {error}") from None

    def _opened(self) -> zipfile.ZipFile:
        about = self.path.stat()
        return _open(self.path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=4)
def _open(path: Path, changed: int, size: int) -> zipfile.ZipFile:
    """Open a zip file and read its directory, once in each process."""
    try:
        open_regular(path).close()  # a pipe would wait for ever
        opened = zipfile.ZipFile(path)
    except ImageError as error:
        raise ReleaseError(f"{path} cannot be read: it {error}", Reason.SOURCE) from None
    except _DAMAGE as error:
        raise ReleaseError(f"{path} is not a zip file, or is damaged: {error}") from None
    for member in opened.infolist():
        member.filename = _name(member)
    opened.NameToInfo = {member.filename: member for member in opened.infolist()}
    return opened


def _name(member: zipfile.ZipInfo) -> str:
    """Return the name of a member. Info-ZIP writes UTF-8 without saying so, and ``zipfile`` reads code page 437."""
    if not member.flag_bits & _UTF8:
        with contextlib.suppress(UnicodeError):
            return member.filename.encode("cp437").decode()
    return member.filename


def _problem(member: zipfile.ZipInfo, *, is_repeated: bool) -> str | None:
    """Return why a member cannot be a source, if so."""
    if is_repeated:
        return "is in the zip file more than once"
    if not PurePosixPath(member.filename).name:  # "" or "."
        return f"is called {member.filename!r}, which is not the name of a file: unpack the zip file first"
    if "\\" in member.filename:  # on some systems it leads to another folder
        return "has a name with a backslash: unpack the zip file first"
    if member.flag_bits & _ENCRYPTED:
        return "is encrypted: unpack the zip file first"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "is a symbolic link; links are not followed"
    is_large = member.file_size > _LARGE_BYTES
    if member.file_size > (_LARGE_EXPANSION if is_large else _MOST_EXPANSION) * member.compress_size + 1:
        return f"declares {member.file_size:,} bytes, more than its {member.compress_size:,} can hold"
    return None


class _Member:
    """A member that is read. Damage is a fault of the file, not of the storage: reading again would not help."""

    def __init__(self, file: Any) -> None:  # noqa: ANN401
        self._file = file

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._file, name)

    def __enter__(self) -> _Member:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int = -1) -> bytes:
        return cast("bytes", self._guard(self._file.read, size))

    def seek(self, position: int, whence: int = 0) -> int:
        return int(self._guard(self._file.seek, position, whence))

    @staticmethod
    def _guard(action: Any, *values: int) -> Any:  # noqa: ANN401
        try:
            return action(*values)
        except _DAMAGE as error:
            raise ImageError(f"is damaged in its zip file: {error}") from None
