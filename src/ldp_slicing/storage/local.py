"""A folder of this machine."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ldp_slicing.errors import ImageError
from ldp_slicing.files import CHUNK_BYTES, check_name_encoding, open_regular, sync_file, sync_folder
from ldp_slicing.storage.base import PARTIAL, StoredFile, TemporaryFile, name_in_use

_TRIAL = f"{PARTIAL}.trial"  # an empty file that is renamed to find out whether that works


@dataclass(frozen=True)
class LocalStorage:
    """A folder of this machine, or with ``only`` a single file in it.

    Temporary files lie in ``scratch``, from where they can be renamed (``with_usable_scratch``). Without one they lie
    in the folder itself, below the name ``partial``, where others may see them.
    """

    root: Path
    scratch: Path | None = None
    only: str | None = None
    partial: str = PARTIAL
    is_local = True

    def __post_init__(self) -> None:
        check_name_encoding()

    def files(self) -> Iterator[StoredFile]:
        """Yield every file below the root. Links are not followed: they could lead elsewhere, or to a source twice."""
        if self.only is not None:
            yield self._describe(self.only, (self.root / self.only).stat())
            return
        folders = [""]
        while folders:
            below = folders.pop()
            try:
                with os.scandir(self.root / below) as entries:
                    for entry in entries:
                        path = f"{below}{entry.name}"
                        if entry.is_symlink():
                            yield StoredFile(path, problem="is a symbolic link; links are not followed")
                        elif entry.is_dir():
                            folders.append(f"{path}/")
                        elif entry.is_file():
                            yield self._describe(path, entry.stat(follow_symlinks=False))
                        else:
                            yield StoredFile(path, problem="is not a regular file")
            except OSError as error:
                yield StoredFile(below.rstrip("/") or ".", problem=f"folder cannot be read: {error.strerror}")

    @staticmethod
    def _describe(path: str, about: os.stat_result) -> StoredFile:
        return StoredFile(path, about.st_size, f"{about.st_size} {about.st_mtime_ns} {about.st_ino}")

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading. In a folder it is never a link, even one that was made a moment ago."""
        return open_regular(self.root / path, follow=self.only is not None)

    def create(self, path: str) -> TemporaryFile:
        scratch, name = self.scratch or self.root / self.partial, secrets.token_hex(16)
        try:
            file = LocalTemporaryFile(f"{scratch}/{name}", f"{self.root}/{path}")
        except FileNotFoundError:
            scratch.mkdir(parents=True, exist_ok=True)
            file = LocalTemporaryFile(f"{scratch}/{name}", f"{self.root}/{path}")
        file.is_visible = self.scratch is None
        return file

    def with_usable_scratch(self) -> LocalStorage:
        """Return this storage, without its scratch folder if no file can be renamed from there.

        It is tried: two places of one device may be different mounts, and mounts of two devices may be one file system.
        """
        if self.scratch is None:
            return self
        self.scratch.mkdir(parents=True, exist_ok=True)
        trial = self.scratch / _TRIAL
        trial.touch()
        try:
            trial.rename(self.root / _TRIAL)
        except OSError as error:
            return replace(self, scratch=None) if error.errno == errno.EXDEV else self
        finally:
            self.remove_temporary_files()
        return self

    def size(self, path: str) -> int | None:
        """Return the size of a regular file, or None if there is none of that name."""
        try:
            about = os.lstat(self.root / path)
        except OSError:
            return None
        return about.st_size if stat.S_ISREG(about.st_mode) else None

    def exists(self, path: str) -> bool:
        """Return whether anything has that name, even a broken link."""
        return os.path.lexists(self.root / path)

    def remove(self, path: str) -> None:
        """Remove a file if it exists, durably."""
        if os.path.lexists(self.root / path):
            (self.root / path).unlink()
            with contextlib.suppress(OSError):  # some file systems cannot sync a folder
                sync_folder(self.root)

    def remove_temporary_files(self) -> None:
        """Remove what a killed process of this run left behind."""
        for folder in (self.scratch, self.root / self.partial):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            (self.root / _TRIAL).unlink()
        with contextlib.suppress(OSError):  # other runs have files there
            (self.root / PARTIAL).rmdir()

    def remove_if_empty(self) -> None:
        with contextlib.suppress(OSError):
            self.root.rmdir()

    def sync(self) -> None:
        """Flush everything to disk: one call for many files, since one call each would cost more than making them."""
        if hasattr(os, "sync"):
            os.sync()


class LocalTemporaryFile(TemporaryFile):
    def __init__(self, temporary: str, target: str) -> None:
        self._temporary, self._target = temporary, target
        super().__init__(io.BufferedWriter(io.FileIO(temporary, "x")))

    def commit(self, *, replace: bool = False) -> None:
        if replace:  # after a power cut there is the old file or the new one, and nothing blank
            sync_file(self._file)
        self._file.close()
        if not replace and os.path.lexists(self._target) and not self._is_same():
            raise name_in_use(self._target)
        try:
            os.replace(self._temporary, self._target)
        except FileNotFoundError:
            Path(self._target).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._temporary, self._target)

    def _is_same(self) -> bool:
        """Return whether the existing file is this very file, or what a power cut left of it: cut off, or zeros.

        The run was then ended before it could record the file.
        """
        try:
            with open_regular(Path(self._target), follow=False) as existing, Path(self._temporary).open("rb") as mine:
                while len(piece := np.frombuffer(existing.read(CHUNK_BYTES), np.uint8)):
                    wanted = np.frombuffer(mine.read(CHUNK_BYTES), np.uint8)[: len(piece)]
                    if len(wanted) < len(piece) or np.any((piece != wanted) & (piece != 0)):
                        return False
        except (ImageError, OSError):
            return False
        return True

    def abort(self) -> None:
        try:
            self._file.close()  # may write what is buffered, to a disk that is full
        finally:
            Path(self._temporary).unlink(missing_ok=True)
