"""One release of each image of a task, kept in files: a task that is resumed must not release its images again."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.files import atomic_path
from ldp_slicing.lab.data.sets import Split, hold_out, image_digest
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.slicer import Slicer

Splits = tuple[Split, Split, Split]  # training, validation and test images


def release_splits(task: TrainingTask) -> Splits:
    """The task's splits as the learner gets them: with "once" one new release of each image, otherwise the images."""
    train, validation = hold_out(task.data.train, task.validation, task.seed)
    train, validation, test = (
        Split(release_images(task, split.images), split.labels) for split in (train, validation, task.data.test)
    )
    return train, validation, test


def release_images(task: TrainingTask, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8 [N, H, W, C] to the same: with "once" a new release of each image, otherwise the images."""
    if task.release != "once" or task.plan is None:
        return images
    return np.asarray(Slicer(task.plan, prune=task.prune)(images), np.uint8)


def stored_splits(task: TrainingTask, folder: Path) -> Splits:
    """The task's splits. With "once" the releases are read from ``folder`` if they are there, and stored there if not."""
    if task.release != "once":
        return release_splits(task)
    path = task_file(task, folder, "releases.npz")
    with FileLock(path.with_suffix(".lock"), mode=0o666):  # a second process waits and reads what the first one stored
        if not path.is_file():
            made = release_splits(task)
            _store(
                path,
                {f"{kind}{i}": getattr(split, kind) for i, split in enumerate(made) for kind in ("images", "labels")},
            )
            return made
    stored = read_releases(path, *(f"{kind}{i}" for i in range(3) for kind in ("images", "labels")))
    train, validation, test = (Split(stored[f"images{i}"], stored[f"labels{i}"]) for i in range(3))
    return train, validation, test


def stored_images(task: TrainingTask, images: NDArray[np.uint8], path: Path) -> NDArray[np.uint8]:
    """``release_images``, stored in the file ``path`` by the digest of the source: no image is released twice."""
    if task.release != "once":
        return release_images(task, images)
    known = read_releases(path) if path.is_file() else {}
    names = [image_digest(image) for image in images]
    missing = {name: i for i, name in enumerate(names) if name not in known}
    if missing:
        known |= zip(missing, release_images(task, images[list(missing.values())]), strict=True)
        _store(path, known)
    return np.stack([known[name] for name in names])


def read_releases(path: Path, *names: str) -> dict[str, Any]:
    """All arrays of a file of releases. A damaged file, or one without the arrays ``names``, is refused."""
    try:
        with path.open("rb") as file, np.load(file) as stored:
            found = dict(stored)
        if missing := {*names} - {*found}:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise LdpSlicingError(
            f"{path} is damaged, and its releases cannot be made again without spending again: {error}"
        ) from None
    return found


def task_file(task: TrainingTask, folder: Path, suffix: str, *more: object) -> Path:
    """A file name that depends on the task's plan, view and images, and on ``more``."""
    described = repr((task.plan, task.prune, task.validation, task.data.digest, *more))
    return folder / f"{task.name}-{task.seed}-{hashlib.sha256(described.encode()).hexdigest()[:12]}.{suffix}"


def _store(path: Path, arrays: dict[str, Any]) -> None:
    with atomic_path(path) as temporary:
        np.savez(temporary, **arrays)
