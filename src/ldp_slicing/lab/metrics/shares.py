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
