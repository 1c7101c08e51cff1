"""Binary decisions: thresholds, sensitivity and specificity, and ROC AUC."""

from __future__ import annotations

import torch
from torch import Tensor


def rates(scores: Tensor, labels: Tensor, threshold: float) -> tuple[float, float]:
    """Sensitivity and specificity of float [N] scores above the threshold, for int64 [N] labels, 0 or 1."""
    above = (scores > threshold).float()
    return float(above[labels == 1].mean()), float(1 - above[labels == 0].mean())


def roc_auc(scores: Tensor, labels: Tensor) -> float:
    """The probability that a positive has a higher score than a negative; ties count half."""
    positive, negative = scores[labels == 1], scores[labels == 0]
    above = (positive[:, None] > negative).double() + (positive[:, None] == negative).double() / 2
    return float(above.mean())


def balanced_threshold(scores: Tensor, labels: Tensor) -> float:
    """The threshold with the largest sum of sensitivity and specificity; the middle one if there are several.

    >>> balanced_threshold(torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([0, 0, 1, 1]))
    1.5
    """
    values = scores.double().sort()[0]
    between = (values[1:] + values[:-1]) / 2
    candidates = torch.cat((values[:1] - 1, between, values[-1:] + 1))
    positive, negative = (scores[labels == kind].double().sort()[0] for kind in (1, 0))
    missed = torch.searchsorted(positive, candidates, right=True) / max(1, len(positive))
    spared = torch.searchsorted(negative, candidates, right=True) / max(1, len(negative))
    best = (spared - missed == (spared - missed).max()).nonzero()[:, 0]
    return float(candidates[best[len(best) // 2]])
