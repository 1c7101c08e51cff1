"""Who is on a reconstruction: a recogniser that never saw one compares it with other, original photos of the same people."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
    """The pairs of one half of LFW's folds. The first photo of each is attacked, the second is an original that the adversary has.

    attacked: int64 [M], the images that are first in some pair. first: int64 [P], where each pair's first photo is among them.
    second: float32 [P, D], embeddings of the second photos. originals: float32 [M, D], of the attacked ones as they were.
    probes: int64 [Q], for each person with a pair of their own, which pair it is: the gallery holds its second photo.
    radius: below this squared distance the recogniser takes two originals for one person, the mean over the folds.
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

    def judge(self, images: Tensor) -> dict[str, object]:
        """[M, 3, 112, 112] of 0..255, what was made of the attacked photos, to what is recognised on them."""
        seen = embed(self.model, images, prepare=lambda x: x.float(), batch=BATCH)
        apart = squared_distances(seen, self.originals)
        found = fold_accuracy(squared_distances(seen[self.first], self.second), self.same, self.folds)
        return {
            "rank_1": rank_1(seen[self.first[self.probes]], self.second[self.probes]).row(),
            "gallery": len(self.probes),
            "verification": {
                "accuracy": found.accuracy,
                "standard_error": found.standard_error,
                "pairs": len(self.same),
            },
            "perceptual_distance": float(apart.mean())
            / 2,  # half the squared distance of vectors of length 1 is the cosine distance
            "same_person": share_within(apart, self.radius).row() | {"radius": self.radius},
        }


def rank_1(probes: Tensor, gallery: Tensor) -> Share:
    """Two [Q, D] of length 1, row i of both of person i, to how many probes are nearest to their own photo in the gallery.

    A tie counts as a miss: a recogniser that sees the same in everything recognises nobody.
    """
    alike = probes.double() @ gallery.double().T
    own = alike.diagonal().clone()
    alike.fill_diagonal_(-torch.inf)
    return Share(int((own > alike.max(1).values).sum()), len(probes))


def load_recogniser(folder: Path, device: torch.device) -> nn.Module:
    """dlib's network as it comes."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise DataError(f"{path} is not there: the Python package face_recognition_models (CC0) carries it")
    model, _ = build_embedder("dlib")
    load_weights(model, path)
    return model.to(device)


def on_pairs(model: nn.Module, faces: FaceSet, side: Side) -> RecognitionMetric:
    """The recogniser on the pairs of a side, whose people are not in ``side.images``."""
    pairs, tested = faces.pairs, faces.tested(side.folds)
    firsts, seconds = faces.of(pairs.first)[tested], faces.of(pairs.second)[tested]
    same, folds = pairs.same[tested], pairs.folds[tested]
    attacked, first = np.unique(firsts, return_inverse=True)
    probes = dict[str, int]()  # the first pair of each person's own
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
