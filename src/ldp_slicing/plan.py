"""Plans: which bits of a pixel are randomised together, and the eps of each slice. Pure arithmetic.

Proofs: docs/proofs.md, 1 to 5. Tests: tests/test_plan.py.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any, Protocol

import numpy as np

from ldp_slicing.errors import CardError, PlanError
from ldp_slicing.tables import Tables, build_tables, round_up

COLOUR_BITS = 24  # the word Y << 16 | Cb << 8 | Cr
CHANNELS = ("Y", "Cb", "Cr")
PAPER_WEIGHTS = (4, 1, 1)  # of Y, Cb and Cr
BUDGETS = (1.0, 2.4, 5.2, 12.0, 20.0, 32.0, 58.0)  # the eps per pixel of the paper's experiments
SHARE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
RARE = Fraction(1, 10**6)  # a slice that changes less often is unchanged in most images


class StatesPlan(Protocol):
    """What a plan needs to know of a card's ``Statement``, which this module does not import."""

    @property
    def plan(self) -> Plan: ...


class StatesPlans(Protocol):
    """What a plan needs to know of a ``Card``."""

    def statement(self, bits: int | None = None) -> StatesPlan: ...


@dataclass(frozen=True, order=True)
class Slice:
    """A set of bits that is randomised as one symbol, and its eps.

    >>> Slice(bits=0x800000, epsilon=3.1)      # the highest bit of Y: one of the paper's bit-planes
    Slice(bits=0x800000, epsilon=3.1)

    ``bits`` is a mask over the word. A slice of several bits is a thick slice.
    """

    bits: int
    epsilon: float

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or self.bits <= 0:
            raise PlanError(f"a slice needs at least one bit, given as a mask such as 0x800000; got bits={self.bits!r}")
        object.__setattr__(self, "epsilon", positive("a slice's epsilon", self.epsilon))

    def __repr__(self) -> str:
        return f"Slice(bits=0x{self.bits:06x}, epsilon={self.epsilon!r})"


@dataclass(frozen=True)
class Plan:
    """Disjoint slices of one pixel's word; the sum of their eps is the plan's eps.

    >>> plan = Plan.paper(20.0)
    >>> len(plan.slices), plan.realised_epsilon <= plan.epsilon
    (24, True)
    >>> Plan.sliced(5.2, "Y7+Y6+Cb7+Cr7").slices     # one thick slice; all other bits are dropped
    (Slice(bits=0xc08080, epsilon=5.2),)

    ``word_bits`` is 24 for colour (Y << 16 | Cb << 8 | Cr) and 1 to 16 for one grey channel. Bits in no slice are
    dropped: they are released as a constant, which costs no eps. Slices are sorted, highest bits first.
    ``requested`` is the eps that an allocation was given; the slices may sum to slightly less.
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
        object.__setattr__(self, "requested", None if requested is None else positive("epsilon", requested))
        self._check()

    def _check(self) -> None:
        if self.word_bits != COLOUR_BITS and not 1 <= self.word_bits <= 16:
            raise PlanError(f"a word must have 24 bits (colour) or 1 to 16 (grey); got word_bits={self.word_bits!r}")
        if not self.slices:
            raise PlanError("a plan needs at least one slice; got none")
        taken = 0
        for part in self.slices:
            if part.bits >> self.word_bits:
                raise PlanError(
                    f"slice 0x{part.bits:x} has bits outside the {self.word_bits}-bit word, "
                    f"whose bits are 0x{(1 << self.word_bits) - 1:x}"
                )
            if part.bits & taken:
                raise PlanError(
                    f"slice 0x{part.bits:06x} overlaps another slice in the bits 0x{part.bits & taken:06x}; "
                    "slices must be disjoint"
                )
            taken |= part.bits
        if self._sum() > Fraction(sys.float_info.max):
            raise PlanError("the slices sum to an epsilon above 1.7e308, which no number can state; use smaller ones")
        if self.requested is not None and self._sum() > Fraction(self.requested):
            raise PlanError(
                f"the slices sum to {float(self._sum())!r}, which is more than the requested epsilon {self.requested!r}"
            )

    def _sum(self) -> Fraction:
        return sum((Fraction(part.epsilon) for part in self.slices), Fraction(0))

    @classmethod
    def paper(cls, epsilon: float, weights: Sequence[float] = PAPER_WEIGHTS) -> Plan:
        """Return the paper's plan: 24 one-bit slices with eps proportional to sqrt(w_c 2^b).

        ``weights`` are those of Y, Cb and Cr. A channel of weight 0 is dropped.
        """
        weights = tuple(weights)
        if (
            len(weights) != 3
            or not all(_is_number(w) and math.isfinite(w) and w >= 0 for w in weights)
            or not any(weights)
        ):
            raise PlanError(f"weights must be three numbers >= 0 for Y:Cb:Cr, not all 0; got {weights!r}")
        importance = {1 << (16 - 8 * c + b): Fraction(w) * 2**b for c, w in enumerate(weights) for b in range(8) if w}
        return _allocate(epsilon, _roots(importance), COLOUR_BITS)

    @classmethod
    def uniform(cls, epsilon: float, bits: int = COLOUR_BITS) -> Plan:
        """Return the plan of the paper's ablation, in which every bit of the word has the same eps."""
        _check_width(bits, colour=True)
        return _allocate(epsilon, [(1 << b, Fraction(1)) for b in range(bits)], bits)

    @classmethod
    def grey(cls, epsilon: float, bits: int = 8) -> Plan:
        """Return the paper's plan for one grey channel of 1 to 16 bits. It has no colour weights."""
        _check_width(bits, colour=False)
        return _allocate(epsilon, _roots({1 << b: Fraction(2**b) for b in range(bits)}), bits)

    @classmethod
    def sliced(cls, epsilon: float, slices: str, bits: int = COLOUR_BITS) -> Plan:
        """Return the plan whose slices are named by their bits: "Y7+Y4+Cb7+Cr7", or "11+10" for grey pixels.

        Several slices share eps equally, "Y7+Y6,Cb7", or in given proportions, "Y7+Y6=3,Cb7=1". Other bits are dropped.
        """
        _check_width(bits, colour=True)
        if not slices.strip():
            raise PlanError("no bits are named; name slices by their bits, such as Y7+Y6, or 11+10 for grey pixels")
        return _allocate(epsilon, [_named(part, bits) for part in slices.split(",")], bits)

    @property
    def epsilon(self) -> float:
        """The requested eps: what the allocation was given, or else the sum over the slices, rounded up."""
        return round_up(self._sum()) if self.requested is None else self.requested

    @property
    def realised_epsilon(self) -> float:
        """The eps of a released pixel: computed from the sampler's tables in exact rationals and rounded up."""
        realised = self.tables.realised_epsilon
        if realised > self.epsilon:  # docs/proofs.md, 4, rules this out, except for a coincidence to 55 digits
            raise PlanError(
                f"this plan realises epsilon {realised!r}, more than the requested {self.epsilon!r}; "
                "request a slightly larger epsilon"
            )
        return realised

    @cached_property
    def tables(self) -> Tables:
        """The integers that every backend reads instead of probabilities."""
        return build_tables(((part.bits, part.epsilon) for part in self.slices), self.word_bits)

    @property
    def is_colour(self) -> bool:
        return self.word_bits == COLOUR_BITS

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The dtype of the plan's images: uint8, or uint16 for grey words of 9 to 16 bits."""
        return np.dtype(np.uint8 if channel_bits(self.word_bits) <= 8 else np.uint16)

    @cached_property
    def kept_bits(self) -> int:
        """The bits that are in a slice, as a mask."""
        return sum(part.bits for part in self.slices)

    @cached_property
    def dropped_value(self) -> int:
        """The constant that dropped bits are released as: in each channel the highest as 1, the others as 0.

        That is the middle of the values they could have.
        """
        value = 0
        width = channel_bits(self.word_bits)
        for shift in range(0, self.word_bits, width):
            dropped = ~(self.kept_bits >> shift) & ((1 << width) - 1)
            value |= (1 << dropped.bit_length() >> 1) << shift
        return value

    @property
    def rarely_changed(self) -> dict[str, Fraction]:
        """The slices that change less than once in 10^6 pixels, by name, with the probability that they change."""
        chances = {self.slice_name(part): self.tables.change_probability(part.bits) for part in self.slices}
        return {name: chance for name, chance in chances.items() if chance < RARE}

    def check_noise(self, advice: str) -> None:
        """Raise PlanError if a slice hardly ever changes, so that releases show the source. advice: what to do."""
        if rare := self.rarely_changed:
            name = min(rare, key=lambda one: rare[one])
            raise PlanError(
                f"epsilon {self.epsilon:g} makes the noise pointless: it changes {name} less than once in 10^6 pixels, "
                f"so releases show the source. {advice}"
            )

    @property
    def remark(self) -> str | None:
        """A warning for somebody who chooses this plan, or None.

        It concerns a plan that realises less eps than requested, has slices that almost never change, or drops the
        highest bits of grey pixels.
        """
        remarks = list[str]()
        if self.realised_epsilon < 0.99 * self.epsilon:
            remarks.append(
                f"realises epsilon {self.realised_epsilon:.6g} of the requested {self.epsilon:.6g}: probabilities are "
                "integers over 2^64 and never 0, so this plan is noisier and more private than requested"
            )
        if rare := self.rarely_changed:
            name, chance = min(rare.items(), key=lambda item: item[1])
            others = f" and {len(rare) - 1} more" if len(rare) > 1 else ""
            remarks.append(
                f"almost never changes {name}{others} (1 in {1 / float(chance):,.0f} pixels): "
                "most releases show the source's value"
            )
        if not self.is_colour and (above := self.word_bits - self.kept_bits.bit_length()):
            remarks.append(
                f"drops the highest {above} of {self.word_bits} bits: "
                "bits of grey pixels are numbered from 0, the lowest"
            )
        return "; it ".join(remarks) or None

    def bit_name(self, bit: int) -> str:
        """Return the name of a bit: "Y7" for bit 23 of a colour word, "bit 11" for bit 11 of a grey one."""
        return ("" if self.is_colour else "bit ") + _name(bit, self.word_bits)

    def slice_name(self, part: Slice) -> str:
        """Return the names of a slice's bits, such as "Y7+Y6"."""
        return "+".join(self.bit_name(b) for b in range(self.word_bits - 1, -1, -1) if part.bits >> b & 1)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values. Cards, ledgers and result files all use this form."""
        return {
            "word_bits": self.word_bits,
            "epsilon_requested": self.epsilon,
            "epsilon_realised": self.realised_epsilon,
            "slices": [
                {"bits": f"0x{part.bits:x}", "name": self.slice_name(part), "epsilon": part.epsilon}
                for part in self.slices
            ],
            "dropped_bits": f"0x{(1 << self.word_bits) - 1 & ~self.kept_bits:x}",
            "remark": self.remark,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Plan:
        """Return the plan that ``to_dict`` wrote. Everything that follows from slices and word is ignored.

        >>> Plan.from_dict(Plan.paper(20.0).to_dict()) == Plan.paper(20.0)
        True
        """
        try:
            slices = [Slice(int(part["bits"], 16), part["epsilon"]) for part in content["slices"]]
            word_bits, requested = content["word_bits"], content["epsilon_requested"]
            return cls(slices, word_bits, requested=positive("epsilon_requested", requested))
        except PlanError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"not a plan in JSON: {type(error).__name__}: {error}") from None

    @classmethod
    def from_card(cls, card: StatesPlans, bits: int | None = None) -> Plan:
        """Return the plan that a card states.

        >>> plan = Plan.from_card(Card.read("releases/card.json"))       # doctest: +SKIP

        bits: of the words, 24 for colour and 1 to 16 for grey, if the card states several plans.
        """
        check_is_card(card)
        return card.statement(bits).plan


def check_is_card(card: object) -> None:
    """Raise CardError if this is not a card, for example if it is a path."""
    if not hasattr(card, "statement"):
        path = os.fspath(card) if isinstance(card, str | os.PathLike) else "releases/card.json"
        raise CardError(f"from_card needs a card, such as Card.read({path!r}); got {type(card).__name__}")


def kind_of_pixels(word_bits: int) -> str:
    """Return what pixels of such words are called: "colour", or "8-bit grey" and the like."""
    return "colour" if word_bits == COLOUR_BITS else f"{word_bits}-bit grey"


def channel_bits(word_bits: int) -> int:
    """Return how many bits each channel of such words has."""
    return 8 if word_bits == COLOUR_BITS else word_bits


def positive(what: str, value: float) -> float:
    """Return ``value`` as a float, or raise a PlanError that shows it."""
    if not _is_number(value) or not math.isfinite(value) or value <= 0:
        raise PlanError(f"{what} must be a positive, finite number; got {value!r}")
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_width(bits: int, *, colour: bool) -> None:
    if not (isinstance(bits, int) and (1 <= bits <= 16 or (colour and bits == COLOUR_BITS))):
        raise PlanError(
            f"a grey word must have 1 to 16 bits{', a colour word 24' if colour else ''}; got bits={bits!r}"
        )


def _name(bit: int, word_bits: int) -> str:
    return f"{CHANNELS[2 - bit // 8]}{bit % 8}" if word_bits == COLOUR_BITS else str(bit)


def _named(text: str, word_bits: int) -> tuple[int, Fraction]:
    """Return the bits of one slice, "Y7+Y6" or "Y7+Y6=3", and its share."""
    names, equals, share = (part.strip() for part in text.partition("="))
    known = {_name(bit, word_bits).casefold(): 1 << bit for bit in range(word_bits)}
    found = 0
    for name in (name.strip().removeprefix("bit ") for name in names.split("+")):
        bit = known.get(name.casefold())
        if bit is None:
            grey = f"a grey pixel of {word_bits} bits has the bits {word_bits - 1} to 0"
            colour = "a colour pixel has the bits Y7 to Y0, Cb7 to Cb0 and Cr7 to Cr0"
            raise PlanError(f"there is no bit {name!r}: {colour if word_bits == COLOUR_BITS else grey}")
        if bit & found:
            raise PlanError(f"the slice {names!r} names the bit {name} twice")
        found |= bit
    if equals and (not SHARE.fullmatch(share) or not Fraction(share)):
        raise PlanError(f"the share of a slice must be a number above 0, as in Y7+Y6=3 or Y7+Y6=0.75; got {share!r}")
    return found, Fraction(share if equals else 1)


def _roots(importance: dict[int, Fraction]) -> list[tuple[int, Fraction]]:
    """Return shares proportional to the square root of the importance, to 50 digits."""
    with localcontext(prec=50):
        return [
            (bit, Fraction((Decimal(w.numerator) / Decimal(w.denominator)).sqrt())) for bit, w in importance.items()
        ]


def _allocate(epsilon: float, shares: Sequence[tuple[int, Fraction]], word_bits: int) -> Plan:
    """Return the plan whose slices have eps proportional to their shares.

    Each eps is rounded down, because a sum of rounded floats can exceed the total.
    """
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
    """Return the plan with the named slices, or else the paper's plan, for words of ``word_bits`` bits."""
    if slices is None:
        return Plan.paper(epsilon, weights) if word_bits == COLOUR_BITS else Plan.grey(epsilon, word_bits)
    if tuple(weights) != PAPER_WEIGHTS:
        raise PlanError(
            "weights apply only to the paper's plan: for named slices give shares instead, such as Y7+Y6=3,Cb7=1"
        )
    return Plan.sliced(epsilon, slices, word_bits)
