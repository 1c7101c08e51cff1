"""A plan for a user who knows what may leak."""

from __future__ import annotations

from pathlib import Path

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.experiments.tradeoff import TASK, Point, points
from ldp_slicing.lab.results import read


def choose(results: Path, task: str, max_leakage: float, max_epsilon: float = float("inf")) -> tuple[Point, int]:
    """The most accurate plan that was measured to leak no more than ``max_leakage`` at no more than ``max_epsilon``; and of how many."""
    if task != TASK:
        raise LdpSlicingError(f"plans were measured for {TASK}, not for {task!r}")
    found = points(read("tradeoff", results))
    if not found:
        raise LdpSlicingError(f"{results} holds no measured plans: run `ldp-slicing lab reproduce tradeoff` first")
    allowed = [one for one in found if one.leakage <= max_leakage and one.plan.epsilon <= max_epsilon]
    if not allowed:
        least = min(found, key=lambda one: one.leakage)
        nearest = f"the least leaky, {least.name}, leaks {least.leakage:.3f}"
        raise LdpSlicingError(f"no plan that was measured leaks {max_leakage:g} or less within these limits; {nearest}")
    return max(allowed, key=lambda one: one.accuracy), len(allowed)
