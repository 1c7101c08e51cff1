"""The description of one network to train: on which images, released how, by which recipe."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.data.sets import ImageSet
from ldp_slicing.lab.learners.recipes import Recipe
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

ReleaseMode = Literal["none", "view", "once", "every-epoch", "existing"]
InputMode = Literal["raw", "decoded", "reconstructed", "reconstructed-public"]


@dataclass(frozen=True)
class TrainingTask:
    """One network to train. It only describes: ``releases`` makes the releases, ``accounting`` counts what they cost.

    release:
        "none" trains on sources and "view" on the view without noise; neither is private.
        "once" trains on one release of each image, made by the secure engine before training begins.
        "existing" trains on releases that somebody else made, with the plan on their card.
        "every-epoch" draws new noise for every batch, as the paper's authors do: one release of each image per epoch.
        Only public images may be reconstructed then, see ``pretraining``; they are released in every fifth epoch.
    mode: how the releases are processed before training; all but "raw" need "once" or "existing".
        "raw" leaves them as they are. "decoded" computes expected values (``ldp_slicing.torch.Decoder``).
        "reconstructed" computes them with a network that is trained on the releases alone
        (``ldp_slicing.torch.Reconstructor``); "reconstructed-public" trains this network on simulated releases of
        ``public``, other images than the task's.
    validation: the number of training images held out to choose the epoch; 0 keeps the last epoch.
        The test set never chooses anything.
    targets: float32 [N, D], one row per training image, for the loss "teacher".
    weights: a file with the initial weights.
    started_from: names what weights and targets were computed from, if they were: a GPU may compute them slightly
        differently the next time, and the network is still the same one.
    pairs: int64 [M, 3] for the loss "pairs": released test image, public test image, 1 if they show the same class.
    plans: for the loss "source": the plans under which the adversary releases images of its own.
    size: for the loss "source": the longest side to which images are shrunk before the noise.
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
    started_from: str = ""
    pairs: NDArray[np.int64] | None = None
    plans: tuple[Plan, ...] = ()
    mode: InputMode = "raw"
    public: ImageSet | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        def refuse(problem: str) -> None:
            raise LdpSlicingError(f"task {self.name!r}: {problem}")

        if (self.plan is None) != (self.release in ("none", "view")):
            refuse(f"release={self.release!r} cannot be combined with plan={self.plan!r}")
        if (self.data.release_info is not None) != (self.release == "existing"):
            refuse(f"release={self.release!r}, but {self.data.name} holds {self.data.holds}")
        if self.mode != "raw" and self.release not in ("once", "existing") and not self.is_pretraining:
            refuse(f"only images that were released once can be {self.mode}; got release={self.release!r}")
        if (self.public is not None) != (self.mode == "reconstructed-public"):
            refuse(f"'reconstructed-public' needs public images, no other mode takes them; got the mode {self.mode!r}")
        if self.public is not None and self.public.release_info is not None:
            refuse(f"{self.public.name} holds releases; public images must be unprotected")
        needed = {"targets": "teacher", "pairs": "pairs", "plans": "source"}
        present = {
            "targets": self.targets is not None,
            "pairs": self.pairs is not None,
            "plans": bool(self.plans),
        }
        if self.size is not None and self.recipe.loss != "source":
            refuse(f"only the loss 'source' knows a size; got the loss {self.recipe.loss!r}")
        for name, loss in needed.items():
            if present[name] != (self.recipe.loss == loss):
                refuse(f"{name} belong to the loss {loss!r}, and only to it; got the loss {self.recipe.loss!r}")

    @property
    def beside_decoded(self) -> bool:
        """Whether the network takes decoded channels beside reconstructed ones."""
        return self.recipe.beside_decoded and self.mode in ("reconstructed", "reconstructed-public")

    @property
    def is_pretraining(self) -> bool:
        """Whether the images to learn from are the public ones, which may be released as often as one likes."""
        return self.public is self.data and self.release == "every-epoch"

    @property
    def pretraining(self) -> TrainingTask | None:
        """The task whose network this one starts from, if any: to classify new releases of the public images."""
        how, public, plan = self.recipe, self.public, self.plan
        if not how.pretrain_epochs or public is None or plan is None or public.classes < 2:
            return None
        how = replace(how.lasting(how.pretrain_epochs), name="pretraining", pretrain_epochs=0)
        name = f"pretraining-{public.name}-eps{plan.epsilon:g}"  # the same for all seeds, which share the network
        return TrainingTask(name, public, how, plan, self.prune, "every-epoch", mode=self.mode, public=public)

    @property
    def held_out_by(self) -> Literal["group", "image"] | None:
        """The unit that is held out for validation; None if nothing is held out."""
        if not self.validation:
            return None
        return "image" if self.data.train.groups is None else "group"

    @cached_property
    def start_digest(self) -> str:
        """A digest of initial weights, targets, pairs and public images, or of ``started_from``; empty without any."""
        if self.started_from:
            parts = [self.started_from.encode()]
        else:
            parts = [] if self.weights is None else [self.weights.read_bytes()]
            parts += [array.tobytes() for array in (self.targets, self.pairs) if array is not None]
            parts += [] if self.public is None else [self.public.digest.encode()]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(hashlib.sha256(part).digest())
        return digest.hexdigest()[:32] if parts else ""

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.seed
