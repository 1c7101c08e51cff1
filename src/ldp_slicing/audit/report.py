"""What an audit found: checks with a verdict, a number, its limit and an error rate; as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ldp_slicing.version import __version__

REPORT_VERSION = 1
SHOWN = 5  # complaints of one check, in text
ERROR_RATE = 1e-6  # of a whole audit: the chance that it rejects though every promise is kept


@dataclass(frozen=True)
class Check:
    """One question with its answer.

    ``found`` is compared with ``limit`` in the way that ``relation`` says ("<=" or ">="); both are None where the answer is not a
    number. ``error_rate`` is the chance of a wrong "no": 0 for what is computed and not drawn. ``where`` is the path that was measured.
    """

    section: str
    name: str
    tried: str
    holds: bool
    what: str = ""  # what ``found`` is
    found: float | None = None
    relation: str = "<="
    limit: float | None = None
    error_rate: float = 0.0
    where: str = ""
    complaints: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "section": self.section,
            "name": self.name,
            "path": self.where or None,
            "tried": self.tried,
            "holds": self.holds,
            "what": self.what or None,
            "found": _finite(self.found),
            "relation": self.relation,
            "limit": _finite(self.limit),
            "error_rate": self.error_rate,
            "complaints": list(self.complaints),
            "details": self.details,
        }

    @property
    def number(self) -> str:
        """What was found, and its limit."""
        if self.found is None or self.limit is None:
            return ""
        return f"{self.what} {_short(self.found)} {'' if self.holds else 'not '}{self.relation} {_short(self.limit)}"


@dataclass(frozen=True)
class Report:
    """The checks of one audit. It holds when all of them do."""

    subject: str
    checks: tuple[Check, ...]
    blind: tuple[str, ...] = ()  # what this audit cannot see
    seconds: float = 0.0
    outcomes: tuple[str, str] = ("the promise holds", "THE PROMISE DOES NOT HOLD")

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)

    @property
    def error_rate(self) -> float:
        """The union bound over all checks: the chance that a promise which is kept is rejected."""
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
            "cannot_see": list(self.blind),
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        lines = [f"audit of {_visible(self.subject)}"]
        for section in dict.fromkeys(check.section for check in self.checks):
            checks = _one_line_each(check for check in self.checks if check.section == section)
            names, numbers = (max(map(len, texts)) for texts in ([c.name for c in checks], [c.number for c in checks]))
            lines += ["", section]
            for check in checks:
                number = f"{check.number:<{numbers}}  " if numbers else ""
                lines.append(f"  {'holds' if check.holds else 'FAILS'}  {check.name:<{names}}  {number}{check.tried}")
                lines += [f"         {_visible(complaint)}" for complaint in check.complaints[:SHOWN]]
                if (more := len(check.complaints) - SHOWN) > 0:
                    lines.append(f"         and {more} more")
        if self.blind:
            lines += ["", "not seen by this", *(f"  {sentence}" for sentence in self.blind)]
        return "\n".join(lines)

    @property
    def verdict(self) -> str:
        failed = sum(not check.holds for check in self.checks)
        outcome = f"{self.outcomes[1]}: {failed} of {len(self.checks)} checks failed" if failed else self.outcomes[0]
        return f"{outcome} ({len(self.checks)} checks in {self.seconds:.0f} s; false alarms: at most {self.error_rate:.1e} per run)"


def _one_line_each(checks: Iterable[Check]) -> list[Check]:
    """A check that holds on several paths is one line, with the number that is nearest its limit."""
    lines: dict[str, Check] = {}
    paths: dict[str, int] = {}
    for check in checks:
        paths[check.name] = paths.get(check.name, 0) + 1
        if not check.holds:
            lines[f"{check.name} {check.where}"] = check
            continue
        other = lines.get(check.name)
        lines[check.name] = check if other is None or _nearer(check, other) else other
    return [_with_paths(check, paths[check.name]) for check in lines.values()]


def _with_paths(check: Check, paths: int) -> Check:
    where = f"{check.where}: " if check.where and not check.holds else f"worst of {paths} paths: " if paths > 1 else ""
    return replace(check, tried=where + check.tried)


def _nearer(check: Check, other: Check) -> bool:
    if check.found is None or other.found is None:
        return False
    return check.found < other.found if check.relation == ">=" else check.found > other.found


def _visible(text: str) -> str:
    """A file's name may hold anything; it must not write lines of its own into the report."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _finite(value: float | None) -> float | str | None:
    """JSON has no infinity."""
    return value if value is None or math.isfinite(value) else str(value)


def _short(value: float) -> str:
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.6g}" if abs(value) >= 1 else f"{value:.2g}"
