"""Tables: the integers that the sampler reads instead of probabilities, and the eps that they realise.

>>> tables = build_tables([(0x80, 3.0), (0x40, 1.0)], word_bits=8)       # (bits, eps) of two slices
>>> tables.groups, tables.realised_epsilon <= 4.0
(1, True)

The sampler draws *groups* of bits, independently of each other. A group consists of narrow slices with 8 bits in
total at most, or of one wide slice with more than 8 bits. Its table has 256 columns: Walker's alias method in exact
integers. A 16-bit draw ``u`` selects column ``u >> 8`` and compares ``u & 255`` with the first 8 bits of the column's
56-bit threshold. If they are equal, a *tie*, the other 48 bits are drawn and compared. Below the threshold the mask
is the column's own outcome, otherwise its alternative. So the probability of every outcome is exactly an integer over
2^64. A wide slice draws "hit" or "miss" in this way, and a hit takes uniform bits. No floating point is involved.

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
NARROW = 8  # bits: the table of a group enumerates at most 2^8 symbols
GROUP_EPSILON = 32  # a packed group stays far above the smallest probability, 2^-64 (44.4 nats)


@dataclass(frozen=True, eq=False)
class Tables:
    """The arrays that the sampler reads, for group g, column c and plane p (plane 0 is the lowest byte of the word).

    ``first[g, c]``          uint8,  the first 8 bits of the column's threshold
    ``rest[g, c]``           uint64, its other 48 bits
    ``outcome[g, s, p, c]``  uint8,  a byte of the mask: s = 0 below the threshold, s = 1 otherwise
    ``uniform[g]``           uint8,  1 if the outcome is ANDed with uniform bits (a wide slice)
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
        """The number of 16-bit lanes of uniform bits for one wide slice: enough for the whole word."""
        return (self.planes + 1) // 2

    @cached_property
    def lanes(self) -> int:
        """The number of 16-bit values of keystream per pixel."""
        return self.groups + self.uniform_lanes * int(self.uniform.sum())

    @cached_property
    def cells(self) -> NDArray[np.uint32]:
        """uint32 [groups, 2^16]: the mask for every 16-bit draw. Bit 31 marks ties.

        This expands the columns, because one array look-up is cheaper than three.
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
        """uint32 [groups, 2, 256]: ``outcome`` with its planes joined to words."""
        shifts = (8 * np.arange(self.planes, dtype=np.uint32))[:, None]
        words: NDArray[np.uint32] = np.bitwise_or.reduce(self.outcome.astype(np.uint32) << shifts, axis=2)
        return words

    def _group_of(self, bits: int) -> int:
        return next(g for g, covered in enumerate(self.group_bits) if covered & bits == bits)

    def weights(self, group: int) -> dict[int, int]:
        """Return the weight over 2^64 of each mask of a group, read back from its columns."""
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
        """Return the exact probability that a slice of these bits changes."""
        group = self._group_of(bits)
        changed = Fraction(sum(weight for word, weight in self.weights(group).items() if word & bits), ONE)
        return changed - changed / (1 << bits.bit_count()) if self.uniform[group] else changed

    def miss_probability(self, bits: int) -> Fraction:
        """Return the exact probability that a slice of these bits is not hit.

        A slice that is hit becomes uniform, so it can still keep its value.
        """
        symbols = 1 << bits.bit_count()
        return 1 - self.change_probability(bits) * symbols / (symbols - 1)

    def slice_ratio(self, bits: int) -> Fraction:
        """Return the largest likelihood ratio of a slice: between masks that differ only in these bits."""
        group = self._group_of(bits)
        if self.uniform[group]:
            return self.group_ratio(group)
        families: dict[int, list[int]] = {}
        for word, weight in self.weights(group).items():
            families.setdefault(word & ~bits, []).append(weight)
        return max(Fraction(max(family), min(family)) for family in families.values())

    def group_ratio(self, group: int) -> Fraction:
        """Return the likelihood ratio of a group, e^eps: the largest probability of a mask over the smallest."""
        bits, weights = self.group_bits[group], self.weights(group)
        if self.uniform[group]:
            hit, miss, symbols = weights.get(bits, 0), weights.get(0, 0), 1 << bits.bit_count()
            if hit + miss != ONE or hit == 0:
                raise AssertionError(f"the table of wide slice 0x{bits:x} is not a table of hits and misses: {weights}")
            return Fraction(miss * symbols + hit, hit)
        if set(weights) != set(submasks(bits)) or sum(weights.values()) != ONE:
            raise AssertionError(f"the table of group 0x{bits:x} lacks the weight of a mask: {weights}")
        return Fraction(max(weights.values()), min(weights.values()))

    @cached_property
    def realised_epsilon(self) -> float:
        """The sum over the groups of ln(largest weight / smallest weight), rounded up."""
        return round_up(sum((ln_up(self.group_ratio(g)) for g in range(self.groups)), Fraction(0)))


def planes_of(word_bits: int) -> int:
    """Return the number of bytes of a word."""
    return (word_bits + 7) // 8


def hit_weight(symbols: int, epsilon: float) -> int:
    """Return the probability over 2^64 that a slice of k symbols is hit: k / (e^eps + k - 1), rounded up."""
    with localcontext(prec=60) as context:
        # exp is rounded to nearest, so the next number below it is a lower bound. Beyond eps 1000 nothing changes.
        growth = Decimal(min(epsilon, 1000.0)).exp().next_minus()
        context.rounding = ROUND_FLOOR
        bound = growth + (symbols - 1)
        context.rounding = ROUND_CEILING
        weight = math.ceil(Decimal(symbols * ONE) / bound)
    return min(weight, ONE)


def slice_weights(symbols: int, epsilon: float) -> tuple[int, int]:
    """Return the weight of "unchanged" and the weight of each change, over 2^64 * symbols."""
    hit = hit_weight(symbols, epsilon)
    return (ONE - hit) * symbols + hit, hit


def build_tables(slices: Iterable[tuple[int, float]], word_bits: int) -> Tables:
    """Return the tables of disjoint slices, given as (bits, eps)."""
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
    """Return all words that have no bit outside ``bits``, in ascending order."""
    words = [0]
    for b in range(bits.bit_length()):
        if bits >> b & 1:
            words += [word | 1 << b for word in words]
    return words


def alias_columns(weights: list[int]) -> tuple[list[int], list[int]]:
    """Return the threshold of each column, in [0, 2^56), and its alternative symbol: Walker's alias method.

    A column that its own symbol fills has threshold 0 and itself as the alternative.
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
    """Group consecutive narrow slices while the table stays small and its smallest weight stays large."""
    groups: list[list[tuple[int, float]]] = []
    for part in slices:
        together = [*groups[-1], part] if groups else [part]
        width = sum(bits.bit_count() for bits, _ in together)
        # Exact, because sum() of floats rounds differently from Python 3.12 on, and groups decide the bytes.
        total = sum(Fraction(epsilon) for _, epsilon in together)
        if groups and width <= NARROW and total <= GROUP_EPSILON:
            groups[-1] = together
        else:
            groups.append([part])
    return groups


def _narrow_weights(group: list[tuple[int, float]], words: list[int]) -> list[int]:
    """Return the product distribution of the slices over 2^64. Changes are rounded up, the rest is "no change"."""
    parts = [(bits, *slice_weights(1 << bits.bit_count(), epsilon)) for bits, epsilon in group]
    whole = math.prod(ONE << bits.bit_count() for bits, _, _ in parts)
    exact = [math.prod(change if word & bits else same for bits, same, change in parts) for word in words]
    weights = [-(-product * ONE // whole) for product in exact]
    weights[0] = ONE - sum(weights[1:])
    # Rounding must not increase eps. If eps is too small for weights over 2^64, the group becomes uniform noise.
    if max(weights) * min(exact) > min(weights) * max(exact):
        return [ONE // len(words)] * len(words)
    return weights


def ln_up(ratio: Fraction) -> Fraction:
    """Return an upper bound on ln(ratio), accurate to 1e-55."""
    if ratio == 1:
        return Fraction(0)
    with localcontext(prec=60, rounding=ROUND_CEILING):
        return Fraction((Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln().next_plus())


def round_up(value: Fraction) -> float:
    """Return the smallest float that is not below ``value``."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
