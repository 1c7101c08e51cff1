"""The card: the privacy statement that travels with releases. Every number is the realised one, rounded up.

Proofs: docs/proofs.md, 6 to 9. Tests: tests/test_card.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any

from ldp_slicing.errors import CardError
from ldp_slicing.plan import Plan
from ldp_slicing.tables import LAYOUT_VERSION, ln_up, round_up
from ldp_slicing.version import __version__
from ldp_slicing.view import Prune, block_of, pruning

_SIX_DIGITS = Context(prec=6, rounding=ROUND_CEILING)
CARD_VERSION = 2
PROSE = frozenset({"why", "remark", "name"})  # on a card: words, not sums
VACUOUS = 0.4999  # of at most 0.5: a bound that says nothing

NAMES = "file names and folders"
EQUALITY = "which sources are equal: they were released under an owner's key, so equal sources have equal releases"
NOT_PROTECTED = (
    "width and height",
    "how many images there are, their order and when they were released",
    NAMES,
    "labels or any other data released beside the images",
)
COMPOSITION = (
    "Releasing the same source t times, or t near-duplicates of it (bursts, re-encodings, crops, frames), costs t times these epsilons.",
    "Where a bound is vacuous, what an adversary still sees is a matter of measured attacks, not of proof. Networks have rebuilt "
    "recognisable faces from single releases of the paper's plan at eps 5.2 and more per pixel; few bits and "
    "stronger detail may show more at the same eps.",
    "Averaging n x n released pixels removes noise, so that a larger picture of the same scene gives away more at the same eps per pixel; "
    "the attacks were measured on pictures of 32 x 32 and 112 x 112 pixels.",
    "The bounds are exact for ideal random bits. The noise comes from AES-256 instead: an adversary of limited computing "
    "power gains at most its advantage in telling AES-256 from random bits, added to each advantage above.",
)


@dataclass(frozen=True)
class Level:
    """What is promised about one unit: its eps, and the most by which anybody can beat guessing between two of its values."""

    unit: str
    epsilon: float
    why: str

    @property
    def advantage_bound(self) -> float:
        return advantage_bound(self.epsilon)

    @property
    def printed_bound(self) -> str:
        """Four decimals, rounded up."""
        return str(Decimal(self.advantage_bound).quantize(Decimal("0.0001"), ROUND_CEILING))

    @property
    def is_vacuous(self) -> bool:
        return self.advantage_bound >= VACUOUS


@dataclass(frozen=True)
class Statement:
    """The promise about the releases made with one plan and view. ``sizes``: (width, height), one for each release; or only the different
    ones, and ``count`` says how many releases there are. ``times``: how many releases the source with most of them has, counting those
    made before. ``spent``: the most that the releases of one source add up to, as eps of a released and of a source pixel; None where all
    were made with this plan and view.
    """

    plan: Plan
    prune: Prune
    output: str
    sizes: tuple[tuple[int, int], ...]
    count: int = 0
    times: int = 1
    spent: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not self.sizes or any(w < 1 or h < 1 for w, h in self.sizes):
            raise CardError(f"a statement is about images of at least one pixel; got sizes {self.sizes[:4]!r}")
        if self.times < 1 or (self.count and self.count < len(set(self.sizes))):
            raise CardError(
                f"{self.count} releases, {self.times} of one source, cannot have {len(set(self.sizes))} different sizes"
            )
        if self.spent is not None and min(self.spent) < self.plan.realised_epsilon:
            raise CardError(f"what one source has cost cannot be less than one release; got {self.spent!r}")
        object.__setattr__(self, "count", self.count or len(self.sizes))
        if self.spent is not None:  # no more released pixels depend on one than there are
            released, source = self.spent
            object.__setattr__(self, "spent", (released, min(source, round_up(Fraction(released) * self._pixels))))
        if self.spent in (
            self._of_this_plan(min(block_of(self.prune) ** 2, self._pixels)),
            self._of_this_plan(self._dependents),
        ):
            object.__setattr__(self, "spent", None)

    @property
    def levels(self) -> tuple[Level, ...]:
        """Slice, released pixel, source pixel, image: each for the worst of its kind. Then a source with several releases, if one has."""
        epsilon, dependents, pixels = Fraction(self.plan.realised_epsilon), self._dependents, self._pixels
        moved = (
            "one source pixel moves one released pixel"
            if dependents == 1
            else f"one source pixel moves up to {dependents} released pixels"
        )
        weakest, ratio = max(
            ((part, self.plan.tables.slice_ratio(part.bits)) for part in self.plan.slices), key=lambda pair: pair[1]
        )
        single = (
            Level("slice", round_up(ln_up(ratio)), f"the least private one, {self.plan.slice_name(weakest)}"),
            Level("released pixel", round_up(epsilon), "the sum over the slices of the plan"),
            Level("source pixel", round_up(epsilon * dependents), moved),
            Level(
                "image",
                round_up(epsilon * pixels),
                f"{'the largest has ' if len(set(self.sizes)) > 1 else ''}{counted(pixels, 'pixel')}, each at the plan's epsilon",
            ),
        )
        if self.times == 1:
            return single
        why = f"the source with most releases (frames, copies, repeats) has {self.times:,}, and they add up"
        why += ", those made with another plan before at their own epsilon" * (self.spent is not None)
        released, source = self._added_up
        return (
            *single,
            Level(f"source pixel, {self.times:,} releases", source, why),
            Level(f"image, {self.times:,} releases", round_up(Fraction(released) * pixels), why),
        )

    @property
    def _dependents(self) -> int:
        block = block_of(self.prune)
        return max(min(block, w) * min(block, h) for w, h in self.sizes)

    @property
    def _pixels(self) -> int:
        return max(w * h for w, h in self.sizes)

    @property
    def _added_up(self) -> tuple[float, float]:
        """eps of a released and of a source pixel, over all releases of one source."""
        return self.spent or self._of_this_plan(self._dependents)

    def _of_this_plan(self, dependents: int) -> tuple[float, float]:
        epsilon = Fraction(self.plan.realised_epsilon) * self.times
        return round_up(epsilon), round_up(epsilon * dependents)

    def to_dict(self) -> dict[str, Any]:
        plan = self.plan
        widths, heights = zip(*self.sizes, strict=True)
        return {
            "releases": self.count,
            "most_releases_of_one_source": self.times,
            "most_spent_on_one_source": dict(zip(("released_pixel", "source_pixel"), self._added_up, strict=True)),
            "width": [min(widths), max(widths)],
            "height": [min(heights), max(heights)],
            "view": {"colour": "YCbCr (JFIF)" if plan.is_colour else "grey", "prune": self.prune or "none"},
            "output": self.output if plan.is_colour else "grey",
            "plan": plan.to_dict(),
            "levels": [
                {
                    "unit": level.unit,
                    "epsilon": level.epsilon,
                    "advantage_bound": level.advantage_bound,
                    "vacuous": level.is_vacuous,
                    "why": level.why,
                }
                for level in self.levels
            ],
        }

    def __str__(self) -> str:
        plan, count, slices = self.plan, self.count, len(self.plan.slices)
        size = (
            f"{self.sizes[0][0]} x {self.sizes[0][1]}"
            if len(set(self.sizes)) == 1
            else f"up to {max(w * h for w, h in self.sizes):,} pixels"
        )
        kind = "colour" if plan.is_colour else f"{plan.word_bits}-bit grey"
        lines = [
            f"{counted(count, 'release')} of {size}, {kind}, pruning: {pruning(self.prune)}",
            f"plan: {counted(slices, 'slice')}, epsilon {number(plan.realised_epsilon)} realised of {number(plan.epsilon)} requested",
        ]
        if plan.remark:
            lines.append(f"remark: this plan {plan.remark}")
        width, digits = (
            max(map(len, column))
            for column in zip(*((one.unit, number(one.epsilon)) for one in self.levels), strict=True)
        )
        for level in self.levels:
            bound = "vacuous" if level.is_vacuous else level.printed_bound
            lines.append(
                f"  {level.unit:<{width}}  epsilon {number(level.epsilon):<{digits}}  advantage <= {bound:<7}  {level.why}"
            )
        lines.append(
            "  (advantage: by how much anybody can beat a coin toss between two values; vacuous: the bound says nothing)"
        )
        return "\n".join(lines)


def promised(written: dict[str, Any]) -> tuple[Plan, Prune]:
    """The plan and the view that a statement on a card speaks of."""
    prune = written["view"]["prune"]
    return Plan.from_dict(written["plan"]), None if prune == "none" else prune


def spent_on_one(written: dict[str, Any]) -> tuple[float, float]:
    """What a statement on a card says of ``Statement.spent``."""
    spent = written["most_spent_on_one_source"]
    return float(spent["released_pixel"]), float(spent["source_pixel"])


@dataclass(frozen=True)
class Card:
    """One statement for each plan in use. ``random_names``: names tell nothing; ``owners_key``: equal sources have equal
    releases; ``kept``: what was released beside the images, unprotected.

    >>> print(Slicer(Plan.paper(20.0)).card(width=112, height=112))     # doctest: +SKIP
    """

    statements: tuple[Statement, ...]
    random_names: bool = False
    owners_key: bool = False
    kept: tuple[str, ...] = ()

    @property
    def not_protected(self) -> tuple[str, ...]:
        named = tuple(line for line in NOT_PROTECTED if line != NAMES or not self.random_names)
        return (*named, EQUALITY) if self.owners_key else named

    def to_dict(self) -> dict[str, Any]:
        return {
            "card": CARD_VERSION,
            "software": f"ldp-slicing {__version__}",
            "keystream_layout": LAYOUT_VERSION,
            "statements": [statement.to_dict() for statement in self.statements],
            "not_protected": list(self.not_protected),
            "kept_beside": list(self.kept),
            "read_this": list(COMPOSITION),
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        parts = [str(statement) for statement in self.statements]
        parts.append("not protected: " + "; ".join(self.not_protected) + ".")
        return "\n".join([*parts, *COMPOSITION])


def differences(written: Any, right: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - what JSON holds
    """Where what a card says departs from its recomputation, and both. Words, and what it says beyond that, are not judged."""
    if isinstance(right, dict) and isinstance(written, dict):
        for key, value in right.items():
            if key not in PROSE:
                yield from differences(written.get(key), value, f"{where}.{key}" if where else key)
    elif isinstance(right, list) and isinstance(written, list) and len(right) == len(written):
        for i, value in enumerate(right):
            yield from differences(written[i], value, f"{where}[{i}]")
    elif written != right:
        yield where, written, right


def number(value: float) -> str:
    """Six digits, or whole numbers with thousands marked; rounded up, like everything that is promised.

    What six digits say exactly stays as it is: 5.2 is the name of a float, though that is a little more.
    """
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{math.ceil(value):,}" if value >= 10_000 else f"{float(_SIX_DIGITS.plus(Decimal(repr(float(value))))):.6g}"


def counted(count: int, what: str, many: str = "") -> str:
    """ "1 file", "1,000 files"; ``many`` where it is no s that makes the plural."""
    return f"{count:,} {what if count == 1 else many or f'{what}s'}"


def advantage_bound(epsilon: float) -> float:
    """1/2 tanh(eps / 2), rounded up: no test between two values of an eps-private unit beats a coin toss by more."""
    return min(0.5, math.nextafter(math.tanh(epsilon / 2) / 2 * (1 + 2**-50), 1.0))
