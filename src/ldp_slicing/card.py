"""The card: the privacy statement that travels with releases, its writer, and the one reader that recomputes it.

Every eps on a card is the realised one, rounded up.

Proofs: docs/proofs.md, 6 to 9. Tests: tests/test_card.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any

from ldp_slicing.errors import CardError, LdpSlicingError
from ldp_slicing.plan import Plan
from ldp_slicing.tables import LAYOUT_VERSION, ln_up, round_up
from ldp_slicing.version import __version__
from ldp_slicing.view import Prune, block_of, pruning

_SIX_DIGITS = Context(prec=6, rounding=ROUND_CEILING)
CARD_VERSION = 2
CARD_BYTES = 1 << 20  # the longest card
PROSE = frozenset({"why", "remark", "name"})  # keys of explanations, which are not recomputed
VACUOUS = 0.4999  # an advantage is at most 0.5, so such a bound says nothing

NAMES = "file names and folders"
EQUALITY = "which sources are equal: they were released under an owner's key, so equal sources have equal releases"
NOT_PROTECTED = (
    "width and height",
    "how many images there are, their order and when they were released",
    NAMES,
    "labels or any other data released beside the images",
)
COMPOSITION = (
    "Releasing the same source t times, or t near-duplicates of it (bursts, re-encodings, crops, frames), "
    "costs t times these epsilons.",
    "Where a bound is vacuous, only measured attacks tell what an adversary can see. Networks reconstructed "
    "recognisable faces from single releases of the paper's plan at eps 5.2 and more per pixel. Thick slices and "
    "amplified detail may reveal more at the same eps.",
    "Averaging n x n released pixels removes noise, so a larger image of the same scene reveals more at the same eps "
    "per pixel. The attacks were measured on images of 32 x 32 and 112 x 112 pixels.",
    "The bounds are exact for ideal random bits. The noise comes from AES-256 instead: an adversary of limited "
    "computing power gains at most its advantage in telling AES-256 from random bits, added to each advantage above.",
)
EXPLANATION = (
    "  (advantage: by how much anybody can beat a coin toss between two values; vacuous: the bound says nothing)"
)


@dataclass(frozen=True)
class Level:
    """The promise about one unit: its eps, and a bound on the advantage in distinguishing two of its values."""

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
    """The promise about the releases made with one plan and one view.

    sizes
        (width, height) of each release, or only the distinct ones if ``count`` gives the number of releases.
    times
        the number of releases of the source that has most, earlier releases included.
    spent
        the largest total eps of one source, per released pixel and per source pixel. None if all of its releases were
        made with this plan and view.
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
            raise CardError(f"a statement needs images of at least one pixel; got sizes {self.sizes[:4]!r}")
        if self.times < 1 or (self.count and self.count < len(set(self.sizes))):
            raise CardError(
                f"{self.count} releases, {self.times} of one source, cannot have {len(set(self.sizes))} different sizes"
            )
        if self.spent is not None and min(self.spent) < self.plan.realised_epsilon:
            raise CardError(f"the eps spent on one source cannot be less than one release's; got {self.spent!r}")
        object.__setattr__(self, "count", self.count or len(self.sizes))
        if self.spent is not None:  # at most all pixels of a release depend on one source pixel
            released, source = self.spent
            object.__setattr__(self, "spent", (released, min(source, round_up(Fraction(released) * self._pixels))))
        if self.spent in (
            self._of_this_plan(min(block_of(self.prune) ** 2, self._pixels)),
            self._of_this_plan(self._dependents),
        ):
            object.__setattr__(self, "spent", None)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The promises about slice, released pixel, source pixel and image, each for the worst case.

        If a source has several releases, two levels for those follow.
        """
        epsilon, dependents, pixels = Fraction(self.plan.realised_epsilon), self._dependents, self._pixels
        affected = "one released pixel" if dependents == 1 else f"up to {dependents} released pixels"
        weakest, ratio = max(
            ((part, self.plan.tables.slice_ratio(part.bits)) for part in self.plan.slices), key=lambda pair: pair[1]
        )
        largest = "the largest has " if len(set(self.sizes)) > 1 else ""
        single = (
            Level("slice", round_up(ln_up(ratio)), f"the least private one, {self.plan.slice_name(weakest)}"),
            Level("released pixel", round_up(epsilon), "the sum over the slices of the plan"),
            Level("source pixel", round_up(epsilon * dependents), f"one source pixel affects {affected}"),
            Level(
                "image", round_up(epsilon * pixels), f"{largest}{counted(pixels, 'pixel')}, each at the plan's epsilon"
            ),
        )
        if self.times == 1:
            return single
        why = f"sum over the {self.times:,} releases of the source with most (frames, copies, repeats)"
        if self.spent is not None:
            why += "; earlier releases with another plan count at their own epsilon"
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
        """eps of a released pixel and of a source pixel, summed over all releases of one source."""
        return self.spent or self._of_this_plan(self._dependents)

    def _of_this_plan(self, dependents: int) -> tuple[float, float]:
        epsilon = Fraction(self.plan.realised_epsilon) * self.times
        return round_up(epsilon), round_up(epsilon * dependents)

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as JSON values."""
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
            f"plan: {counted(slices, 'slice')}, "
            f"epsilon {number(plan.realised_epsilon)} realised of {number(plan.epsilon)} requested",
        ]
        if plan.remark:
            lines.append(f"remark: this plan {plan.remark}")
        width, digits = (
            max(map(len, column))
            for column in zip(*((one.unit, number(one.epsilon)) for one in self.levels), strict=True)
        )
        for level in self.levels:
            bound = "vacuous" if level.is_vacuous else level.printed_bound
            epsilon = f"epsilon {number(level.epsilon):<{digits}}"
            lines.append(f"  {level.unit:<{width}}  {epsilon}  advantage <= {bound:<7}  {level.why}")
        lines.append(EXPLANATION)
        return "\n".join(lines)


@dataclass(frozen=True)
class Card:
    """The privacy statement of a set of releases, with one ``Statement`` per plan.

    >>> print(Slicer(Plan.paper(20.0)).card(width=112, height=112))     # doctest: +SKIP

    ``random_names``: file names were replaced by random ones. ``owners_key``: equal sources have equal releases.
    ``kept``: names of the data released beside the images, which is not protected.
    """

    statements: tuple[Statement, ...]
    random_names: bool = False
    owners_key: bool = False
    kept: tuple[str, ...] = ()

    @property
    def not_protected(self) -> tuple[str, ...]:
        """What the releases reveal."""
        named = tuple(line for line in NOT_PROTECTED if line != NAMES or not self.random_names)
        return (*named, EQUALITY) if self.owners_key else named

    def to_dict(self) -> dict[str, Any]:
        """Return the card as JSON values."""
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


Difference = tuple[str, Any, Any]  # where on the card, what it says there, what is right


@dataclass(frozen=True)
class WrittenStatement:
    """A statement as a card states it. Whether its numbers are right is for ``wrong_numbers`` to say."""

    content: dict[str, Any]
    plan: Plan
    prune: Prune
    releases: int
    times: int
    spent: tuple[float, float]

    def wrong_numbers(self, sizes: Sequence[tuple[int, int]], *, count: int = 0) -> list[Difference]:
        """Recompute the statement for releases of these sizes, and return every number that differs.

        sizes: (width, height) of each release, or the distinct ones if ``count`` gives the number of releases.
        """
        if not sizes:
            return [("releases", self.releases, 0)]
        try:
            right = Statement(self.plan, self.prune, "rgb", tuple(sizes), count, self.times, self.spent).to_dict()
            return list(_differences(self.content, right))
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            raise _unreadable(error) from None


def read_statement(content: dict[str, Any]) -> WrittenStatement:
    """Read one statement of a card, or raise an LdpSlicingError. Nothing is recomputed."""
    try:
        prune, spent = content["view"]["prune"], content["most_spent_on_one_source"]
        return WrittenStatement(
            content,
            Plan.from_dict(content["plan"]),
            None if prune == "none" else prune,
            int(content["releases"]),
            int(content["most_releases_of_one_source"]),
            (float(spent["released_pixel"]), float(spent["source_pixel"])),
        )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> LdpSlicingError:
    return error if isinstance(error, LdpSlicingError) else CardError(f"malformed: {type(error).__name__}: {error}")


@dataclass(frozen=True)
class WrittenCard:
    """A card as it was read. Its statements are read one by one with ``read_statement``."""

    content: dict[str, Any]

    @property
    def statements(self) -> list[dict[str, Any]]:
        return list(self.content["statements"])

    @property
    def owners_key(self) -> bool:
        return EQUALITY in self.content["not_protected"]

    @property
    def kept(self) -> set[str]:
        return {name for name in self.content["kept_beside"] if isinstance(name, str)}


def read_card(data: bytes) -> WrittenCard:
    """Read a card, or raise a CardError if it is none or has another version."""
    try:
        content = json.loads(data)
        version = content["card"]
        lists = (
            [content[key] for key in ("statements", "not_protected", "kept_beside")] if version == CARD_VERSION else []
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CardError("is not a card") from None
    if version != CARD_VERSION:
        raise CardError(f"has version {version!r}; this software reads version {CARD_VERSION}")
    if not all(isinstance(one, list) for one in lists):
        raise CardError("is not a card")
    return WrittenCard(content)


def _differences(written: Any, right: Any, where: str = "") -> Iterator[Difference]:  # noqa: ANN401 - JSON values
    """Yield every place where a card differs from its recomputation. Explanations and additional keys are ignored."""
    if isinstance(right, dict) and isinstance(written, dict):
        for key, value in right.items():
            if key not in PROSE:
                yield from _differences(written.get(key), value, f"{where}.{key}" if where else key)
    elif isinstance(right, list) and isinstance(written, list) and len(right) == len(written):
        for i, value in enumerate(right):
            yield from _differences(written[i], value, f"{where}[{i}]")
    elif written != right:
        yield where, written, right


def number(value: float) -> str:
    """Format an eps with six digits, or as a whole number with thousands separators. Rounds up, as every promise does.

    A float that prints with six digits or fewer keeps them: 5.2 stays 5.2, although the float is slightly larger.
    """
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{math.ceil(value):,}" if value >= 10_000 else f"{float(_SIX_DIGITS.plus(Decimal(repr(float(value))))):.6g}"


def counted(count: int, what: str, many: str = "") -> str:
    """Format a count with its noun: "1 file", "1,000 files". ``many`` is an irregular plural."""
    return f"{count:,} {what if count == 1 else many or f'{what}s'}"


def advantage_bound(epsilon: float) -> float:
    """Return 1/2 tanh(eps / 2), rounded up: the largest advantage in distinguishing two values of a unit."""
    return min(0.5, math.nextafter(math.tanh(epsilon / 2) / 2 * (1 + 2**-50), 1.0))
