"""The names of outputs. They are kept in the run's database, so a million of them need no memory."""

from __future__ import annotations

import itertools
import sqlite3
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from ldp_slicing.storage import printable

SCHEMA = """
CREATE TABLE names_used (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE names_requested (name TEXT PRIMARY KEY, requests INTEGER NOT NULL) WITHOUT ROWID;
"""


def folded(path: str) -> str:
    """Return the form in which names are compared.

    Names that differ only in case, or in how accents are composed, are the same name on some file systems.
    """
    if path.isascii():
        return path.lower()
    return printable(unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold()))


class OutputNames:
    """Choose output names: ``a/b.jpg`` becomes ``a/b.png``, or ``a/b.jpg.png`` if that name is contested.

    A name is contested when two sources would get it or a folder has it. If the longer names collide too (``b.jpg``
    and ``B.JPG``), all but the first get a number: ``B.JPG.2.png``. Call ``request`` for every source first, then
    ``choose`` for each in the order of their paths. Sources that were named in an earlier run keep their names.
    """

    def __init__(self, execute: Callable[..., sqlite3.Cursor]) -> None:
        self._execute = execute

    def request(self, path: str, suffix: str) -> None:
        """Count a source that has no name yet, and reserve the names of its folders: their releases go there."""
        key = folded(str(PurePosixPath(path).with_suffix(suffix)))
        self._execute(
            "INSERT INTO names_requested VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET requests = requests + 1", (key,)
        )
        for folder in itertools.takewhile(lambda folder: str(folder) != ".", PurePosixPath(path).parents):
            if not self.reserve(str(folder)):
                break  # the folders above it are reserved too

    def choose(self, path: str, suffix: str) -> str:
        """Return the first free name for a source, and reserve it."""
        return next(name for name in self._candidates(PurePosixPath(path), suffix) if self.reserve(name))

    def reserve(self, name: str) -> bool:
        """Reserve ``name``; return whether it was free."""
        return self._execute("INSERT OR IGNORE INTO names_used VALUES (?)", (folded(name),)).rowcount == 1

    def forget_requests(self) -> None:
        self._execute("DELETE FROM names_requested")

    def _candidates(self, path: PurePosixPath, suffix: str) -> Iterator[str]:
        short = str(path.with_suffix(suffix))
        found = self._execute("SELECT requests FROM names_requested WHERE name = ?", (folded(short),)).fetchone()
        if found is None or found[0] == 1:
            yield short
        yield f"{path}{suffix}"
        for number in itertools.count(2):
            yield f"{path}.{number}{suffix}"


def random_name(secret_name: Callable[[bytes], str], path: str, suffix: str) -> str:
    """Return a name that reveals nothing about the source, in one of 256 folders."""
    digits = secret_name(path.encode("utf-8", "surrogateescape"))
    return f"{digits[:2]}/{digits}{suffix}"
