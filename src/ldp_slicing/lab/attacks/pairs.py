"""Pairs of a release and a public photo: do they show the same? The paper's identity distinguishing attack."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.lab.learners.run import TrainingRun


class PairRun(TrainingRun):
    """A run with the objective ``PairObjective``."""


def draw_pairs(labels: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """int64 [count, 3]: image, another image, and 1 where both are of one class, as half of them are. Classes of one image go unpaired.

    No image comes first twice before all have: pairs that share a release share what is made of it, and tell less than they seem to.
    """
    rng = np.random.default_rng(seed)
    members = {int(kind): np.flatnonzero(labels == kind) for kind in np.unique(labels)}
    several = np.flatnonzero([len(members[int(kind)]) > 1 for kind in labels])
    rows, firsts = [], np.concatenate([rng.permutation(several) for _ in range(-(-count // len(several)))])
    for i, first in enumerate(firsts[:count].tolist()):
        mine = members[int(labels[first])]
        others = np.flatnonzero(labels != labels[first])
        same = i % 2
        rows.append((first, int(rng.choice(mine[mine != first] if same else others)), same))
    return np.array(rows, np.int64)
