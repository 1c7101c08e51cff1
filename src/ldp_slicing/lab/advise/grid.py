"""The settings that are compared: sizes, views, plans and budgets. It needs no torch."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.plans import VIEW_NAMES, single
from ldp_slicing.plan import COLOUR_BITS, PAPER_WEIGHTS, Plan, plan_for
from ldp_slicing.presets import Preset
from ldp_slicing.view import Prune

Family = Literal["paper", "thick", "grey"]
FAMILIES: dict[Family, str] = {
    "paper": "the paper's plan",
    "thick": "one thick slice",
    "grey": "the paper's plan, brightness only",
}
BUDGETS: dict[Family, tuple[float, ...]] = {
    "paper": (2.4, 5.2, 12.0, 20.0),
    "thick": (1.0, 2.4, 5.2),
    "grey": (2.4, 5.2, 12.0),
}
THICK: dict[Prune, tuple[str, str]] = {  # for colour and for grey words; pruned detail lies in lower bits
    None: ("Y7+Y6+Cb7+Cr7", "7+6"),
    "haar": ("Y7+Y4+Cb7+Cr7", "7+4"),
    "haar2": ("Y7+Y5+Cb7+Cr7", "7+5"),
    "haar4": ("Y7+Y6+Cb7+Cr7", "7+6"),
    "haar8": ("Y7+Y6+Cb7+Cr7", "7+6"),
    "dct": ("Y7+Y6+Cb7+Cr7", "7+6"),
}
SMALLEST_RELEASE = 8  # pixels of the longest side
ViewKey = tuple[tuple[int, int], Prune]  # what one attacking network is trained for: a size and a pruning


@dataclass(frozen=True)
class Setting:
    """A size, a view, a plan and a budget.

    size: width and height of releases. shrinks: False if all sources have that size.
    """

    family: Family
    epsilon: float
    prune: Prune
    size: tuple[int, int]
    shrinks: bool
    word_bits: int = COLOUR_BITS

    @property
    def slices(self) -> str | None:
        """As ``--slices`` takes them; None for the paper's plan."""
        if self.family == "paper":
            return None
        if self.family == "grey":
            return single(self.prune, self.epsilon, "76543210").slices
        return THICK[self.prune][self.word_bits != COLOUR_BITS]

    @cached_property
    def plan(self) -> Plan:
        return plan_for(self.word_bits, self.epsilon, PAPER_WEIGHTS, self.slices)

    @property
    def view(self) -> ViewKey:
        return self.size, self.prune

    @property
    def name(self) -> str:
        """Such as ``32x32 none thick 5.2``: it identifies the setting within a run."""
        return f"{size_name(self.size)} {self.prune or 'none'} {self.family} {self.epsilon:g}"

    @property
    def words(self) -> str:
        """The setting for a reader."""
        width, height = self.size
        view = VIEW_NAMES.get(self.prune, f"pruned ({self.prune})")
        return f"{width} x {height}, {view}, {FAMILIES[self.family]}, eps {self.epsilon:g}"

    @property
    def command(self) -> str:
        """The options of ``privatize``."""
        words = ["ldp-slicing", "privatize", "SRC", "DST", "--epsilon", f"{self.epsilon:g}"]
        if self.slices:
            words += ["--slices", self.slices]
        words += ["--prune", self.prune or "none"]
        if self.shrinks:
            words += ["--fit", size_name(self.size)]
        return shlex.join(words)

    @property
    def code(self) -> str:
        """The same in Python."""
        grey = "" if self.word_bits == COLOUR_BITS else f", {self.word_bits}"
        plan = f"Plan.paper({self.epsilon:g})" if not grey else f"Plan.grey({self.epsilon:g}{grey})"
        if self.slices:
            plan = f"Plan.sliced({self.epsilon:g}, {json.dumps(self.slices)}{grey})"
        size = f", size={self.size}" if self.shrinks else ""
        return f"Slicer({plan}, prune={self.prune!r}{size})"

    def preset(self, name: str, about: str, measured: Sequence[str]) -> Preset:
        """What ``privatize --preset FILE`` takes."""
        size = self.size if self.shrinks else None
        return Preset(
            name,
            about,
            self.epsilon,
            slices=self.slices,
            prune=self.prune,
            size=size,
            measured=tuple(measured),
            measured_bits=(self.word_bits,),
        )


def size_name(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def default_sides(longest: int) -> tuple[int, ...]:
    """The longest side of the images, its half and its quarter, if they are not too small."""
    return tuple(side for side in (longest, longest // 2, longest // 4) if side >= SMALLEST_RELEASE) or (longest,)


def tried_sides(longest: int, asked: Sequence[int]) -> tuple[int, ...]:
    """Longest sides at which the sources can be measured, the smallest first: those asked for, or halves down to 24."""
    if asked:
        return tuple(sorted({min(side, longest) for side in asked}))
    return (*tuple(side for side in (longest // 4, longest // 2) if side >= 24), longest)


def make_grid(
    sizes: Sequence[tuple[int, int]],
    views: Sequence[Prune],
    families: Sequence[Family],
    budgets: Mapping[Family, Sequence[float]],
    *,
    source: tuple[int, int] | None,
    word_bits: int,
) -> list[Setting]:
    """Every combination once, the most different ones first, so that any prefix of the list covers the range.

    The order is always the same, because a resumed run takes as many from the beginning as before. source: the size of
    all sources; None if they differ. For grey words there is no plan "grey".
    """
    chosen = [one for one in families if one != "grey" or word_bits == COLOUR_BITS]
    if not chosen:
        raise LdpSlicingError("the plan `grey` is for colour images, and these are grey: use paper or thick")
    by_family = {one: _middle_out(sorted({float(eps) for eps in budgets[one]})) for one in chosen}
    rounds = max(map(len, by_family.values()))
    places = [
        (size, prune, family, turn)
        for turn in range(rounds)
        for size, prune, family in itertools.product(sizes, views, chosen)
        if turn < len(by_family[family])
    ]
    return [
        Setting(family, by_family[family][turn], prune, size, size != source, word_bits)
        for size, prune, family, turn in _most_different_first(places)
    ]


Place = tuple[tuple[int, int], Prune, Family, int]  # in the grid; the last one is the place of a budget in its plan


def _most_different_first(places: Sequence[Place]) -> list[Place]:
    """The places, each once: the first one, and then always the one that has least in common with those before it.

    The number of values in common is squared, so that new combinations come before repeated pairs.
    """
    common, ordered = dict.fromkeys(places, 0), list[Place]()
    while common:
        place = min(common, key=lambda one: common[one])  # of several, the one that comes first
        del common[place]
        ordered.append(place)
        for other in common:
            common[other] += sum(a == b for a, b in zip(place, other, strict=True)) ** 2
    return ordered


def _middle_out(values: list[float]) -> list[float]:
    """The values, those next to the middle first: they tell most if there is no time for the others."""
    middle = (len(values) - 1) / 2
    return sorted(values, key=lambda value: (abs(values.index(value) - middle), value))
