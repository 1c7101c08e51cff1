"""A face recogniser trained on releases of a set of people, and verified on releases of the InsightFace sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ldp_slicing.errors import DataError, LdpSlicingError
from ldp_slicing.lab.data.face_pairs import decode_faces, read_bin
from ldp_slicing.lab.data.folders import list_images, read_folder, read_release_info
from ldp_slicing.lab.data.sets import ImageSet, Split, image_digest
from ldp_slicing.lab.learners.accounting import epsilon_per_source
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.releases import stored_images
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import ReleaseMode, TrainingTask
from ldp_slicing.lab.metrics.verification import fold_accuracy, squared_distances
from ldp_slicing.lab.rows import Metrics, Row
from ldp_slicing.lab.train_command import changed, plan_of
from ldp_slicing.plan import PAPER_WEIGHTS
from ldp_slicing.torch.store import read_release_file
from ldp_slicing.view import Prune

FOLDS = 10  # of a verification set


def open_people(name: str, data: Path) -> ImageSet:
    """``data/NAME/PERSON/*``: 112 x 112 faces, one folder per person."""
    if read_release_info(list_images(data / name), grey=False):
        raise DataError(
            f"{data / name} holds releases: a recogniser is trained here on sources, each of which it releases first"
        )
    split, people = read_folder(data / name)
    if split.images.shape[1:3] != (112, 112):
        raise DataError(
            f"{data / name} holds images of {split.images.shape[2]} x {split.images.shape[1]}; faces are aligned to 112 x 112"
        )
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
    """A task from what was asked for. The last epoch is kept: there is nothing in the training set to choose another by."""
    how = recipe(recipe_name)
    if how.loss != "arcface":
        raise LdpSlicingError(
            f"the recipe {how.name!r} does not train a recogniser; faces-paper, faces-authors and faces-arcface do"
        )
    plan = plan_of(people, epsilon, weights, slices) if release in ("once", "every-epoch") else None
    how = replace(changed(how, epochs=epochs), look_every=1)
    return TrainingTask("run", people, how, plan, prune, release, seed, weights=start)


def verifier(sets: Sequence[Path], folder: Path) -> Callable[[TrainingRun, Row], Row]:
    """What a finished run is judged by, and what the most that a source has spent is then; its releases are kept in ``folder``.

    The sets are read before the training begins, so that a wrong one is refused in time.
    """
    read = [(path.stem, *read_bin(path)) for path in sets]
    for path, (_, _, answers) in zip(sets, read, strict=True):
        if len(answers) < FOLDS:
            raise DataError(f"{path} holds {len(answers)} pairs, of which {FOLDS} folds cannot be made")
    faces = list(
        dict.fromkeys(face for _, encoded, _ in read for face in encoded)
    )  # in several pairs or sets, and released once
    places, images = {face: i for i, face in enumerate(faces)}, decode_faces(faces)
    kept = folder / "verification.npz"

    def judge(run: TrainingRun, row: Row) -> Row:
        found = _verify(run) if faces else []
        fresh = (
            [] if run.task.release == "once" else map(image_digest, images)
        )  # the others are kept, those of earlier calls, too
        spent = epsilon_per_source(run.task, [*fresh, *_kept_in(kept)])
        return replace(row, metrics={"verification": found}, epsilon_spent=spent)

    def _verify(run: TrainingRun) -> list[Metrics]:
        inputs = run.inputs
        stored = torch.from_numpy(stored_images(run.task, images, kept)).to(run.device)
        prepared = inputs.prepare(stored).permute(0, 3, 1, 2)
        released = torch.cat([inputs.noise(part) for part in torch.split(prepared, 256)])
        embedded, found = embed(run.model, released, prepare=inputs.normalise, batch=256), list[Metrics]()
        for name, encoded, same in read:
            mine = embedded[[places[face] for face in encoded]]
            verified = fold_accuracy(squared_distances(mine[0::2], mine[1::2]), same, FOLDS)
            found.append(
                {
                    "set": name,
                    "accuracy": verified.accuracy,
                    "standard_error": verified.standard_error,
                    "pairs": len(same),
                }
            )
        return found

    return judge


def _kept_in(path: Path) -> list[str]:
    """Digests of the pictures whose releases are kept there."""
    return [*read_release_file(path)] if path.is_file() else []
