"""The file of ``--report``: the content of --json, on disk for whoever looks later."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from ldp_slicing.cli.common import Arguments, refusal, to_json
from ldp_slicing.errors import LdpSlicingError, Reason, ReleaseError
from ldp_slicing.files import try_to_create_in, write_atomically
from ldp_slicing.sets import check_outside_sets
from ldp_slicing.storage import is_remote

_MOST_BYTES = 1 << 30


def check_report(path: Path, target: str) -> None:
    """Refuse a place in the target, which is handed on, or that cannot be written to, and a file that is no report."""
    if not is_remote(target) and _is_below(path, Path(target)):
        raise ReleaseError(
            f"{path} would lie in {target}, which is handed on, and names sources: keep it elsewhere", Reason.OVERLAP
        )
    check_outside_sets(path)
    if not path.parent.is_dir():
        raise ReleaseError(f"{path} cannot be written: there is no folder {path.parent}", Reason.REPORT)
    if path.exists() and not _is_report(path):
        raise ReleaseError(
            f"{path} is not a report of this command, and is not overwritten: choose another name", Reason.REPORT
        )
    try:
        try_to_create_in(path.parent)
    except OSError as error:
        raise ReleaseError(f"{path} cannot be written: {error.strerror}", Reason.REPORT) from None


def _is_below(path: Path, folder: Path) -> bool:
    """Return whether a file of this path lies in the folder: a link is replaced by it, not followed."""
    whole = folder.resolve()
    return path.parent.resolve() == whole or whole in path.parent.resolve().parents


def _is_report(path: Path) -> bool:
    try:
        found = json.loads(path.read_bytes()) if path.is_file() and path.stat().st_size < _MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("command") == "privatize" and "version" in found


def refusals_reported(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Write the refusals of a command to its --report, too."""

    @wraps(command)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except LdpSlicingError as error:
            if isinstance(path := kwargs.get("report"), Path):
                with suppress(LdpSlicingError):  # it may be the report that was refused
                    write_report(path, str(kwargs.get("target")), refusal(command.__name__, error))
            raise

    return wrapped


def write_report(path: Path, target: str, content: dict[str, Any]) -> None:
    """Write a report. The report of an earlier run of the command is replaced."""
    check_report(path, target)
    try:
        write_atomically(path, [to_json(content).encode() + b"\n"])
    except OSError as error:
        raise ReleaseError(f"{path} cannot be written: {error.strerror}", Reason.REPORT) from None
