"""Under which names releases go. On disk, in the run's journal, so that a million of them need no memory."""

from __future__ import annotations

import itertools
import sqlite3
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from ldp_slicing.storage import printable

SCHEMA = """
CREATE TABLE taken (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE wished (name TEXT PRIMARY KEY, uses INTEGER NOT NULL) WITHOUT ROWID;
"""


def same_name(path: str) -> str:
    """Equal for two names that some file system takes for one: those that differ only in case or in how accents are composed."""
    folded = (
        path.lower() if path.isascii() else unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())
    )
    return printable(folded)


class Namer:
    """``a/b.jpg`` goes to ``a/b.png``; where two sources would share a name, or a folder has it, to ``a/b.jpg.png``.

    Where the longer names are still shared (``b.jpg`` and ``B.JPG``), all but the first get a number: ``B.JPG.2.png``. First ``wish`` for
    every source, then ``name`` each, in the order of their paths. What was named in an earlier run keeps its name.
    """

    def __init__(self, run: Callable[..., sqlite3.Cursor]) -> None:
        self._run = run  # a statement of the journal's database

    def wish(self, path: str, suffix: str) -> None:
        """A source that has no name yet. The folders it lies in are taken: their releases go there."""
        key = same_name(str(PurePosixPath(path).with_suffix(suffix)))
        self._run("INSERT INTO wished VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET uses = uses + 1", (key,))
        for folder in itertools.takewhile(lambda folder: str(folder) != ".", PurePosixPath(path).parents):
            if not self.take(str(folder)):
                break  # then those above are, too

    def name(self, path: str, suffix: str) -> str:
        return next(name for name in self._candidates(PurePosixPath(path), suffix) if self.take(name))

    def take(self, name: str) -> bool:
        """Whether ``name`` was free; now it is not."""
        return self._run("INSERT OR IGNORE INTO taken VALUES (?)", (same_name(name),)).rowcount == 1

    def forget_wishes(self) -> None:
        self._run("DELETE FROM wished")

    def _candidates(self, path: PurePosixPath, suffix: str) -> Iterator[str]:
        short = str(path.with_suffix(suffix))
        wished = self._run("SELECT uses FROM wished WHERE name = ?", (same_name(short),)).fetchone()
        if wished is None or wished[0] == 1:
            yield short
        yield f"{path}{suffix}"
        for number in itertools.count(2):
            yield f"{path}.{number}{suffix}"


def random_name(secret_name: Callable[[bytes], str], path: str, suffix: str) -> str:
    """A name that tells nothing, in one of 256 folders that tell nothing."""
    digits = secret_name(path.encode("utf-8", "surrogateescape"))
    return f"{digits[:2]}/{digits}{suffix}"
