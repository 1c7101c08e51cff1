"""What the experiments on LFW share: two-way cross-fitting and the pretrained recogniser that networks start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ldp_slicing.lab.attacks.recognition import load_recogniser
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
    """

    embeddings: NDArray[np.float32]
    mean: NDArray[np.float32]
    weights: Path


def load_teachers(
    faces: FaceSet, halves: tuple[Side, Side], context: ExperimentContext
) -> dict[tuple[int, ...], Teacher]:
    """dlib's recogniser for each side, by its folds."""
    images = torch.from_numpy(faces.images).permute(0, 3, 1, 2)
    recogniser = load_recogniser(context.data, context.device)
    embeddings = embed(recogniser, images, prepare=lambda x: x.float(), batch=256).numpy()
    context.work.mkdir(parents=True, exist_ok=True)
    teachers = {}
    for side in halves:
        network, mean = load_recogniser(context.data, context.device), embeddings[side.images].mean(0)
        weights = context.work / f"start-{side.folds[0]}.pt"
        if isinstance(network, DlibOfCrop):
            network.unfold(images[side.images[:: max(1, len(side.images) // STATISTICS)]])
        torch.save(network.state_dict(), weights)
        teachers[side.folds] = Teacher(embeddings - mean, mean, weights)
    return teachers


def people_of(faces: FaceSet, side: Side) -> ImageSet:
    """Training images: people in no pair of the side. Test images: those in its pairs."""
    tested = images_in_pairs(faces, side)
    test = Split(faces.images[tested], np.zeros(len(tested), np.int64))
    return ImageSet("lfw", side.classes, Split(faces.images[side.images], side.people), test)
