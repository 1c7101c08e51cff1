"""Tests whether two releases share a mask. The releases have one size and one plan; their sources are not known.

Under one mask the XOR of two releases is the XOR of their views. Sources are smooth, so that XOR is often the same at
neighbouring pixels. With fresh masks it hardly ever is. And where the sources nearly agree, so do the words. For any
sources both counts are bounded by binomials (docs/proofs.md, 14.5). The tests have little power for small releases, a
high eps, slices that seldom change, textured sources, and colours that the conversion to RGB clamped.
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

COMPARISONS = 1 << 31  # of places, for each test: bounds the number of pairs of releases
SHARES = 64  # work may have been split into up to this many parts, each with the same randomness
CHROMA = 0xFFFF
TESTS = 3
LISTED = 1000  # suspect pairs of one size


@dataclass(frozen=True)
class SuspectPair:
    """Two releases that are equal at too many places."""

    one: ReleaseFile
    other: ReleaseFile
    what: str
    count: int
    trials: int
    p_value: float

    def __str__(self) -> str:
        places = f"at {self.count:,} of {self.trials:,} places (p = {self.p_value:.1e})"
        return f"{self.one.path} and {self.other.path}: {self.what} {places}"


@dataclass(frozen=True)
class EqualityTest:
    """What is compared at each place."""

    what: str
    places: NDArray[np.uint32]  # [releases, places]; an uncertain place has a value that no other release has
    probability: float  # upper bound on the probability that two independent releases are equal at a place


class Comparison:
    """Releases of one size and one plan, ordered by name, compared in pairs."""

    def __init__(self, releases: list[ReleaseFile], groups: tuple[Group, ...]) -> None:
        self.releases = releases
        self.places = releases[0].left.size
        self.distances = pair_distances(len(releases), COMPARISONS // (len(releases) * self.places))
        left = np.stack([release.left for release in releases])
        steps = left ^ np.stack([release.right for release in releases])
        certain = np.stack([release.certain for release in releases])

        def test(what: str, words: Words, groups: tuple[Group, ...], masks: int) -> EqualityTest:
            bits = np.uint32(sum(group.bits for group in groups))
            return EqualityTest(what, _unique_if_uncertain(words & bits, certain), equality_probability(groups, masks))

        self.tests = [
            test("the words are equal", left, groups, 2),
            test("the step to the next pixel is equal", steps, groups, 4),
        ]
        chroma = tuple(group for group in groups if not group.bits & ~CHROMA)
        if chroma and sum(group.bits for group in groups) >> 16:
            self.tests.append(test("the step to the next pixel is equal in Cb and Cr", steps, chroma, 4))

    @property
    def pairs(self) -> int:
        """How many pairs of releases are compared."""
        return sum(len(self.releases) - distance for distance in self.distances)

    def has_power(self, limit: float) -> bool:
        """Return whether any releases of this size could get a p-value below ``limit``."""
        return any(self.places * math.log(test.probability) < math.log(limit) for test in self.tests)

    def compare(self, limit: float) -> tuple[float, list[SuspectPair]]:
        """The smallest p-value, and the pairs of releases with one below ``limit``: at most LISTED of them."""
        smallest, found = 1.0, list[SuspectPair]()
        for test in self.tests:
            for distance in self.distances:
                counts = np.count_nonzero(test.places[:-distance] == test.places[distance:], axis=1)
                worst = float(tail_above(counts.max(), self.places, test.probability)[0])
                smallest = min(smallest, worst)
                if worst < limit and len(found) < LISTED:
                    p_values = tail_above(counts, self.places, test.probability)
                    for i in np.flatnonzero(p_values < limit)[: LISTED - len(found)].tolist():
                        one, other = self.releases[i], self.releases[i + distance]
                        found.append(
                            SuspectPair(one, other, test.what, int(counts[i]), self.places, float(p_values[i]))
                        )
        return smallest, found


def equality_probability(groups: tuple[Group, ...], masks: int) -> float:
    """The probability that the XOR of ``masks`` independent masks is 0 in the bits of these groups."""
    return math.prod(group.zero_xor_probability(masks) for group in groups)


def _unique_if_uncertain(words: Words, certain: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Replace uncertain words, [releases, places], by a value of their own for each release."""
    unique = np.uint32(1 << 31) | np.arange(len(words), dtype=np.uint32)[:, None]
    return np.where(certain, words, unique)


def pair_distances(count: int, at_most: int) -> list[int]:
    """How far apart in the list the compared releases are.

    All distances if the budget ``at_most`` allows it. Otherwise near ones, and those at which shares of the work begin.
    """
    if at_most >= count - 1:
        return list(range(1, count))
    shares = {-(-count // parts) for parts in range(2, SHARES + 1)} | {count // parts for parts in range(2, SHARES + 1)}
    near = range(1, max(2, at_most - len(shares) + 1))
    return sorted({distance for distance in (*near, *shares) if 1 <= distance < count})
