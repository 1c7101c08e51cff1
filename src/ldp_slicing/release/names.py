"""Which files there are, and under which names their releases go."""

from __future__ import annotations

import itertools
import os
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePath


@dataclass(frozen=True)
class Found:
    """A file below the source folder, by its relative path; ``problem`` says why it cannot be a source."""

    path: PurePath
    problem: str | None = None


def find_files(folder: Path) -> list[Found]:
    """Every file below ``folder``, in the order of names.

    Links are not followed: they could lead out of the tree, or to the same source twice.
    """
    found: list[Found] = []
    folders = [PurePath()]
    while folders:
        below = folders.pop()
        try:
            with os.scandir(folder / below) as entries:
                for entry in entries:
                    path = below / entry.name
                    if entry.is_symlink():
                        found.append(Found(path, "is a symbolic link; links are not followed"))
                    elif entry.is_dir():
                        folders.append(path)
                    else:
                        found.append(Found(path, None if entry.is_file() else "is not a regular file"))
        except OSError as error:
            found.append(Found(below, f"folder cannot be read: {error.strerror}"))
    return sorted(found, key=lambda item: item.path)


def release_names(sources: list[PurePath]) -> dict[PurePath, PurePath]:
    """``a/b.jpg`` goes to ``a/b.png``; where two sources would share a name, or a folder has it, to ``a/b.jpg.png``.

    Names that some file system takes for one count as one: those that differ only in case or in how accents are composed. Where the
    longer names are still shared (``b.jpg`` and ``B.JPG``), all but the first get a number: ``B.JPG.2.png``.
    """
    short = {source: source.with_suffix(".png") for source in sources}
    uses = Counter(_same_name(name) for name in short.values())
    taken = {_same_name(folder) for source in sources for folder in source.parents}
    names: dict[PurePath, PurePath] = {}
    for source, name in sorted(short.items()):
        plain = [name] if uses[_same_name(name)] == 1 else []
        longer = [source.with_name(f"{source.name}.png")]
        numbered = (source.with_name(f"{source.name}.{number}.png") for number in itertools.count(2))
        candidates = itertools.chain(plain, longer, numbered)
        names[source] = next(candidate for candidate in candidates if _same_name(candidate) not in taken)
        taken.add(_same_name(names[source]))
    return names


def _same_name(path: PurePath) -> str:
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", str(path)).casefold())
