"""Does the audit reject what it must? Each known fault is planted, and the audit is run on it. Tests: tests/audit/test_selftest.py."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ldp_slicing.audit.build import audit_paths
from ldp_slicing.audit.exact import check_tables
from ldp_slicing.audit.faults import BUILD_FAULTS, FOLDER_FAULTS, BuildFault, Fault, FolderFault, make_set
from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.audit.report import ERROR_RATE, Check, Report
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.release.settings import ReleaseSettings

PIXELS = 1 << 18
BLIND = ("faults of kinds that are not planted here",)


def self_test(recipe: ReleaseSettings, *, pixels: int = PIXELS, say: Callable[[str], None] = lambda _: None) -> Report:
    """One check for each fault: whether the audit rejects it, by the checks that are there for it; and two controls that it must accept."""
    started = time.monotonic()
    checks = []
    for fault in (*BUILD_FAULTS, *FOLDER_FAULTS):
        say(fault.name)
        found = _build(fault, recipe, pixels) if isinstance(fault, BuildFault) else _folder(fault, recipe)
        checks.append(_judge(fault, found))
    plan = recipe.slicer(COLOUR_BITS).plan
    subject = f"this audit: faults planted at epsilon {plan.epsilon:g}, pruning {recipe.prune or 'none'}"
    return Report(
        subject, tuple(checks), BLIND, time.monotonic() - started, ("every fault is found", "A FAULT IS NOT FOUND")
    )


def _build(fault: BuildFault, recipe: ReleaseSettings, pixels: int) -> list[Check]:
    plan = recipe.slicer(COLOUR_BITS).plan
    subject = fault.plant(plan, recipe.prune)
    return [*check_tables(subject.plan, subject.prune, subject.tables), *audit_paths(subject, pixels, ERROR_RATE)]


def _folder(fault: FolderFault, recipe: ReleaseSettings) -> list[Check]:
    with tempfile.TemporaryDirectory() as folder:
        sources, releases = make_set(Path(folder), recipe)
        fault.plant(releases, sources, recipe)
        return list(audit_releases(releases).checks)


def _judge(fault: Fault, checks: list[Check]) -> Check:
    rejected = {check.name for check in checks if not check.holds}
    right = fault.by <= rejected if fault.by else not rejected
    told = sorted(fault.by & rejected) or sorted(rejected)[:3]
    others = len(rejected) - len(told)
    by = f"rejected by {', '.join(told)}" + f" and {others} more" * bool(others) if rejected else "accepted"
    complaints = (
        () if right else (f"should be rejected by {', '.join(sorted(fault.by))}" if fault.by else "should be accepted",)
    )
    error_rate = 0.0 if fault.by else sum(check.error_rate for check in checks)
    details = {"planted": fault.planted, "rejected_by": sorted(rejected), "expected": sorted(fault.by)}
    return Check(
        "controls",
        fault.name,
        f"{fault.planted}: {by}",
        right,
        error_rate=error_rate,
        complaints=complaints,
        details=details,
    )
