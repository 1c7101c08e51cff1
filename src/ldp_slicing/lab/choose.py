"""Choose a plan by the leakage that is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.advise.committed import choose_setting, packaged, read_reports
from ldp_slicing.lab.advise.findings import describe, make_rules
from ldp_slicing.lab.plans import CHANCE, TASK, Point


def choose(found: Sequence[Point], max_leakage: float, max_epsilon: float = float("inf")) -> tuple[Point, int]:
    """The point with the highest validation accuracy among those within both limits, and how many there are.

    The test accuracy is not used for the choice, so that it is not the maximum over many.
    """
    if not 0 <= max_leakage <= 1:
        raise LdpSlicingError(f"leakage is the SSIM of reconstructions, 0 to 1; got {max_leakage:g}")
    within = [one for one in found if one.epsilon <= max_epsilon]
    if not within:
        smallest = min(one.epsilon for one in found)
        raise LdpSlicingError(f"no measured plan has eps {max_epsilon:g} or less; the smallest has {smallest:g}")
    allowed = [one for one in within if one.worst_leakage <= max_leakage]
    if not allowed:
        least = min(within, key=lambda one: one.worst_leakage)
        raise LdpSlicingError(
            f"no measured plan has a leakage of {max_leakage:g} or less; "
            f"the smallest is {least.worst_leakage:.3f} ({least.candidate.name})"
        )
    best = max(allowed, key=lambda one: one.validation_accuracy)
    if best.validation_accuracy < CHANCE + 0.01:
        raise LdpSlicingError(
            f"no measured plan with a leakage of {max_leakage:g} or less is useful: the best, {best.candidate.name}, "
            f"has a validation accuracy of {100 * best.validation_accuracy:.2f} % (chance: {100 * CHANCE:g} %)"
        )
    return best, len(allowed)


def choose_from_report(
    task: str, results: Path | None, max_leakage: float, max_linkage: float | None, max_epsilon: float
) -> list[str]:
    """Lines that say which setting the committed report of ``advise`` on a data set allows."""
    reports = packaged() if results is None else read_reports(results)
    if task not in reports:
        known = ", ".join(sorted({TASK, *reports}))
        raise LdpSlicingError(f"nothing was measured for {task!r}, only for {known}: run `ldp-slicing advise`")
    rules = make_rules(max_ssim=max_leakage, max_linkage=max_linkage)
    return describe(*choose_setting(task, reports[task], rules, max_epsilon))
