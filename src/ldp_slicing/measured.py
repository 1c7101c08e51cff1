"""What attacks got at the settings that were measured, and which of these settings is nearest to a release.

The table is ``measured.json``, which ``python -m ldp_slicing.lab.measured`` makes from ``results/``. It is append-only:
an entry states in which version of the table it was added, and a newer entry of the same name replaces it from that
version on. A card names the version that it was written with, so its sentence can always be checked.

``nearest`` and ``risk`` decide by numbers and texts of the table alone, so that a port needs nothing but the JSON file.
If their rules change, so does FIRST_TABLE: cards of earlier versions are then unreadable, or need the earlier rules.

Tests: tests/test_measured.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.plan import COLOUR_BITS, PAPER_WEIGHTS, Plan, plan_for
from ldp_slicing.view import Prune

TABLE = Path(__file__).with_name("measured.json")
Kind = Literal["identity", "reconstruction", "content"]
KINDS: tuple[Kind, ...] = ("identity", "reconstruction", "content")  # what an attacker learns, the most harmful first
SAME_SHARE = 1e-6  # by how much the shares of a slice may differ between plans of one family
FIRST_TABLE = 9  # the earliest version of the table that is read; none before it was in a released version
RECOGNISABLE = "treat these releases as recognisable"  # an advice
NOTHING = "No attack was measured for this plan and view, and eps alone does not tell what an attacker can see."


@dataclass(frozen=True)
class Measured:
    """One measured setting and what the strongest attack got there.

    name, since
        the setting, and the version of the table in which this entry was added.
    kind
        what the attack learns: who is shown ("identity"), what the image looks like ("reconstruction"), or a property
        of what is shown ("content").
    data, width, height
        the images, and the size of their releases.
    weights, slices
        the plan for words of ``word_bits`` bits: ``slices`` as ``--slices`` takes them, or None for the paper's plan.
    numbers
        by name of the metric; shares are 0 to 1.
    sentence, advice
        what was measured, and what to conclude; without a full stop, so that ``risk`` can join them.
    """

    name: str
    since: int
    kind: Kind
    data: str
    width: int
    height: int
    word_bits: int
    weights: tuple[float, float, float]
    slices: str | None
    epsilon: float
    prune: Prune
    attack: str
    numbers: dict[str, float]
    sentence: str
    advice: str

    @property
    def pixels(self) -> int:
        return self.width * self.height

    @property
    def shares(self) -> dict[int, float]:
        """The share of eps that each slice has, by the slice's bits."""
        return _shares(self.word_bits, self.weights, self.slices)

    def is_family_of(self, plan: Plan) -> bool:
        """Whether the plan differs from this entry's at most in its eps."""
        ours, theirs = self.shares, shares_of(plan)
        return (
            plan.word_bits == self.word_bits
            and ours.keys() == theirs.keys()
            and all(abs(ours[bits] - theirs[bits]) <= SAME_SHARE for bits in ours)
        )

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Measured:
        """Return the entry that has this content in the table."""
        prune = None if content["prune"] == "none" else content["prune"]
        weights = tuple(content["weights"] or PAPER_WEIGHTS)
        return cls(**(content | {"prune": prune, "weights": weights}))

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as JSON values."""
        paper = self.slices is None and self.word_bits == COLOUR_BITS
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return content | {"prune": self.prune or "none", "weights": list(self.weights) if paper else None}


@dataclass(frozen=True)
class Risk:
    """What is known about releases of one plan and view: the nearest entry of a version of the table, in a sentence."""

    table: int
    entry: str | None
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        return {"table": self.table, "entry": self.entry, "sentence": self.sentence}


@cache
def read_table() -> dict[str, Any]:
    """Return the content of the table's file."""
    return cast("dict[str, Any]", json.loads(TABLE.read_text(encoding="utf-8")))


def table_version() -> int:
    """Return the version of the table that this software carries."""
    return int(read_table()["table"])


@cache
def entries(version: int) -> tuple[Measured, ...]:
    """Return the entries that count in a version of the table."""
    if not FIRST_TABLE <= version <= table_version():
        raise LdpSlicingError(
            f"version {version} of the table of measured settings is unknown: this software knows {FIRST_TABLE} to "
            f"{table_version()}; a later one may know it"
        )
    return tuple(Measured.from_dict(one) for one in latest(read_table()["measured"], version))


def latest(content: Iterable[dict[str, Any]], version: int) -> list[dict[str, Any]]:
    """Return the last element of each name that was added up to a version."""
    return list({one["name"]: one for one in content if one["since"] <= version}.values())


def nearest(known: Sequence[Measured], plan: Plan, prune: Prune, pixels: int | None) -> Measured | None:
    """Return the entry that says most about releases of this plan and view, with at most this many pixels each.

    It has the same plan but for its eps, and the same view. Of these, the most harmful kind of attack counts. Then
    those count whose budget is at least as large, or else those with the largest one: what an attack got at a small
    budget must not speak for a large one. Of these, the smallest size that is at least as large is chosen, or else the
    largest one (None: the largest one); and then the smallest budget.
    """
    same = [one for one in known if one.prune == prune and one.is_family_of(plan)]
    if not same:
        return None
    harm = min(KINDS.index(one.kind) for one in same)
    same = [one for one in same if KINDS.index(one.kind) == harm]
    enough = min(plan.epsilon, max(one.epsilon for one in same))
    same = [one for one in same if one.epsilon >= enough]
    size = _at_least(pixels, [one.pixels for one in same])
    same = [one for one in same if one.pixels == size]
    epsilon = _at_least(plan.epsilon, [one.epsilon for one in same])
    return next(one for one in same if one.epsilon == epsilon)


def risk(plan: Plan, prune: Prune, pixels: int | None, *, releases: int = 1, version: int | None = None) -> Risk:
    """Return what was measured at the setting nearest to releases of this plan and view.

    pixels: the most of one release; None if no release is meant. releases: the most of one source. version: of the
    table; by default that of this software.

    What an attack failed to do at the measured setting says nothing about releases that reveal more: people are clearly
    visible in the average of a large release whose eps is small. The advice for such releases is to treat them as
    recognisable.
    """
    version = table_version() if version is None else version
    entry = nearest(entries(version), plan, prune, pixels)
    if entry is None:
        return Risk(version, None, NOTHING)
    more, less = list[str](), list[str]()
    if plan.epsilon != entry.epsilon:
        larger = plan.epsilon > entry.epsilon
        (more if larger else less).append("a larger budget" if larger else "a smaller budget")
    if pixels is not None and pixels != entry.pixels:
        larger = pixels > entry.pixels
        (more if larger else less).append("more pixels" if larger else "fewer pixels")
    advice = RECOGNISABLE if (more or releases > 1) and entry.kind != "content" else entry.advice
    return Risk(version, entry.name, f"{entry.sentence}{_difference(more, less, releases)}: {advice}.")


def _difference(more: list[str], less: list[str], releases: int) -> str:
    """Say how releases differ from the measured ones: in what reveals more, and in what reveals less."""
    said = f"; these releases have {', but '.join(' and '.join(some) for some in (more, less) if some)}"
    if releases > 1:
        repeated = f"one source has up to {releases:,} of"
        if more or less:
            said += f", {'and' if more else 'but'} {repeated} them"
        else:
            said = f"; {repeated} these releases"
    elif not more and not less:
        return ""
    if less and (more or releases > 1):
        return said
    return f"{said}, so expect {'less' if less else 'more'}"


def _at_least(wanted: float | None, measured: Sequence[float]) -> float:
    """Return the smallest measured value that is at least the wanted one, or else the largest."""
    return max(measured) if wanted is None else min((one for one in measured if one >= wanted), default=max(measured))


def shares_of(plan: Plan) -> dict[int, float]:
    """Return the share of the plan's eps that each slice has, by the slice's bits."""
    total = sum(part.epsilon for part in plan.slices)
    return {part.bits: part.epsilon / total for part in plan.slices}


@cache
def _shares(word_bits: int, weights: tuple[float, float, float], slices: str | None) -> dict[int, float]:
    return shares_of(plan_for(word_bits, 1.0, weights, slices))
