"""From slices to the integers the sampler reads, and from those integers to the eps they realise. No floating point.

The sampler draws *groups* of bits, each independently of the others. A group is either several narrow slices packed together
(at most 8 bits), or one wide slice (more than 8 bits). Each group has a table of 256 columns, Walker's alias method
in exact integers: a 16-bit draw ``u`` picks column ``u >> 8`` and compares ``u & 255`` with the first 8 bits of the column's
56-bit threshold; only when those are equal are the other 48 bits drawn and compared. Below the threshold the group's mask is
the column's own outcome, else its other one. So every outcome has a probability that is an integer over 2^64, exactly.
A wide slice draws "hit" or "miss" that way, and when hit takes uniform bits.

Proofs: docs/proofs.md, 2 to 5. Tests: tests/test_tables.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

LAYOUT_VERSION = 1
ONE = 1 << 64  # probability 1
COLUMNS = 256
COLUMN = ONE // COLUMNS  # the weight of one column
NARROW = 8  # a group's table enumerates at most 2^8 symbols
GROUP_EPSILON = 32  # a packed group stays far above the smallest probability, 2^-64 (44.4 nats)


@dataclass(frozen=True, eq=False)
class Tables:
    """What the sampler reads. Group g, column c, plane p (plane 0 is the lowest byte of the word):

    ``first[g, c]``          uint8,  the first 8 bits of the column's threshold
    ``rest[g, c]``           uint64, its other 48 bits
    ``outcome[g, s, p, c]``  uint8,  the mask's byte: s = 0 below the threshold (the column's own), s = 1 otherwise (its other)
    ``uniform[g]``           uint8,  1 where the outcome is ANDed with uniform bits (a wide slice)
    """

    word_bits: int
    group_bits: tuple[int, ...]
    first: NDArray[np.uint8]
    rest: NDArray[np.uint64]
    outcome: NDArray[np.uint8]
    uniform: NDArray[np.uint8]

    @property
    def groups(self) -> int:
        return len(self.group_bits)

    @property
    def planes(self) -> int:
        return planes_of(self.word_bits)

    @property
    def uniform_lanes(self) -> int:
        """16-bit lanes of uniform bits that one wide slice takes: enough for the whole word."""
        return (self.planes + 1) // 2

    @cached_property
    def lanes(self) -> int:
        """16-bit numbers of keystream per pixel."""
        return self.groups + self.uniform_lanes * int(self.uniform.sum())

    @cached_property
    def cells(self) -> NDArray[np.uint32]:
        """``cells[g, u]``: the mask word for every 16-bit draw ``u``, with bit 31 set where the other 48 bits decide.

        The columns written out, for array languages in which one look-up is cheaper than three.
        """
        draws = np.arange(1 << 16)
        column, low = draws >> 8, draws & 255
        words = self.outcome_words
        below = low < self.first[:, column]
        ties = (low == self.first[:, column]).astype(np.uint32) << np.uint32(31)
        cells: NDArray[np.uint32] = np.where(below, words[:, 0][:, column], words[:, 1][:, column]) | ties
        return cells

    @cached_property
    def outcome_words(self) -> NDArray[np.uint32]:
        """``outcome`` with its planes joined to words, indexed [g, s, c]."""
        shifts = (8 * np.arange(self.planes, dtype=np.uint32))[:, None]
        words: NDArray[np.uint32] = np.bitwise_or.reduce(self.outcome.astype(np.uint32) << shifts, axis=2)
        return words

    def _group_of(self, bits: int) -> int:
        return next(g for g, covered in enumerate(self.group_bits) if covered & bits == bits)

    def weights(self, group: int) -> dict[int, int]:
        """Each outcome word of a group with its exact weight over 2^64, read back from the columns."""
        return self._weights[group]

    @cached_property
    def _weights(self) -> tuple[dict[int, int], ...]:
        return tuple(self._read_weights(group) for group in range(self.groups))

    def _read_weights(self, group: int) -> dict[int, int]:
        words, weights = self.outcome_words[group], dict[int, int]()
        for column in range(COLUMNS):
            threshold = int(self.first[group, column]) << 48 | int(self.rest[group, column])
            for word, weight in ((int(words[0, column]), threshold), (int(words[1, column]), COLUMN - threshold)):
                if weight:
                    weights[word] = weights.get(word, 0) + weight
        return weights

    def change_probability(self, bits: int) -> Fraction:
        """The exact probability that a slice of these bits is released changed."""
        group = self._group_of(bits)
        changed = Fraction(sum(weight for word, weight in self.weights(group).items() if word & bits), ONE)
        return changed - changed / (1 << bits.bit_count()) if self.uniform[group] else changed

    def miss_probability(self, bits: int) -> Fraction:
        """The exact probability that a slice of these bits is not hit: when hit, it becomes a uniform value, which may be the old one."""
        symbols = 1 << bits.bit_count()
        return 1 - self.change_probability(bits) * symbols / (symbols - 1)

    def slice_ratio(self, bits: int) -> Fraction:
        """The worst likelihood ratio of one slice: between masks of its group that differ in these bits alone."""
        group = self._group_of(bits)
        if self.uniform[group]:
            return self.group_ratio(group)
        families: dict[int, list[int]] = {}
        for word, weight in self.weights(group).items():
            families.setdefault(word & ~bits, []).append(weight)
        return max(Fraction(max(family), min(family)) for family in families.values())

    def group_ratio(self, group: int) -> Fraction:
        """The largest probability of a mask of this group over the smallest: the group's worst likelihood ratio, e^eps."""
        bits, weights = self.group_bits[group], self.weights(group)
        if self.uniform[group]:
            hit, miss, symbols = weights.get(bits, 0), weights.get(0, 0), 1 << bits.bit_count()
            if hit + miss != ONE or hit == 0:
                raise AssertionError(f"the table of wide slice 0x{bits:x} is not a hit-or-miss table: {weights}")
            return Fraction(miss * symbols + hit, hit)
        if set(weights) != set(submasks(bits)) or sum(weights.values()) != ONE:
            raise AssertionError(f"the table of group 0x{bits:x} does not give every mask a weight: {weights}")
        return Fraction(max(weights.values()), min(weights.values()))

    @cached_property
    def realised_epsilon(self) -> float:
        """Sum over the groups of ln(largest weight / smallest weight), rounded up."""
        return round_up(sum((ln_up(self.group_ratio(g)) for g in range(self.groups)), Fraction(0)))


def planes_of(word_bits: int) -> int:
    return (word_bits + 7) // 8


def hit_weight(symbols: int, epsilon: float) -> int:
    """The probability, over 2^64, that a slice of ``symbols`` values is hit: k / (e^eps + k - 1), rounded up, to more noise."""
    with localcontext(prec=60) as context:
        # exp is correctly rounded to nearest, so the next number below it is a lower bound; beyond 1000 nothing changes.
        growth = Decimal(min(epsilon, 1000.0)).exp().next_minus()
        context.rounding = ROUND_FLOOR
        bound = growth + (symbols - 1)
        context.rounding = ROUND_CEILING
        weight = math.ceil(Decimal(symbols * ONE) / bound)
    return min(weight, ONE)


def slice_weights(symbols: int, epsilon: float) -> tuple[int, int]:
    """The weights of "unchanged" and of each change, over 2^64 * symbols."""
    hit = hit_weight(symbols, epsilon)
    return (ONE - hit) * symbols + hit, hit


def build_tables(slices: Iterable[tuple[int, float]], word_bits: int) -> Tables:
    """Tables for disjoint slices, given as (bits, eps)."""
    groups = _pack(list(slices))
    planes = planes_of(word_bits)
    first = np.zeros((len(groups), COLUMNS), np.uint8)
    rest = np.zeros((len(groups), COLUMNS), np.uint64)
    outcome = np.zeros((len(groups), 2, planes, COLUMNS), np.uint8)
    uniform = np.zeros(len(groups), np.uint8)
    for g, group in enumerate(groups):
        (bits, epsilon), *others = group
        if not others and bits.bit_count() > NARROW:
            hit = hit_weight(1 << bits.bit_count(), epsilon)
            words, weights = [0, bits], [ONE - hit, hit]
            uniform[g] = 1
        else:
            words = submasks(sum(bits for bits, _ in group))
            weights = _narrow_weights(group, words)
        threshold, alias = alias_columns(weights)
        for column in range(COLUMNS):
            first[g, column], rest[g, column] = threshold[column] >> 48, threshold[column] & ((1 << 48) - 1)
            for s, symbol in enumerate((column, alias[column])):
                word = words[symbol] if symbol < len(words) else 0
                outcome[g, s, :, column] = [word >> 8 * p & 255 for p in range(planes)]
    for table in (first, rest, outcome, uniform):
        table.flags.writeable = False
    return Tables(word_bits, tuple(sum(bits for bits, _ in group) for group in groups), first, rest, outcome, uniform)


def submasks(bits: int) -> list[int]:
    """All words with no bit outside ``bits``, in the order of their value."""
    words = [0]
    for b in range(bits.bit_length()):
        if bits >> b & 1:
            words += [word | 1 << b for word in words]
    return words


def alias_columns(weights: list[int]) -> tuple[list[int], list[int]]:
    """Walker's alias method in exact integers: per column a threshold in [0, 2^56) and the symbol above it.

    A column whose own symbol fills it keeps threshold 0 and itself as the other symbol.
    """
    own = weights + [0] * (COLUMNS - len(weights))
    other = list(range(COLUMNS))
    small = [c for c in range(COLUMNS) if own[c] < COLUMN]
    large = [c for c in range(COLUMNS) if own[c] > COLUMN]
    while small:
        column, donor = small.pop(), large[-1]
        other[column] = donor
        own[donor] -= COLUMN - own[column]
        if own[donor] <= COLUMN:
            large.pop()
            if own[donor] < COLUMN:
                small.append(donor)
    return [0 if other[c] == c else own[c] for c in range(COLUMNS)], other


def _pack(slices: list[tuple[int, float]]) -> list[list[tuple[int, float]]]:
    """Consecutive narrow slices share a group while its table stays small and its smallest weight large."""
    groups: list[list[tuple[int, float]]] = []
    for part in slices:
        together = [*groups[-1], part] if groups else [part]
        width = sum(bits.bit_count() for bits, _ in together)
        if groups and width <= NARROW and sum(epsilon for _, epsilon in together) <= GROUP_EPSILON:
            groups[-1] = together
        else:
            groups.append([part])
    return groups


def _narrow_weights(group: list[tuple[int, float]], words: list[int]) -> list[int]:
    """The product distribution of the slices over 2^64: every change rounded up, "no change" takes what is left."""
    parts = [(bits, *slice_weights(1 << bits.bit_count(), epsilon)) for bits, epsilon in group]
    whole = math.prod(ONE << bits.bit_count() for bits, _, _ in parts)
    exact = [math.prod(change if word & bits else same for bits, same, change in parts) for word in words]
    weights = [-(-product * ONE // whole) for product in exact]
    weights[0] = ONE - sum(weights[1:])
    # Rounding may not spend what was not given: for an eps too small for 2^64 the group is plain uniform noise.
    if max(weights) * min(exact) > min(weights) * max(exact):
        return [ONE // len(words)] * len(words)
    return weights


def ln_up(ratio: Fraction) -> Fraction:
    """An upper bound on ln(ratio), within 1e-55."""
    if ratio == 1:
        return Fraction(0)
    with localcontext(prec=60, rounding=ROUND_CEILING):
        return Fraction((Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln().next_plus())


def round_up(value: Fraction) -> float:
    """The smallest float that is not below ``value``."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
