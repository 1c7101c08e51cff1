"""Plans to choose from, and what was measured for each. It needs no torch.

The package carries the measurements as ``plans.json``. ``ldp-slicing lab results --plans FILE`` makes that file from
the rows of the experiment ``tradeoff``.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.rows import Row, measurements, plan_name, read_rows, select
from ldp_slicing.plan import BUDGETS, CHANNELS, COLOUR_BITS, PAPER_WEIGHTS, Plan, plan_for
from ldp_slicing.view import Prune

MEASURED = Path(__file__).with_name("plans.json")
TASK = "cifar10"
CHANCE = 0.1
SIDE = 32  # of the images that were measured, in pixels
VIEW_NAMES: dict[Prune, str] = {None: "not pruned", "haar": "pruned", "haar4": "pruned, detail x 4"}
VIEWS: tuple[Prune, ...] = (None, "haar", "haar4")

Family = Literal["paper", "thick", "single"]


@dataclass(frozen=True)
class Candidate:
    """A plan and view. slices: as ``Plan.sliced`` and ``--slices`` take them; "" for the paper's plan.

    family: "paper"; "thick" for one thick slice of some bits; "single" for the same bits as one-bit slices, with the
    paper's shares of eps. The other bits are dropped.
    """

    family: Family
    plan: Plan
    prune: Prune
    slices: str = ""

    @property
    def name(self) -> str:
        return f"{plan_name(self.plan)}, {VIEW_NAMES[self.prune]}, eps {self.plan.epsilon:g}"

    @property
    def command(self) -> str:
        """The command that releases at this setting, in the size that was measured: larger images would leak more."""
        slices = f" --slices {self.slices}" if self.slices else ""
        options = f"--epsilon {self.plan.epsilon:g}{slices} --prune {self.prune or 'none'} --max-side {SIDE}"
        return f"ldp-slicing privatize SRC DST {options}"

    @property
    def code(self) -> str:
        """The same in Python."""
        slices = f'Plan.sliced({self.plan.epsilon:g}, "{self.slices}")'
        plan = slices if self.slices else f"Plan.paper({self.plan.epsilon:g})"
        return f"Slicer({plan}, prune={self.prune!r}, size={SIDE})"


def paper(prune: Prune, eps: float) -> Candidate:
    return Candidate("paper", Plan.paper(eps), prune)


def thick(prune: Prune, eps: float, y: str, chroma: str = "") -> Candidate:
    """One thick slice of some bits of Y, and of Cb and Cr: "74" are bits 7 and 4."""
    slices = "+".join(name for name, _ in _bits(y, chroma))
    return Candidate("thick", Plan.sliced(eps, slices), prune, slices)


def single(prune: Prune, eps: float, y: str, chroma: str = "") -> Candidate:
    """The same bits as one-bit slices, with the paper's shares of eps."""
    slices = ",".join(f"{name}={math.sqrt(importance):.3f}" for name, importance in _bits(y, chroma))
    return Candidate("single", Plan.sliced(eps, slices), prune, slices)


def _bits(y: str, chroma: str) -> list[tuple[str, float]]:
    """Names of bits, and the importance that the paper gives them."""
    channels = zip(CHANNELS, (y, chroma, chroma), PAPER_WEIGHTS, strict=True)
    return [(f"{channel}{bit}", weight * 2 ** int(bit)) for channel, some, weight in channels for bit in some]


# Pruned values lie around 128, where the bits below the highest repeat it: bit 7 has the sign, bits 5 to 3 the size.
CANDIDATES: tuple[Candidate, ...] = (
    *(paper(None, eps) for eps in BUDGETS),
    thick(None, 1, "7"),
    thick(None, 2.4, "7"),
    thick(None, 2.4, "76"),
    thick(None, 3.5, "76"),
    thick(None, 5.2, "765"),
    thick(None, 5.2, "76", "7"),
    thick(None, 12, "76543", "765"),
    single(None, 5.2, "765"),
    *(paper("haar", eps) for eps in BUDGETS),
    thick("haar", 1, "7"),
    thick("haar", 2.4, "7"),
    thick("haar", 2.4, "74"),
    thick("haar", 3.5, "74"),
    thick("haar", 5.2, "754"),
    thick("haar", 5.2, "74", "7"),
    thick("haar", 12, "765432", "732"),
    single("haar", 3.5, "74"),
    single("haar", 5.2, "74", "7"),
    *(paper("haar4", eps) for eps in BUDGETS),
    thick("haar4", 1, "7"),
    thick("haar4", 2.4, "76"),
    thick("haar4", 3.5, "76"),
    thick("haar4", 5.2, "76", "7"),
    thick("haar4", 12, "7654", "765"),
)
DEDICATED: tuple[Candidate, ...] = (  # these are also attacked by a network for this plan alone
    paper("haar", 20.0),
    thick("haar", 3.5, "74"),
    paper("haar", 32.0),
    thick("haar", 5.2, "74", "7"),
    paper(None, 32.0),
    thick(None, 5.2, "765"),
    single("haar", 5.2, "74", "7"),
    paper("haar4", 20.0),
    thick("haar4", 5.2, "76", "7"),
)


@dataclass(frozen=True)
class Point:
    """What a learner and what an adversary get from the releases of a candidate.

    test_accuracy: reported, and used for no choice. validation_accuracy: what a plan is chosen by. leakage: SSIM of the
    reconstructions by one network for all plans of a view. dedicated_leakage: by a network for this plan alone.
    """

    candidate: Candidate
    test_accuracy: float
    validation_accuracy: float
    leakage: float
    dedicated_leakage: float | None = None

    @property
    def epsilon(self) -> float:
        return self.candidate.plan.epsilon

    @property
    def worst_leakage(self) -> float:
        """By the strongest network that was tried."""
        return max(self.leakage, self.dedicated_leakage or 0.0)


def points(rows: Sequence[Row]) -> list[Point]:
    """Every candidate for which both sides were measured, the least leaky first."""
    found = []
    for one in CANDIDATES:
        learners, leakage = learners_of(one, rows), leakage_of(one, rows, dedicated=False)
        if learners and leakage is not None:
            test = fmean(row.metrics["test_accuracy"] for row in learners)
            validation = fmean(row.training.best_validation_accuracy for row in learners if row.training)
            found.append(Point(one, test, validation, leakage, leakage_of(one, rows, dedicated=True)))
    return sorted(found, key=lambda point: point.leakage)


def leakage_of(candidate: Candidate, rows: Sequence[Row], *, dedicated: bool) -> float | None:
    """SSIM of the reconstructions from its releases, by a network for this plan alone or by one for several plans."""
    found = measurements(rows, method="adversary", prune=candidate.prune)
    mine = [(row, one) for row, one in found if one.plan == candidate.plan and (len(row.plans) == 1) == dedicated]
    return max(mine, key=lambda pair: len(pair[0].plans))[1].metrics["ssim"] if mine else None


def learners_of(candidate: Candidate, rows: Sequence[Row]) -> list[Row]:
    return select(rows, method="learner", plan=candidate.plan, prune=candidate.prune, mode="decoded")


def best(found: Sequence[Point]) -> list[Point]:
    """The points on the Pareto front of validation accuracy and leakage."""

    def beats(other: Point, one: Point) -> bool:
        as_good = other.leakage <= one.leakage and other.validation_accuracy >= one.validation_accuracy
        return as_good and (other.leakage, other.validation_accuracy) != (one.leakage, one.validation_accuracy)

    return [one for one in found if not any(beats(other, one) for other in found)]


def paper_at_equal_leakage(point: Point, found: Sequence[Point]) -> tuple[float, float] | None:
    """The eps at which the paper's plan leaks as much in the same view, and its test accuracy there.

    Interpolated linearly (eps: logarithmically) between the neighbouring points of the paper's plan, if there are any.
    """
    family = [one for one in found if one.candidate.family == "paper" and one.candidate.prune == point.candidate.prune]
    for below, above in itertools.pairwise(sorted(family, key=lambda one: one.leakage)):
        if below.leakage <= point.leakage <= above.leakage and below.leakage < above.leakage:
            part = (point.leakage - below.leakage) / (above.leakage - below.leakage)
            eps = below.epsilon * (above.epsilon / below.epsilon) ** part
            return eps, below.test_accuracy + part * (above.test_accuracy - below.test_accuracy)
    return None


def measured(task: str, results: Path | None = None) -> list[Point]:
    """What was measured for a task: the measurements in this package, or those in a folder of results."""
    if task != TASK:
        raise LdpSlicingError(f"plans were measured for {TASK}, not for {task!r}")
    if results is None:
        return [_point(**one) for one in json.loads(MEASURED.read_text(encoding="utf-8"))["plans"]]
    found = points(read_rows(results / "tradeoff.json"))
    if not found:
        raise LdpSlicingError(
            f"{results} holds no measured plans: run `ldp-slicing lab reproduce tradeoff` first, or omit --results"
        )
    return found


def _point(*, family: Family, epsilon: float, slices: str, prune: Prune, **numbers: Any) -> Point:  # noqa: ANN401 - of Point
    plan = plan_for(COLOUR_BITS, epsilon, slices=slices or None)
    return Point(Candidate(family, plan, prune, slices), **numbers)


def to_json(rows: Sequence[Row]) -> str:
    """``plans.json`` from the rows of the experiment ``tradeoff``; ``measured`` reads it."""
    plans = [
        {
            "family": one.candidate.family,
            "epsilon": one.epsilon,
            "slices": one.candidate.slices,
            "prune": one.candidate.prune,
            "test_accuracy": one.test_accuracy,
            "validation_accuracy": one.validation_accuracy,
            "leakage": one.leakage,
            "dedicated_leakage": one.dedicated_leakage,
        }
        for one in points(rows)
    ]
    return json.dumps({"task": TASK, "plans": plans}, indent=1) + "\n"
