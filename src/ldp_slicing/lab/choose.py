"""A plan for a user who knows what may leak."""

from __future__ import annotations

from pathlib import Path

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.experiments.tradeoff import CHANCE, TASK, Point, points
from ldp_slicing.lab.results import read


def choose(results: Path, task: str, max_leakage: float, max_epsilon: float = float("inf")) -> tuple[Point, int]:
    """The most accurate plan that was measured to leak no more than ``max_leakage`` at no more than ``max_epsilon``; and of how many."""
    if task != TASK:
        raise LdpSlicingError(f"plans were measured for {TASK}, not for {task!r}")
    found = points(read("tradeoff", results))
    if not found:
        raise LdpSlicingError(f"{results} holds no measured plans: run `ldp-slicing lab reproduce tradeoff` first")
    within = [one for one in found if one.plan.epsilon <= max_epsilon]
    if not within:
        raise LdpSlicingError(
            f"no plan with eps {max_epsilon:g} or less was measured; the smallest was {min(one.plan.epsilon for one in found):g}"
        )
    allowed = [one for one in within if one.worst <= max_leakage]
    if not allowed:
        least = min(within, key=lambda one: one.worst)
        raise LdpSlicingError(
            f"no plan that was measured leaks {max_leakage:g} or less; the least leaky, {least.name}, leaks {least.worst:.3f}"
        )
    best = max(allowed, key=lambda one: one.accuracy)
    if best.accuracy < CHANCE + 0.01:
        raise LdpSlicingError(
            f"from no plan that was measured to leak {max_leakage:g} or less can anything be learnt: {best.name} has an accuracy of "
            f"{100 * best.accuracy:.2f} %, guessing {100 * CHANCE:g} %"
        )
    return best, len(allowed)
