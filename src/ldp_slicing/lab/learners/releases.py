"""One release of each image of a task, kept in files: a task that is resumed must not release its images again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.lab.data.sets import Split, hold_out, image_digest
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.slicer import Slicer
from ldp_slicing.torch.store import release_once

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
    """The task's splits. With "once" the releases are read from ``folder``, or made and stored there."""
    if task.release != "once":
        return release_splits(task)
    names = [f"{kind}{i}" for i in range(3) for kind in ("images", "labels")]

    def release(missing: list[int]) -> list[NDArray[Any]]:
        return [array for split in release_splits(task) for array in (split.images, split.labels)]

    stored = release_once(task_file(task, folder, "releases.npz"), names, release)
    train, validation, test = (Split(images, labels) for images, labels in zip(stored[::2], stored[1::2], strict=True))
    return train, validation, test


def stored_images(task: TrainingTask, images: NDArray[np.uint8], path: Path) -> NDArray[np.uint8]:
    """``release_images``, stored in the file ``path`` by the digest of the source: no image is released twice."""
    if task.release != "once":
        return release_images(task, images)
    names = [image_digest(image) for image in images]
    return np.stack(release_once(path, names, lambda new: release_images(task, images[new]), extend=True))


def task_file(task: TrainingTask, folder: Path, suffix: str, *more: object) -> Path:
    """A file name that depends on the task's plan, view and images, and on ``more``."""
    described = (task.plan, task.prune, task.validation, task.data.digest, *more)
    return described_file(folder, f"{task.name}-{task.seed}", suffix, *described)


def described_file(folder: Path, name: str, suffix: str, *described: object) -> Path:
    """A file name that depends on everything in ``described``."""
    return folder / f"{name}-{hashlib.sha256(repr(described).encode()).hexdigest()[:12]}.{suffix}"
