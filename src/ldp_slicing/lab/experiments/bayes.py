"""An attack without training: the posterior of each pixel under a public prior, then non-local means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ldp_slicing.lab.attacks.attack_target import SETS, AttackTarget
from ldp_slicing.lab.attacks.bayes import attack_by_posterior
from ldp_slicing.lab.attacks.outcome import Outcome
from ldp_slicing.lab.experiment import Experiment, ExperimentContext
from ldp_slicing.lab.experiments.attack_pages import PRUNED, attack_all, figure_of, sheet_name, table_of, write_sheet
from ldp_slicing.lab.rows import Row


def measure(context: ExperimentContext) -> Iterator[Row]:
    def sheet(target: AttackTarget, row: Row, outcome: Outcome) -> tuple[str, ...]:
        return write_sheet(context, target, sheet_name("bayes", row), row.prune, outcome.examples)

    return attack_all("bayes", context, attack_by_posterior, sheet)


def table(rows: Sequence[Row]) -> str:
    return "\n".join(table_of(rows, name, prune, lambda _: "Bayes") for name in SETS for prune in PRUNED)


EXPERIMENT = Experiment(
    "bayes",
    """
This attack needs no training. It computes the posterior mean of each pixel from the histogram of public views and the
exact flip probabilities of the plan, then applies non-local means (5 x 5 patches, up to 7 pixels away) and a linear
correction per channel. The strength of the filter and the correction are fitted to 500 public images. With pruning, the
attack reconstructs only the detail, but is compared with the whole source.
""",
    measure,
    table,
    partial(figure_of, "bayes"),
)
