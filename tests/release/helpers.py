"""Helpers for the tests of a release: source files, a run in this process, and readers of what it wrote."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.digests import source_digest
from ldp_slicing.keys import Secret, read_key_file
from ldp_slicing.ledger import Ledger, Spent, default_ledger
from ldp_slicing.release import records
from ldp_slicing.release.opening import prepare
from ldp_slicing.release.report import FileReport, FileState
from ldp_slicing.release.run import on_this_machine
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.sets import CARD_NAME, MANIFEST_NAME
from ldp_slicing.storage import PARTIAL, LocalStorage
from ldp_slicing.verify import verify
from tests.markers import encoded, gradient

SETTINGS = ReleaseSettings(epsilon=5.0)
PNG = encoded(gradient(9, 7), "PNG")
SECRET = b"the-secret-marker"
BESIDE = [CARD_NAME, MANIFEST_NAME]


def plant(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def small_images(count: int, height: int = 9, width: int = 7) -> dict[str, bytes]:
    """Return ``count`` different small images."""
    base = gradient(height, width)
    return {f"{i:05}.png": encoded(base + np.uint8(i % 256) ^ np.uint8(i // 256), "PNG") for i in range(count)}


@dataclass
class Ran:
    reports: dict[str, FileReport] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    copies: list[str] = field(default_factory=list)
    complete: bool = False
    stopped: bool = False
    card_problem: str | None = None
    kept: int = 0


def release(
    source: Path | Sequence[Path],
    target: Path,
    settings: ReleaseSettings = SETTINGS,
    *,
    workers: int = 1,
    after: int | None = None,
    **options: Any,
) -> Ran:
    """Do a whole run in this process. It is asked to stop after ``after`` files."""
    ran = Ran()
    run = prepare(source, target, settings, **options)
    ran.kept = run.inventory.kept

    def stop() -> bool:
        return after is not None and len(ran.reports) >= after

    for report in run.run(on_this_machine(workers), stop):
        if report.state is not FileState.WAITING:
            ran.reports[report.task.path] = report
    ran.problems = {one.source: one.problem for one in records.problems(run.state)}
    ran.copies = list(records.copies(run.state))
    ran.complete, ran.stopped, ran.card_problem = run.result.complete, run.stopped, run.result.problem
    run.close()
    return ran


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def outputs(folder: Path) -> dict[str, bytes]:
    """Return the outputs by name, without temporary files, card and manifest."""
    named = (name for name in tree(folder) if name not in BESIDE and not name.startswith(f"{PARTIAL}/"))
    return {name: (folder / name).read_bytes() for name in named}


def card_of(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / CARD_NAME).read_text())
    return card


def write_card(folder: Path, content: dict[str, Any]) -> None:
    """Write a card that somebody changed, in the form in which this software writes cards."""
    (folder / CARD_NAME).write_text(json.dumps(content, indent=2) + "\n")


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
    """Return what a run under an owner's key must release for these pixels."""
    slicer, secret = settings.slicer(bits), Secret(read_key_file(key), is_owners=True)
    name = f"{path}\0{entry}".encode()
    digest = source_digest(pixels, 8 if bits == 24 else bits)
    shrinking = slicer.shrinking(*pixels.shape[:2])
    return slicer(pixels, key=secret.image_key(name, digest, slicer.plan, slicer.prune, shrinking))
