"""Several releases of one source: a majority vote over each bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ldp_slicing.lab.attacks.attack_target import SETS, AttackTarget
from ldp_slicing.lab.attacks.averaging import COUNTS, attack_by_averaging
from ldp_slicing.lab.attacks.outcome import Outcome
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment
from ldp_slicing.lab.experiments.attack_pages import (
    EASY,
    PRUNED,
    attack_all,
    budget_title,
    mean_image,
    originals_note,
    sheet_name,
    write_sheet,
)
from ldp_slicing.lab.plans import VIEW_NAMES
from ldp_slicing.lab.rows import Row, measurements
from ldp_slicing.lab.tables import attack_cells, attack_heads, markdown
from ldp_slicing.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = (58.0, 20.0, 5.2, 1.0)
SHOWN = 20.0  # the budget of the contact sheets


def measure(context: ExperimentContext) -> Iterator[Row]:
    def sheet(target: AttackTarget, row: Row, outcome: Outcome) -> tuple[str, ...]:
        if row.epsilon != SHOWN:
            return ()
        name = f"{sheet_name('averaging', row)}-eps{SHOWN:g}"
        return write_sheet(context, target, name, row.prune, outcome.examples, unit="t =")

    return attack_all("averaging", context, attack_by_averaging, sheet)


def table(rows: Sequence[Row]) -> str:
    parts = []
    for name, title in SETS.items():
        for prune in PRUNED:
            lines = [["none", "0", "0", *attack_cells(guess)] for guess in mean_image(rows, name)]
            found = [(one.plan, one) for _, one in measurements(rows, dataset=name, prune=prune) if one.plan]
            for plan, one in found:
                spent = f"{one.releases * plan.realised_epsilon:.6g}"
                cells = attack_cells(one.metrics["reconstruction"])
                lines.append([budget_title(plan.epsilon, prune), str(one.releases), spent, *cells])
            if found:
                heads = [
                    "eps per release",
                    "releases",
                    "eps spent per released pixel",
                    *attack_heads(faces=name == "lfw"),
                ]
                head = f"**{title}, {VIEW_NAMES[prune]}**"
                parts.append(f"{head}\n\n{markdown(heads, lines)}{originals_note(rows, name)}")
    return "\n".join(parts)


def figure(rows: RowsByExperiment) -> Figure:
    """SSIM over the number of releases."""
    from ldp_slicing.lab.figures import COLOURS, common_legend, panels

    places = [(name, prune) for name in SETS for prune in PRUNED]
    drawn, axes = panels(len(places), rows=2, height=3)
    for axis, (name, prune) in zip(axes, places, strict=True):
        for eps, colour in ((EASY, "0.6"), *zip(DRAWN, COLOURS, strict=True)):
            found = measurements(rows["averaging"], dataset=name, prune=prune, plan=Plan.paper(eps))
            points = {one.releases: one.metrics["reconstruction"]["ssim"] for _, one in found}
            label = f"eps {eps:g} per release"
            axis.plot(list(points), list(points.values()), color=colour, marker="o", markersize=3.5, label=label)
        axis.set_xticks(COUNTS, [str(count) for count in COUNTS])
        axis.minorticks_off()
        title = f"{SETS[name]}, {VIEW_NAMES[prune]}"
        axis.set(title=title, xlabel="releases of each source", ylabel="SSIM", ylim=(-0.02, 1.02))
    common_legend(drawn, axes[0], columns=3)
    return drawn


EXPERIMENT = Experiment(
    "averaging",
    """
Each source is released t times, and the attack takes the majority of each bit. The eps of the releases add up. With
pruning, the majority converges to the view without noise; the low band is in no release and is not recovered. The first
row of each table is a baseline that uses no release.
""",
    measure,
    table,
    figure,
)
