"""The worst likelihood ratios in exact rationals, counted from the arrays that the sampler reads.

The weights do not come from ``tables.py``: this module goes through every 16-bit draw of every group as the sampler
does. Ratios are compared with e^eps itself; ``ln_up`` only converts them to eps for the report. Proofs:
docs/proofs.md, 3, 4, 6 and 14.1. Tests: tests/audit/test_exact.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.audit.report import Check
from ldp_slicing.card import Statement
from ldp_slicing.plan import CHANNELS, Plan
from ldp_slicing.tables import ONE, Tables, ln_up, round_up, submasks
from ldp_slicing.view import Prune
from ldp_slicing.wording import counted

SECTION = "exact, from the tables in use"
Ratio = Fraction | None  # None: unbounded


@dataclass(frozen=True)
class Group:
    """The masks of one independent draw.

    ``weights``: the weight of each outcome over 2^64. ``uniform``: the outcome is ANDed with uniform bits (a wide
    slice), so every mask but 0 has the same probability.
    """

    weights: dict[int, int]
    uniform: bool

    @cached_property
    def bits(self) -> int:
        """The bits that some outcome of this draw changes."""
        return int(np.bitwise_or.reduce(list(self.weights)))

    @cached_property
    def is_hit_or_miss(self) -> bool:
        return set(self.weights) <= {0, self.bits}

    @cached_property
    def masks(self) -> dict[int, Fraction]:
        """The probability of each mask. A wide slice has two entries: 0, and one mask that stands for all others."""
        if not self.uniform:
            return {mask: Fraction(self.weights.get(mask, 0), ONE) for mask in submasks(self.bits)}
        other = Fraction(self.weights.get(self.bits, 0), ONE << self.bits.bit_count())
        return {0: Fraction(self.weights.get(0, 0), ONE) + other, self.bits: other}

    def worst_ratio(self, changed: int) -> Ratio:
        """The largest P(mask) / P(mask') over all pairs of masks that differ in the bits ``changed`` only."""
        if not changed & self.bits:
            return Fraction(1)
        families: dict[int, list[Fraction]] = {}
        for mask, probability in self.masks.items():
            families.setdefault(0 if self.uniform else mask & ~changed, []).append(probability)
        if any(min(family) == 0 < max(family) for family in families.values()):
            return None
        return max(max(family) / min(family) for family in families.values() if max(family))

    def ratio_for(self, difference: int) -> Ratio:
        """The largest P(mask) / P(mask ^ difference): the worst ratio of two words that differ by ``difference``."""
        difference &= self.bits
        if not difference:
            return Fraction(1)
        if self.uniform:
            return self.worst_ratio(difference)
        pairs = [(p, self.masks[mask ^ difference]) for mask, p in self.masks.items() if p]
        return None if any(other == 0 for _, other in pairs) else max(p / other for p, other in pairs)

    @cached_property
    def largest_probability(self) -> Fraction:
        """The probability of the likeliest mask."""
        return max(self.masks.values())

    def restricted(self, bits: int) -> Group:
        """The draw of these bits alone."""
        weights = dict[int, int]()
        for mask, weight in self.weights.items():
            weights[mask & bits] = weights.get(mask & bits, 0) + weight
        return Group(weights, self.uniform)

    def zero_xor_probability(self, masks: int) -> float:
        """The probability that the XOR of ``masks`` (2 or 4) independent masks is 0. No other value is likelier."""
        if self.uniform:
            k, miss = 1 << self.bits.bit_count(), 1 - self.weights.get(self.bits, 0) / ONE
            return float(1 / k + (1 - 1 / k) * miss**masks)
        transform = np.array([float(probability) for probability in self.masks.values()])
        half = 1
        while half < len(transform):  # Walsh-Hadamard: a convolution by XOR becomes a product
            pairs = transform.reshape(-1, 2, half)
            transform = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
            half *= 2
        return float(np.mean(transform**masks))


def read_groups(tables: Tables) -> tuple[Group, ...]:
    """Every group as the sampler draws it: all 2^16 first draws, and all 2^48 draws that may follow each tie."""
    draws = np.arange(1 << 16)
    column, low = draws >> 8, draws & 255
    groups = []
    for g in range(len(tables.first)):
        planes = [tables.outcome[g, :, p].astype(np.int64) << 8 * p for p in range(tables.outcome.shape[2])]
        words: NDArray[np.int64] = np.bitwise_or.reduce(planes)
        first = tables.first[g, column]
        weights: dict[int, int] = {}
        for side, taken in ((0, low < first), (1, low > first)):
            outcomes, counts = np.unique(words[side][column[taken]], return_counts=True)
            for outcome, count in zip(outcomes.tolist(), counts.tolist(), strict=True):
                weights[outcome] = weights.get(outcome, 0) + (count << 48)
        for c, rest in enumerate(tables.rest[g].tolist()):
            below = min(rest, 1 << 48)
            for outcome, share in ((int(words[0, c]), below), (int(words[1, c]), (1 << 48) - below)):
                weights[outcome] = weights.get(outcome, 0) + share
        drawn = {outcome: weight for outcome, weight in weights.items() if weight}
        groups.append(Group(drawn, bool(tables.uniform[g])))
    return tuple(groups)


def covered_bits(groups: tuple[Group, ...]) -> int:
    """The bits that some group draws."""
    return int(np.bitwise_or.reduce([group.bits for group in groups]))


def worst_ratio(groups: tuple[Group, ...], changed: int) -> Ratio:
    """The worst ratio over all outputs and all pairs of words that differ in the bits ``changed`` only.

    A bit that no group draws is released unchanged, so its ratio is unbounded.
    """
    if changed & ~covered_bits(groups):
        return None
    return product([group.worst_ratio(changed) for group in groups])


def product(ratios: list[Ratio]) -> Ratio:
    finite = [ratio for ratio in ratios if ratio is not None]
    return math.prod(finite, start=Fraction(1)) if len(finite) == len(ratios) else None


def is_within(ratio: Ratio, epsilon: Fraction) -> bool:
    """Return whether ratio <= e^epsilon, decided with a bound below e^epsilon, but not below 1. epsilon: at least 0."""
    if ratio is None:
        return False
    with localcontext(prec=100, rounding=ROUND_FLOOR):
        exponent = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
        bound = exponent.exp().next_minus()
    return ratio <= max(Fraction(1), Fraction(bound))


def epsilon_of(ratio: Ratio) -> float:
    """ln(ratio), rounded up; infinite if the ratio is unbounded."""
    return math.inf if ratio is None else round_up(ln_up(ratio))


@dataclass(frozen=True)
class MeasuredBits:
    """Some bits of a word: the eps requested for them, and the ratio that the tables give.

    ``allowance``: the factor by which rounding may lift the ratio.
    """

    name: str
    bits: int
    requested: Fraction
    allowance: Fraction
    ratio: Ratio

    @property
    def holds(self) -> bool:
        return self.ratio is not None and is_within(self.ratio / self.allowance, self.requested)

    @property
    def limit(self) -> float:
        return round_up(self.requested + self.allowance - 1)

    @property
    def epsilon(self) -> float:
        return epsilon_of(self.ratio)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "bits": f"0x{self.bits:x}",
            "requested": float(self.requested),
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "ratio": None if self.ratio is None else f"{self.ratio.numerator}/{self.ratio.denominator}",
        }


def rounding_factor(group: Group) -> Fraction:
    """How far rounding can lift the ratio of a part of a packed group above the part's share: docs/proofs.md, 14.1.

    All weights but that of the zero mask are rounded up, by less than one unit each. The zero mask takes what is left,
    so it loses less than one unit for every other mask. Before rounding it is the heaviest mask.
    """
    smallest, masks = min(group.weights.values()), 1 << group.bits.bit_count()
    if smallest < 2:  # a correct packed group has no such weight, so nothing is allowed for it
        return Fraction(1)
    lost = masks - 1
    return (1 + Fraction(1, smallest - 1)) * (1 + Fraction(lost, ONE // masks - lost))


def measure_bits(
    plan: Plan, groups: tuple[Group, ...], name: str, bits: int, *, allow_rounding: bool = True
) -> MeasuredBits:
    """Measure ``bits`` against the shares of the slices that they touch.

    The ratio of a part of a packed group may pass its share by ``rounding_factor``. The ratio of the whole word may not
    (docs/proofs.md, 4): use ``allow_rounding=False`` for it.
    """
    requested = sum((Fraction(part.epsilon) for part in plan.slices if part.bits & bits), Fraction(0))
    allowance = Fraction(1)
    for group in groups if allow_rounding else ():
        is_packed = sum(bool(part.bits & group.bits) for part in plan.slices) > 1
        if is_packed and group.bits & bits:
            allowance *= rounding_factor(group)
    return MeasuredBits(name, bits, requested, allowance, worst_ratio(groups, bits))


def check_tables(plan: Plan, prune: Prune, tables: Tables) -> list[Check]:
    """Check the tables against the plan, and against the card that would be written for it."""
    groups = read_groups(tables)
    card = {level.unit: level.epsilon for level in Statement.of(plan, prune, "rgb", ((8, 8),)).levels}
    slices = [measure_bits(plan, groups, plan.slice_name(part), part.bits) for part in plan.slices]
    checks = [_check_groups(plan, groups), _check_parts("slices", slices, card["slice"])]
    if plan.is_colour:
        channel_bits = {name: 0xFF << 16 - 8 * c & plan.kept_bits for c, name in enumerate(CHANNELS)}
        channels = [measure_bits(plan, groups, name, bits) for name, bits in channel_bits.items() if bits]
        checks.append(_check_parts("channels", channels))
    return [*checks, _check_pixel(plan, groups, card["released pixel"])]


def _check_groups(plan: Plan, groups: tuple[Group, ...]) -> Check:
    failures, covered = [], 0
    for g, group in enumerate(groups):
        if group.uniform and not group.is_hit_or_miss:
            failures.append(f"group {g} is wide and has outcomes other than hit and miss")
        if shared := group.bits & covered:
            failures.append(f"the bits 0x{shared:x} are drawn by two groups")
        covered |= group.bits
    if missing := plan.kept_bits & ~covered:
        failures.append(f"the bits 0x{missing:x} of the plan are never changed")
    if foreign := covered & ~plan.kept_bits:
        failures.append(f"the bits 0x{foreign:x} are changed and belong to no slice")
    tested = f"{counted(len(groups), 'group')}, all 2^64 draws of each: every bit of the plan is in one of them"
    return Check(SECTION, "draws", tested, not failures, failures=tuple(failures))


def _check_parts(name: str, parts: list[MeasuredBits], card: float = math.inf) -> Check:
    """Check that each part is within its requested eps, and none above the number on the card."""
    failures = [
        f"{part.name}: epsilon {part.epsilon!r}, requested {float(part.requested)!r}"
        for part in parts
        if not part.holds
    ]
    failures += [
        f"{part.name}: epsilon {part.epsilon!r}, the card says {card!r}" for part in parts if part.epsilon > card
    ]
    worst = max(parts, key=lambda part: part.epsilon / part.limit)
    return Check(
        SECTION,
        name,
        f"{len(parts)} {name}, all pairs of values and all outputs, each within its share; nearest: {worst.name}",
        not failures,
        "epsilon",
        worst.epsilon,
        "<=",
        worst.limit,
        failures=tuple(failures),
        details={"parts": [part.to_dict() for part in parts]},
    )


def _check_pixel(plan: Plan, groups: tuple[Group, ...], card: float) -> Check:
    pixel = measure_bits(plan, groups, "released pixel", plan.kept_bits, allow_rounding=False)
    found = pixel.epsilon
    stated = f"the card says {found:.9g}" if found == card else f"THE CARD SAYS {card!r}"
    return Check(
        SECTION,
        "released pixel",
        f"all pairs of {plan.word_bits}-bit words and all outputs; {stated}",
        pixel.holds and Fraction(found) <= Fraction(plan.epsilon) and found <= card,
        "epsilon",
        found,
        "<=",
        plan.epsilon,
        details=pixel.to_dict() | {"card": card},
    )
