"""What black box and white boxes share: networks that reconstruct sources, one for each view, told the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ldp_slicing.lab.attacks.attack_target import SETS, AttackTarget, open_target
from ldp_slicing.lab.attacks.reconstruct import attack_with_network
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, Trial, train_all, with_recipe
from ldp_slicing.lab.experiments.attack_pages import (
    PRUNED,
    TARGETS,
    figure_of,
    mean_image_rows,
    sheet_name,
    table_of,
    with_outcome,
    write_sheet,
)
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.plans import VIEW_NAMES, thick
from ldp_slicing.lab.rows import Row, plan_name, select
from ldp_slicing.lab.tables import attack_cells, attack_heads, markdown
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

RECIPES = {"lfw": "faces", "cifar10": "cifar"}
DEDICATED = 20.0  # the budget at which a network for this budget alone is trained for comparison
COMPARED: dict[str, tuple[Prune, ...]] = {"lfw": ("haar",), "cifar10": (None, "haar")}  # LFW takes ten times as long
THICK = (
    thick("haar", 3.5, "74"),
    thick("haar", 5.2, "74", "7"),
    thick("haar", 12.0, "765432", "732"),
)  # as in `tradeoff`
LONGER = 2  # a network for all budgets is trained for this many times the epochs


def measure(kind: str, context: ExperimentContext) -> Iterator[Row]:
    """One network for all budgets of each data set and view, and some for eps 20 alone."""
    trials, targets = list[Trial](), dict[str, AttackTarget]()
    for name in SETS:
        alone = recipe(f"{kind}-{RECIPES[name]}")
        every = tuple(Plan.paper(eps) for eps in TARGETS)
        wanted = [(Row(kind, name, plans=every, prune=prune), for_all_budgets(alone)) for prune in PRUNED]
        one = (Plan.paper(DEDICATED),)
        wanted += [(Row(kind, name, plans=one, prune=prune), alone) for prune in COMPARED[name]]
        if (kind, name) == ("white-box", "lfw"):
            wanted += [(Row(kind, name, plans=(one.plan,), prune=one.prune), alone) for one in THICK]
        rows = [with_recipe(row, context.shortened(how)) for row, how in wanted]
        if all(context.is_done(row) for row in rows if context.wants(row)):
            continue
        target = targets[name] = open_target(name, context.data, context.device)
        trials += [context.trial(row, target.training_set, how) for row, (_, how) in zip(rows, wanted, strict=True)]

    def finish(run: TrainingRun, row: Row) -> Row:
        target = targets[row.dataset]
        outcome = attack_with_network(run, target)
        done = with_outcome(row, outcome, target)
        if len(row.plans) == 1 and not _is_thick(row):
            return done
        sheet = f"{kind}-{row.dataset}-thick-pruned" if _is_thick(row) else sheet_name(kind, row)
        shows_low_band = kind != "black-box" and row.prune == "haar"
        files = write_sheet(context, target, sheet, row.prune, outcome.examples, low_band=shows_low_band)
        return replace(done, files=files)

    yield from mean_image_rows(kind, context)
    yield from train_all(sorted(trials, key=lambda one: -len(one.row.plans)), context, finish)


def for_all_budgets(alone: Recipe) -> Recipe:
    return replace(alone, name=f"{alone.name}-all-budgets", epochs=LONGER * alone.epochs)


def _is_thick(row: Row) -> bool:
    return row.plan in [one.plan for one in THICK]


def table(rows: Sequence[Row]) -> str:
    paper = [row for row in rows if not _is_thick(row)]
    parts = [table_of(paper, name, prune, _by) for name in SETS for prune in PRUNED]
    return "\n".join(filter(None, [*parts, _thick_slices(rows), _networks(rows)]))


def _thick_slices(rows: Sequence[Row]) -> str:
    """Plans of one thick slice, each attacked by a network for this plan alone."""
    lines = []
    for candidate in THICK:
        for row in select(rows, plan=candidate.plan, prune=candidate.prune):
            for one in row.measurements:
                eps = f"{candidate.plan.epsilon:g}, {plan_name(candidate.plan)}"
                lines.append([eps, "release", *attack_cells(one.metrics["release"])])
                lines.append(["", "reconstruction", *attack_cells(one.metrics["reconstruction"])])
    if not lines:
        return ""
    heads = ["eps per released pixel, slice", "image", *attack_heads(faces=True)]
    return f"**{SETS['lfw']}, pruned, thick slices**\n\n{markdown(heads, lines)}"


def _by(row: Row) -> str:
    return "reconstruction" if len(row.plans) > 1 else f"reconstruction, network for eps {row.epsilon:g} alone"


def _networks(rows: Sequence[Row]) -> str:
    """How long each network was trained, and what a network for all budgets loses at eps 20."""
    lines = []
    for row in sorted(select(rows), key=lambda row: (row.dataset, row.prune or "", -len(row.plans))):
        if row.training:
            at = [one for one in row.measurements if one.plan and one.plan.epsilon == DEDICATED]
            ssim = f"{at[0].metrics['reconstruction']['ssim']:.3f}" if at else "-"
            budgets = f"{plan_name(row.plan)}, eps {row.epsilon:g}" if row.plan else f"{len(row.plans)} budgets"
            lines.append([SETS[row.dataset], VIEW_NAMES[row.prune], budgets, f"{row.training.steps:,}", ssim])
    heads = [
        "data set",
        "view",
        "trained for",
        "steps (a batch is shared by all budgets)",
        f"SSIM at eps {DEDICATED:g}",
    ]
    return f"**Networks**\n\n{markdown(heads, lines)}"


def attack_experiment(kind: str, about: str) -> Experiment:
    return Experiment(kind, about, partial(measure, kind), table, partial(figure_of, kind))
