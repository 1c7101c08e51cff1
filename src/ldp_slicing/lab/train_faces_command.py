"""`lab train-faces`: a face recogniser trained on releases, and verified on releases of the InsightFace sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ldp_slicing.errors import DataError, LdpSlicingError
from ldp_slicing.lab.data.face_pairs import decode_faces, read_bin
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

FOLDS = 10  # of a verification set
SIDE = 112  # of an aligned face, in pixels
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
    sets = [(path.stem, *read_bin(path)) for path in paths]
    for path, (_, _, answers) in zip(paths, sets, strict=True):
        if len(answers) < FOLDS:
            raise DataError(f"{path} holds {len(answers)} pairs, which is too few for {FOLDS} folds")
    faces = list(dict.fromkeys(face for _, encoded, _ in sets for face in encoded))  # each is released once
    positions, images = {face: i for i, face in enumerate(faces)}, decode_faces(faces)
    store = folder / "verification.npz"

    def measure(run: TrainingRun, row: Row) -> Row:
        found = verify(run) if faces else []
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
        for name, encoded, same in sets:
            pairs = embeddings[[positions[face] for face in encoded]]
            verified = fold_accuracy(squared_distances(pairs[0::2], pairs[1::2]), same, FOLDS)
            scores = {"accuracy": verified.accuracy, "standard_error": verified.standard_error, "pairs": len(same)}
            found.append({"set": name, **scores})
        return found

    return measure
