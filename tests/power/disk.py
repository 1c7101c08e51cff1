"""A model of a disk that loses power: what was recorded of a process, and what may be left of it.

The model is the weakest one that POSIX allows and that SQLite is built for. A write is sure to survive only if its
file was synced afterwards, a name only if its folder was. Any subset of everything else may survive, and a write may
be torn at a sector boundary.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
RECORDER = Path(__file__).with_name("recorder.c")


def build_recorder(folder: Path) -> Path:
    """Compile the recording library."""
    library = folder / "recorder.so"
    command = [os.environ.get("CC", "cc"), "-O1", "-fPIC", "-shared", "-o", str(library), str(RECORDER), "-ldl"]
    subprocess.run(command, check=True)
    return library


@dataclass(frozen=True)
class Operation:
    """One recorded call; ``kind`` as recorder.c has it."""

    kind: str
    path: str
    offset: int
    data: bytes


def read_log(path: Path) -> Iterator[Operation]:
    content, at = path.read_bytes(), 0
    while at < len(content):
        kind = chr(content[at])
        (length,) = struct.unpack_from("=Q", content, at + 1)
        name = os.fsdecode(content[at + 9 : at + 9 + length])
        offset, size = struct.unpack_from("=QQ", content, at + 9 + length)
        start = at + 25 + length
        yield Operation(kind, name, offset, content[start : start + size])
        at = start + size


@dataclass
class _File:
    """The content that is safe, and the changes since the last sync."""

    safe: bytearray = field(default_factory=bytearray)
    pending: list[Operation] = field(default_factory=list)

    def content(self, rng: random.Random | None) -> bytes:
        """What a cut leaves; everything, where ``rng`` is None."""
        found = bytearray(self.safe)
        for operation in self.pending:
            if rng is None or rng.random() < 0.5:
                _apply(found, operation, rng)
        return bytes(found)


def _apply(content: bytearray, operation: Operation, rng: random.Random | None) -> None:
    if operation.kind == "t":
        del content[operation.offset :]
        content.extend(bytes(operation.offset - len(content)))
        return
    size = len(operation.data)
    if rng is not None and rng.random() < 0.3:  # torn: only its first sectors
        size = min(size, SECTOR * rng.randrange(size // SECTOR + 1))
    end = operation.offset + size
    content.extend(bytes(max(0, end - len(content))))
    content[operation.offset : end] = operation.data[:size]


class Disk:
    """Replays operations and keeps apart what was synced from what a power cut may lose."""

    def __init__(self) -> None:
        self._names: dict[str, _File | None] = {}  # as the process sees them; None: a folder
        self._safe: dict[str, _File | None] = {}
        self._changes: list[tuple[str, str, _File | None, bool]] = []  # folder, path, file, is removed

    def replay(self, operation: Operation) -> None:
        path = operation.path
        if operation.kind in "wt":
            found = self._names.get(path)
            if found is not None:  # a file that was unlinked and is still open has no name any more
                found.pending.append(operation)
        elif operation.kind == "s":
            self._sync(path)
        elif operation.kind in "cm":
            self._name(path, _File() if operation.kind == "c" else None)
        elif operation.kind == "u":
            self._remove(path)
        else:
            new = os.fsdecode(operation.data)
            self._name(new, self._names[path])
            if operation.kind == "r":
                self._remove(path)

    def _name(self, path: str, found: _File | None) -> None:
        self._names[path] = found
        self._changes.append((os.path.dirname(path), path, found, False))  # noqa: PTH120

    def _remove(self, path: str) -> None:
        found = self._names.pop(path, None)
        self._changes.append((os.path.dirname(path), path, found, True))  # noqa: PTH120

    def _sync(self, path: str) -> None:
        found = self._names.get(path)
        if found is not None:
            found.safe = bytearray(found.content(None))
            found.pending.clear()
            return
        for change in self._changes:
            if change[0] == path:
                _change(self._safe, change)
        self._changes = [change for change in self._changes if change[0] != path]

    def after_cut(self, root: str, target: Path, rng: random.Random) -> None:
        """Write one state that a power cut may leave of what lies below ``root`` to ``target``."""
        names = dict(self._safe)
        for change in self._changes:
            if rng.random() < 0.5:
                _change(names, change)
        target.mkdir(parents=True)
        for path in sorted(names):  # folders before what they hold
            to = target / os.path.relpath(path, root)
            if not to.parent.is_dir():
                continue  # the name of its folder was lost
            found = names[path]
            if found is None:
                to.mkdir(exist_ok=True)
            else:
                to.write_bytes(found.content(rng))
                to.chmod(0o600)


def _change(names: dict[str, _File | None], change: tuple[str, str, _File | None, bool]) -> None:
    _, path, found, removed = change
    if removed:
        names.pop(path, None)
    else:
        names[path] = found
