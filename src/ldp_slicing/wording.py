"""How numbers, counts and names are written in cards, messages and tables."""

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


def visible(text: str) -> str:
    """Escape control characters: a file name must not steer a terminal, or write lines of its own into a report."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def times(count: int) -> str:
    """Format how often something happened: "once", "2 times"."""
    return "once" if count == 1 else f"{count:,} times"
