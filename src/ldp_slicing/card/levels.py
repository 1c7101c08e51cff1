"""The promise about one unit, and the bound on an adversary's advantage. docs/proofs.md, 9."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from ldp_slicing.tables import round_up

VACUOUS = 0.4999  # an advantage is at most 0.5, so such a bound says nothing


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
    def is_vacuous(self) -> bool:
        return self.advantage_bound >= VACUOUS

    @property
    def limit(self) -> str:
        """How often anybody can tell which of two values the unit had, in percent, rounded up; or "no limit"."""
        if self.is_vacuous:
            return "no limit"
        hundredths = math.ceil(10_000 * (Fraction(1, 2) + Fraction(self.advantage_bound)))  # exact, as the bound is
        return f"at most {hundredths // 100}.{hundredths % 100:02} %"

    @property
    def means(self) -> str:
        """The bound as a sentence."""
        if self.is_vacuous:
            return "This promise does not stop anybody from telling two values apart."
        return f"Anybody who has to choose between two values is right {self.limit} of the time."

    def to_dict(self) -> dict[str, Any]:
        """Return the level as JSON values."""
        return {
            "unit": self.unit,
            "epsilon": self.epsilon,
            "advantage_bound": self.advantage_bound,
            "means": self.means,
            "why": self.why,
        }


def advantage_bound(epsilon: float) -> float:
    """Return 1/2 tanh(eps / 2), rounded up: the largest advantage in distinguishing two values of a unit.

    It is computed as 1/2 - 1 / (e^eps + 1) in exact rationals, so that cards have the same text on every machine.
    """
    with localcontext(prec=60):
        growth = Fraction(Decimal(min(epsilon, 1000.0)).exp().next_plus())
    return round_up((growth - 1) / (2 * (growth + 1)))
