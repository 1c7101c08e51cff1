"""What the tests of a release share: files, a run in this process, and the look at what came out."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.keys import Secret, read_key_file, source_digest
from ldp_slicing.ledger import Ledger, Spent, default_ledger
from ldp_slicing.manifest import CARD_NAME, MANIFEST_NAME
from ldp_slicing.release.inventory import prepare
from ldp_slicing.release.run import on_this_machine
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.worker import Outcome
from ldp_slicing.storage import PARTIAL, LocalStorage
from ldp_slicing.verify import verify
from tests.markers import encoded, picture

SETTINGS = ReleaseSettings(epsilon=5.0)
PNG = encoded(picture(9, 7), "PNG")
SECRET = b"the-secret-marker"
BESIDE = [CARD_NAME, MANIFEST_NAME]


def plant(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def pictures(count: int, height: int = 9, width: int = 7) -> dict[str, bytes]:
    """So many different ones."""
    base = picture(height, width)
    return {f"{i:05}.png": encoded(base + np.uint8(i % 256) ^ np.uint8(i // 256), "PNG") for i in range(count)}


@dataclass
class Ran:
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    copies: list[str] = field(default_factory=list)
    complete: bool = False
    stopped: bool = False
    card_problem: str | None = None
    kept: int = 0


def release(
    source: Path,
    target: Path,
    settings: ReleaseSettings = SETTINGS,
    *,
    workers: int = 1,
    after: int | None = None,
    **options: Any,
) -> Ran:
    """A whole run in this process; ``after`` so many files it is asked to stop."""
    ran = Ran()
    job = prepare(source, target, settings, **options)
    ran.kept = job.kept

    def stop() -> bool:
        return after is not None and len(ran.outcomes) >= after

    for outcome in job.run(on_this_machine(workers), stop):
        if not outcome.stopped:
            ran.outcomes[outcome.task.path] = outcome
    ran.problems, ran.copies = dict(job.journal.problems()), list(job.journal.copies())
    ran.complete, ran.stopped, ran.card_problem = job.complete, job.stopped, job.card_problem
    job.close()
    return ran


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def outputs(folder: Path) -> dict[str, bytes]:
    """What has its name; drafts come and go."""
    named = (name for name in tree(folder) if name not in BESIDE and not name.startswith(f"{PARTIAL}/"))
    return {name: (folder / name).read_bytes() for name in named}


def card_of(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / CARD_NAME).read_text())
    return card


def on_card(folder: Path) -> int:
    return sum(statement["releases"] for statement in card_of(folder)["statements"])


def manifest_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / MANIFEST_NAME).read_text().splitlines()]


def pixels(path: Path) -> NDArray[np.unsignedinteger]:
    with Image.open(io.BytesIO(path.read_bytes())) as image:
        return np.asarray(image)


def spent(path: Path | None = None) -> Spent:
    ledger = Ledger(path or default_ledger(), must_exist=True)
    total = ledger.total()
    ledger.close()
    return total


def verified(folder: Path) -> list[tuple[str, str]]:
    return verify(LocalStorage(folder)).problems


def snapshot(folder: Path, wanted: Callable[[Path], bool] = lambda path: True) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and wanted(path)}


def expected(
    path: str, entry: str, pixels: NDArray[Any], bits: int, key: Path, *, settings: ReleaseSettings = SETTINGS
) -> NDArray[Any]:
    """What a run under an owner's key must release for these pixels."""
    slicer, secret = settings.slicer(bits), Secret(read_key_file(key), is_owners=True)
    name = f"{path}\0{entry}".encode()
    digest = source_digest(pixels, 8 if bits == 24 else bits)
    return slicer(pixels, key=secret.image_key(name, digest, slicer.plan, slicer.prune))
