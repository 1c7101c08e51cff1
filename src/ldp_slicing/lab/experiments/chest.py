"""Pneumonia on chest X-rays, grey: seven budgets, the view without noise, and without privacy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ldp_slicing.lab.data.chest import kinds_of_test_images, load_chest
from ldp_slicing.lab.data.sets import ImageSet, shrunk
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment, train_all, with_recipe
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.metrics.shares import Share, auc_interval
from ldp_slicing.lab.metrics.shift import tell_apart
from ldp_slicing.lab.metrics.thresholds import balanced_threshold, rates, roc_auc
from ldp_slicing.lab.rows import Metrics, Mode, Row, select
from ldp_slicing.lab.tables import markdown, metric, percent, spread
from ldp_slicing.plan import BUDGETS, Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODES: tuple[Mode, ...] = ("raw", "decoded")
HEALTHY, ILL = 234, 390  # images of the official test set
SMALL, LARGE = "chest-small", "chest"  # recipes
CLASSES = ("healthy", "pneumonia")
SHIFT = "shift"
KINDS = ("IM", "NORMAL2-IM", "bacteria", "virus")  # of test images, see ``data.chest.kind``
SEEDS = 3  # of the small network; the large one has one
PAPER = (76.60, 88.94, 90.54, 91.99, 92.15, 92.95, 93.43)


def measure(context: ExperimentContext) -> Iterator[Row]:
    images = load_chest(context.data)
    for label, name in enumerate(CLASSES):
        row = Row("chest", "chest", SHIFT, options={"class": name})
        if context.pending(row):
            yield replace(row, metrics=_shift(images, label))
    trials = []
    for name in (SMALL, LARGE):
        how = recipe(name)
        held_out, sources = len(images.train.labels) // 10, shrunk(images, how.size) if how.size else images
        trials += [context.trial(with_recipe(row, how), sources, how, validation=held_out) for row in _rows(name)]
    yield from train_all(trials, context, partial(judge, kinds=kinds_of_test_images(context.data)))


def _shift(images: ImageSet, label: int) -> Metrics:
    """How well test images of a class are told from training images; and as many training images from the others."""
    train, test = (part.part(np.flatnonzero(part.labels == label)) for part in (images.train, images.test))
    patients = np.arange(len(train.labels)) if train.groups is None else train.groups
    others = np.arange(len(test.labels)) if test.groups is None else test.groups
    drawn = np.random.default_rng(0).permutation(np.unique(patients))
    enough = np.searchsorted(np.cumsum([np.sum(patients == one) for one in drawn]), len(test.labels)) + 1
    chosen = np.isin(patients, drawn[:enough])
    control = (train.images[~chosen], train.images[chosen], (patients[~chosen], patients[chosen]))
    return {
        "roc_auc": tell_apart(train.images, test.images, (patients, others)),
        "control_roc_auc": tell_apart(*control),
        "images": {"training": len(train.labels), "test": len(test.labels), "control": int(chosen.sum())},
    }


def _rows(name: str) -> Iterator[Row]:
    """The small network learns from decoded releases only."""
    size = recipe(name).size
    base = Row("chest", "chest", options={"size": size} if size else {})
    for seed in range(SEEDS if name == SMALL else 1):
        for mode in MODES[1:] if name == SMALL else MODES:
            for eps in reversed(BUDGETS):
                plans = (Plan.grey(eps, 8),)
                yield replace(base, plans=plans, prune="haar", release="once", mode=mode, seed=seed)
        yield replace(base, prune="haar", release="view", seed=seed)
        yield replace(base, seed=seed)


def judge(run: TrainingRun, row: Row, kinds: Sequence[str]) -> Row:
    """The row with its metrics for pneumonia (class 1), with a threshold that is chosen on the held-out patients.

    kinds: of the test images.
    """
    known, answers = pneumonia_scores(run, run.inputs.validation[0]), run.inputs.validation[1]
    scores, labels = pneumonia_scores(run, run.inputs.test[0]), run.inputs.test[1]
    threshold = balanced_threshold(known, answers)
    sensitivity, specificity = rates(scores, labels, 0.0)
    chosen_sensitivity, chosen_specificity = rates(scores, labels, threshold)
    held_out_sensitivity, held_out_specificity = rates(known, answers, threshold)
    correct = (scores > threshold) == (labels == 1)
    metrics = {
        "test_accuracy": float(((scores > 0) == (labels == 1)).float().mean()),
        "sensitivity": sensitivity,
        "false_positive_rate": 1 - specificity,
        "balanced_accuracy": (specificity + sensitivity) / 2,
        "roc_auc": roc_auc(scores, labels),
        "held_out_roc_auc": roc_auc(known, answers),
        "at_held_out_threshold": {
            "threshold": threshold,
            "test_accuracy": float(correct.float().mean()),
            "sensitivity": chosen_sensitivity,
            "specificity": chosen_specificity,
            "held_out_sensitivity": held_out_sensitivity,
            "held_out_specificity": held_out_specificity,
            "correct_by_kind": _by_kind(correct, kinds),
        },
    }
    return replace(row, metrics=metrics)


def _by_kind(correct: Tensor, kinds: Sequence[str]) -> Metrics:
    """bool [N] and the kind of each image to the share of correct answers of each kind."""
    found = {kind: [one for one, other in zip(correct.tolist(), kinds, strict=True) if other == kind] for kind in kinds}
    return {kind: Share(sum(answers), len(answers)).row() for kind, answers in sorted(found.items())}


@torch.no_grad()
def pneumonia_scores(run: TrainingRun, images: Tensor) -> Tensor:
    """uint8 [N, 1, H, W] to float32 [N]: the log-odds of pneumonia."""
    run.model.eval()
    logits = [run.objective.forward(run.inputs.noise(part)) for part in torch.split(images, 250)]
    return torch.cat([part[:, 1] - part[:, 0] for part in logits])


def validation_accuracy(row: Row) -> float:
    return row.training.best_validation_accuracy if row.training else float("nan")


def table(rows: Sequence[Row]) -> str:
    return "\n".join(
        filter(None, (_small_table(rows), _table_by_kind(rows), _table_of_shift(rows), _large_table(rows)))
    )


def _settings(rows: Sequence[Row], name: str) -> Iterator[tuple[list[str], list[Row]]]:
    """The rows of each setting by one recipe, with its first cells."""
    mine = [row for row in rows if row.recipe.get("name") == name]
    for eps in BUDGETS:
        for mode in MODES:
            yield [f"{eps:g}", mode], select(mine, plan=Plan.grey(eps, 8), mode=mode)
    yield ["pruned, no noise (not private)", "-"], select(mine, release="view")
    yield ["without privacy", "-"], select(mine, release="none")


def _small_table(rows: Sequence[Row]) -> str:
    """Means over seeds, and ranges of accuracy."""
    lines = []
    for cells, found in _settings(rows, SMALL):
        if found:
            at = [row.metrics["at_held_out_threshold"] for row in found]
            means = [percent(fmean(one[name] for one in at), 1) for name in ("sensitivity", "specificity")]
            areas = [percent(fmean(metric(found, name)), 1) for name in ("roc_auc", "held_out_roc_auc")]
            accuracies = [spread([one["test_accuracy"] for one in at]), spread(metric(found, "test_accuracy"))]
            lines.append([*cells, accuracies[0], *areas, *means, accuracies[1]])
    heads = [
        "112 x 112, eps per released pixel",
        "releases",
        "test accuracy, threshold chosen on held-out patients, %",
        "ROC AUC, %",
        "ROC AUC, held-out patients, %",
        "sensitivity, %",
        "specificity, %",
        "test accuracy, threshold 1/2, %",
    ]
    return markdown(heads, lines) if lines else ""


def _table_by_kind(rows: Sequence[Row]) -> str:
    """Which test images the small network gets right, beside held-out images at the same threshold."""
    measured = {
        " ".join(cells).removesuffix(" -"): [row.metrics["at_held_out_threshold"] for row in found]
        for cells, found in _settings(rows, SMALL)
        if found
        and all({*KINDS} <= {*row.metrics["at_held_out_threshold"].get("correct_by_kind", ())} for row in found)
    }
    lines = []
    for setting, found in measured.items():
        held_out = [fmean(one[name] for one in found) for name in ("held_out_specificity", "held_out_sensitivity")]
        kinds = [fmean(one["correct_by_kind"][name]["share"] for one in found) for name in KINDS]
        shares = (held_out[0], *kinds[:2], held_out[1], *kinds[2:])
        lines.append([setting, *(percent(share, 1) for share in shares)])
    heads = ["eps per released pixel", "healthy, held out", *(f"healthy, test, files `{name}`" for name in KINDS[:2])]
    heads += ["pneumonia, held out", *(f"pneumonia, test, {name}" for name in KINDS[2:])]
    about = (
        "Small network, threshold chosen on held-out patients, means of the runs: accuracy (%) by kind of image. "
        "`IM` and `NORMAL2-IM` are the two prefixes of the file names of healthy images."
    )
    return f"{about}\n\n{markdown(heads, lines)}" if lines else ""


def _table_of_shift(rows: Sequence[Row]) -> str:
    lines = [
        [str(row.options["class"]), percent(row.metrics["roc_auc"], 1), percent(row.metrics["control_roc_auc"], 1)]
        for row in rows
        if row.method == SHIFT
    ]
    about = (
        "A linear classifier at 28 x 28 pixels distinguishes sources of the test set from sources of the training set, "
        "on held-out patients. Guessing gives a ROC AUC of 50 %. The control is a random part of the training set."
    )
    heads = ["class", "test or training, ROC AUC, %", "control, ROC AUC, %"]
    return f"{about}\n\n{markdown(heads, lines)}" if lines else ""


def _large_table(rows: Sequence[Row]) -> str:
    paper = {f"{eps:g}": f"{value:.2f}" for eps, value in zip(BUDGETS, PAPER, strict=True)}
    lines = [[*cells, *_cells(row), paper.get(cells[0], "-")] for cells, some in _settings(rows, LARGE) for row in some]
    heads = [
        "224 x 224, eps per released pixel",
        "releases",
        "test accuracy, %",
        "ROC AUC, %",
        "sensitivity, %",
        "false positive rate, %",
        "balanced accuracy, %",
        "validation accuracy, %",
        "paper, test accuracy, %",
    ]
    return markdown(heads, lines)


def _cells(row: Row) -> list[str]:
    names = ("test_accuracy", "roc_auc", "sensitivity", "false_positive_rate", "balanced_accuracy")
    return [*(percent(row.metrics[name], 1) for name in names), percent(validation_accuracy(row), 1)]


def _accuracy(row: Row) -> float:
    """The test accuracy with the threshold that was chosen on held-out patients, if one was."""
    return float(row.metrics.get("at_held_out_threshold", row.metrics)["test_accuracy"])


def _measured(row: Row) -> dict[str, tuple[float, tuple[float, float]]]:
    """Test accuracy, ROC AUC and validation accuracy, each with its 95 % interval for as many independent images."""
    accuracy, auc, held_out = _accuracy(row), row.metrics["roc_auc"], validation_accuracy(row)
    count = row.training.held_out if row.training else 1
    return {
        "test accuracy, %": (accuracy, Share(round(accuracy * (HEALTHY + ILL)), HEALTHY + ILL).interval),
        "ROC AUC, %": (auc, auc_interval(auc, ILL, HEALTHY)),
        "validation accuracy, %": (held_out, Share(round(held_out * count), count).interval),
    }


def _ends(found: Sequence[tuple[float, tuple[float, float]]]) -> tuple[float, float]:
    """The lowest and the highest end of the intervals of several seeds."""
    return min(low for _, (low, _) in found), max(high for _, (_, high) in found)


def figure(rows: RowsByExperiment) -> Figure:
    """Accuracy and ROC AUC on the official test set, and accuracy on held-out patients.

    Error bars and bands: 95 % intervals; of several seeds, from the lowest to the highest end.
    """
    from ldp_slicing.lab.figures import COLOURS, legend, line, panels

    drawn, axes = panels(3)
    shown = (
        ("official test set", "test accuracy, %", ILL / (HEALTHY + ILL)),
        ("official test set", "ROC AUC, %", 1 / 2),
        ("held-out patients", "validation accuracy, %", 395 / 523),
    )
    lines = ((SMALL, "decoded", COLOURS[2]), (LARGE, "raw", COLOURS[3]), (LARGE, "decoded", COLOURS[0]))
    sizes = {SMALL: "112 x 112", LARGE: "224 x 224"}
    intervals_of = {SMALL: f"95 % intervals of {SEEDS} runs", LARGE: "95 % interval"}
    for axis, (title, unit, constant) in zip(axes, shown, strict=True):
        for name, mode, colour in lines:
            mine = [row for row in rows["chest"] if row.recipe.get("name") == name]
            every = {eps: select(mine, plan=Plan.grey(eps, 8), mode=mode) for eps in BUDGETS}
            found = {eps: [_measured(row)[unit] for row in some] for eps, some in every.items() if some}
            values = {eps: [value for value, _ in some] for eps, some in found.items()}
            intervals = {eps: _ends(some) for eps, some in found.items()}
            label = f"one release each, {sizes[name]}, {mode} (ours), {intervals_of[name]}"
            line(axis, values, label, colour, intervals=intervals)
            clean = [_measured(row)[unit] for row in select(mine, release="none")]
            if clean and mode == "decoded":
                label = f"without privacy, {sizes[name]} (ours); shaded: {intervals_of[name]}"
                middle, (low, high) = fmean(value for value, _ in clean), _ends(clean)
                axis.axhline(100 * middle, color=colour, linewidth=1, linestyle="-.", label=label)
                axis.axhspan(100 * low, 100 * high, color=colour, alpha=0.12, linewidth=0)
        axis.axhline(100 * constant, color="0.6", linewidth=1, linestyle=":", label="constant answer 'pneumonia'")
        axis.set(title=f"Chest X-rays, {title}", xlabel="eps per released pixel", ylabel=unit, ylim=(45, 100))
    paper = {eps: [value / 100] for eps, value in zip(BUDGETS, PAPER, strict=True)}
    line(axes[0], paper, "paper", COLOURS[1], "--")
    for axis in axes:
        legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "chest",
    """
Networks learn to detect pneumonia in chest X-rays (Kermany et al. 2018): random initial weights, grey plan, one release
of each image. There are two networks: a small one of five blocks at 112 x 112, three runs each, and ResNet-50 at
224 x 224, one run each.

- The epoch is chosen on held-out patients. ResNet-50 answers with the likelier class; for the small network, the
  threshold is the one with the best balanced accuracy on held-out patients. Numbers on held-out patients are therefore
  the best of several evaluations.
- Both networks over-predict pneumonia on the official test set, even without privacy, and from eps 2.4 on their test
  accuracy is below the paper's. On healthy held-out images, the false positive rate of the small network is below 5 %
  from eps 2.4 on (second table); for ResNet-50 this was not measured. Healthy test images differ from healthy training
  images: a linear classifier distinguishes them (third table). ROC AUC does not depend on the threshold: use it to
  compare budgets.
- Of the test images 62.5 % show pneumonia, of the held-out images about three quarters. If images were independent,
  standard errors would be about 1.6 points for a test accuracy of 80 % and 1 point for a ROC AUC of 94 %. Some patients
  have several X-rays, so the true errors are larger.
- The paper states neither the initial weights nor how the epoch was chosen.
- 30 X-rays occur two or three times, so two or three times the eps was spent on them.
""",
    measure,
    table,
    figure,
)
