"""The worst likelihood ratios, in exact rationals, counted from the arrays that the sampler reads.

The weights do not come from ``tables.py``: every 16-bit draw of every group is gone through as the sampler does, and ratios are
compared with e^eps itself (``ln_up`` only writes them as eps, beside the card's). Proofs: docs/proofs.md, 3, 4, 6 and 12. Tests:
tests/audit/test_exact.py.
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
from ldp_slicing.card import Statement, counted
from ldp_slicing.plan import CHANNELS, Plan
from ldp_slicing.tables import ONE, Tables, ln_up, round_up, submasks
from ldp_slicing.view import Prune

SECTION = "exact, from the tables in use"
Ratio = Fraction | None  # None: unbounded


@dataclass(frozen=True)
class Group:
    """The masks of one independent draw.

    ``weights``: each outcome with its weight over 2^64. ``uniform``: the outcome is then ANDed with uniform bits (a wide slice), so
    that every mask but 0 has the same probability.
    """

    weights: dict[int, int]
    uniform: bool

    @cached_property
    def bits(self) -> int:
        """The bits that this draw ever changes."""
        return int(np.bitwise_or.reduce(list(self.weights)))

    @cached_property
    def is_hit_or_miss(self) -> bool:
        return set(self.weights) <= {0, self.bits}

    @cached_property
    def masks(self) -> dict[int, Fraction]:
        """Each mask with its probability; of a wide slice 0 and one other mask, which stands for all."""
        if not self.uniform:
            return {mask: Fraction(self.weights.get(mask, 0), 1 << 64) for mask in submasks(self.bits)}
        other = Fraction(self.weights.get(self.bits, 0), 1 << 64 + self.bits.bit_count())
        return {0: Fraction(self.weights.get(0, 0), 1 << 64) + other, self.bits: other}

    def worst_ratio(self, changed: int) -> Ratio:
        """The largest P(mask) / P(mask') over all masks that differ in the bits ``changed`` alone."""
        if not changed & self.bits:
            return Fraction(1)
        families: dict[int, list[Fraction]] = {}
        for mask, probability in self.masks.items():
            families.setdefault(0 if self.uniform else mask & ~changed, []).append(probability)
        if any(min(family) == 0 < max(family) for family in families.values()):
            return None
        return max(max(family) / min(family) for family in families.values() if max(family))

    def ratio_of(self, difference: int) -> Ratio:
        """The largest P(mask) / P(mask ^ difference): how well one output can tell two words apart that differ so."""
        difference &= self.bits
        if not difference:
            return Fraction(1)
        if self.uniform:
            return self.worst_ratio(difference)
        pairs = [
            (probability, self.masks[mask ^ difference]) for mask, probability in self.masks.items() if probability
        ]
        return (
            None if any(other == 0 for _, other in pairs) else max(probability / other for probability, other in pairs)
        )

    @cached_property
    def largest(self) -> Fraction:
        """The probability of the likeliest mask."""
        return max(self.masks.values())

    def equal_draws(self, masks: int) -> float:
        """The probability that the XOR of ``masks`` independent masks (2 or 4) is 0. For other values it is not larger."""
        if self.uniform:
            k, kept = 1 << self.bits.bit_count(), 1 - self.weights.get(self.bits, 0) / 2**64
            return float(1 / k + (1 - 1 / k) * kept**masks)
        transform = np.array([float(probability) for probability in self.masks.values()])
        half = 1
        while half < len(transform):  # Walsh-Hadamard: a convolution by XOR is a product
            pairs = transform.reshape(-1, 2, half)
            transform = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
            half *= 2
        return float(np.mean(transform**masks))


def read_groups(tables: Tables) -> tuple[Group, ...]:
    """Every group as the sampler would draw it: all 2^16 first draws, and for each tie all 2^48 that may follow."""
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
            for outcome, share in (
                (int(words[0, c]), min(rest, 1 << 48)),
                (int(words[1, c]), (1 << 48) - min(rest, 1 << 48)),
            ):
                weights[outcome] = weights.get(outcome, 0) + share
        groups.append(
            Group({outcome: weight for outcome, weight in weights.items() if weight}, bool(tables.uniform[g]))
        )
    return tuple(groups)


def covered(groups: tuple[Group, ...]) -> int:
    """The bits that some group draws."""
    return int(np.bitwise_or.reduce([group.bits for group in groups]))


def worst_ratio(groups: tuple[Group, ...], changed: int) -> Ratio:
    """Over all pairs of words that differ in the bits ``changed`` alone, and all outputs. A bit that no group draws gives itself away."""
    if changed & ~covered(groups):
        return None
    return product([group.worst_ratio(changed) for group in groups])


def product(ratios: list[Ratio]) -> Ratio:
    finite = [ratio for ratio in ratios if ratio is not None]
    return math.prod(finite, start=Fraction(1)) if len(finite) == len(ratios) else None


def is_within(ratio: Ratio, epsilon: Fraction) -> bool:
    """ratio <= e^epsilon, decided with a bound below e^epsilon."""
    if ratio is None:
        return False
    with localcontext(prec=100, rounding=ROUND_FLOOR):
        exponent = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
        bound = exponent.exp().next_minus()
    return ratio <= (Fraction(bound) if epsilon else 1)


def epsilon_of(ratio: Ratio) -> float:
    """ln(ratio), rounded up; infinite where the ratio is unbounded."""
    return math.inf if ratio is None else round_up(ln_up(ratio))


@dataclass(frozen=True)
class Part:
    """Some bits of a word: the eps that was asked for them, and the one that the tables give."""

    name: str
    bits: int
    asked: Fraction
    allowance: Fraction
    ratio: Ratio

    @property
    def holds(self) -> bool:
        return self.ratio is not None and is_within(self.ratio / self.allowance, self.asked)

    @property
    def limit(self) -> float:
        return round_up(self.asked + self.allowance - 1)

    def to_dict(self) -> dict[str, Any]:
        found = epsilon_of(self.ratio)
        ratio = None if self.ratio is None else f"{self.ratio.numerator}/{self.ratio.denominator}"
        epsilon = found if math.isfinite(found) else None
        return {
            "name": self.name,
            "bits": f"0x{self.bits:x}",
            "asked": float(self.asked),
            "epsilon": epsilon,
            "ratio": ratio,
        }


def rounding_factor(group: Group) -> Fraction:
    """How far rounding can lift the ratio of a part of a packed group above the part's share: docs/proofs.md, 14.1.

    Weights other than that of the zero mask are rounded up, by less than one unit each. The zero mask takes what is left,
    so it loses less than one unit for every other mask, and it is the heaviest of all masks before rounding.
    """
    smallest, masks = min(group.weights.values()), 1 << group.bits.bit_count()
    if smallest < 2:  # no build of ours has such a weight in a packed group, and nothing is allowed for it
        return Fraction(1)
    lost = masks - 1
    return (1 + Fraction(1, smallest - 1)) * (1 + Fraction(lost, ONE // masks - lost))


def measure(plan: Plan, groups: tuple[Group, ...], name: str, bits: int, *, rounded: bool = True) -> Part:
    """Compare ``bits`` with the shares of the slices that they touch.

    The ratio of a part of a packed group may pass its share by ``rounding_factor``. The ratio of the whole word may not
    (docs/proofs.md, 4): use ``rounded=False`` for it.
    """
    asked = sum((Fraction(part.epsilon) for part in plan.slices if part.bits & bits), Fraction(0))
    allowance = Fraction(1)
    for group in groups if rounded else ():
        packed = sum(bool(part.bits & group.bits) for part in plan.slices) > 1
        if packed and group.bits & bits:
            allowance *= rounding_factor(group)
    return Part(name, bits, asked, allowance, worst_ratio(groups, bits))


def check_tables(plan: Plan, prune: Prune, tables: Tables) -> list[Check]:
    """The tables against the plan, and against the card that would be written for it."""
    groups = read_groups(tables)
    channel_bits = (
        {name: 0xFF << 16 - 8 * c & plan.kept_bits for c, name in enumerate(CHANNELS)} if plan.is_colour else {}
    )
    slices = [measure(plan, groups, plan.slice_name(part), part.bits) for part in plan.slices]
    channels = [measure(plan, groups, name, bits) for name, bits in channel_bits.items() if bits]
    pixel = measure(plan, groups, "released pixel", plan.kept_bits, rounded=False)
    card = {level.unit: level.epsilon for level in Statement(plan, prune, "rgb", ((8, 8),)).levels}
    checks = [_check_groups(plan, groups), _check_parts("slices", slices, card["slice"])]
    if channels:
        checks.append(_check_parts("channels", channels))
    found = epsilon_of(pixel.ratio)
    said = (
        f"the card says {found:.9g}" if found == card["released pixel"] else f"THE CARD SAYS {card['released pixel']!r}"
    )
    checks.append(
        Check(
            SECTION,
            "released pixel",
            f"all pairs of {plan.word_bits}-bit words and all outputs; {said}",
            pixel.holds and Fraction(found) <= Fraction(plan.epsilon) and found <= card["released pixel"],
            "epsilon",
            found,
            "<=",
            plan.epsilon,
            details=pixel.to_dict() | {"card": card["released pixel"]},
        )
    )
    return checks


def _check_groups(plan: Plan, groups: tuple[Group, ...]) -> Check:
    complaints = []
    for g, group in enumerate(groups):
        if group.uniform and not group.is_hit_or_miss:
            complaints.append(f"group {g} is wide and has outcomes other than hit and miss")
        if shared := group.bits & covered((*groups[:g], Group({0: 1}, False))):
            complaints.append(f"the bits 0x{shared:x} are drawn by two groups")
    if missing := plan.kept_bits & ~covered(groups):
        complaints.append(f"the bits 0x{missing:x} of the plan are never changed")
    if foreign := covered(groups) & ~plan.kept_bits:
        complaints.append(f"the bits 0x{foreign:x} are changed and in no slice")
    draws = f"{counted(len(groups), 'group')}, all 2^64 draws of each: every bit of the plan in one of them"
    return Check(SECTION, "draws", draws, not complaints, complaints=tuple(complaints))


def _check_parts(name: str, parts: list[Part], card: float = math.inf) -> Check:
    """Each part within the eps asked for it, and none above the number on the card."""
    complaints = [
        f"{part.name}: epsilon {epsilon_of(part.ratio)!r}, asked {float(part.asked)!r}"
        for part in parts
        if not part.holds
    ]
    complaints += [
        f"{part.name}: epsilon {epsilon_of(part.ratio)!r}, the card says {card!r}"
        for part in parts
        if epsilon_of(part.ratio) > card
    ]
    worst = max(parts, key=lambda part: epsilon_of(part.ratio) / part.limit)
    tried = f"{len(parts)} {name}, all pairs of values and all outputs, each within its share; nearest is {worst.name}"
    details = {"parts": [part.to_dict() for part in parts]}
    found = epsilon_of(worst.ratio)
    return Check(
        SECTION,
        name,
        tried,
        not complaints,
        "epsilon",
        found,
        "<=",
        worst.limit,
        complaints=tuple(complaints),
        details=details,
    )
