"""The card: the privacy statement that travels with releases, its writer, and its one reader.

Every eps on a card is the realised one, rounded up. A card has exactly one text for its facts, prose included. The
reader takes the facts from a text, writes the card again and compares the two, so that nothing on a card is unchecked.

Proofs: docs/proofs.md, 6 to 9. Tests: tests/test_card.py.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from ldp_slicing.errors import CardError, LdpSlicingError
from ldp_slicing.files import open_regular, read_limited
from ldp_slicing.plan import Plan
from ldp_slicing.strict_json import fields, parse, shown, typed
from ldp_slicing.tables import LAYOUT_VERSION, ln_up, round_up
from ldp_slicing.version import __version__
from ldp_slicing.view import Prune, block_of, pruning

_SIX_DIGITS = Context(prec=6, rounding=ROUND_CEILING)
CARD_VERSION = 2  # rises whenever the text of a card changes
CARD_BYTES = 1 << 20  # the longest card
MOST_STATEMENTS = 17  # words have 24 bits, or 16 to 1, and there is one statement for each
MOST_KEPT, MOST_NAME = 256, 255  # names of data kept beside the images, and the characters of one
SOFTWARE = re.compile(r"ldp-slicing [0-9A-Za-z.+!-]{1,40}")
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
READ_THIS = {2: COMPOSITION}  # by version: every version that was ever written can be read
EXPLANATION = (
    "  (advantage: by how much anybody can beat a coin toss between two values; vacuous: the bound says nothing)"
)


Difference = tuple[str, Any, Any]  # where on the card, what it says there, what is right


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
    """The promise about the releases made with one plan and one view. ``Statement.of`` makes it from their sizes.

    width, height
        the smallest and the largest of the releases.
    pixels
        the most pixels of one release.
    dependents
        the most released pixels that depend on one source pixel.
    count
        the number of releases.
    times
        the number of releases of the source that has most, earlier releases included.
    spent
        the largest total eps of one source, per released pixel and per source pixel. None if all of its releases were
        made with this plan and view.
    """

    plan: Plan
    prune: Prune
    output: str
    width: tuple[int, int]
    height: tuple[int, int]
    pixels: int
    dependents: int
    count: int
    times: int = 1
    spent: tuple[float, float] | None = None

    @classmethod
    def of(
        cls,
        plan: Plan,
        prune: Prune,
        output: str,
        sizes: Sequence[tuple[int, int]],
        count: int = 0,
        times: int = 1,
        spent: tuple[float, float] | None = None,
    ) -> Statement:
        """Return the statement about releases of these sizes.

        sizes: (width, height) of each release, or only the distinct ones if ``count`` gives the number of releases.
        """
        distinct = set(sizes)
        if not distinct or min(map(min, distinct)) < 1:
            raise CardError(f"a statement needs images of at least one pixel; got sizes {tuple(sizes)[:4]!r}")
        if count and count < len(distinct):
            raise CardError(f"{counted(count, 'release')} cannot have {len(distinct)} different sizes")
        widths, heights = zip(*distinct, strict=True)
        return cls(
            plan,
            prune,
            output,
            (min(widths), max(widths)),
            (min(heights), max(heights)),
            max(w * h for w, h in distinct),
            max(_dependents(prune, w, h) for w, h in distinct),
            count or len(sizes),
            times,
            spent,
        )

    def __post_init__(self) -> None:
        (w, wide), (h, high) = self.width, self.height
        if not (1 <= w <= wide and 1 <= h <= high):
            raise CardError(f"images have at least one pixel; got the widths {self.width} and heights {self.height}")
        if self.output not in ("rgb", "ycbcr"):
            raise CardError(f'output must be "rgb" or "ycbcr"; got {self.output!r}')
        if self.times < 1 or self.count < (1 if self.is_of_one_size else 2):
            raise CardError(f"{self.count} releases, {self.times} of one source, cannot have several sizes")
        # Some release is as wide as the widest, and some as high as the highest.
        if not max(wide * h, w * high) <= self.pixels <= wide * high:
            raise CardError(f"no image of the stated widths and heights has {self.pixels:,} pixels")
        least = max(_dependents(self.prune, wide, h), _dependents(self.prune, w, high))
        if not least <= self.dependents <= _dependents(self.prune, wide, high):
            raise CardError(f"one source pixel cannot affect up to {self.dependents:,} released pixels")
        if self.spent is None:
            return
        if min(self.spent) < self.plan.realised_epsilon:
            raise CardError(f"the eps spent on one source cannot be less than one release's; got {self.spent!r}")
        if Fraction(self.spent[1]) < Fraction(self.plan.realised_epsilon) * self.dependents:
            raise CardError(f"the eps spent on a source pixel cannot be less than one release's; got {self.spent[1]!r}")
        released, source = self.spent  # at most all pixels of a release depend on one source pixel
        spent = released, min(source, round_up(Fraction(released) * self.pixels))
        of_this_plan = [
            self._of_this_plan(dependents)
            for dependents in (min(block_of(self.prune) ** 2, self.pixels), self.dependents)
        ]
        object.__setattr__(self, "spent", None if spent in of_this_plan else spent)

    @property
    def is_of_one_size(self) -> bool:
        return self.width[0] == self.width[1] and self.height[0] == self.height[1]

    @property
    def levels(self) -> tuple[Level, ...]:
        """The promises about slice, released pixel, source pixel and image, each for the worst case.

        If a source has several releases, two levels for those follow.
        """
        epsilon, dependents, pixels = Fraction(self.plan.realised_epsilon), self.dependents, self.pixels
        affected = "one released pixel" if dependents == 1 else f"up to {dependents} released pixels"
        weakest, ratio = max(
            ((part, self.plan.tables.slice_ratio(part.bits)) for part in self.plan.slices), key=lambda pair: pair[1]
        )
        largest = "" if self.is_of_one_size else "the largest has "
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
        released, source = self.most_spent
        return (
            *single,
            Level(f"source pixel, {self.times:,} releases", source, why),
            Level(f"image, {self.times:,} releases", round_up(Fraction(released) * pixels), why),
        )

    @property
    def most_spent(self) -> tuple[float, float]:
        """eps of a released pixel and of a source pixel, summed over all releases of one source."""
        return self.spent or self._of_this_plan(self.dependents)

    def _of_this_plan(self, dependents: int) -> tuple[float, float]:
        epsilon = Fraction(self.plan.realised_epsilon) * self.times
        return round_up(epsilon), round_up(epsilon * dependents)

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as JSON values."""
        plan = self.plan
        return {
            "releases": self.count,
            "most_releases_of_one_source": self.times,
            "most_spent_on_one_source": dict(zip(("released_pixel", "source_pixel"), self.most_spent, strict=True)),
            "width": list(self.width),
            "height": list(self.height),
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

    def differences(self, sizes: Sequence[tuple[int, int]], *, count: int = 0) -> list[Difference]:
        """Return every number that is not right for releases of these sizes in RGB or grey.

        sizes: (width, height) of each release, or the distinct ones if ``count`` gives the number of releases.
        """
        if not sizes:
            return [("releases", self.count, 0)]
        right = Statement.of(self.plan, self.prune, "rgb", sizes, count, self.times, self.spent)
        return [one for one in _differences(self.to_dict(), right.to_dict()) if not one[0].endswith(".why")]

    def __str__(self) -> str:
        plan, count, slices = self.plan, self.count, len(self.plan.slices)
        size = f"{self.width[0]} x {self.height[0]}" if self.is_of_one_size else f"up to {self.pixels:,} pixels"
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
    ``kept``: names of the data released beside the images, which is not protected. ``version`` and ``software`` are
    those that wrote the card.
    """

    statements: tuple[Statement, ...]
    random_names: bool = False
    owners_key: bool = False
    kept: tuple[str, ...] = ()
    version: int = CARD_VERSION
    software: str = f"ldp-slicing {__version__}"

    def __post_init__(self) -> None:
        ordered = sorted(self.statements, key=lambda one: one.plan.word_bits, reverse=True)
        for one, other in pairwise(ordered):
            if one.plan.word_bits == other.plan.word_bits:
                raise CardError(f"there are two statements about {one.plan.word_bits}-bit words")
        if not ordered:
            raise CardError("a card needs at least one statement")
        if len(self.kept) > MOST_KEPT or any(len(name) > MOST_NAME for name in self.kept):
            raise CardError(
                f"a card names at most {MOST_KEPT} kinds of data kept beside the images, "
                f"with at most {MOST_NAME} characters each"
            )
        if not SOFTWARE.fullmatch(self.software):
            raise CardError(f"{shown(self.software)} is not a version of this software")
        object.__setattr__(self, "statements", tuple(ordered))
        object.__setattr__(self, "kept", tuple(sorted(set(self.kept))))

    @classmethod
    def from_json(cls, text: str | bytes) -> Card:
        """Return the card that has exactly this text, or raise CardError.

        >>> card = Slicer(Plan.paper(20.0)).card(width=112, height=112)        # doctest: +SKIP
        >>> Card.from_json(card.to_json()) == card                             # doctest: +SKIP
        True
        """
        try:
            data = text.encode() if isinstance(text, str) else text
            content = parse(data, most_bytes=CARD_BYTES)
            card = _read_card(content)
        except CardError:
            raise
        except ValueError as error:  # every LdpSlicingError is one
            raise CardError(str(error)) from None
        for where, said, right in _differences(content, card.to_dict()):
            raise CardError(f"{where} is {shown(said)}; it should be {shown(right)}")
        if card.to_json().encode() != data:
            raise CardError("it is not written as this software writes cards")
        return card

    @classmethod
    def load(cls, file: BinaryIO) -> Card:
        """Read a card from an open file, and close it. Raise CardError if it is not one."""
        try:
            return cls.from_json(read_limited(file, CARD_BYTES))
        except (LdpSlicingError, OSError) as error:
            raise CardError(str(error)) from None

    @classmethod
    def read(cls, path: Path | str) -> Card:
        """Read a card from a regular file. Raise CardError if it is not one.

        >>> card = Card.read("releases/card.json")       # doctest: +SKIP
        """
        try:
            return cls.load(open_regular(Path(path)))
        except LdpSlicingError as error:
            raise CardError(f"{path} is not a valid card: {error}") from None

    @property
    def not_protected(self) -> tuple[str, ...]:
        """What the releases reveal."""
        named = tuple(line for line in NOT_PROTECTED if line != NAMES or not self.random_names)
        return (*named, EQUALITY) if self.owners_key else named

    def to_dict(self) -> dict[str, Any]:
        """Return the card as JSON values."""
        return {
            "card": self.version,
            "software": self.software,
            "keystream_layout": LAYOUT_VERSION,
            "statements": [statement.to_dict() for statement in self.statements],
            "not_protected": list(self.not_protected),
            "kept_beside": list(self.kept),
            "read_this": list(READ_THIS[self.version]),
        }

    def to_json(self) -> str:
        """Return the text of the card's file, which ends with a line feed."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def __str__(self) -> str:
        parts = [str(statement) for statement in self.statements]
        parts.append("not protected: " + "; ".join(self.not_protected) + ".")
        if self.kept:
            parts.append("released beside the images, without protection: " + ", ".join(self.kept) + ".")
        return "\n".join([*parts, *READ_THIS[self.version]])


_CARD = {"card": int, "software": str, "keystream_layout": int, "statements": list}
_CARD |= {"not_protected": list, "kept_beside": list, "read_this": list}
_STATEMENT = {"releases": int, "most_releases_of_one_source": int, "most_spent_on_one_source": dict}
_STATEMENT |= {"width": list, "height": list, "view": dict, "output": str, "plan": dict, "levels": list}
_SPENT = {"released_pixel": float, "source_pixel": float}
_VIEW = {"colour": str, "prune": str}
_PLAN = {"word_bits": int, "epsilon_requested": float, "epsilon_realised": float}
_PLAN |= {"slices": list, "dropped_bits": str, "remark": object}
_LEVEL = {"unit": str, "epsilon": float, "advantage_bound": float, "vacuous": bool, "why": str}


def _read_card(content: object) -> Card:
    """Take the facts from a card. Everything else on it is compared afterwards."""
    if not isinstance(content, dict) or "card" not in content:
        raise CardError("it is not a card")
    version = typed(content["card"], int, "card")
    if version not in READ_THIS:
        known = ", ".join(map(str, READ_THIS))
        raise CardError(f"version {version} is unknown: this software reads {known}; a later one may read it")
    found = fields(content, _CARD)
    if found["keystream_layout"] != LAYOUT_VERSION:
        layout = found["keystream_layout"]
        raise CardError(f"keystream layout {layout} is unknown: this software knows {LAYOUT_VERSION}")
    if len(found["statements"]) > MOST_STATEMENTS:
        raise CardError(f"there are {len(found['statements']):,} statements; a card has at most {MOST_STATEMENTS}")
    return Card(
        tuple(_read_statement(one, f"statements[{i}]") for i, one in enumerate(found["statements"])),
        random_names=NAMES not in found["not_protected"],
        owners_key=EQUALITY in found["not_protected"],
        kept=tuple(typed(name, str, "kept_beside") for name in found["kept_beside"]),
        version=version,
        software=found["software"],
    )


def _read_statement(content: object, where: str) -> Statement:
    found = fields(content, _STATEMENT, where=where)
    plan = Plan.from_dict(fields(found["plan"], _PLAN, where=f"{where}.plan"))
    spent = fields(found["most_spent_on_one_source"], _SPENT, where=f"{where}.most_spent_on_one_source")
    view = fields(found["view"], _VIEW, where=f"{where}.view")
    levels = [fields(level, _LEVEL, where=f"{where}.levels[{i}]") for i, level in enumerate(found["levels"])]
    if len(levels) < 4:
        raise CardError(f"{where}.levels has {counted(len(levels), 'level')}; it should have at least 4")
    return Statement(
        plan,
        None if view["prune"] == "none" else view["prune"],
        found["output"] if plan.is_colour else "rgb",
        _read_range(found["width"], f"{where}.width"),
        _read_range(found["height"], f"{where}.height"),
        pixels=_number_in(levels[3]["why"]),
        dependents=_number_in(levels[2]["why"]),
        count=found["releases"],
        times=found["most_releases_of_one_source"],
        spent=(spent["released_pixel"], spent["source_pixel"]),
    )


def _read_range(values: list[object], where: str) -> tuple[int, int]:
    if len(values) != 2:
        raise CardError(f"{where} must be two integers, the smallest and the largest; got {shown(values)}")
    return typed(values[0], int, where), typed(values[1], int, where)


def _number_in(why: str) -> int:
    """Return the number that an explanation gives. "One released pixel" has no digits."""
    found = re.search("[0-9][0-9,]{0,25}", why)
    return int(found[0].replace(",", "")) if found else 1


def _dependents(prune: Prune, width: int, height: int) -> int:
    """Return how many pixels of a release depend on one source pixel, at most."""
    return min(block_of(prune), width) * min(block_of(prune), height)


def _differences(written: Any, right: Any, where: str = "") -> Iterator[Difference]:  # noqa: ANN401 - JSON values
    """Yield every place where a card differs from what it should be."""
    if isinstance(right, dict) and isinstance(written, dict) and right.keys() == written.keys():
        for key, value in right.items():
            yield from _differences(written[key], value, f"{where}.{key}" if where else key)
    elif isinstance(right, list) and isinstance(written, list) and len(right) == len(written):
        for i, value in enumerate(right):
            yield from _differences(written[i], value, f"{where}[{i}]")
    elif type(written) is not type(right) or written != right:
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
