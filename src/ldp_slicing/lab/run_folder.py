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

# Parameters of a run as its user knows them; all others are options of the same name.
OPTIONS = {
    "source": "the sources",
    "data": "the set",
    "attack": "the attack",
    "most_images": "--images",
    "learning_rate": "--lr",
}
OTHERS = {  # whose values would not tell the user anything
    "images": "images",
    "start": "initial weights or public images",
    "plan": "--slices or --weights",
    "validation": "held-out images (--validation)",
}


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
    differs = [name for name, value in parameters.items() if begun.get(name) != value]
    if differs:
        raise begun_otherwise(folder, begun, parameters, differs[:1])  # the others often follow from it


def begun_otherwise(
    folder: Path, begun: dict[str, Any], parameters: dict[str, Any], differs: list[str]
) -> LdpSlicingError:
    """The error for a folder that was begun with other values of the parameters ``differs``."""
    for name in differs:
        if name in OTHERS:
            return LdpSlicingError(f"{folder} was begun with other {OTHERS[name]}: name another --out")
    before, now = (
        " and ".join(_as_option(name, values.get(name)) for name in differs) for values in (begun, parameters)
    )
    return LdpSlicingError(
        f"{folder} was begun {before}, and this command is {now}: to continue, use the options that it was begun with; "
        "to use others, name another --out"
    )


def _as_option(name: str, value: Any) -> str:  # noqa: ANN401 - JSON values
    """Return a parameter of a run as its user knows it: "with --epsilons 2.4,12", or "without --epsilons"."""
    option = OPTIONS.get(name, f"--{name}")
    if name == "prune" and value is None:
        return f"with {option} none"
    if value is None or value == []:
        return f"without {option}"
    values = value if isinstance(value, list) else [value]
    texts = [f"{one:g}" if isinstance(one, float) else str(one) for one in values]
    return f"with {option} {','.join(texts)}"


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
