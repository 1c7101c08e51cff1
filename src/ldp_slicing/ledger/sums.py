"""What was spent: sums over entries of a ledger, in exact rationals, rounded up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ldp_slicing.tables import round_up

Selection = tuple[str, tuple[Any, ...]]  # a table of releases in SQL, and the values it takes


@dataclass(frozen=True)
class Spent:
    """Releases of one source, or of all, with the sums of eps per released pixel, per source pixel and per image.

    ``unfinished`` of the releases are intents of runs that were interrupted: they may or may not exist.
    ``unvoided`` are the same sums without the releases that the owner has voided. It is None if none was voided.
    """

    releases: int
    unfinished: int
    epsilon: float
    source_pixel_epsilon: float
    image_epsilon: float
    last: int
    unvoided: Spent | None = None

    @property
    def voided(self) -> int:
        """The number of releases that the owner has voided."""
        return 0 if self.unvoided is None else self.releases - self.unvoided.releases


def spent_query(selection: str, *, plans: str = "plans") -> str:
    """Return SQL for the rows that ``add_up`` takes, from a table of releases and the table of plans."""
    return (
        "SELECT COUNT(*), SUM(1 - done), MAX(time), plans.epsilon, plans.dependents, voided, "  # noqa: S608
        "SUM(released) "
        f"FROM {selection} AS chosen JOIN {plans} AS plans ON plans.id = chosen.plan GROUP BY plan, voided"
    )


def add_up(rows: Sequence[tuple[Any, ...]]) -> Spent:
    """Add up what was spent, in rationals and rounded up: the sum is never less than what was spent."""
    unvoided = [row for row in rows if not row[5]]
    every = _sum(rows)
    return every if len(unvoided) == len(rows) else replace(every, unvoided=_sum(unvoided))


def _sum(rows: Sequence[tuple[Any, ...]]) -> Spent:
    epsilon = sum((Fraction(row[3]) * row[0] for row in rows), Fraction(0))
    source = sum((Fraction(row[3]) * row[0] * row[4] for row in rows), Fraction(0))
    image = sum((Fraction(row[3]) * row[6] for row in rows), Fraction(0))
    releases, unfinished = (sum(row[column] for row in rows) for column in (0, 1))
    last = max((row[2] for row in rows), default=0)
    return Spent(releases, unfinished, round_up(epsilon), round_up(source), round_up(image), last)
