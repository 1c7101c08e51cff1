"""Do two releases share a mask? Asked of releases of one size and one plan, without their sources.

Under one mask the XOR of two releases is the XOR of their views. Sources are smooth, so that XOR is often the same at neighbouring pixels;
with fresh masks it hardly ever is. And where the sources nearly agree, so do the words. For any sources both counts are bounded by
binomials (docs/proofs.md, 14). Little power: small releases, high eps, slices that seldom change, much texture, colours that the
conversion to RGB clamped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.audit.exact import Group
from ldp_slicing.audit.files import ReleaseFile
from ldp_slicing.audit.pixel_words import Words
from ldp_slicing.audit.tails import tail_above

COMPARISONS = 1 << 31  # of places, for each question: bounds how many pairs of releases are looked at
SHARES = 64  # the work may have been split into this many parts, each with the same randomness
CHROMA = 0xFFFF
QUESTIONS = 3
LISTED = 1000  # suspicions, of releases of one size


@dataclass(frozen=True)
class Suspicion:
    """Two releases, and what is equal in them too often."""

    one: ReleaseFile
    other: ReleaseFile
    what: str
    count: int
    trials: int
    p_value: float

    def __str__(self) -> str:
        return f"{self.one.path} and {self.other.path}: {self.what} at {self.count:,} of {self.trials:,} places (p = {self.p_value:.1e})"


@dataclass(frozen=True)
class Question:
    """What is compared at each place."""

    what: str
    places: NDArray[np.uint32]  # [releases, places]; a place that is not certain has a value that no other release has
    probability: float  # that two independent releases are equal at a place, at most


class Comparison:
    """Releases of one size and one plan, in the order of their names."""

    def __init__(self, releases: list[ReleaseFile], groups: tuple[Group, ...]) -> None:
        self.releases = releases
        self.places = releases[0].left.size
        self.distances = distances(len(releases), COMPARISONS // (len(releases) * self.places))
        left, right = (
            np.stack([release.left for release in releases]),
            np.stack([release.right for release in releases]),
        )
        sure = np.stack([release.sure for release in releases])
        kept = sum(group.bits for group in groups)
        chroma = tuple(group for group in groups if not group.bits & ~CHROMA) if kept >> 16 else ()
        self.questions = [
            Question("the words are equal", _only(left & np.uint32(kept), sure), equal_at(groups, 2)),
            Question(
                "the step to the next pixel is equal",
                _only((left ^ right) & np.uint32(kept), sure),
                equal_at(groups, 4),
            ),
        ]
        if chroma:
            bits = np.uint32(sum(group.bits for group in chroma))
            self.questions.append(
                Question(
                    "the step to the next pixel is equal in Cb and Cr",
                    _only((left ^ right) & bits, sure),
                    equal_at(chroma, 4),
                )
            )

    @property
    def pairs(self) -> int:
        """How many pairs of releases are compared."""
        return sum(len(self.releases) - distance for distance in self.distances)

    @property
    def possible(self) -> int:
        return math.comb(len(self.releases), 2)

    def can_see(self, limit: float) -> bool:
        """Whether any releases of this size could be suspected."""
        return any(self.places * math.log(question.probability) < math.log(limit) for question in self.questions)

    def compare(self, limit: float) -> tuple[float, list[Suspicion]]:
        """The smallest p-value, and pairs of releases with one below ``limit``: the first LISTED of them."""
        smallest, found = 1.0, list[Suspicion]()
        for question in self.questions:
            for distance in self.distances:
                counts = np.count_nonzero(question.places[:-distance] == question.places[distance:], axis=1)
                worst = float(tail_above(counts.max(), self.places, question.probability)[0])
                smallest = min(smallest, worst)
                if worst < limit and len(found) < LISTED:
                    p_values = tail_above(counts, self.places, question.probability)
                    for i in np.flatnonzero(p_values < limit)[: LISTED - len(found)].tolist():
                        one, other = self.releases[i], self.releases[i + distance]
                        found.append(
                            Suspicion(one, other, question.what, int(counts[i]), self.places, float(p_values[i]))
                        )
        return smallest, found


def equal_at(groups: tuple[Group, ...], masks: int) -> float:
    """The probability that the XOR of so many masks is 0 in the bits of these groups."""
    return math.prod(group.equal_draws(masks) for group in groups)


def _only(words: Words, sure: NDArray[np.bool_]) -> NDArray[np.uint32]:
    unlike = np.uint32(1 << 31) | np.arange(len(words), dtype=np.uint32)[:, None]
    return np.where(sure, words, unlike)


def distances(count: int, at_most: int) -> list[int]:
    """How far apart in the list the releases are that are compared: all, or near ones and those at which shares of the work begin."""
    if at_most >= count - 1:
        return list(range(1, count))
    shares = {-(-count // parts) for parts in range(2, SHARES + 1)} | {count // parts for parts in range(2, SHARES + 1)}
    near = range(1, max(2, at_most - len(shares) + 1))
    return sorted({distance for distance in (*near, *shares) if 1 <= distance < count})
