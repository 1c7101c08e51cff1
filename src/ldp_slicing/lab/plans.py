"""Plans to choose from, and what was measured of each. It needs no torch: whoever chooses only reads.

The package carries what was measured as ``plans.json``: ``ldp-slicing lab results --plans FILE`` makes it from the rows of the experiment
``tradeoff``.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.plan import BUDGETS, CHANNELS, COLOUR_BITS, PAPER_WEIGHTS, Plan, plan_for
from ldp_slicing.view import Prune

if TYPE_CHECKING:
    from ldp_slicing.lab.experiment import Row

MEASURED = Path(__file__).with_name("plans.json")
TASK = "cifar10"
CHANCE = 0.1
VIEWS: dict[str, Prune] = {"whole": None, "pruned": "haar", "raised": "haar4"}

# One slice, of these bits of Y and of these of Cb and of Cr. Around 128, where a pruned view is, the bits just below the highest repeat it:
# the sign is in bit 7, the size in bits 5 to 3.
THICK: dict[str, tuple[tuple[float, str, str], ...]] = {
    "whole": (
        (1, "7", ""),
        (2.4, "7", ""),
        (2.4, "76", ""),
        (3.5, "76", ""),
        (5.2, "765", ""),
        (5.2, "76", "7"),
        (12, "76543", "765"),
    ),
    "pruned": (
        (1, "7", ""),
        (2.4, "7", ""),
        (2.4, "74", ""),
        (3.5, "74", ""),
        (5.2, "754", ""),
        (5.2, "74", "7"),
        (12, "765432", "732"),
    ),
    "raised": ((1, "7", ""), (2.4, "76", ""), (3.5, "76", ""), (5.2, "76", "7"), (12, "7654", "765")),
}
# The same bits with the paper's shares: what is gained by dropping the others, and what by joining these.
SINGLE: dict[str, tuple[tuple[float, str, str], ...]] = {
    "whole": ((5.2, "765", ""),),
    "pruned": ((3.5, "74", ""), (5.2, "74", "7")),
}
ALONE = (  # these are also attacked by networks that know no other plan
    "paper-pruned-eps20",
    "thick-pruned-eps3.5-y74",
    "paper-pruned-eps32",
    "thick-pruned-eps5.2-y74c7",
    "paper-whole-eps32",
    "thick-whole-eps5.2-y765",
    "single-pruned-eps5.2-y74c7",
    "paper-raised-eps20",
    "thick-raised-eps5.2-y76c7",
)


def _thick(y: str, chroma: str) -> str:
    """Some bits of Y, and of Cb and Cr, as one symbol; the others are dropped."""
    return "+".join(name for name, _ in _bits(y, chroma))


def _single(y: str, chroma: str) -> str:
    return ",".join(f"{name}={math.sqrt(importance):.3f}" for name, importance in _bits(y, chroma))


def _bits(y: str, chroma: str) -> list[tuple[str, float]]:
    """Names, and the paper's importance."""
    channels = zip(CHANNELS, (y, chroma, chroma), PAPER_WEIGHTS, strict=True)
    return [(f"{channel}{bit}", weight * 2 ** int(bit)) for channel, some, weight in channels for bit in some]


def _plans() -> dict[str, tuple[Plan, Prune, str]]:
    """A plan, a view, and the slices by their names where the plan is not the paper's."""
    plans: dict[str, tuple[Plan, Prune, str]] = {}
    for view, prune in VIEWS.items():
        plans |= {f"paper-{view}-eps{eps:g}": (Plan.paper(eps), prune, "") for eps in BUDGETS}
        for family, some, make in (("thick", THICK, _thick), ("single", SINGLE, _single)):
            for eps, y, c in some.get(view, ()):
                slices = make(y, c)
                plans[f"{family}-{view}-eps{eps:g}-y{y}{'c' * bool(c)}{c}"] = Plan.sliced(eps, slices), prune, slices
    return plans


PLANS = _plans()


@dataclass(frozen=True)
class Point:
    """A plan, what a learner gets from its releases and what an adversary gets (leakage: SSIM of its reconstructions).

    held_out: the learner's accuracy on images held out of training. Whatever is chosen is chosen by it, so that accuracy, on the test set,
    is told of what was chosen and has chosen nothing.
    """

    name: str
    plan: Plan
    prune: Prune
    slices: str  # as ``Plan.sliced`` and ``--slices`` take them; "" for the paper's
    accuracy: float
    held_out: float
    leakage: float
    alone: float | None = None  # what a network for this plan alone gets

    @property
    def worst(self) -> float:
        """What the stronger of the networks that were tried gets."""
        return max(self.leakage, self.alone or 0.0)

    @property
    def command(self) -> str:
        slices = f" --slices {self.slices}" * bool(self.slices)
        return f"ldp-slicing privatize SRC DST --epsilon {self.plan.epsilon:g}{slices} --prune {self.prune or 'none'}"

    @property
    def code(self) -> str:
        """How it is used from Python."""
        plan = (
            f'Plan.sliced({self.plan.epsilon:g}, "{self.slices}")'
            if self.slices
            else f"Plan.paper({self.plan.epsilon:g})"
        )
        return f"Slicer({plan}, prune={self.prune!r})"


def held_out(row: Row) -> float:
    """Accuracy of the network that was chosen, on the images held out: it was chosen because none was better."""
    best: float = max(value for value in row["history"]["validation_accuracy"] if value is not None)
    return best


def points(rows: Sequence[Row]) -> list[Point]:
    """Every plan of which both sides were measured, the least leaky first."""
    leaks, alone, found = leakages(rows, "-adversary"), leakages(rows, "-alone"), []
    for name, (plan, prune, slices) in PLANS.items():
        learners = learners_of(name, rows)
        if learners and name in leaks:
            accuracy, held = (sum(map(of, learners)) / len(learners) for of in (lambda row: row["accuracy"], held_out))
            found.append(Point(name, plan, prune, slices, accuracy, held, leaks[name], alone.get(name)))
    return sorted(found, key=lambda point: point.leakage)


def leakages(rows: Sequence[Row], kind: str) -> dict[str, float]:
    """What adversaries of a kind got from the releases of each plan that they were tried on."""
    return {
        one["plan"]: one["ssim"]
        for row in rows
        if row["finished"] and row["run"].endswith(kind)
        for one in row["found"]
    }


def learners_of(name: str, rows: Sequence[Row]) -> list[Row]:
    way = "-decoded" if decoded(rows) else ""
    return [row for row in rows if row["finished"] and row["run"] == f"{TASK}-{name}-learner{way}"]


def decoded(rows: Sequence[Row]) -> bool:
    """Whether to show the learners that decoded the releases: as soon as there is one for each plan that has one that did not."""
    learners = {row["run"] for row in rows if row["finished"] and "-learner" in row["run"]}
    plain = {run for run in learners if run.endswith("-learner")}
    return {f"{run}-decoded" for run in plain} <= learners


def best(found: Sequence[Point]) -> list[Point]:
    """Those that no other beats: at least as good in accuracy on images held out and in leakage, and better in one of them."""

    def beats(other: Point, one: Point) -> bool:
        as_good = other.leakage <= one.leakage and other.held_out >= one.held_out
        return as_good and (other.leakage, other.held_out) != (one.leakage, one.held_out)

    return [one for one in found if not any(beats(other, one) for other in found)]


def of_the_paper(point: Point, found: Sequence[Point]) -> tuple[float, float] | None:
    """At which eps the paper's plan leaks as much in the same view, and its accuracy there: along straight lines (eps: its logarithm)
    between the two of its measured points that lie on either side, if there are such.
    """
    line = sorted((one for one in found if not one.slices and one.prune == point.prune), key=lambda one: one.leakage)
    for below, above in itertools.pairwise(line):
        if below.leakage <= point.leakage <= above.leakage and below.leakage < above.leakage:
            part = (point.leakage - below.leakage) / (above.leakage - below.leakage)
            eps = below.plan.epsilon * (above.plan.epsilon / below.plan.epsilon) ** part
            return eps, below.accuracy + part * (above.accuracy - below.accuracy)
    return None


def measured(task: str, results: Path | None = None) -> list[Point]:
    """What was measured for a task: by whoever made this package, or by the rows in a folder of results."""
    if task != TASK:
        raise LdpSlicingError(f"plans were measured for {TASK}, not for {task!r}")
    if results is None:
        return [_point(**one) for one in json.loads(MEASURED.read_text(encoding="utf-8"))["plans"]]
    path = results / "tradeoff.json"
    found = points(json.loads(path.read_text(encoding="utf-8"))["rows"]) if path.is_file() else []
    if not found:
        raise LdpSlicingError(
            f"{results} holds no measured plans: run `ldp-slicing lab reproduce tradeoff` first, or leave --results out"
        )
    return found


def _point(*, name: str, epsilon: float, slices: str, prune: Prune, **numbers: Any) -> Point:  # noqa: ANN401 - the fields of a point
    return Point(name, plan_for(COLOUR_BITS, epsilon, slices=slices or None), prune, slices, **numbers)


def to_json(rows: Sequence[Row]) -> str:
    """``plans.json`` from the rows of the experiment: what ``measured`` reads."""
    told = ("name", "slices", "prune", "accuracy", "held_out", "leakage", "alone")
    plans = [{key: getattr(one, key) for key in told} | {"epsilon": one.plan.epsilon} for one in points(rows)]
    return json.dumps({"task": TASK, "plans": plans}, indent=1) + "\n"
