"""Which files there are, and under which names their releases go."""

from __future__ import annotations

import os
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

    def relative(path: str | os.PathLike[str]) -> PurePath:
        return PurePath(os.path.relpath(path, folder))

    def unreadable(error: OSError) -> None:
        found.append(Found(relative(error.filename or folder), f"folder cannot be read: {error.strerror}"))

    for parent, folders, files in os.walk(folder, onerror=unreadable):
        for name in files + folders:
            path = Path(parent, name)
            if path.is_symlink():
                found.append(Found(relative(path), "is a symbolic link; links are not followed"))
            elif name in files:
                found.append(Found(relative(path), None if path.is_file() else "is not a regular file"))
    return sorted(found, key=lambda item: item.path)


def release_names(sources: list[PurePath]) -> dict[PurePath, PurePath]:
    """``a/b.jpg`` goes to ``a/b.png``; where two sources would share a name (also if only by case), to ``a/b.jpg.png``."""
    names = {source: source.with_suffix(".png") for source in sources}
    while True:
        uses = Counter(str(name).casefold() for name in names.values())
        shared = [source for source, name in names.items() if uses[str(name).casefold()] > 1]
        if not shared:
            return names
        for source in shared:
            longer = names[source] if names[source].name.startswith(source.name) else source
            names[source] = longer.with_name(longer.name + ".png")
