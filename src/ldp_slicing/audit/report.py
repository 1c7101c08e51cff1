"""The result of an audit: checks, each with a verdict, a value, its limit and an error rate. As text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ldp_slicing.version import __version__
from ldp_slicing.wording import visible

REPORT_VERSION = 2
UNDECIDED = 3  # the exit status of an audit that cannot tell
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
    passed: bool
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
            "passed": self.passed,
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
        if self.relation == "<=" and self.limit == 0:  # a count of what must not be there
            return f"{_short(self.value)} {self.quantity}"
        relation = self.relation if self.passed else f"not {self.relation}"
        return f"{self.quantity} {_short(self.value)} {relation} {_short(self.limit)}"


def p_value_check(
    section: str,
    name: str,
    tested: str,
    smallest: float,
    limit: float,
    error_rate: float,
    failures: Sequence[str],
    *,
    backend: str = "",
) -> Check:
    """Return a check of p-values, of which ``failures`` names those below ``limit``."""
    found = tuple(failures)
    return Check(section, name, tested, not found, "smallest p", smallest, ">=", limit, error_rate, backend, found)


@dataclass(frozen=True)
class Verdicts:
    """The words for what an audit concludes. ``undecided``: no check failed, but the checks have too little power."""

    success: str
    failure: str
    undecided: str = ""


@dataclass(frozen=True)
class Power:
    """What the checks can detect, as sentences and as JSON values, and why that is too little, if it is."""

    sentences: tuple[str, ...] = ()
    details: list[dict[str, Any]] = field(default_factory=list)
    too_little: str = ""


@dataclass(frozen=True)
class Report:
    """The checks of one audit, and their verdict.

    ``limitations``: what this audit cannot detect. ``power``: what it can. ``measured``: what attackers got at the
    nearest measured settings, since noise that is as promised may still reveal much.
    """

    subject: str
    checks: tuple[Check, ...]
    limitations: tuple[str, ...]
    seconds: float
    verdicts: Verdicts
    power: Power = Power()
    measured: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed for check in self.checks)

    @property
    def outcome(self) -> str:
        """The verdict in words."""
        if not self.passed:
            return self.verdicts.failure
        return self.verdicts.undecided if self.power.too_little else self.verdicts.success

    @property
    def exit_status(self) -> int:
        if not self.passed:
            return 1
        return UNDECIDED if self.power.too_little else 0

    @property
    def error_rate(self) -> float:
        """The probability that the audit fails although every promise is kept: the union bound over all checks."""
        return sum(check.error_rate for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        return {
            "audit": REPORT_VERSION,
            "software": f"ldp-slicing {__version__}",
            "subject": self.subject,
            "verdict": self.outcome,
            "error_rate": self.error_rate,
            "seconds": round(self.seconds, 1),
            "checks": [check.to_dict() for check in self.checks],
            "power": self.power.details,
            "not_detected": list(self.limitations),
            "measured": list(self.measured),
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        lines = [f"audit of {visible(self.subject)}"]
        for section in dict.fromkeys(check.section for check in self.checks):
            lines += ["", section, *_section_lines([check for check in self.checks if check.section == section])]
        if self.power.sentences:
            lines += ["", "power of this audit", *(f"  {visible(sentence)}" for sentence in self.power.sentences)]
        if self.limitations:
            lines += ["", "not detected by this audit", *(f"  {sentence}" for sentence in self.limitations)]
        return "\n".join(lines)

    @property
    def verdict(self) -> str:
        """The verdict, and what attackers got, as lines of text."""
        failed = sum(not check.passed for check in self.checks)
        outcome = self.outcome
        if failed:
            outcome += f": {failed} of {len(self.checks)} checks failed"
        elif self.power.too_little:
            outcome += f": {self.power.too_little}"
        rate = f"false alarms: at most {self.error_rate:.1e} per run"
        line = f"{outcome} ({len(self.checks)} checks in {self.seconds:.0f} s; {rate})"
        return "\n".join([line, *self.measured])


def _section_lines(checks: list[Check]) -> list[str]:
    merged = _merge_backends(checks)
    name_width = max(len(check.name) for check in merged)
    comparison_width = max(len(check.comparison) for check in merged)
    lines = []
    for check in merged:
        comparison = f"{check.comparison:<{comparison_width}}  " if comparison_width else ""
        word = "passes" if check.passed else "FAILS "
        lines.append(f"  {word}  {check.name:<{name_width}}  {comparison}{visible(check.tested)}")
        lines += [f"          {visible(failure)}" for failure in check.failures[:SHOWN]]
        if (more := len(check.failures) - SHOWN) > 0:
            lines.append(f"          and {more} more")
    return lines


def _merge_backends(checks: Iterable[Check]) -> list[Check]:
    """Merge a check that passes on several backends into one, with the value nearest its limit. Failures stay apart."""
    merged: dict[str, Check] = {}
    backends: dict[str, int] = {}
    for check in checks:
        backends[check.name] = backends.get(check.name, 0) + 1
        if not check.passed:
            merged[f"{check.name} {check.backend}"] = check
            continue
        other = merged.get(check.name)
        merged[check.name] = check if other is None or _is_nearer(check, other) else other
    return [_with_backend(check, backends[check.name]) for check in merged.values()]


def _with_backend(check: Check, backends: int) -> Check:
    """Say in the description which backend failed, or how many passed."""
    if check.backend and not check.passed:
        return replace(check, tested=f"{check.backend}: {check.tested}")
    return replace(check, tested=f"worst of {backends} backends: {check.tested}") if backends > 1 else check


def _is_nearer(check: Check, other: Check) -> bool:
    if check.value is None or other.value is None:
        return False
    return check.value < other.value if check.relation == ">=" else check.value > other.value


def _json_number(value: float | None) -> float | str | None:
    """JSON has no infinity, so it becomes a string."""
    return value if value is None or math.isfinite(value) else str(value)


def _short(value: float) -> str:
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.6g}" if abs(value) >= 1 else f"{value:.2g}"
