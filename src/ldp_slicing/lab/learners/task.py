"""What is to be trained on what, and what that costs those who are in the training set."""

from __future__ import annotations

import hashlib
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.data.sets import ImageSet, Split, hold_out
from ldp_slicing.lab.learners.recipes import Recipe
from ldp_slicing.plan import Plan
from ldp_slicing.slicer import Slicer
from ldp_slicing.view import Prune

ReleaseMode = Literal["none", "view", "once", "every-epoch", "existing"]


@dataclass(frozen=True)
class TrainingTask:
    """One network to be trained.

    release: "none" trains on sources and "view" on the view without noise, neither private; "once" on one release of each image, made by
    the secure engine before training begins; "existing" on releases that somebody else made, with the plan of their card; "every-epoch" draws
    new noise for every batch, the authors' way: each training image is then released once per epoch.

    decode: the learner decodes the releases first, see ``ldp_slicing.torch.Decoder``; only where each image has one.
    validation: so many training images are held out to choose the epoch by; 0 keeps the last epoch. The test set chooses nothing.
    targets: float32 [N, D], one row per training image, for recipes with the loss "teacher".
    weights: a state dict to start from.
    pairs: int64 [M, 3] for the loss "pairs": test image that is released, test image that is public, whether they go together.
    plans: for the loss "source", under which the learner, an adversary, releases images of its own.
    """

    name: str
    data: ImageSet
    recipe: Recipe
    plan: Plan | None = None
    prune: Prune = "haar"
    release: ReleaseMode = "once"
    seed: int = 0
    validation: int = 0
    targets: NDArray[np.float32] | None = None
    weights: Path | None = None
    pairs: NDArray[np.int64] | None = None
    plans: tuple[Plan, ...] = ()
    decode: bool = False

    def __post_init__(self) -> None:
        if (self.plan is None) != (self.release in ("none", "view")):
            raise LdpSlicingError(f"task {self.name!r}: release={self.release!r} does not go with plan={self.plan!r}")
        if (self.data.release_info is not None) != (self.release == "existing"):
            raise LdpSlicingError(
                f"task {self.name!r}: release={self.release!r}, but {self.data.name} holds {self.data.holds}"
            )
        if self.decode and self.release not in ("once", "existing"):
            raise LdpSlicingError(
                f"task {self.name!r}: what was released once is decoded; got release={self.release!r}"
            )
        if (self.targets is None) != (self.recipe.loss != "teacher"):
            raise LdpSlicingError(f"task {self.name!r}: the loss {self.recipe.loss!r} and targets do not go together")
        if (self.pairs is None) != (self.recipe.loss != "pairs"):
            raise LdpSlicingError(f"task {self.name!r}: the loss {self.recipe.loss!r} and pairs do not go together")
        if (not self.plans) != (self.recipe.loss != "source"):
            raise LdpSlicingError(f"task {self.name!r}: the loss {self.recipe.loss!r} and plans do not go together")

    @property
    def held_out_by(self) -> Literal["group", "image"] | None:
        """What is held out whole; None where nothing is."""
        if not self.validation:
            return None
        return "image" if self.data.train.groups is None else "group"

    @cached_property
    def start_digest(self) -> str:
        """Of the weights that it starts from and of what it is taught besides labels; empty where there is neither."""
        found, given = hashlib.sha256(), [] if self.weights is None else [self.weights.read_bytes()]
        for part in (*given, *(array.tobytes() for array in (self.targets, self.pairs) if array is not None)):
            found.update(hashlib.sha256(part).digest())
        return found.hexdigest()[:32] if given or self.targets is not None or self.pairs is not None else ""

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.seed

    def epsilon_per_source(self, besides: Iterable[str] = ()) -> float | None:
        """The most that a source has cost per released pixel when training ends; equal pictures are one source.

        besides: digests of pictures that were released once more each, beside the set.
        """
        if self.plan is None:
            return None
        if self.data.release_info is not None:
            return self.data.release_info.spent
        epochs = self.recipe.epochs if self.release == "every-epoch" else 1
        times = Counter({digest: epochs * count for digest, count in self.data.times.items()})
        times.update([*besides])
        return self.plan.realised_epsilon * max(times.values(), default=1)

    def released(self) -> tuple[Split, Split, Split]:
        """Training, validation and test images as the learner gets them: of "once" the one release of each, else what the set holds."""
        train, validation = hold_out(self.data.train, self.validation, self.seed)
        train, validation, test = (
            Split(self.release_once(split.images), split.labels) for split in (train, validation, self.data.test)
        )
        return train, validation, test

    def release_once(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The one release of each with "once"; the images themselves otherwise."""
        if self.release != "once" or self.plan is None:
            return images
        return np.asarray(Slicer(self.plan, prune=self.prune)(images), np.uint8)


def read_kept(path: Path, *names: str) -> dict[str, Any]:
    """All arrays of a file of releases; those named must be there."""
    try:
        with path.open("rb") as file, np.load(file) as kept:
            found = dict(kept)
        if missing := {*names} - {*found}:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise LdpSlicingError(
            f"{path} is damaged, and its releases cannot be made again without spending again: {error}"
        ) from None
    return found
