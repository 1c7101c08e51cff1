"""Face verification on LFW from releases. Nobody in a tested pair is in the training set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ldp_slicing.lab.attacks.recognition import load_recogniser
from ldp_slicing.lab.attacks.reconstruct import reconstruct_sources
from ldp_slicing.lab.data.lfw import FaceSet, Side, images_in_pairs, load_lfw, sides
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment, Trial, train_all
from ldp_slicing.lab.experiments.ablation import VARIANTS
from ldp_slicing.lab.experiments.lfw_sides import Teacher, load_teachers, people_of
from ldp_slicing.lab.experiments.reconstruction_pages import for_all_budgets
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.metrics.verification import distances, verify
from ldp_slicing.lab.rows import Measurement, Mode, Row, measurements, select
from ldp_slicing.lab.tables import markdown
from ldp_slicing.plan import BUDGETS, Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = (52.88, 53.62, 89.31, 99.30, 99.75, 99.77, 99.77)
PAPER_CLEAN = 99.77
METHODS = {
    "untuned": "pretrained, not tuned",
    "arcface": "tuned by labels on one release per image",
    "public": "tuned on public people, fresh releases",
    "reconstructed": "pretrained, on reconstructed faces",
    "ir50": "IR-50 from random weights, by labels on one release per image",
}
IR50 = 20.0  # the budget of IR-50, beside its row without privacy
NO_PRIVACY = 110.0  # where the figure over eps shows networks without privacy
SECOND_SEED = 1  # of the public method at eps 20: how much depends on the seed


def measure(context: ExperimentContext) -> Iterator[Row]:
    faces = load_lfw(context.data)
    halves = sides(faces)
    teachers = load_teachers(faces, halves, context)
    by_folds = {side.folds: side for side in halves}
    trials = [trial for side in halves for trial in _trials(faces, side, teachers[side.folds], context)]
    yield from train_all(trials, context, lambda run, row: _verified(faces, by_folds[row.folds], run, row))
    recogniser = load_recogniser(context.data, context.device)
    how, plans = for_all_budgets(recipe("white-box-faces")), tuple(Plan.paper(eps) for eps in BUDGETS)
    rows = [Row("faces", "lfw", "reconstructed", plans, "haar", folds=side.folds) for side in halves]
    networks = [context.trial(row, people_of(faces, by_folds[row.folds]), how) for row in rows]

    def finish(run: TrainingRun, row: Row) -> Row:
        return _verified_reconstructions(faces, by_folds[row.folds], run, row, recogniser)

    yield from train_all(networks, context, finish)


def _trials(faces: FaceSet, side: Side, teacher: Teacher, context: ExperimentContext) -> list[Trial]:
    """Every method, for every budget and variant, for one side."""
    people = people_of(faces, side)
    arcface, public = recipe("faces-arcface"), recipe("faces-teacher")
    recipes = {"untuned": replace(arcface, name="untuned", epochs=0), "arcface": arcface, "public": public}
    base = Row("faces", "lfw", folds=side.folds)

    def released(method: str, plan: Plan) -> Row:
        release = "every-epoch" if method == "public" else "once"
        mode: Mode = "raw"
        return replace(base, method=method, plans=(plan,), prune="haar", release=release, mode=mode)

    def trial(row: Row, how: Recipe) -> Trial:
        taught = teacher.embeddings[side.images] if how.loss == "teacher" else None
        return context.trial(row, people, how, targets=taught, weights=teacher.weights, started_from=teacher.origin)

    rows = [released(method, Plan.paper(eps)) for method in recipes for eps in BUDGETS]
    rows.append(replace(released("public", Plan.paper(20.0)), seed=SECOND_SEED))
    rows += [replace(base, method=method, prune="haar", release="view") for method in recipes]
    rows += [replace(base, method=method) for method in recipes]
    others = [one for one in VARIANTS if (one.plan, one.prune) != (Plan.paper(20.0), "haar")]
    rows += [replace(released("public", one.plan), prune=one.prune) for one in others]
    from_random = [released("ir50", Plan.paper(IR50)), replace(base, method="ir50")]
    return [
        *(trial(row, recipes[row.method]) for row in rows),
        *(context.trial(row, people, _ir50_recipe()) for row in from_random),
    ]


def _ir50_recipe() -> Recipe:
    """The paper's recipe for faces, as far as it can be followed with LFW alone."""
    paper = recipe("faces-paper")
    deviations = (
        "random initial weights: the paper's are not free",
        "LFW's training side, some thousand images, instead of 5.8 million images of MS1MV2",
    )
    return replace(paper, name="faces-paper-lfw", deviations=(*deviations, *paper.deviations))


def _verified(faces: FaceSet, side: Side, run: TrainingRun, row: Row) -> Row:
    """Verification of the side's pairs. Every tested image is released once; the release is mirrored."""
    images = torch.cat([run.inputs.noise(part) for part in torch.split(run.inputs.test[0], 256)])
    found = _per_fold(faces, side, run.model, images, run.inputs.normalise)
    metrics = {"verification_accuracy": float(np.mean(found)), "per_fold": found, "people": side.classes}
    return replace(row, metrics=metrics)


def _verified_reconstructions(faces: FaceSet, side: Side, run: TrainingRun, row: Row, recogniser: nn.Module) -> Row:
    """The same at every budget, with both images of a pair reconstructed from one release each."""
    found = []
    for plan in run.task.plans:
        images = reconstruct_sources(run, run.inputs.test[0], plan)
        folds = _per_fold(faces, side, recogniser, images, lambda x: x.float())
        found.append(Measurement({"verification_accuracy": float(np.mean(folds)), "per_fold": folds}, plan))
    return replace(row, measurements=tuple(found), metrics={"people": side.classes})


def _per_fold(
    faces: FaceSet, side: Side, model: nn.Module, images: torch.Tensor, prepare: Callable[[torch.Tensor], torch.Tensor]
) -> list[float]:
    embedded = embed(model, images, prepare=prepare, batch=256)
    apart = distances(faces, side, embedded, images_in_pairs(faces, side))
    accuracies: list[float] = verify(faces, side, apart).per_fold.tolist()
    return accuracies


def fold_accuracies(rows: Sequence[Row], method: str, *, seed: int = 0, **fields: Any) -> list[float]:  # noqa: ANN401 - of Row
    """The accuracies of all tested folds, from both sides."""
    if method == "reconstructed":
        plan = fields.get("plan")
        found = [one.metrics for _, one in measurements(rows, method=method, seed=seed) if one.plan == plan]
    else:
        found = [row.metrics for row in select(rows, method=method, seed=seed, **fields)]
    return [value for metrics in found for value in metrics["per_fold"]]


def _mean(values: list[float]) -> str:
    if not values:
        return "-"
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5)
    return f"{100 * mean:.2f} ± {100 * error:.2f}" + ("" if len(values) == 10 else f" ({len(values)} folds)")


def table(rows: Sequence[Row]) -> str:
    lines: list[tuple[str, dict[str, Any], str]] = [
        (f"{eps:g}", {"plan": Plan.paper(eps), "prune": "haar"}, f"{paper:.2f}")
        for eps, paper in zip(BUDGETS, PAPER, strict=True)
    ]
    lines.append(("pruned, no noise (not private)", {"release": "view"}, "-"))
    lines.append(("without privacy", {"release": "none", "plan": None}, f"{PAPER_CLEAN:.2f}"))
    methods = [method for method in METHODS if any(row.method == method and row.finished for row in rows)]
    cells = [
        [title, *(_mean(fold_accuracies(rows, method, **fields)) for method in methods), paper]
        for title, fields, paper in lines
    ]
    heads = ["eps per released pixel", *(f"{METHODS[method]}, %" for method in methods), "paper (IR-50, MS1MV2), %"]
    again = fold_accuracies(rows, "public", seed=SECOND_SEED, plan=Plan.paper(20.0), prune="haar")
    seeds = f" A second seed of the network tuned on public people at eps 20: {_mean(again)} %." if again else ""
    variants = [
        [one.title, _mean(fold_accuracies(rows, "public", plan=one.plan, prune=one.prune)), f"{one.paper_lfw:.2f}"]
        for one in VARIANTS
        if fold_accuracies(rows, "public", plan=one.plan, prune=one.prune)
    ]
    second = markdown(["variant (`ablation`)", f"{METHODS['public']}, %", "paper, %"], variants)
    note = f"Verification accuracy, mean and standard error over the ten folds.{seeds}"
    return f"{markdown(heads, cells)}\n{note}\n\n{second}"


def figure(rows: RowsByExperiment) -> Figure:
    """Verification accuracy over eps. Unconnected points at the right: the same networks without privacy."""
    from ldp_slicing.lab.figures import COLOURS, budget_ticks, legend, line, panels

    drawn, (axis,) = panels(1, width=5.6, height=4.6)
    beside = [NO_PRIVACY * 1.07**step for step in (-2, 2, 1, 0, -1)]  # of the methods; some are equally accurate
    for (method, text), colour, place in zip(METHODS.items(), (*COLOURS, "0.1"), beside, strict=True):
        found = {eps: fold_accuracies(rows["faces"], method, plan=Plan.paper(eps), prune="haar") for eps in BUDGETS}
        clean = {place: fold_accuracies(rows["faces"], method, plan=None, release="none")}
        _line(axis, found, text if method == "ir50" else f"dlib's recogniser, {text}", colour)
        _line(axis, clean, f"_{method}", colour)  # the underscore keeps it out of the legend
    paper = {eps: [value / 100] for eps, value in zip(BUDGETS, PAPER, strict=True)}
    line(axis, paper, "paper: IR-50 trained on MS1MV2", "0.4", "--")
    line(axis, {NO_PRIVACY: [PAPER_CLEAN / 100]}, "_paper", "0.4")
    budget_ticks(axis, BUDGETS)
    axis.set_xticks([*axis.get_xticks(), NO_PRIVACY], [*axis.get_xticklabels(), "none"])
    axis.set(
        title="LFW, ten folds, ± 2 standard errors",
        xlabel="eps per released pixel (none: without privacy)",
        ylabel="verification accuracy, %",
    )
    legend(axis)
    return drawn


def _line(axis: Any, found: Mapping[float, list[float]], label: str, colour: str) -> None:  # noqa: ANN401 - matplotlib's
    """A line through the means over folds, with two standard errors."""
    from ldp_slicing.lab.figures import line

    means = {eps: float(np.mean(values)) for eps, values in found.items() if values}
    errors = {eps: 2 * float(np.std(found[eps], ddof=1)) / len(found[eps]) ** 0.5 for eps in means}
    intervals = {eps: (mean - errors[eps], mean + errors[eps]) for eps, mean in means.items()}
    line(axis, {eps: [mean] for eps, mean in means.items()}, label, colour, intervals=intervals)


EXPERIMENT = Experiment(
    "faces",
    """
A recogniser verifies pairs of LFW from one release of every tested image. The pretrained network is dlib's recogniser
(CC0). Two-way cross-fitting: folds 1 to 5 are tested by a network trained on people who are in none of their pairs, and
so are folds 6 to 10. The threshold of a fold comes from the other four folds of its half. Errors are over folds, not
over seeds.

- Tuned by labels: the network is tuned with ArcFace on one release of each training image. With so few people, tuning
  lowers the accuracy even without privacy, so not all of the loss is due to the noise.
- Tuned on public people: the learner has their sources and releases them as often as it likes.
- Reconstructed faces: a white-box network trained on public people reconstructs the faces, and the pretrained
  recogniser compares them. This is the best method here.
- IR-50, where the table has it: the paper's network and recipe, without its pretrained weights and its 5.8 million
  training images. It shows what LFW alone teaches, at eps 20 and without privacy.

Batch-norm statistics and the mean embedding of a half are computed from its public people alone.

Where this contradicts the paper:

- **DC pruning (C) gives a higher accuracy than Haar pruning (D).** The paper reports the opposite. CIFAR-10 agrees with
  our result (`ablation`).
- **The uniform budget (B) is at chance, far below the paper's 99.35 %.** The authors' code gives each of the 24 bits
  the whole eps, which spends 24 x eps. Measured in this way it is two points below the paper's number, far nearer than
  D is; we do not know whether the paper's number was measured in this way.
""",
    measure,
    table,
    figure,
)
