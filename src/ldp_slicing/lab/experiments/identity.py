"""The paper's identity distinguishing attack, by its adversary and by stronger ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.lab.attacks.pairs import (
    advantage,
    attack_with_classifier,
    attack_with_pairs,
    class_log_probabilities,
    pairs_of_test_set,
)
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.sets import ImageSet
from ldp_slicing.lab.experiment import (
    Experiment,
    ExperimentContext,
    RowsByExperiment,
    Trial,
    test_accuracy,
    train_all,
    train_needed,
)
from ldp_slicing.lab.experiments.identity_people import Target, identity_row, measure_people
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.plans import VIEW_NAMES
from ldp_slicing.lab.rows import Metrics, Row, measurements, select
from ldp_slicing.lab.tables import markdown
from ldp_slicing.plan import BUDGETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EASY: Target = (200.0, None)  # an attack that fails here is no attack
TARGETS: tuple[Target, ...] = (EASY, *((eps, "haar") for eps in BUDGETS))
SLOW: dict[str, tuple[Target, ...]] = {  # adversaries that take long to train have fewer targets
    "wide-resnet": (EASY, (20.0, "haar")),
    "classifier": (EASY, (5.2, "haar"), (20.0, "haar"), (58.0, "haar")),  # of the one that is not told the class too
}
PUBLIC = "public-classifier"  # the network by which an adversary classifies public images; its row is no attack
NAMES = {"cifar10": "CIFAR-10, class", "cifar100": "CIFAR-100, class", "lfw": "LFW, person"}
PAPER = {"cifar10": 0.25, "cifar100": 0.1, "lfw": 4.5}  # advantage at eps 20, %
ADVERSARIES = {
    "wide-resnet": "Wide-ResNet-28 on both images (the paper's adversary, narrower)",
    "classifier": "classifier of releases, told the true class of the public image",
    "classifier-blind": "classifier of releases, which classifies the public image too",
    "untuned": "dlib's recogniser, never trained on releases",
    "tuned": "dlib's recogniser, tuned on releases of other, public people",
}
READS_BITS = "Wide-ResNet-28 on the released bits and the other image (peers-identity)"
RECONSTRUCTED = "white-box reconstruction, then dlib's recogniser (± 2 standard errors)"


def measure(context: ExperimentContext) -> Iterator[Row]:
    yield from _classes(context)
    yield from measure_people(
        context, {method: SLOW.get(method, TARGETS) for method in ("untuned", "tuned", "wide-resnet")}
    )


def _classes(context: ExperimentContext) -> Iterator[Row]:
    """CIFAR: the identity of an image is its class."""
    trials, sets = list[Trial](), dict[str, ImageSet]()
    recipes = {"wide-resnet": recipe("pairs"), "classifier": recipe("cifar-fast")}
    for name in ("cifar10", "cifar100"):
        rows = [
            identity_row(name, method, target) for target in TARGETS for method in recipes if target in SLOW[method]
        ]
        if context.wants_any([*rows, *_blind_rows(name), Row("identity", name, PUBLIC)]):
            images = sets[name] = load_cifar(name, context.data)
            pairs = {"wide-resnet": pairs_of_test_set(images), "classifier": None}
            trials += [context.trial(row, images, recipes[row.method], pairs=pairs[row.method]) for row in rows]

    def finish(run: TrainingRun, row: Row) -> Row:
        return replace(
            row, metrics=attack_with_pairs(run) if row.method == "wide-resnet" else attack_with_classifier(run)
        )

    yield from train_all(trials, context, finish)
    for name, images in sets.items():
        yield from _blind(name, images, context)


def _blind_rows(name: str) -> list[Row]:
    return [identity_row(name, "classifier-blind", target) for target in SLOW["classifier"]]


def _blind(name: str, images: ImageSet, context: ExperimentContext) -> Iterator[Row]:
    """The classifiers of releases once more, with another network that classifies the public images."""
    how = recipe("cifar-fast")
    trials = [
        context.trial(row, images, how, shared_with=replace(row, method="classifier")) for row in _blind_rows(name)
    ]
    public = context.trial(Row("identity", name, PUBLIC), images, how)
    if all(context.is_done(one.row, one.task) for one in (*trials, public) if context.wants(one.row)):
        return
    seen = list[NDArray[np.float32]]()

    def look(run: TrainingRun, row: Row) -> Row:
        seen.append(class_log_probabilities(run))
        return test_accuracy(run, row)

    yield from train_needed([public], context, look)
    if seen:
        finish = lambda run, row: replace(row, metrics=attack_with_classifier(run, seen[0]))  # noqa: E731
        yield from train_all(trials, context, finish)


def pooled_advantage(rows: Sequence[Row], dataset: str, method: str, target: Target) -> Metrics | None:
    """The advantage over all pairs: CIFAR has one row, LFW one for each half of the folds."""
    row = identity_row(dataset, method, target)
    found = select(rows, dataset=dataset, method=method, plan=row.plan, prune=row.prune)
    if not found:
        return None
    return advantage(sum(row.metrics["correct"] for row in found), sum(row.metrics["pairs"] for row in found))


def _title(target: Target) -> str:
    eps, prune = target
    return f"{eps:g}" if prune else f"{eps:g}, {VIEW_NAMES[prune]} (easy target)"


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
                lines.append([_title(target), *cells, f"{PAPER[name]:g}" if target == (20.0, "haar") else "-"])
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


def _reading_bits(rows: Sequence[Row], dataset: str) -> dict[float, Metrics]:
    """eps to the advantage against the paper's plan of the adversary of ``peers-identity``."""
    every = {eps: select(rows, dataset=dataset, peer=f"ldp-slicing:eps{eps:g}") for eps in BUDGETS}
    return {eps: some[0].metrics for eps, some in every.items() if some}


def _draw(axis: Any, found: Mapping[float, Metrics], colour: str, words: str) -> None:  # noqa: ANN401 - matplotlib's
    if found:
        means = [100 * one["advantage"] for one in found.values()]
        low = [100 * (one["advantage"] - one["advantage_low_95"]) for one in found.values()]
        high = [100 * (one["advantage_high_95"] - one["advantage"]) for one in found.values()]
        look = {"color": colour, "marker": "o", "markersize": 3.5, "capsize": 2, "label": words}
        axis.errorbar(list(found), means, yerr=(low, high), **look)


def figure(rows: RowsByExperiment) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, budget_ticks, legend, panels

    drawn, axes = panels(len(NAMES))
    for axis, (name, title) in zip(axes, NAMES.items(), strict=True):
        colours = (COLOURS[0], COLOURS[1], "#e0a899", *COLOURS[2:])
        for (method, words), colour in [*zip(ADVERSARIES.items(), colours, strict=True)][::-1]:  # the paper's on top
            every = {
                eps: pooled_advantage(rows["identity"], name, method, (eps, prune)) for eps, prune in TARGETS if prune
            }
            found = {eps: one for eps, one in every.items() if one}
            _draw(axis, found, colour, words)
        _draw(axis, _reading_bits(rows.get("peers-identity", ()), name), "#6fb1cf", READS_BITS)
        if reconstructed := _reconstructed(rows.get("white-box", ()), name):
            look = {
                "color": "0.1",
                "linewidth": 2,
                "marker": "o",
                "markersize": 4,
                "capsize": 2,
                "label": RECONSTRUCTED,
            }
            middle, errors = zip(*reconstructed.values(), strict=True)
            axis.errorbar(list(reconstructed), middle, yerr=errors, **look)
        axis.plot([20.0], [PAPER[name]], "x", color="0.3", label="paper")
        axis.set(
            title=f"{title}, 95 % intervals",
            xlabel="eps per released pixel, pruned",
            ylabel="advantage, % (at most 50)",
            ylim=(-1, 51),
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
- The Wide-ResNet-28 has width 4 on CIFAR and 2 on LFW; the paper's was trained on BUPT for faces. On LFW it learned
  nothing at eps 20 when it read the colours of releases. With another schedule, and reading the bits, it learned at eps
  12 and 20 and nothing at eps 5.2: see `peers-identity`, whose results for LDP-Slicing are in the figure.
- The classifier of releases is told the true class of the public image. Where the table has a second one, it also
  classifies the public image, with a network that was trained on unprotected images.
- Batch-norm statistics and the mean embedding of dlib's recogniser are computed from public people alone.
- The only bound that applies is the one for whole images, 1/2 tanh(pixels x eps / 2). It is vacuous at these budgets.
""",
    measure,
    table,
    figure,
)
