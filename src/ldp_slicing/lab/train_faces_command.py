"""`lab train-faces`: a face recogniser trained on releases, and verified on releases of the InsightFace sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ldp_slicing.errors import DataError, LdpSlicingError
from ldp_slicing.lab.data.face_sets import SIDE, open_face_set
from ldp_slicing.lab.data.folders import list_images, read_folder, read_release_info
from ldp_slicing.lab.data.sets import ImageSet, Split, image_digest
from ldp_slicing.lab.learners.accounting import epsilon_per_source
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.learners.recipes import recipe, recipes_for
from ldp_slicing.lab.learners.releases import stored_images
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import ReleaseMode, TrainingTask
from ldp_slicing.lab.metrics.verification import fold_accuracy, squared_distances
from ldp_slicing.lab.rows import Metrics, Row
from ldp_slicing.lab.train_command import Measure, plan_for_set, with_overrides
from ldp_slicing.plan import PAPER_WEIGHTS
from ldp_slicing.torch.store import read_release_file
from ldp_slicing.view import Prune

BATCH = 256


def open_people(name: str, data: Path) -> ImageSet:
    """Load ``data/NAME/PERSON/*``: sources of 112 x 112, one folder per person."""
    root = data / name
    if read_release_info(list_images(root), grey=False):
        raise DataError(f"{root} holds releases: name a folder of sources, each of which is released here")
    split, people = read_folder(root)
    height, width = split.images.shape[1:3]
    if (height, width) != (SIDE, SIDE):
        raise DataError(f"{root} holds images of {width} x {height}: faces must be aligned to {SIDE} x {SIDE}")
    return ImageSet(name, len(people), split, Split(split.images[:0], split.labels[:0]))


def make_face_task(
    people: ImageSet,
    *,
    epsilon: float,
    weights: tuple[float, float, float] = PAPER_WEIGHTS,
    slices: str | None = None,
    prune: Prune = "haar",
    release: ReleaseMode = "once",
    recipe_name: str = "faces-paper",
    start: Path | None = None,
    epochs: int | None = None,
    seed: int = 0,
) -> TrainingTask:
    """The task that the options describe. The last epoch is kept: nothing in the training set could choose another."""
    chosen = recipe(recipe_name)
    if chosen.loss != "arcface":
        available = ", ".join(recipes_for("arcface"))
        raise LdpSlicingError(f"the recipe {chosen.name!r} does not train a recogniser; available: {available}")
    plan = plan_for_set(people, epsilon, weights, slices) if release in ("once", "every-epoch") else None
    chosen = replace(with_overrides(chosen, epochs=epochs), look_every=1)
    return TrainingTask("run", people, chosen, plan, prune, release, seed, weights=start)


def verification_on(paths: Sequence[Path], folder: Path) -> Measure:
    """Measure verification accuracy on these sets, and count their releases, which are stored in ``folder``.

    The sets are read now, so that a wrong one is refused before training begins.
    """
    sets = [open_face_set(path) for path in paths]
    every = np.concatenate([np.empty((0, SIDE, SIDE, 3), np.uint8), *(one.images for one in sets)])
    starts = np.cumsum([0, *(len(one.images) for one in sets)])
    # a face that is in several sets is released once
    chosen, where = np.unique([image_digest(face) for face in every], return_index=True, return_inverse=True)[1:]
    images = every[chosen]
    store = folder / "verification.npz"

    def measure(run: TrainingRun, row: Row) -> Row:
        found = verify(run) if len(images) else []
        also_released = [*read_release_file(store)] if store.is_file() else []  # those of earlier calls too
        if run.task.release != "once":
            also_released += map(image_digest, images)
        spent = epsilon_per_source(run.task, also_released)
        return replace(row, metrics={"verification": found}, epsilon_spent=spent)

    def verify(run: TrainingRun) -> list[Metrics]:
        inputs = run.inputs
        stored = torch.from_numpy(stored_images(run.task, images, store)).to(run.device)
        prepared = inputs.prepare(stored).permute(0, 3, 1, 2)
        released = torch.cat([inputs.noise(part) for part in torch.split(prepared, BATCH)])
        embeddings = embed(run.model, released, prepare=inputs.normalise, batch=BATCH)
        found = list[Metrics]()
        for one, start in zip(sets, starts, strict=False):
            first, second = (embeddings[where[start + part]] for part in (one.pairs.first, one.pairs.second))
            verified = fold_accuracy(squared_distances(first, second), one.pairs.same, one.pairs.folds)
            scores = {"accuracy": verified.accuracy, "standard_error": verified.standard_error}
            found.append({"set": one.name, **scores, "pairs": len(one.pairs.same)})
        return found

    return measure
