"""Numbers with 95 % confidence intervals. Images of one group are not independent, and intervals account for that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.lab.metrics.shares import Share

NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % confidence interval, from ``count`` images, pairs or probes."""

    value: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.value:.3f} (95 % interval {self.low:.3f} to {self.high:.3f})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_share(cls, share: Share) -> Estimate:
        """With the Clopper-Pearson interval: for independent trials."""
        low, high = share.interval
        return cls(share.value, low, high, share.count)

    @classmethod
    def of_groups(cls, share: float, groups: int, count: int) -> Estimate:
        """A share of ``count`` trials with the exact interval for one trial per group: the widest that is possible."""
        low, high = Share(round(share * groups), groups).interval
        return cls(share, min(low, share), max(high, share), count)

    @classmethod
    def around(
        cls, value: float, error: float, count: int, least: float = 0.0, most: float = 1.0, clusters: int | None = None
    ) -> Estimate:
        """With an interval from a standard error, within the range that is possible.

        clusters: how many independent values the error was computed from, if they are few.
        """
        reach = (NORMAL_95 if clusters is None else student_95(clusters - 1)) * error
        return cls(value, max(least, value - reach), min(most, value + reach), count)


def student_95(degrees: int) -> float:
    """The 97.5 % quantile of Student's t, by its expansion about the normal one; infinite for fewer than 3 degrees."""
    if degrees < 3:
        return math.inf
    z, n = NORMAL_95, degrees
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def share_of(hits: NDArray[np.bool_], groups: NDArray[np.int64] | None) -> Estimate:
    """The share of bool [N] hits. With groups, the wider one of the exact interval and that of clustered trials."""
    exact = Estimate.from_share(Share(int(hits.sum()), len(hits)))
    if groups is None:
        return exact
    clustered = mean_of(hits.astype(np.float64), groups)
    return Estimate(exact.value, min(exact.low, clustered.low), max(exact.high, clustered.high), exact.count)


def mean_of(
    values: NDArray[np.float64], groups: NDArray[np.int64] | None, *, least: float = 0.0, most: float = 1.0
) -> Estimate:
    """The mean of float64 [N] values. With groups, values vary between groups and not only between images."""
    mean, clusters = float(values.mean()), len(values if groups is None else np.unique(groups))
    return Estimate.around(mean, _error(values - mean, groups), len(values), least, most, clusters)


def _error(deviations: NDArray[np.float64], groups: NDArray[np.int64] | None) -> float:
    """The standard error of a mean from deviations [N], summed within groups (a cluster-robust error)."""
    sums = deviations if groups is None else np.bincount(np.unique(groups, return_inverse=True)[1], deviations)
    clusters = len(sums)
    if clusters < 4:  # the interval is then everything that is possible
        return 1.0
    return float(math.sqrt(clusters / (clusters - 1) * np.square(sums).sum()) / len(deviations))


def balanced_accuracy(hits: NDArray[np.bool_], labels: NDArray[np.int64], groups: NDArray[np.int64] | None) -> Estimate:
    """The mean over the classes of the share that is classified correctly, bool [N] and int64 [N]."""
    classes = [np.flatnonzero(labels == kind) for kind in np.unique(labels)]
    each = [share_of(hits[which], None if groups is None else groups[which]) for which in classes]
    errors = [max(one.high - one.value, one.value - one.low) / NORMAL_95 for one in each]
    return Estimate.around(
        float(np.mean([one.value for one in each])), math.sqrt(sum(e * e for e in errors)) / len(each), len(hits)
    )


def roc_auc(
    scores: NDArray[np.float64], labels: NDArray[np.int64], groups: NDArray[np.int64] | None = None
) -> Estimate:
    """The area under the ROC curve of float64 [N, classes] scores: of the second of two classes, or a mean over all.

    The error is that of Hanley and McNeil (1982), with as many images of each class as it has groups. For more than two
    classes the errors are averaged, which is an upper limit for the error of the mean.
    """
    present = np.unique(labels)
    if len(present) < 2:
        return Estimate(0.5, 0.0, 1.0, len(labels))
    chosen: Sequence[int] = [scores.shape[1] - 1] if scores.shape[1] == 2 else present.tolist()
    units = np.arange(len(labels)) if groups is None else groups
    areas, errors = zip(*(_area(scores[:, kind], labels == kind, units) for kind in chosen), strict=True)
    return Estimate.around(float(np.mean(areas)), float(np.mean(errors)), len(labels))


def _area(scores: NDArray[np.float64], positive: NDArray[np.bool_], units: NDArray[np.int64]) -> tuple[float, float]:
    """The area under the curve, with ties counted as half, and its standard error.

    units: int64 [N]; images of one unit count as one for the error. An area of 1 has an error, too: it is that of an
    area which is less by half a unit.
    """
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    yes, no = int(positive.sum()), int((~positive).sum())
    area = float((ranks[positive].sum() - yes * (yes + 1) / 2) / (yes * no))
    some, others = (float(len(np.unique(units[which]))) for which in (positive, ~positive))
    edge = 0.5 / min(some, others)
    a = min(max(area, edge), 1 - edge)
    both, other = a / (2 - a), 2 * a * a / (1 + a)
    variance = (a * (1 - a) + (some - 1) * (both - a * a) + (others - 1) * (other - a * a)) / (some * others)
    return area, math.sqrt(max(variance, 0.0))
