"""The output folder of one run: bound to its parameters, used by one process at a time, with its result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.files import try_to_create_in
from ldp_slicing.lab.rows import Row
from ldp_slicing.sets import check_outside_sets


def check_writable(folder: Path) -> None:
    """Refuse a folder among releases, and one that cannot be created or written to: before anything is measured."""
    check_outside_sets(folder)
    whole = folder.absolute()
    try:
        try_to_create_in(next(one for one in (whole, *whole.parents) if one.exists()))
    except OSError as error:
        raise LdpSlicingError(f"cannot write to {folder} ({error.strerror or error}): name another folder") from None


def bind_folder(folder: Path, parameters: dict[str, Any]) -> None:
    """Record the parameters in ``task.json``, or refuse a folder that was begun with others."""
    path = folder / "task.json"
    check_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        path.write_text(json.dumps(parameters, indent=1) + "\n")
        return
    begun = json.loads(path.read_text())
    for name, value in parameters.items():
        if begun.get(name) != value:
            raise LdpSlicingError(
                f"{folder} was begun with {name} {begun.get(name)!r}, not {value!r}: name another folder"
            )


def unbind_folder(folder: Path) -> None:
    """Let the next run in the folder have other parameters. Releases stay: their files are named by what they show."""
    (folder / "task.json").unlink(missing_ok=True)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Refuse a second process: it would release every image again, and overwrite the checkpoints."""
    try:
        lock = FileLock(
            folder / ".lock", timeout=0, mode=0o666
        ).acquire()  # the next process may belong to another user
    except Timeout:
        raise LdpSlicingError(f"another process is using {folder}: wait for it, or name another folder") from None
    except OSError as error:
        raise LdpSlicingError(
            f"{folder} cannot be locked ({error.strerror or error}): name a folder on another disk"
        ) from None
    with lock:
        yield


def write_result(row: Row, folder: Path) -> None:
    """Write ``result.json``, without the digest of the images: it would confirm a guess of the sources."""
    shared = replace(row, training=replace(row.training, data_digest=None) if row.training else None)
    (folder / "result.json").write_text(json.dumps(shared.to_dict(), indent=1) + "\n")
