"""What a run reads: a file, a folder, a zip file, or several of these; and of which kind a source file is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ldp_slicing.errors import ImageError, Reason, ReleaseError
from ldp_slicing.formats import detect_kind, read_head
from ldp_slicing.integrity import read_whole
from ldp_slicing.storage import LocalStorage, Readable, Selection, SourceFiles, ZipStorage, is_remote, remote


@dataclass(frozen=True)
class Sources:
    """The files to read, the full names of the sources, sorted, and the one file that is meant, or None for a set."""

    files: SourceFiles
    names: tuple[str, ...]
    only: str | None = None


def open_sources(sources: Sequence[str], selection: Selection, *, into_folder: bool) -> Sources:
    """Return what is to be read; refuse sources that do not exist or whose folders would have the same name.

    Several sources, and a file ``into_folder``, make a set.
    """
    found = [(source, *_open(source)) for source in sources]
    if len(found) == 1:
        _, storage, only, name = found[0]
        if only is None or not into_folder:
            return Sources(SourceFiles((("", storage),), selection), (name,), only)
    parts = dict[str, Readable]()
    for source, storage, only, name in found:
        folder = only or f"{_last_part(name, source)}/"
        if any(folder.rstrip("/") == other.rstrip("/") for other in parts):
            raise ReleaseError(
                f"two sources are called {folder.rstrip('/')}, and releases have the names of their sources: "
                "rename one, or release it to another target",
                Reason.NAME,
            )
        parts[folder] = storage
    return Sources(SourceFiles(tuple(parts.items()), selection), tuple(sorted(name for *_, name in found)))


def _last_part(name: str, source: str) -> str:
    """Return the name of the folder for the releases of a source, which is its own name, without ".zip"."""
    last = name.rstrip("/").rpartition("/")[2] if is_remote(source) else Path(name).name
    return last[:-4] if last.lower().endswith(".zip") else last


def _open(source: str) -> tuple[Readable, str | None, str]:
    """Return the storage of a source, the one file that is meant (or None for all), and the name of the source."""
    if is_remote(source):
        storage = remote(source)
        if storage.is_folder():
            return storage, None, source
        folder, only = source.rstrip("/").rsplit("/", 1)
        if not remote(folder).exists(only):
            raise ReleaseError(f"{source} does not exist", Reason.SOURCE)
        return remote(folder, only), only, source
    path = Path(source)
    if not path.exists():
        raise ReleaseError(f"{source} does not exist", Reason.SOURCE)
    name = str(path.resolve())
    if path.is_dir():
        return LocalStorage(path), None, name
    if path.suffix.lower() == ".zip":
        return ZipStorage(path), None, name
    return LocalStorage(path.parent, only=path.name), path.name, name


def source_kind(storage: Readable, path: str, *, frames: bool) -> str:
    """Return the kind of a source file. ``frames``: an animation is a kind of its own."""
    whole = (lambda: read_bytes(storage, path, _read_image_file)) if frames else None
    return detect_kind(path, lambda: read_bytes(storage, path), whole)


def read_bytes(storage: Readable, path: str, read: Callable[[BinaryIO], bytes] = read_head) -> bytes:
    """Return bytes of a file, or nothing if it cannot be read."""
    try:
        return read(storage.open(path))
    except (ImageError, OSError):
        return b""


def _read_image_file(file: BinaryIO) -> bytes:
    with file:
        return read_whole(file)
