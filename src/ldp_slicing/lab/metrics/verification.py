"""Face verification: distances of embeddings and the ten-fold protocol of LFW."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ldp_slicing.lab.data.lfw import FaceSet, Side


def squared_distances(a: Tensor, b: Tensor) -> NDArray[np.float64]:
    """Two [N, D] to float64 [N]: row by row; 0..4 for rows of length 1."""
    if a.shape != b.shape or a.ndim != 2:
        raise ValueError(f"embeddings of shapes {tuple(a.shape)} and {tuple(b.shape)} do not pair up as [N, D]")
    distances: NDArray[np.float64] = (a.detach().double() - b.detach().double()).square().sum(1).cpu().numpy()
    return distances


@dataclass(frozen=True)
class Verification:
    """Verification accuracy, 0..1: mean over the folds, standard error, and accuracy and threshold of each fold."""

    accuracy: float
    standard_error: float
    per_fold: NDArray[np.float64]
    thresholds: NDArray[np.float64]


def fold_accuracy(distances: ArrayLike, same: ArrayLike, folds: ArrayLike | int = 10) -> Verification:
    """Verification accuracy from float [N] distances, bool [N] answers and int [N] folds (or the number of folds).

    A pair with a distance below the threshold counts as one person. Each fold uses the threshold that is best on the
    other folds.
    """
    values, truth = np.asarray(distances, np.float64), np.asarray(same, np.bool_)
    groups = np.asarray(_cut(len(values), folds) if isinstance(folds, int) else folds)
    if values.ndim != 1 or truth.shape != values.shape or groups.shape != values.shape:
        raise ValueError(f"distances {values.shape}, answers {truth.shape} and folds {groups.shape} differ in length")
    if not np.isfinite(values).all():
        raise ValueError("some distances are not finite: the model or its input is broken")
    names = np.unique(groups)
    if len(names) < 2:
        raise ValueError(f"{len(names)} folds: at least 2 are needed, as each threshold is chosen on other folds")
    thresholds = np.array([best_threshold(values[groups != name], truth[groups != name]) for name in names])
    hits = [
        (values[groups == name] < threshold) == truth[groups == name]
        for name, threshold in zip(names, thresholds, strict=True)
    ]
    per_fold = np.array([hit.mean() for hit in hits])
    return Verification(float(per_fold.mean()), float(per_fold.std(ddof=1) / len(names) ** 0.5), per_fold, thresholds)


def _cut(count: int, folds: int) -> NDArray[np.int64]:
    """int64 [count]: consecutive folds of equal size; the first ones are larger by one if it does not divide."""
    if not 2 <= folds <= count:
        raise ValueError(f"{folds} folds cannot be cut from {count} pairs")
    sizes = [len(part) for part in np.array_split(np.empty(count), folds)]
    return np.repeat(np.arange(folds, dtype=np.int64), sizes)


def best_threshold(distances: NDArray[np.float64], same: NDArray[np.bool_]) -> float:
    """The smallest threshold with the most correct pairs, from float64 [N] distances and bool [N] answers.

    The candidates lie midway between neighbouring distances, and below and above all of them (minus and plus infinity).
    """
    order = np.argsort(distances, kind="stable")
    ordered, truth = distances[order], same[order]
    # correct[i]: correct pairs if exactly the i nearest count as one person
    correct = np.concatenate([[0], np.cumsum(np.where(truth, 1, -1))]) + np.count_nonzero(~truth)
    lower, upper = ordered[:-1], ordered[1:]
    middle = lower / 2 + upper / 2
    middle = np.where(middle > lower, middle, upper)  # there is nothing between neighbouring floats
    candidates = np.concatenate([[-np.inf], middle, [np.inf]])
    possible = np.concatenate([[True], lower < upper, [True]])  # equal distances cannot be separated
    return float(candidates[possible][np.argmax(correct[possible])])


def distances(faces: FaceSet, side: Side, embeddings: Tensor, where: NDArray[np.int64]) -> NDArray[np.float64]:
    """float64 [P]: distances of the side's pairs. Row i of ``embeddings``, [M, D], belongs to image ``where[i]``."""
    row = {int(image): i for i, image in enumerate(where)}
    tested = faces.tested(side.folds)
    first, second = (
        [row[int(i)] for i in faces.of(people)[tested]] for people in (faces.pairs.first, faces.pairs.second)
    )
    return squared_distances(embeddings[first], embeddings[second])


def verify(faces: FaceSet, side: Side, found: NDArray[np.float64]) -> Verification:
    """Verification accuracy on the side's folds. Thresholds come from its other folds, whose people are unseen too."""
    tested = faces.tested(side.folds)
    return fold_accuracy(found, faces.pairs.same[tested], faces.pairs.folds[tested])
