"""How numbers and counts are written in cards, messages and tables."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal

_SIX_DIGITS = Context(prec=6, rounding=ROUND_CEILING)


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


def times(count: int) -> str:
    """Format how often something happened: "once", "2 times"."""
    return "once" if count == 1 else f"{count:,} times"
