"""Face verification on LFW from releases: networks trained on people who are in no pair that they are tested on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ldp_slicing.lab.data import DataError, ImageSet, Split
from ldp_slicing.lab.experiments.ablation import VARIANTS
from ldp_slicing.lab.experiments.frame import BUDGETS, Experiment, Findings, Row, Setting, markdown, train_all
from ldp_slicing.lab.faces import embed
from ldp_slicing.lab.lfw import FaceSet, Side, distances, images_in_pairs, load_lfw, sides, verify
from ldp_slicing.lab.models import build_embedder, load_weights
from ldp_slicing.lab.recipes import Recipe, recipe
from ldp_slicing.lab.run import Run
from ldp_slicing.lab.task import ReleaseMode, Task
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WEIGHTS = "dlib_face_recognition_resnet_model_v1.dat"
PAPER = (52.88, 53.62, 89.31, 99.30, 99.75, 99.77, 99.77)
PAPER_VARIANTS = {"A": 99.77, "B": 99.35, "C": 99.53, "D": 99.75, "2:1:1": 99.63, "1:1:1": 99.47}
WAYS = {
    "untuned": "as it comes",
    "labels": "tuned on one release of each, by labels",
    "public": "tuned on public people, fresh releases",
}


def measure(setting: Setting) -> Iterator[Row]:
    weights = setting.data / WEIGHTS
    if not weights.is_file():
        raise DataError(f"{weights} is not there: the Python package face_recognition_models (CC0) carries it")
    faces = load_lfw(setting.data)
    targets = _teach(faces, weights, setting.device)
    halves = dict(zip(("first", "second"), sides(faces), strict=True))
    tasks = [replace(task, name=f"{task.name}-{name}") for name, half in halves.items() for task in _tasks(faces, half, targets, weights)]
    yield from train_all(tasks, setting, lambda run: judge(faces, halves[run.task.name.rpartition("-")[2]], run))


def _tasks(faces: FaceSet, side: Side, targets: NDArray[np.float32], weights: Path) -> list[Task]:
    """Every way of tuning, for every budget and variant, for one side."""
    tested = images_in_pairs(faces, side)
    people = ImageSet(
        "lfw",
        side.classes,
        Split(faces.images[side.images], side.people),
        Split(faces.images[tested], np.zeros(len(tested), np.int64)),
    )
    labels, public = recipe("faces-arcface"), recipe("faces-teacher")
    untuned = replace(labels, name="untuned", epochs=0)

    def task(way: str, name: str, how: Recipe, plan: Plan | None, prune: Prune, release: ReleaseMode) -> Task:
        taught = targets[side.images] if how.loss == "teacher" else None
        return Task(f"lfw-{way}-{name}", people, how, plan, prune, release, targets=taught, weights=weights)

    tasks = []
    for way, how, mode in (("untuned", untuned, "once"), ("labels", labels, "once"), ("public", public, "every-epoch")):
        release: ReleaseMode = "once" if mode == "once" else "every-epoch"
        tasks += [task(way, f"eps{eps:g}", how, Plan.paper(eps), "haar", release) for eps in BUDGETS]
        tasks += [task(way, "view", how, None, "haar", "view"), task(way, "clean", how, None, None, "none")]
    return [
        *tasks,
        *(task("public", name, public, plan, prune, "every-epoch") for name, (plan, prune, _) in VARIANTS.items() if name != "D"),
    ]


def _teach(faces: FaceSet, weights: Path, device: torch.device) -> NDArray[np.float32]:
    """float32 [N, 128]: what the untouched network sees in the originals."""
    model, _ = build_embedder("dlib")
    load_weights(model, weights)
    model.to(device)
    images = torch.from_numpy(faces.images).permute(0, 3, 1, 2)
    return embed(model, images, prepare=lambda x: x.float(), batch=256).numpy()


def judge(faces: FaceSet, side: Side, run: Run) -> Row:
    """Verification of the side's pairs; every tested image is released once, and its mirror is of that release."""
    images = torch.cat([run.noise(part) for part in torch.split(run.test[0], 256)])
    embedded = embed(run.model, images, prepare=lambda x: x.float(), batch=256)
    found = verify(faces, side, distances(faces, side, embedded, images_in_pairs(faces, side)))
    return {"accuracy": found.accuracy, "folds": list(side.folds), "per_fold": found.per_fold.tolist(), "people": side.classes}


def over_folds(rows: Sequence[Row], run: str) -> list[float]:
    """Accuracies of all folds that were tested, from both sides."""
    return [value for row in rows if row["run"].rpartition("-")[0] == run and row["finished"] for value in row["per_fold"]]


def _mean(values: list[float]) -> str:
    if not values:
        return "-"
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5)
    return f"{100 * mean:.2f} ± {100 * error:.2f}" + ("" if len(values) == 10 else f" ({len(values)} folds)")


def table(rows: Sequence[Row]) -> str:
    names = [*((f"eps{eps:g}", f"{eps:g}", f"{paper:.2f}") for eps, paper in zip(BUDGETS, PAPER, strict=True))]
    names += [("view", "pruned, no noise (not private)", "-"), ("clean", "no privacy", "99.77")]
    lines = [[title, *(_mean(over_folds(rows, f"lfw-{way}-{name}")) for way in WAYS), paper] for name, title, paper in names]
    first = markdown(["eps of a released pixel", *(f"{text}, %" for text in WAYS.values()), "paper, % (IR-50, MS1MV2)"], lines)
    parts = []
    for name, (_, _, what) in VARIANTS.items():
        run = "lfw-public-eps20" if name == "D" else f"lfw-public-{name}"
        parts.append([what, _mean(over_folds(rows, run)), f"{PAPER_VARIANTS[name]:.2f}"])
    second = markdown(["variant, eps 20 per released pixel", f"LFW, {WAYS['public']}, %", "paper, %"], parts)
    return f"{first}\nMean and standard error over the ten folds.\n\n{second}"


def figure(findings: Findings) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, line, panels

    drawn, (axis,) = panels(1)
    for (way, text), colour in zip(WAYS.items(), COLOURS, strict=False):
        means = {eps: over_folds(findings["faces"], f"lfw-{way}-eps{eps:g}") for eps in BUDGETS}
        line(axis, {eps: [float(np.mean(values))] for eps, values in means.items() if values}, f"dlib's network, {text}", colour)
    line(axis, {eps: [value / 100] for eps, value in zip(BUDGETS, PAPER, strict=True)}, "paper: IR-50 trained on MS1MV2", "0.4", "--")
    axis.set(title="LFW, ten folds", xlabel="eps of one released pixel, per release (local)", ylabel="verification accuracy, %")
    axis.legend(fontsize=7)
    return drawn


EXPERIMENT = Experiment(
    "LFW verification from one release of every tested image. Two-way cross-fitting: folds 1 to 5 are tested by a network tuned on nobody "
    "in their pairs, folds 6 to 10 likewise; the threshold of a fold comes from the other four folds of its half. dlib's recogniser (CC0) "
    "is used as it comes, tuned with ArcFace on one release of each training image, and tuned on people taken to be public, whose "
    "originals the learner has and releases afresh as often as it likes",
    measure,
    table,
    figure,
)
