"""Plans: which bits of a pixel are randomised together, and what each costs. Pure arithmetic."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from numbers import Real

from ldp_slicing.errors import PlanError
from ldp_slicing.tables import Tables, build_tables, round_up

COLOUR_BITS = 24  # the word Y << 16 | Cb << 8 | Cr
CHANNELS = ("Y", "Cb", "Cr")
PAPER_WEIGHTS = (4, 1, 1)  # of Y, Cb and Cr
SHARE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
SELDOM = Fraction(1, 10**6)  # a slice that is changed less often leaves most pictures as they are


@dataclass(frozen=True, order=True)
class Slice:
    """A set of bits randomised as one symbol, and its eps.

    >>> Slice(bits=0x800000, epsilon=3.1)      # the highest bit of Y: one of the paper's bit-planes
    Slice(bits=0x800000, epsilon=3.1)
    """

    bits: int
    epsilon: float

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or self.bits <= 0:
            raise PlanError(
                f"a slice needs at least one bit, as a mask over the word such as 0x800000; got bits={self.bits!r}"
            )
        object.__setattr__(self, "epsilon", positive("a slice's epsilon", self.epsilon))

    def __repr__(self) -> str:
        return f"Slice(bits=0x{self.bits:06x}, epsilon={self.epsilon!r})"


@dataclass(frozen=True)
class Plan:
    """Disjoint slices of one pixel's word; the sum of their eps is the plan's eps.

    >>> plan = Plan.paper(20.0)
    >>> len(plan.slices), plan.realised_epsilon <= plan.epsilon
    (24, True)
    >>> Plan.sliced(5.2, "Y7+Y6+Cb7+Cr7").slices     # one thick slice: these bits as one symbol, the rest dropped
    (Slice(bits=0xc08080, epsilon=5.2),)

    ``word_bits`` is 24 for colour (Y << 16 | Cb << 8 | Cr) and 1 to 16 for one grey channel. Bits in no slice are
    dropped: they are released as a constant, at no cost. The order of the slices means nothing; they are kept highest bits first.
    """

    slices: tuple[Slice, ...]
    word_bits: int = COLOUR_BITS
    requested: float | None = field(default=None, compare=False, repr=False)

    def __init__(
        self, slices: Iterable[Slice], word_bits: int = COLOUR_BITS, *, requested: float | None = None
    ) -> None:
        ordered = tuple(sorted(slices, reverse=True))
        object.__setattr__(self, "slices", ordered)
        object.__setattr__(self, "word_bits", word_bits)
        object.__setattr__(self, "requested", requested)
        self._check()

    def _check(self) -> None:
        if self.word_bits != COLOUR_BITS and not 1 <= self.word_bits <= 16:
            raise PlanError(f"a word has 24 bits (colour) or 1 to 16 (grey); got word_bits={self.word_bits!r}")
        if not self.slices:
            raise PlanError("a plan needs at least one slice; got none")
        taken = 0
        for part in self.slices:
            if part.bits >> self.word_bits:
                raise PlanError(
                    f"slice 0x{part.bits:x} has bits above the {self.word_bits}-bit word (highest mask 0x{(1 << self.word_bits) - 1:x})"
                )
            if part.bits & taken:
                raise PlanError(
                    f"slice 0x{part.bits:06x} overlaps another slice in the bits 0x{part.bits & taken:06x}; slices must be disjoint"
                )
            taken |= part.bits
        if self.requested is not None and self._sum() > Fraction(self.requested):
            raise PlanError(
                f"the slices add up to {float(self._sum())!r}, more than the requested epsilon {self.requested!r}"
            )

    def _sum(self) -> Fraction:
        return sum((Fraction(part.epsilon) for part in self.slices), Fraction(0))

    @classmethod
    def paper(cls, epsilon: float, weights: Sequence[float] = PAPER_WEIGHTS) -> Plan:
        """The paper's plan: 24 one-bit slices, eps in proportion to sqrt(w_c 2^b). A channel of weight 0 is dropped."""
        weights = tuple(weights)
        if (
            len(weights) != 3
            or not all(_is_number(w) and math.isfinite(w) and w >= 0 for w in weights)
            or not any(weights)
        ):
            raise PlanError(f"colour weights are three numbers >= 0 for Y:Cb:Cr, not all 0; got {weights!r}")
        importance = {1 << (16 - 8 * c + b): Fraction(w) * 2**b for c, w in enumerate(weights) for b in range(8) if w}
        return _allocate(epsilon, _roots(importance), COLOUR_BITS)

    @classmethod
    def uniform(cls, epsilon: float, bits: int = COLOUR_BITS) -> Plan:
        """The paper's ablation: every bit of the word gets the same eps."""
        _check_width(bits, colour=True)
        return _allocate(epsilon, [(1 << b, Fraction(1)) for b in range(bits)], bits)

    @classmethod
    def grey(cls, epsilon: float, bits: int = 8) -> Plan:
        """The paper's plan for one channel of 8 to 16 bits, without colour weights."""
        _check_width(bits, colour=False)
        return _allocate(epsilon, _roots({1 << b: Fraction(2**b) for b in range(bits)}), bits)

    @classmethod
    def sliced(cls, epsilon: float, slices: str, bits: int = COLOUR_BITS) -> Plan:
        """Slices by the names of their bits, which are dropped where no slice has them: "Y7+Y4+Cb7+Cr7", or for grey pixels "11+10".

        Several slices share eps evenly, "Y7+Y6,Cb7", or as told: "Y7+Y6=3,Cb7=1".
        """
        _check_width(bits, colour=True)
        if not slices.strip():
            raise PlanError("no bits are named: slices are such as Y7+Y6, or 11+10 for grey pixels")
        return _allocate(epsilon, [_named(part, bits) for part in slices.split(",")], bits)

    @property
    def epsilon(self) -> float:
        """The eps asked for: what the allocation was given, else the sum of the slices, rounded up."""
        return round_up(self._sum()) if self.requested is None else self.requested

    @property
    def realised_epsilon(self) -> float:
        """The eps of a released pixel, computed in exact rationals from the tables the sampler reads, rounded up."""
        realised = self.tables.realised_epsilon
        if realised > self.epsilon:  # excluded by docs/proofs.md, 4, but for a coincidence to 55 digits
            raise PlanError(
                f"this plan would realise epsilon {realised!r}, more than the {self.epsilon!r} asked for; ask for a little more"
            )
        return realised

    @cached_property
    def tables(self) -> Tables:
        """The integers that every path reads instead of probabilities."""
        return build_tables(((part.bits, part.epsilon) for part in self.slices), self.word_bits)

    @property
    def is_colour(self) -> bool:
        return self.word_bits == COLOUR_BITS

    @cached_property
    def kept_bits(self) -> int:
        """The bits that are in some slice."""
        return sum(part.bits for part in self.slices)

    @cached_property
    def dropped_value(self) -> int:
        """What dropped bits are released as: per channel the highest as 1, the others as 0 (the middle of what they could be)."""
        value = 0
        width = 8 if self.is_colour else self.word_bits
        for shift in range(0, self.word_bits, width):
            dropped = ~(self.kept_bits >> shift) & ((1 << width) - 1)
            value |= (1 << dropped.bit_length() >> 1) << shift
        return value

    @property
    def remark(self) -> str | None:
        """What somebody who asks for this plan may not expect, else None: less eps than asked, bits that are as good as not noisy, or the
        highest bits of grey pixels dropped.
        """
        said = list[str]()
        if self.realised_epsilon < 0.99 * self.epsilon:
            said.append(
                f"realises epsilon {self.realised_epsilon:.6g} of the {self.epsilon:.6g} asked for: probabilities are integers over 2^64 "
                "and never 0, so this plan is more private, and noisier, than asked"
            )
        chances = {self.slice_name(part): self.tables.change_probability(part.bits) for part in self.slices}
        if seldom := {name: chance for name, chance in chances.items() if chance < SELDOM}:
            name, chance = min(seldom.items(), key=lambda item: item[1])
            others = f" and {len(seldom) - 1} more" * (len(seldom) > 1)
            said.append(
                f"hardly ever changes {name}{others} (once in {1 / float(chance):,.0f} pixels): most releases show what it was"
            )
        if not self.is_colour and (above := self.word_bits - self.kept_bits.bit_length()):
            said.append(
                f"drops the highest {above} of {self.word_bits} bits: those of grey pixels are counted from the lowest, 0"
            )
        return "; it ".join(said) or None

    def bit_name(self, bit: int) -> str:
        """'Y7' for bit 23 of a colour word, 'bit 11' for a grey one."""
        return ("" if self.is_colour else "bit ") + _name(bit, self.word_bits)

    def slice_name(self, part: Slice) -> str:
        return "+".join(self.bit_name(b) for b in range(self.word_bits - 1, -1, -1) if part.bits >> b & 1)


def positive(what: str, value: float) -> float:
    """``value`` as a float, or a refusal that shows it."""
    if not _is_number(value) or not math.isfinite(value) or value <= 0:
        raise PlanError(f"{what} must be a positive, finite number; got {value!r}")
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_width(bits: int, *, colour: bool) -> None:
    if not (isinstance(bits, int) and (8 <= bits <= 16 or (colour and bits == COLOUR_BITS))):
        raise PlanError(f"grey words have 8 to 16 bits{' and colour words 24' if colour else ''}; got bits={bits!r}")


def _name(bit: int, word_bits: int) -> str:
    return f"{CHANNELS[2 - bit // 8]}{bit % 8}" if word_bits == COLOUR_BITS else str(bit)


def _named(text: str, word_bits: int) -> tuple[int, Fraction]:
    """The bits of one slice, "Y7+Y6" or "Y7+Y6=3", and its share."""
    names, told, share = (part.strip() for part in text.partition("="))
    known = {_name(bit, word_bits).casefold(): 1 << bit for bit in range(word_bits)}
    found = 0
    for name in (name.strip().removeprefix("bit ") for name in names.split("+")):
        bit = known.get(name.casefold())
        if bit is None:
            grey = f"a grey pixel of {word_bits} bits, which has {word_bits - 1} to 0"
            kind = "a colour pixel, which has Y7 to Y0, Cb7 to Cb0 and Cr7 to Cr0" if word_bits == COLOUR_BITS else grey
            raise PlanError(f"{name!r} is not a bit of {kind}")
        if bit & found:
            raise PlanError(f"the slice {names!r} names the bit {name} twice")
        found |= bit
    if told and (not SHARE.fullmatch(share) or not Fraction(share)):
        raise PlanError(f"the share of a slice is a number above 0, as in Y7+Y6=3 or Y7+Y6=0.75; got {share!r}")
    return found, Fraction(share if told else 1)


def _roots(importance: dict[int, Fraction]) -> list[tuple[int, Fraction]]:
    """Shares in proportion to the square root of the importance, to 50 digits."""
    with localcontext(prec=50):
        return [
            (bit, Fraction((Decimal(w.numerator) / Decimal(w.denominator)).sqrt())) for bit, w in importance.items()
        ]


def _allocate(epsilon: float, shares: Sequence[tuple[int, Fraction]], word_bits: int) -> Plan:
    """Slices with eps in proportion to their shares, each rounded down: float sums overshoot."""
    epsilon = positive("epsilon", epsilon)
    total = sum(share for _, share in shares)
    parts = [(bits, _round_down(Fraction(epsilon) * share / total)) for bits, share in shares]
    if not all(part for _, part in parts):
        raise PlanError(f"epsilon {epsilon!r} is too small to split over {len(parts)} slices")
    return Plan([Slice(bits, part) for bits, part in parts], word_bits, requested=epsilon)


def _round_down(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0.0)


def plan_for(
    word_bits: int, epsilon: float, weights: Sequence[float] = PAPER_WEIGHTS, slices: str | None = None
) -> Plan:
    """The plan for pixels of that width: of the slices that are named, else the paper's."""
    if slices is None:
        return Plan.paper(epsilon, weights) if word_bits == COLOUR_BITS else Plan.grey(epsilon, word_bits)
    if tuple(weights) != PAPER_WEIGHTS:
        raise PlanError(
            "weights belong to the paper's plan: leave them out where slices are named, and give shares instead, Y7+Y6=3,Cb7=1"
        )
    return Plan.sliced(epsilon, slices, word_bits)
