"""The result of an audit: checks, each with a verdict, a value, its limit and an error rate. As text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ldp_slicing.version import __version__

REPORT_VERSION = 1
SHOWN = 5  # failures of one check that the text shows
ERROR_RATE = 1e-6  # of a whole audit: the probability that it fails although every promise is kept


@dataclass(frozen=True)
class Check:
    """One check with its verdict.

    ``value`` is compared with ``limit`` by ``relation`` ("<=" or ">="); both are None if the verdict is not about a
    number. ``quantity`` names the value. ``error_rate`` is the probability of a false failure: 0 for what is computed
    and not sampled. ``backend`` is the backend that was measured, if any.
    """

    section: str
    name: str
    tested: str
    holds: bool
    quantity: str = ""
    value: float | None = None
    relation: str = "<="
    limit: float | None = None
    error_rate: float = 0.0
    backend: str = ""
    failures: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "section": self.section,
            "name": self.name,
            "backend": self.backend or None,
            "tested": self.tested,
            "holds": self.holds,
            "quantity": self.quantity or None,
            "value": _json_number(self.value),
            "relation": self.relation,
            "limit": _json_number(self.limit),
            "error_rate": self.error_rate,
            "failures": list(self.failures),
            "details": self.details,
        }

    @property
    def comparison(self) -> str:
        """The value and its limit as text, or an empty string."""
        if self.value is None or self.limit is None:
            return ""
        relation = self.relation if self.holds else f"not {self.relation}"
        return f"{self.quantity} {_short(self.value)} {relation} {_short(self.limit)}"


@dataclass(frozen=True)
class Report:
    """The checks of one audit. The audit holds if all of them do.

    ``limitations``: what this audit cannot detect. ``verdicts``: the words for success and for failure.
    """

    subject: str
    checks: tuple[Check, ...]
    limitations: tuple[str, ...] = ()
    seconds: float = 0.0
    verdicts: tuple[str, str] = ("the promise holds", "THE PROMISE DOES NOT HOLD")

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)

    @property
    def error_rate(self) -> float:
        """The probability that the audit fails although every promise is kept: the union bound over all checks."""
        return sum(check.error_rate for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        return {
            "audit": REPORT_VERSION,
            "software": f"ldp-slicing {__version__}",
            "subject": self.subject,
            "holds": self.holds,
            "error_rate": self.error_rate,
            "seconds": round(self.seconds, 1),
            "checks": [check.to_dict() for check in self.checks],
            "not_detected": list(self.limitations),
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        lines = [f"audit of {_escaped(self.subject)}"]
        for section in dict.fromkeys(check.section for check in self.checks):
            lines += ["", section, *_section_lines([check for check in self.checks if check.section == section])]
        if self.limitations:
            lines += ["", "not detected by this audit", *(f"  {sentence}" for sentence in self.limitations)]
        return "\n".join(lines)

    @property
    def verdict(self) -> str:
        failed = sum(not check.holds for check in self.checks)
        success, failure = self.verdicts
        outcome = f"{failure}: {failed} of {len(self.checks)} checks failed" if failed else success
        rate = f"false alarms: at most {self.error_rate:.1e} per run"
        return f"{outcome} ({len(self.checks)} checks in {self.seconds:.0f} s; {rate})"


def _section_lines(checks: list[Check]) -> list[str]:
    merged = _merge_backends(checks)
    name_width = max(len(check.name) for check in merged)
    comparison_width = max(len(check.comparison) for check in merged)
    lines = []
    for check in merged:
        comparison = f"{check.comparison:<{comparison_width}}  " if comparison_width else ""
        word = "holds" if check.holds else "FAILS"
        lines.append(f"  {word}  {check.name:<{name_width}}  {comparison}{check.tested}")
        lines += [f"         {_escaped(failure)}" for failure in check.failures[:SHOWN]]
        if (more := len(check.failures) - SHOWN) > 0:
            lines.append(f"         and {more} more")
    return lines


def _merge_backends(checks: Iterable[Check]) -> list[Check]:
    """Merge a check that holds on several backends into one, with the value nearest its limit. Failures stay apart."""
    merged: dict[str, Check] = {}
    backends: dict[str, int] = {}
    for check in checks:
        backends[check.name] = backends.get(check.name, 0) + 1
        if not check.holds:
            merged[f"{check.name} {check.backend}"] = check
            continue
        other = merged.get(check.name)
        merged[check.name] = check if other is None or _is_nearer(check, other) else other
    return [_with_backend(check, backends[check.name]) for check in merged.values()]


def _with_backend(check: Check, backends: int) -> Check:
    """Say in the description which backend failed, or how many hold."""
    if check.backend and not check.holds:
        return replace(check, tested=f"{check.backend}: {check.tested}")
    return replace(check, tested=f"worst of {backends} backends: {check.tested}") if backends > 1 else check


def _is_nearer(check: Check, other: Check) -> bool:
    if check.value is None or other.value is None:
        return False
    return check.value < other.value if check.relation == ">=" else check.value > other.value


def _escaped(text: str) -> str:
    """Escape control characters: a file name must not write lines of its own into the report."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _json_number(value: float | None) -> float | str | None:
    """JSON has no infinity, so it becomes a string."""
    return value if value is None or math.isfinite(value) else str(value)


def _short(value: float) -> str:
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.6g}" if abs(value) >= 1 else f"{value:.2g}"
