"""Shares of a count, with their confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.audit.tails import lower_bound, upper_bound


@dataclass(frozen=True)
class Share:
    """``hits`` of ``count``, with the 95 % Clopper-Pearson interval of the share."""

    hits: int
    count: int

    @property
    def value(self) -> float:
        return self.hits / self.count

    @property
    def interval(self) -> tuple[float, float]:
        low, high = (bound(self.hits, self.count, 0.025).item() for bound in (lower_bound, upper_bound))
        return low, high

    def row(self) -> dict[str, float | int]:
        low, high = self.interval
        return {"share": self.value, "low_95": low, "high_95": high, "count": self.count}


def share_within(distances: NDArray[np.float64], radius: float) -> Share:
    """The share of float64 [N] distances that are at most ``radius``."""
    return Share(int((distances <= radius).sum()), len(distances))


def auc_interval(auc: float, positives: int, negatives: int) -> tuple[float, float]:
    """The 95 % interval of an area under the ROC curve, 0..1, by the standard error of Hanley and McNeil (1982)."""
    above, below = auc / (2 - auc), 2 * auc * auc / (1 + auc)
    variance = auc * (1 - auc) + (positives - 1) * (above - auc * auc) + (negatives - 1) * (below - auc * auc)
    reach = 1.96 * (variance / (positives * negatives)) ** 0.5
    return max(0.0, auc - reach), min(1.0, auc + reach)
