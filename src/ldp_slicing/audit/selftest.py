"""The self-test of the audit: plant each known fault, audit it, and see whether it is rejected.

Tests: tests/audit/test_selftest.py.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ldp_slicing.audit.exact import check_tables
from ldp_slicing.audit.faults import (
    FOLDER_FAULTS,
    INSTALLATION_FAULTS,
    Fault,
    FolderFault,
    InstallationFault,
    make_releases,
)
from ldp_slicing.audit.installation import audit_backends
from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.audit.report import ERROR_RATE, Check, Report, Verdicts
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

PIXELS = 1 << 18
LIMITATIONS = ("faults of kinds that are not planted here",)
VERDICTS = Verdicts("every fault is found", "A FAULT IS NOT FOUND")


def self_test(
    plan: Plan, prune: Prune, *, pixels: int = PIXELS, progress: Callable[[str], None] = lambda _: None
) -> Report:
    """Check for each fault that the audit rejects it, by the checks meant for it, and that it accepts two controls.

    ``plan`` is a colour plan.
    """
    started = time.monotonic()
    checks = []
    for installation_fault in INSTALLATION_FAULTS:
        progress(installation_fault.name)
        checks.append(_check_fault(installation_fault, _audit_installation(installation_fault, plan, prune, pixels)))
    for folder_fault in FOLDER_FAULTS:
        progress(folder_fault.name)
        checks.append(_check_fault(folder_fault, _audit_folder(folder_fault, plan, prune)))
    subject = f"this audit: faults planted at epsilon {plan.epsilon:g}, pruning {prune or 'none'}"
    return Report(subject, tuple(checks), LIMITATIONS, time.monotonic() - started, VERDICTS)


def _audit_installation(fault: InstallationFault, plan: Plan, prune: Prune, pixels: int) -> list[Check]:
    planted = fault.plant(plan, prune)
    return [*check_tables(planted.plan, prune, planted.tables), *audit_backends(planted, pixels, ERROR_RATE)]


def _audit_folder(fault: FolderFault, plan: Plan, prune: Prune) -> list[Check]:
    with tempfile.TemporaryDirectory() as folder:
        make_releases(Path(folder), plan, prune)
        fault.plant(Path(folder), plan, prune)
        return list(audit_releases(folder).checks)


def _check_fault(fault: Fault, checks: list[Check]) -> Check:
    rejected = {check.name for check in checks if not check.passed}
    expected = fault.rejected_by
    passed = expected <= rejected if expected else not rejected
    wanted = f"should be rejected by {', '.join(sorted(expected))}" if expected else "should be accepted"
    return Check(
        "controls",
        fault.name,
        f"{fault.planted}: {_outcome(rejected, expected)}",
        passed,
        error_rate=0.0 if expected else sum(check.error_rate for check in checks),
        failures=() if passed else (wanted,),
        details={"planted": fault.planted, "rejected_by": sorted(rejected), "expected": sorted(expected)},
    )


def _outcome(rejected: set[str], expected: frozenset[str]) -> str:
    if not rejected:
        return "accepted"
    named = sorted(expected & rejected) or sorted(rejected)[:3]
    more = f" and {len(rejected) - len(named)} more" if len(rejected) > len(named) else ""
    return f"rejected by {', '.join(named)}{more}"
