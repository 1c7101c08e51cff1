"""What is trained on and what is held out; which pairs of held-out images a linkage attack is tested on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.lab.advise.sources import SourceSet

HELD_OUT = 0.35  # the share of the images, or of the groups
PAIRS = 1600  # of a verification test, at most


@dataclass(frozen=True)
class Parts:
    """int64 indices: images to train on, and held-out images. No group is in both; without groups, no image is."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def split(sources: SourceSet, seed: int, most_tested: int) -> Parts:
    """Hold out a share of every class, or of the groups. At most ``most_tested`` images are held out."""
    rng = np.random.default_rng([seed, 1])
    units = sources.units
    names, first = np.unique(units, return_index=True)
    kinds = sources.labels[first]  # of a group: the label of its first image, to draw groups of all classes
    sizes = np.bincount(units)[names]
    held_out = list[int]()
    for kind in np.unique(kinds):
        mine = rng.permutation(np.flatnonzero(kinds == kind))
        share = min(HELD_OUT, most_tested / len(units))
        reached = np.cumsum(sizes[mine]) <= max(1.0, share * sizes[mine].sum())
        held_out += mine[: max(1, int(reached.sum()))].tolist()
    tested = np.isin(units, names[held_out])
    return Parts(np.flatnonzero(~tested), np.flatnonzero(tested))


@dataclass(frozen=True)
class LinkageTest:
    """A test of linkage among held-out images. All numbers are positions among them.

    probes, gallery: int64 [Q]; a released image and an unprotected one of the same group, one pair for each group.
    candidates: bool [Q, Q]; which gallery images probe i is compared with: those of its class, its own included.
    first, second, same: [P]; a released image, an unprotected one, and whether both are of one group. Impostors are of
    the same class. groups: the number of groups that the images of ``first`` are of.
    """

    probes: NDArray[np.int64]
    gallery: NDArray[np.int64]
    candidates: NDArray[np.bool_]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    same: NDArray[np.bool_]
    groups: int

    @property
    def released(self) -> NDArray[np.int64]:
        """The positions of all images that are released, each once."""
        return np.unique(np.concatenate((self.probes, self.first)))

    @property
    def chance(self) -> float:
        """The rank-1 identification rate of guessing."""
        return float((1 / self.candidates.sum(1)).mean())


def linkage_test(labels: NDArray[np.int64], groups: NDArray[np.int64], seed: int) -> LinkageTest | None:
    """Draw the test from int64 [N] labels and groups of the held-out images; None if no group has two images.

    If every group has a class of its own, classes say no more than groups and are ignored.
    """
    rng = np.random.default_rng([seed, 2])
    if len(np.unique(labels)) >= len(np.unique(groups)):
        labels = np.zeros_like(labels)
    members = [np.flatnonzero(groups == name) for name in np.unique(groups)]
    pairs = np.array([rng.choice(some, 2, replace=False) for some in members if len(some) > 1], np.int64)
    if len(pairs) < 2:
        return None
    probes, gallery = pairs.T
    candidates = labels[probes][:, None] == labels[gallery][None, :]
    np.fill_diagonal(candidates, True)
    rows = list[tuple[int, int, bool]]()
    several = np.concatenate([some for some in members if len(some) > 1])
    firsts = np.concatenate((rng.permutation(probes), rng.permutation(np.setdiff1d(several, probes))))
    for first in firsts[: PAIRS // 2].tolist():  # the probes first: they are released anyway
        own = np.flatnonzero(groups == groups[first])
        others = np.flatnonzero((groups != groups[first]) & (labels == labels[first]))
        if len(others):
            rows.append((first, int(rng.choice(own[own != first])), True))
            rows.append((first, int(rng.choice(others)), False))
    first_, second, same = (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.zeros(0, int),) * 3
    drawn = len(np.unique(groups[first_]))
    return LinkageTest(probes, gallery, candidates, first_, second, same.astype(bool), drawn)
