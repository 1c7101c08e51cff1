"""What the experiments on LFW share: two-way cross-fitting and the pretrained recogniser that networks start from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ldp_slicing.files import atomic_path
from ldp_slicing.lab.attacks.recognition import WEIGHTS, load_recogniser
from ldp_slicing.lab.data.lfw import FaceSet, Side, images_in_pairs
from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.experiment import ExperimentContext
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.learners.models.face_networks import DlibOfCrop

STATISTICS = 256  # public images, at least, that batch-norm statistics are computed from


@dataclass(frozen=True)
class Teacher:
    """The pretrained recogniser for one side. Its mean and its batch-norm statistics come from the public images alone.

    embeddings: float32 [N, 128] of all sources, minus the mean. mean: float32 [128]. weights: initial state dict.
    origin: names what these were computed from.
    """

    embeddings: NDArray[np.float32]
    mean: NDArray[np.float32]
    weights: Path
    origin: str


def load_teachers(
    faces: FaceSet, halves: tuple[Side, Side], context: ExperimentContext
) -> dict[tuple[int, ...], Teacher]:
    """dlib's recogniser for each side, by its folds."""
    images = torch.from_numpy(faces.images).permute(0, 3, 1, 2)
    recogniser = load_recogniser(context.data, context.device)
    embeddings = embed(recogniser, images, prepare=lambda x: x.float(), batch=256).numpy()
    contents = (faces.images.tobytes(), (context.data / WEIGHTS).read_bytes())
    origin = "-".join(hashlib.sha256(content).hexdigest()[:16] for content in contents)
    context.work.mkdir(parents=True, exist_ok=True)
    teachers = {}
    for side in halves:
        network, mean = load_recogniser(context.data, context.device), embeddings[side.images].mean(0)
        weights = context.work / f"start-{origin}-{side.folds[0]}.pt"
        if isinstance(network, DlibOfCrop):
            network.unfold(images[side.images[:: max(1, len(side.images) // STATISTICS)]])
        with atomic_path(weights) as temporary:
            torch.save(network.state_dict(), temporary)
        teachers[side.folds] = Teacher(embeddings - mean, mean, weights, f"{origin}, folds {side.folds}")
    return teachers


def people_of(faces: FaceSet, side: Side) -> ImageSet:
    """Training images: people in no pair of the side. Test images: those in its pairs."""
    tested = images_in_pairs(faces, side)
    test = Split(faces.images[tested], np.zeros(len(tested), np.int64))
    return ImageSet("lfw", side.classes, Split(faces.images[side.images], side.people), test)


def people_with_several(side: Side) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """int64 [K] twice: the positions of those training images whose person has another one, and the people from 0.

    A person with one image cannot be linked.
    """
    several = np.flatnonzero(np.bincount(side.people)[side.people] > 1)
    return several, np.unique(side.people[several], return_inverse=True)[1]


def pairs_of(faces: FaceSet, side: Side) -> NDArray[np.int64]:
    """int64 [M, 3]: first image, second image, 1 if they show one person. Positions are among ``images_in_pairs``."""
    mine, tested = faces.tested(side.folds), images_in_pairs(faces, side)
    first, second = (
        np.searchsorted(tested, faces.of(people)[mine]) for people in (faces.pairs.first, faces.pairs.second)
    )
    return np.stack((first, second, faces.pairs.same[mine].astype(np.int64)), 1)
