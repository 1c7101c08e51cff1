"""A plan for a user who knows what may leak."""

from __future__ import annotations

from collections.abc import Sequence

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.plans import CHANCE, Point


def choose(found: Sequence[Point], max_leakage: float, max_epsilon: float = float("inf")) -> tuple[Point, int]:
    """Of what was measured to leak no more than ``max_leakage`` at no more than ``max_epsilon``, what is learnt from best; and of how many.

    Best by images held out: the test accuracy of the one that is chosen is then no maximum over many.
    """
    if not 0 <= max_leakage <= 1:
        raise LdpSlicingError(f"leakage is the SSIM of reconstructions, 0 to 1; got {max_leakage:g}")
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
    best = max(allowed, key=lambda one: one.held_out)
    if best.held_out < CHANCE + 0.01:
        raise LdpSlicingError(
            f"from no plan that was measured to leak {max_leakage:g} or less can anything be learnt: {best.name} has an accuracy of "
            f"{100 * best.held_out:.2f} % on images held out, guessing {100 * CHANCE:g} %"
        )
    return best, len(allowed)
