"""The paper's identity distinguishing attack, by its adversary and by stronger ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ldp_slicing.lab.attacks.pairs import (
    advantage,
    attack_with_classifier,
    attack_with_pairs,
    pairs_of_test_set,
)
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.lfw import FaceSet, Side, images_in_pairs, load_lfw, sides
from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment, Trial, train_all
from ldp_slicing.lab.experiments.lfw_sides import Teacher, load_teachers, pairs_of, people_of, people_with_several
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.metrics.verification import fold_accuracy
from ldp_slicing.lab.plans import VIEW_NAMES
from ldp_slicing.lab.rows import Metrics, Row, measurements, select
from ldp_slicing.lab.tables import markdown
from ldp_slicing.plan import BUDGETS, Plan
from ldp_slicing.view import Prune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Target = tuple[float, Prune]  # eps and view

EASY: Target = (200.0, None)  # an attack that fails here is no attack
TARGETS: tuple[Target, ...] = (EASY, *((eps, "haar") for eps in BUDGETS))
SLOW: dict[str, tuple[Target, ...]] = {  # adversaries that take long to train have fewer targets
    "wide-resnet": (EASY, (20.0, "haar")),
    "classifier": (EASY, (5.2, "haar"), (20.0, "haar"), (58.0, "haar")),
}
NAMES = {"cifar10": "CIFAR-10, class", "cifar100": "CIFAR-100, class", "lfw": "LFW, person"}
PAPER = {"cifar10": 0.25, "cifar100": 0.1, "lfw": 4.5}  # advantage at eps 20, %
ADVERSARIES = {
    "wide-resnet": "Wide-ResNet-28 on both images (the paper's adversary, narrower)",
    "classifier": "classifier of releases, told the true class of the public image",
    "untuned": "dlib's recogniser, never trained on releases",
    "tuned": "dlib's recogniser, tuned on releases of other, public people",
}
RECONSTRUCTED = "white-box reconstruction, then dlib's recogniser"


def measure(context: ExperimentContext) -> Iterator[Row]:
    yield from _classes(context)
    faces_wanted = [
        _row("lfw", method, target) for method in ("untuned", "tuned", "wide-resnet") for target in _targets(method)
    ]
    folds = ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    if context.wants_any(replace(row, folds=half) for row in faces_wanted for half in folds):
        yield from _people(context)


def _targets(method: str) -> tuple[Target, ...]:
    return SLOW.get(method, TARGETS)


def _row(dataset: str, method: str, target: Target, folds: tuple[int, ...] = ()) -> Row:
    eps, prune = target
    plans = (Plan.paper(eps),)
    return Row("identity", dataset, method, plans, prune, "every-epoch", "raw", folds)


def _classes(context: ExperimentContext) -> Iterator[Row]:
    """CIFAR: the identity of an image is its class."""
    trials = list[Trial]()
    recipes = {"wide-resnet": recipe("pairs"), "classifier": recipe("cifar-fast")}
    for name in ("cifar10", "cifar100"):
        rows = [_row(name, method, target) for target in TARGETS for method in recipes if target in SLOW[method]]
        if context.wants_any(rows):
            images = load_cifar(name, context.data)
            pairs = {"wide-resnet": pairs_of_test_set(images), "classifier": None}
            trials += [context.trial(row, images, recipes[row.method], pairs=pairs[row.method]) for row in rows]

    def finish(run: TrainingRun, row: Row) -> Row:
        return replace(
            row, metrics=attack_with_pairs(run) if row.method == "wide-resnet" else attack_with_classifier(run)
        )

    yield from train_all(trials, context, finish)


def _people(context: ExperimentContext) -> Iterator[Row]:
    """LFW: pairs of View 2, the first face released, the second public, all of people not in the training set."""
    faces = load_lfw(context.data)
    halves = sides(faces)
    teachers, by_folds = load_teachers(faces, halves, context), {side.folds: side for side in halves}
    trials = [trial for side in halves for trial in _trials(faces, side, teachers[side.folds], context)]

    def finish(run: TrainingRun, row: Row) -> Row:
        if row.method == "wide-resnet":
            return replace(row, metrics=attack_with_pairs(run))
        return replace(row, metrics=_link(faces, by_folds[row.folds], teachers[row.folds], run))

    yield from train_all(trials, context, finish)


def _trials(faces: FaceSet, side: Side, teacher: Teacher, context: ExperimentContext) -> list[Trial]:
    people = people_of(faces, side)
    several, numbers = people_with_several(side)
    paired = ImageSet("lfw", int(numbers.max()) + 1, Split(faces.images[side.images[several]], numbers), people.test)
    tuned, pairs = recipe("faces-teacher"), recipe("pairs")
    smaller = "width 2 and 30 epochs in batches of 128, on faces of LFW; the paper's was trained on BUPT"
    narrow = replace(
        pairs, name="pairs-faces", width=2, batch=128, epochs=30, deviations=(smaller, *pairs.deviations[1:])
    )
    recipes = {"untuned": replace(tuned, name="untuned", epochs=0), "tuned": tuned}
    taught = teacher.embeddings[side.images]
    options = {"targets": taught, "weights": teacher.weights, "started_from": teacher.origin}
    trials = []
    for target in TARGETS:
        for method, how in recipes.items():
            row = _row("lfw", method, target, side.folds)
            same = replace(row, experiment="faces", method="public") if method == "tuned" else None
            trials.append(context.trial(row, people, how, shared_with=same, **options))
        if target in SLOW["wide-resnet"]:
            row = _row("lfw", "wide-resnet", target, side.folds)
            trials.append(context.trial(row, paired, narrow, pairs=pairs_of(faces, side)))
    return trials


def _link(faces: FaceSet, side: Side, teacher: Teacher, run: TrainingRun) -> Metrics:
    """The advantage of comparing the embedding of a release with that of a public image."""
    tested = images_in_pairs(faces, side)
    pairs = pairs_of(faces, side)
    images = torch.cat([run.inputs.noise(part) for part in torch.split(run.inputs.test[0], 256)])
    released = embed(run.model, images, prepare=lambda x: x.float(), batch=256).numpy()
    if run.epoch == 0:  # the embeddings of the untuned network still have the mean that the teacher's do not
        released = released - teacher.mean
    public = teacher.embeddings[tested]
    apart = 1 - (_unit(released)[pairs[:, 0]] * _unit(public)[pairs[:, 1]]).sum(1)
    # folds have equal sizes, so the mean over them gives the count
    found = fold_accuracy(apart, pairs[:, 2] == 1, faces.pairs.folds[faces.tested(side.folds)])
    return advantage(round(found.accuracy * len(pairs)), len(pairs))


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths: NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths


def pooled_advantage(rows: Sequence[Row], dataset: str, method: str, target: Target) -> Metrics | None:
    """The advantage over all pairs: CIFAR has one row, LFW one for each half of the folds."""
    eps, prune = target
    found = select(rows, dataset=dataset, method=method, plan=Plan.paper(eps), prune=prune)
    if not found:
        return None
    return advantage(sum(row.metrics["correct"] for row in found), sum(row.metrics["pairs"] for row in found))


def _cell(found: Metrics | None) -> str:
    if found is None:
        return "-"
    low, high = found["advantage_low_95"], found["advantage_high_95"]
    return f"{100 * found['advantage']:.2f} ({100 * low:.2f} to {100 * high:.2f})"


def table(rows: Sequence[Row]) -> str:
    parts = ["Advantage |P(correct) - 1/2| in %, at most 50, with a 95 % Clopper-Pearson interval.\n"]
    for name, title in NAMES.items():
        methods = [method for method in ADVERSARIES if select(rows, dataset=name, method=method)]
        lines = []
        for target in TARGETS:
            cells = [_cell(pooled_advantage(rows, name, method, target)) for method in methods]
            if set(cells) - {"-"}:
                eps, prune = target
                what = f"{eps:g}" if prune else f"{eps:g}, {VIEW_NAMES[prune]} (easy target)"
                lines.append([what, *cells, f"{PAPER[name]:g}" if target == (20.0, "haar") else "-"])
        if lines:
            heads = [f"{title}: eps per released pixel", *(ADVERSARIES[method] for method in methods), "paper"]
            parts.append(markdown(heads, lines))
    parts.append(
        "On LFW, an adversary that reconstructs the face first is stronger: "
        "its advantage is the verification accuracy in `white-box` minus 50.\n"
    )
    return "\n".join(parts)


def _reconstructed(rows: Sequence[Row], dataset: str) -> dict[float, tuple[float, float]]:
    """eps to the advantage, in %, of reconstructing first, by one network for all budgets; and twice its error."""
    found = [(row, one) for row, one in measurements(rows, dataset=dataset, prune="haar") if len(row.plans) > 1]
    reached = {one.plan.epsilon: one.metrics["reconstruction"].get("verification") for _, one in found if one.plan}
    return {
        eps: (100 * (value["accuracy"] - 0.5), 200 * value["standard_error"])
        for eps, value in reached.items()
        if value and eps in BUDGETS
    }


def figure(rows: RowsByExperiment) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, budget_ticks, legend, panels

    drawn, axes = panels(len(NAMES))
    for axis, (name, title) in zip(axes, NAMES.items(), strict=True):
        for (method, words), colour in [*zip(ADVERSARIES.items(), COLOURS, strict=True)][::-1]:  # the paper's on top
            every = {
                eps: pooled_advantage(rows["identity"], name, method, (eps, prune)) for eps, prune in TARGETS if prune
            }
            found = {eps: one for eps, one in every.items() if one}
            if found:
                means = [100 * one["advantage"] for one in found.values()]
                low = [100 * (one["advantage"] - one["advantage_low_95"]) for one in found.values()]
                high = [100 * (one["advantage_high_95"] - one["advantage"]) for one in found.values()]
                look = {"color": colour, "marker": "o", "markersize": 3.5, "capsize": 2, "label": words}
                axis.errorbar(list(found), means, yerr=(low, high), **look)
        if rebuilt := _reconstructed(rows.get("white-box", ()), name):
            look = {
                "color": "0.1",
                "linewidth": 2,
                "marker": "o",
                "markersize": 4,
                "capsize": 2,
                "label": RECONSTRUCTED,
            }
            means, errors = zip(*rebuilt.values(), strict=True)
            axis.errorbar(list(rebuilt), means, yerr=errors, **look)
        axis.plot([20.0], [PAPER[name]], "x", color="0.3", label="paper")
        axis.set(
            title=title, xlabel="eps per released pixel, pruned", ylabel="advantage, % (at most 50)", ylim=(-1, 51)
        )
        budget_ticks(axis, BUDGETS)
        legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "identity",
    """
Identity distinguishing, as the paper defines it: given a release and a public image, decide whether they show the same
person (CIFAR: the same class). Half of the pairs do. The adversary trains on public images of other people with fresh
noise; each tested image is released once.

- The intervals treat the pairs as independent, although some share an image.
- The Wide-ResNet-28 has width 4 on CIFAR and 2 on LFW. On LFW it did not learn, given only a few thousand public faces;
  the paper's network was trained on BUPT.
- Batch-norm statistics and the mean embedding of dlib's recogniser are computed from public people alone. At the easy
  target, the tuned recogniser was measured on folds 1 to 5 only.
- The only bound that applies is the one for whole images, 1/2 tanh(pixels x eps / 2). It is vacuous at these budgets.
""",
    measure,
    table,
    figure,
)
