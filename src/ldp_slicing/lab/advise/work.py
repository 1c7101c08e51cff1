"""The work folder: what was measured so far, so that a run can be stopped and resumed. It belongs to the owner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.files import OWNERS_NOTE, make_folder, write_atomically
from ldp_slicing.lab.run_folder import begun_otherwise, bind_folder, lock_folder, unbind_folder

RECORDS = "records.jsonl"
OF_IMAGES = {"images", "digest"}  # parameters that follow from the images that were read
NOTE = """This folder belongs to the owner of the sources. It contains what `ldp-slicing advise` has measured on them so
far, and samples. Do not share it. You can delete it after the last run; another run then starts from the beginning.
"""


@dataclass
class Work:
    """Records by name, each a JSON object, appended to a file as they are made."""

    folder: Path
    records: dict[str, dict[str, Any]] = field(default_factory=dict)

    def get(self, name: str) -> dict[str, Any] | None:
        return self.records.get(name)

    def put(self, name: str, content: dict[str, Any]) -> dict[str, Any]:
        self.records[name] = content
        with open(self.folder / RECORDS, "a", encoding="utf-8") as file:
            file.write("\n" + json.dumps({"name": name, "content": content}) + "\n")  # the last line may be cut off
        return content

    def sample(self, setting: str) -> Path:
        """Where the samples of a setting are kept."""
        return self.folder / f"sample {setting}.png"


def begun(folder: Path) -> dict[str, Any]:
    """The parameters with which a work folder was begun; empty if nothing was measured yet."""
    path = folder / "task.json"
    if not path.is_file() or not (folder / RECORDS).is_file():
        return {}
    return dict(json.loads(path.read_text(encoding="utf-8")))


def check_work(folder: Path, parameters: dict[str, Any]) -> None:
    """Refuse a folder of something else, and one that was begun with other parameters."""
    if folder.is_dir() and any(folder.iterdir()) and not _is_work(folder):
        raise LdpSlicingError(f"{folder} is not a work folder of `advise`: name another --out")
    differs = {name: value for name, value in begun(folder).items() if parameters.get(name) != value}
    if differs and differs.keys() <= OF_IMAGES:
        raise LdpSlicingError(f"images, labels or groups have changed since {folder} was begun: name another --out")
    if differs:
        named = [name for name in differs if name not in OF_IMAGES]
        raise begun_otherwise(folder, begun(folder), parameters, named)


def _is_work(folder: Path) -> bool:
    """Return whether a folder has the note of this command: state folders of `privatize` have another one."""
    note = folder / OWNERS_NOTE
    return note.is_file() and note.read_bytes() == NOTE.encode()


@contextmanager
def open_work(folder: Path, parameters: dict[str, Any]) -> Iterator[Work]:
    """Open the folder of this run, or begin it. Other parameters and other processes are refused."""
    check_work(folder, parameters)
    make_folder(folder)
    with lock_folder(folder):
        write_atomically(folder / OWNERS_NOTE, [NOTE.encode()])
        work, path = Work(folder), folder / RECORDS
        if not path.is_file():
            unbind_folder(folder)
        bind_folder(folder, parameters)
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
            try:
                one = json.loads(line)
                work.records[one["name"]] = one["content"]
            except (ValueError, KeyError, TypeError):
                continue  # a line that was cut off is measured again
        yield work
