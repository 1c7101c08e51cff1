"""The promise about the releases that were made with one plan and one view.

Every eps is the realised one, rounded up. docs/proofs.md, 6 to 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from ldp_slicing.card.levels import Level
from ldp_slicing.card.prose import EXPLANATION, WITHOUT_VOIDED
from ldp_slicing.errors import CardError
from ldp_slicing.measured import Risk, risk, table_version
from ldp_slicing.plan import Plan, kind_of_pixels
from ldp_slicing.strict_json import Difference, differences
from ldp_slicing.tables import ln_up, round_up
from ldp_slicing.value_range import ValueRange
from ldp_slicing.view import BLOCK, Padded, Prune, Size, block_of, check_size, pruning, sizing
from ldp_slicing.wording import counted, number

SPENT_ON = ("released_pixel", "source_pixel", "image")


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
        the largest total eps of one source, per released pixel, per source pixel and per image. None if all of its
        releases were made with this plan and view, and no earlier one is larger.
    table
        the version of the table of measured settings in which the nearest one was looked up.
    size
        the size to which sources were shrunk before the noise, as in ``Slicer``. The size of no source follows from it.
    unvoided
        the same without releases that the owner has voided: the most releases of one source, and the largest totals.
        None if no release of these sources was voided.
    value_range
        the values that the words stand for, if they were mapped to a range before the noise.
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
    spent: tuple[float, float, float] | None = None
    table: int = field(default_factory=table_version)
    size: Size = None
    unvoided: tuple[int, float, float] | None = None
    value_range: ValueRange | None = None

    @classmethod
    def of(
        cls,
        plan: Plan,
        prune: Prune,
        output: str,
        sizes: Sequence[tuple[int, int]],
        *,
        count: int = 0,
        times: int = 1,
        spent: tuple[float, float, float] | None = None,
        size: Size = None,
        unvoided: tuple[int, float, float] | None = None,
        value_range: ValueRange | None = None,
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
            max(dependents_of(prune, w, h) for w, h in distinct),
            count or len(sizes),
            times=times,
            spent=spent,
            size=size,
            unvoided=unvoided,
            value_range=value_range,
        )

    def __post_init__(self) -> None:
        if self.value_range is not None and self.value_range.bits != self.plan.word_bits:
            raise CardError(f"the range {self.value_range} is not one of {self.plan.word_bits}-bit words")
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
        least = max(dependents_of(self.prune, wide, h), dependents_of(self.prune, w, high))
        if not least <= self.dependents <= dependents_of(self.prune, wide, high):
            raise CardError(f"one source pixel cannot affect up to {self.dependents:,} released pixels")
        check_size(self.size)
        if not _can_result(self.size, self.width, self.height):
            stated = sizing(self.size)
            raise CardError(f"sources shrunk to {stated} cannot have the widths {self.width} and heights {self.height}")
        self._settle_spent()
        self._settle_unvoided()

    def _settle_spent(self) -> None:
        """Check what was spent on one source. If it is what this plan and view spend, it need not be said."""
        if self.spent is None:
            return
        released, source, image = self.spent
        if min(self.spent) < self.plan.realised_epsilon:
            raise CardError(f"the eps spent on one source cannot be less than one release's; got {self.spent!r}")
        if Fraction(source) < Fraction(self.plan.realised_epsilon) * self.dependents:
            raise CardError(f"the eps spent on a source pixel cannot be less than one release's; got {source!r}")
        most = max(self.pixels, max(BLOCK.values()) ** 2)  # released pixels that depend on one source pixel
        if Fraction(source) > Fraction(released) * most:
            raise CardError(
                f"the eps spent on a source pixel cannot be {source!r} if that of released pixels is {released!r}"
            )
        if Fraction(image) < Fraction(released) * self.pixels:
            raise CardError(f"the eps spent on an image cannot be less than that of all its pixels; got {image!r}")
        of_this_plan = [self._of_this_plan(self.dependents)]
        if self.times == 1:  # the ledger counts whole blocks; earlier releases may have had some, but there are none
            of_this_plan.append(self._of_this_plan(block_of(self.prune) ** 2))
        object.__setattr__(self, "spent", None if self.spent in of_this_plan else self.spent)

    def _settle_unvoided(self) -> None:
        """Check the sums without voided releases: at least this release is in them, and they are no larger."""
        if self.unvoided is None:
            return
        times, released, source = self.unvoided
        source = min(source, self.most_spent[1])
        epsilon = Fraction(self.plan.realised_epsilon)
        if not (1 <= times <= self.times and epsilon <= released <= self.most_spent[0]):
            raise CardError(f"the sums without voided releases cannot be {self.unvoided!r}")
        if source < epsilon * self.dependents:
            raise CardError(f"the eps of a source pixel without voided releases cannot be {source!r}")
        object.__setattr__(self, "unvoided", (times, released, source))

    @property
    def risk(self) -> Risk:
        """What an attacker got at the nearest measured setting."""
        return risk(self.plan, self.prune, self.pixels, releases=self.times, version=self.table)

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
        _, source, image = self.most_spent
        return (
            *single,
            Level(f"source pixel, {self.times:,} releases", source, why),
            Level(f"image, {self.times:,} releases", image, why),
        )

    @property
    def most_spent(self) -> tuple[float, float, float]:
        """eps of a released pixel, of a source pixel and of an image, summed over all releases of one source."""
        return self.spent or self._of_this_plan(self.dependents)

    def _of_this_plan(self, dependents: int) -> tuple[float, float, float]:
        epsilon = Fraction(self.plan.realised_epsilon) * self.times
        released = round_up(epsilon)
        return released, round_up(epsilon * dependents), round_up(Fraction(released) * self.pixels)

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as JSON values."""
        plan = self.plan
        return {
            "releases": self.count,
            "most_releases_of_one_source": self.times,
            "most_spent_on_one_source": dict(zip(SPENT_ON, self.most_spent, strict=True)),
            **({} if self.unvoided is None else {"without_voided": self._without_voided()}),
            "width": list(self.width),
            "height": list(self.height),
            "view": {
                "colour": "YCbCr (JFIF)" if plan.is_colour else "grey",
                "prune": self.prune or "none",
                "size": sizing(self.size),
                **({} if self.value_range is None else {"range": str(self.value_range)}),
            },
            "output": self.output if plan.is_colour else "grey",
            "plan": plan.to_dict(),
            "levels": [level.to_dict() for level in self.levels],
            "measured": self.risk.to_dict(),
        }

    def _without_voided(self) -> dict[str, Any]:
        named = zip(("releases", "released_pixel", "source_pixel"), self.unvoided or (), strict=True)
        return dict(named) | {"why": WITHOUT_VOIDED}

    def differences(self, sizes: Sequence[tuple[int, int]], *, count: int = 0) -> list[Difference]:
        """Return every number that is not right for releases of these sizes in RGB or grey.

        sizes: (width, height) of each release, or the distinct ones if ``count`` gives the number of releases. Raises
        CardError if nothing that the statement says was spent can have been spent on them.
        """
        if not sizes:
            return [("releases", self.count, 0)]
        right = Statement.of(
            self.plan,
            self.prune,
            "rgb",
            sizes,
            count=count,
            times=self.times,
            spent=self.spent,
            unvoided=self.unvoided,
            value_range=self.value_range,
        )
        right = replace(right, table=self.table)
        stated = replace(self, size=None)  # the widths and heights are compared, and must fit the size
        found = differences(stated.to_dict(), right.to_dict())
        return [one for one in found if not one[0].endswith(".why") and not one[0].startswith("measured.")]

    @property
    def _range_shown(self) -> str:
        return "" if self.value_range is None else f" for the range {self.value_range}"

    @property
    def heading(self) -> str:
        """What the statement is about."""
        size = f"{self.width[0]} x {self.height[0]}" if self.is_of_one_size else f"up to {self.pixels:,} pixels"
        kind = kind_of_pixels(self.plan.word_bits)
        shrunk = "" if self.size is None else f", shrunk to {sizing(self.size)}"
        about = f"{kind}{self._range_shown}, pruning: {pruning(self.prune)}{shrunk}"
        return f"{counted(self.count, 'release')} of {size}, {about}"

    @property
    def brief(self) -> str:
        """The levels in one line, for a card of several statements. It gives no reasons."""
        levels = [f"{one.unit}: {number(one.epsilon)} ({one.limit})" for one in self.levels]
        if self.unvoided is not None:
            levels.append(f"source pixel, {WITHOUT_VOIDED}: {number(self.unvoided[2])}")
        remark = f"\n  remark: this plan {self.plan.remark}" if self.plan.remark else ""
        return f"{self.heading}{remark}\n  epsilon of a {'; '.join(levels)}"

    def __str__(self) -> str:
        plan, slices = self.plan, len(self.plan.slices)
        lines = [
            self.heading,
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
            epsilon = f"epsilon {number(level.epsilon):<{digits}}"
            lines.append(f"  {level.unit:<{width}}  {epsilon}  {level.limit:<15}  {level.why}")
        if self.unvoided is not None:
            times, _, source = self.unvoided
            lines.append(
                f"  {WITHOUT_VOIDED}: {counted(times, 'release')} of the source with most, "
                f"epsilon {number(source)} per source pixel"
            )
        lines += [EXPLANATION, self.risk.sentence]
        return "\n".join(lines)


def dependents_of(prune: Prune, width: int, height: int) -> int:
    """Return how many pixels of a release depend on one source pixel, at most."""
    return min(block_of(prune), width) * min(block_of(prune), height)


def _can_result(size: Size, width: tuple[int, int], height: tuple[int, int]) -> bool:
    """Return whether releases of this size can have the smallest and largest width and height."""
    if size is None:
        return True
    if isinstance(size, int):
        return max(width[1], height[1]) <= size
    fit_width, fit_height = (size.width, size.height) if isinstance(size, Padded) else size
    return width == (fit_width, fit_width) and height == (fit_height, fit_height)
