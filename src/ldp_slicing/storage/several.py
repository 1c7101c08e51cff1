"""Several sources as one, and a selection of their files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

from ldp_slicing.errors import ImageError, Reason, ReleaseError
from ldp_slicing.storage.base import Readable, StoredFile
from ldp_slicing.storage.local import LocalStorage
from ldp_slicing.storage.remote import RemoteStorage
from ldp_slicing.storage.selection import EVERYTHING, Selection


@dataclass(frozen=True)
class SourceFiles:
    """The selected files of all sources. Each source has a folder of its own name, if there are several.

    ``parts`` are the names of these folders, and what they hold. The only source has no folder, nor has a single file:
    its name is empty, or that of the file.
    """

    parts: tuple[tuple[str, Readable], ...]
    selection: Selection = EVERYTHING

    @property
    def is_local(self) -> bool:
        return all(part.is_local for _, part in self.parts)

    def files(self) -> Iterator[StoredFile]:
        """Yield the files that are selected. The patterns are about names below each source."""
        return (found for found in self.all_files() if self.selects(found))

    def all_files(self) -> Iterator[StoredFile]:
        """Yield all files, whether they are selected or not."""
        for folder, part in self.parts:
            for found in part.files():
                yield replace(found, path=f"{folder}{found.path}") if folder.endswith("/") else found

    def selects(self, found: StoredFile) -> bool:
        return self.selection.has(self._find(found.path)[1])

    def check_selection(self) -> None:
        """Refuse a pattern that names a folder as if it were a file: nothing would be left out, or included, by it."""
        if self.selection and (one := self.selection.folder_pattern(self._find(f.path)[1] for f in self.all_files())):
            raise ReleaseError(
                f"the pattern {one!r} matches no file, but there is a folder of that name: write '{one}/' to mean "
                "everything in it",
                Reason.PATTERN,
            )

    def is_named(self, path: str) -> bool:
        """Return whether the owner named this very file, not a folder that it is in."""
        return self.folder_of_named(path) is not None

    def folder_of_named(self, path: str) -> LocalStorage | RemoteStorage | None:
        """Return the folder of a file that the owner named, or None if the owner named a folder that it is in."""
        part = self._find(path)[0]
        return part if isinstance(part, LocalStorage | RemoteStorage) and part.only is not None else None

    def open(self, path: str) -> BinaryIO:
        part, below = self._find(path)
        return part.open(below)

    def _find(self, path: str) -> tuple[Readable, str]:
        """Return the source that a file is in, and its path below that."""
        for folder, part in self.parts:
            if folder in ("", path):
                return part, path
            if folder.endswith("/") and path.startswith(folder):
                return part, path.removeprefix(folder)
        raise ImageError("is in none of the sources")
