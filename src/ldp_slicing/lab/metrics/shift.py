"""Whether two sets of images differ: how well a linear classifier tells them apart."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ldp_slicing.lab.metrics.thresholds import roc_auc

SIDE, FOLDS = 28, 5
DAMPING = 0.3  # added to the variance of each standardised pixel
LEAST_DEVIATION = 1e-3


def tell_apart(
    first: NDArray[np.uint8],
    second: NDArray[np.uint8],
    groups: tuple[NDArray[np.int64], NDArray[np.int64]],
    *,
    seed: int = 0,
) -> float:
    """The ROC AUC of a linear classifier that tells images of the first set from images of the second; 0.5: not at all.

    first, second: uint8 [N, H, W, 1] and [M, H, W, 1]. groups: of their images, such as patients; no group is in
    both sets. The classifier sees the images at 28 x 28 pixels. It is ridge regression with both sets
    weighted alike, and each group is classified by one that was fitted to other groups.
    """
    images = torch.cat([_small(one) for one in (first, second)])
    labels = torch.cat([torch.zeros(len(first)), torch.ones(len(second))])
    drawn = torch.Generator().manual_seed(seed)
    folds = torch.cat([_folds(one, drawn) for one in groups])
    scores = torch.zeros(len(images), dtype=torch.float64)
    for fold in range(FOLDS):
        held_out = folds == fold
        scores[held_out] = _fit(images[~held_out], labels[~held_out], images[held_out])
    return roc_auc(scores, labels.long())


def _small(images: NDArray[np.uint8]) -> Tensor:
    """float64 [N, 784]."""
    parts = torch.split(torch.from_numpy(images), 500)
    found = [functional.adaptive_avg_pool2d(part.permute(0, 3, 1, 2).float(), SIDE).flatten(1) for part in parts]
    return torch.cat(found).double() / 255


def _folds(groups: NDArray[np.int64], drawn: torch.Generator) -> Tensor:
    """int64 [N]: the fold of each image, the same for all images of a group."""
    names, place = np.unique(groups, return_inverse=True)
    return torch.randint(FOLDS, (len(names),), generator=drawn)[torch.from_numpy(place)]


def _fit(images: Tensor, labels: Tensor, others: Tensor) -> Tensor:
    """float64 [K]: the scores of other images."""
    mean, deviation = images.mean(0), images.std(0) + LEAST_DEVIATION
    seen, others = (images - mean) / deviation, (others - mean) / deviation
    weights = torch.where(labels == 1, 1 / labels.sum(), 1 / (1 - labels).sum()).double()
    spread = seen.T @ (seen * weights[:, None]) + DAMPING * torch.eye(seen.shape[1], dtype=torch.float64)
    scores: Tensor = others @ torch.linalg.solve(spread, seen.T @ ((2 * labels - 1) * weights))
    return scores
