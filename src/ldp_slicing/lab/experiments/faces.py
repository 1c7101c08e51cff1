"""Face verification on LFW from releases: networks trained on people who are in no pair that they are tested on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ldp_slicing.lab.attacks.reconstruct import Reconstruction
from ldp_slicing.lab.data.lfw import FaceSet, Side, images_in_pairs, load_lfw, sides
from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.experiment import BUDGETS, Experiment, Findings, Row, Setting, markdown, train_all
from ldp_slicing.lab.experiments.ablation import VARIANTS
from ldp_slicing.lab.experiments.reconstruction import for_all_budgets
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.learners.models.face_networks import DlibOfCrop
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import ReleaseMode, TrainingTask
from ldp_slicing.lab.metrics.recognition import load_recogniser
from ldp_slicing.lab.metrics.verification import distances, verify
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = (52.88, 53.62, 89.31, 99.30, 99.75, 99.77, 99.77)
PAPER_VARIANTS = {"A": 99.77, "B": 99.35, "C": 99.53, "D": 99.75, "2:1:1": 99.63, "1:1:1": 99.47}
WAYS = {
    "untuned": "as it comes",
    "labels": "tuned on one release of each, by labels",
    "public": "tuned on public people, fresh releases",
    "rebuilt": "as it comes, on faces rebuilt by a white box of public people",
}


@dataclass(frozen=True)
class Teacher:
    """float32 [N, 128] embeddings of all originals less their mean, which tells nobody apart; the mean; a file of weights to start from."""

    seen: NDArray[np.float32]
    mean: NDArray[np.float32]
    weights: Path


def measure(setting: Setting) -> Iterator[Row]:
    faces = load_lfw(setting.data)
    teacher = teacher_of(faces, setting)
    halves = dict(zip(("first", "second"), sides(faces), strict=True))
    tasks = [
        replace(task, name=f"{task.name}-{name}")
        for name, half in halves.items()
        for task in _tasks(faces, half, teacher)
    ]
    yield from train_all(tasks, setting, lambda run: judge(faces, halves[run.task.name.rpartition("-")[2]], run))
    recogniser, budgets = load_recogniser(setting.data, setting.device), tuple(Plan.paper(eps) for eps in BUDGETS)
    how = for_all_budgets(recipe("white-box-faces"))
    rebuilders = [
        TrainingTask(f"lfw-rebuilt-{name}", _people(faces, half), how, prune="haar", release="none", plans=budgets)
        for name, half in halves.items()
    ]

    def finish(run: TrainingRun) -> Row:
        assert isinstance(run, Reconstruction)  # noqa: S101 - no other is made
        return judge_rebuilt(faces, halves[run.task.name.rpartition("-")[2]], run, recogniser)

    yield from train_all(rebuilders, setting, finish, Reconstruction)


def _people(faces: FaceSet, side: Side) -> ImageSet:
    """Trained on: those in no pair of the side. Tested on: those in its pairs."""
    tested = images_in_pairs(faces, side)
    trained = Split(faces.images[side.images], side.people)
    return ImageSet("lfw", side.classes, trained, Split(faces.images[tested], np.zeros(len(tested), np.int64)))


def _tasks(faces: FaceSet, side: Side, teacher: Teacher) -> list[TrainingTask]:
    """Every way of tuning, for every budget and variant, for one side."""
    people = _people(faces, side)
    labels, public = recipe("faces-arcface"), recipe("faces-teacher")
    untuned = replace(labels, name="untuned", epochs=0)

    def task(way: str, name: str, how: Recipe, plan: Plan | None, prune: Prune, release: ReleaseMode) -> TrainingTask:
        taught = teacher.seen[side.images] if how.loss == "teacher" else None
        return TrainingTask(
            f"lfw-{way}-{name}", people, how, plan, prune, release, targets=taught, weights=teacher.weights
        )

    budgets = {f"eps{eps:g}": Plan.paper(eps) for eps in BUDGETS}
    tasks = [task("untuned", name, untuned, plan, "haar", "once") for name, plan in budgets.items()]
    tasks += [task("labels", name, labels, plan, "haar", "once") for name, plan in budgets.items()]
    tasks += [task("public", name, public, plan, "haar", "every-epoch") for name, plan in budgets.items()]
    for way, how in (("untuned", untuned), ("labels", labels), ("public", public)):
        tasks.append(task(way, "view", how, None, "haar", "view"))
    tasks += [
        task(way, "clean", how, None, None, "none")
        for way, how in (("untuned", untuned), ("labels", labels), ("public", public))
    ]
    variants = [(name, plan, prune) for name, (plan, prune, _) in VARIANTS.items() if name != "D"]
    return [*tasks, *(task("public", name, public, plan, prune, "every-epoch") for name, plan, prune in variants)]


def teacher_of(faces: FaceSet, setting: Setting) -> Teacher:
    """dlib's recogniser: what it sees in the originals, and its weights, ready to be tuned."""
    network = load_recogniser(setting.data, setting.device)
    images = torch.from_numpy(faces.images).permute(0, 3, 1, 2)
    seen = embed(network, images, prepare=lambda x: x.float(), batch=256).numpy()
    if isinstance(network, DlibOfCrop):
        network.unfold(images[:: len(images) // 256])
    setting.work.mkdir(parents=True, exist_ok=True)
    torch.save(network.state_dict(), setting.work / "start.pt")
    return Teacher(seen - seen.mean(0), seen.mean(0), setting.work / "start.pt")


def judge(faces: FaceSet, side: Side, run: TrainingRun) -> Row:
    """Verification of the side's pairs; every tested image is released once, and its mirror is of that release."""
    images = torch.cat([run.noise(part) for part in torch.split(run.test[0], 256)])
    embedded = embed(run.model, images, prepare=lambda x: x.float(), batch=256)
    found = verify(faces, side, distances(faces, side, embedded, images_in_pairs(faces, side)))
    return {
        "accuracy": found.accuracy,
        "folds": list(side.folds),
        "per_fold": found.per_fold.tolist(),
        "people": side.classes,
    }


def judge_rebuilt(faces: FaceSet, side: Side, run: Reconstruction, recogniser: nn.Module) -> Row:
    """Verification of the side's pairs at every budget, both photos of a pair rebuilt from one release each."""
    rebuilt = {}
    for plan in run.plans:
        images = torch.cat([run.attack(run.release(part, plan), plan) for part in torch.split(run.test[0], 250)])
        embedded = embed(recogniser, images, prepare=lambda x: x.float(), batch=256)
        found = verify(faces, side, distances(faces, side, embedded, images_in_pairs(faces, side)))
        rebuilt[f"lfw-rebuilt-eps{plan.epsilon:g}"] = found.per_fold.tolist()
    spent = {f"{plan.epsilon:g}": plan.realised_epsilon for plan in run.plans}
    told = {"prune": run.task.prune, "steps": run.epoch * run.steps, "epsilon_realised_per_release": spent}
    return told | {"folds": list(side.folds), "rebuilt": rebuilt, "people": side.classes}


def over_folds(rows: Sequence[Row], run: str) -> list[float]:
    """Accuracies of all folds that were tested, from both sides; one network that rebuilds faces serves all budgets."""
    done = [row for row in rows if row["finished"]]
    one_by_one = [value for row in done if row["run"].rpartition("-")[0] == run for value in row.get("per_fold", ())]
    return one_by_one + [value for row in done for value in row.get("rebuilt", {}).get(run, ())]


def _mean(values: list[float]) -> str:
    if not values:
        return "-"
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5)
    return f"{100 * mean:.2f} ± {100 * error:.2f}" + ("" if len(values) == 10 else f" ({len(values)} folds)")


def table(rows: Sequence[Row]) -> str:
    names = [*((f"eps{eps:g}", f"{eps:g}", f"{paper:.2f}") for eps, paper in zip(BUDGETS, PAPER, strict=True))]
    names += [("view", "pruned, no noise (not private)", "-"), ("clean", "no privacy", "99.77")]
    ways = {
        way: text for way, text in WAYS.items() if any(over_folds(rows, f"lfw-{way}-{name}") for name, _, _ in names)
    }
    lines = [
        [title, *(_mean(over_folds(rows, f"lfw-{way}-{name}")) for way in ways), paper] for name, title, paper in names
    ]
    first = markdown(
        ["eps of a released pixel", *(f"{text}, %" for text in ways.values()), "paper, % (IR-50, MS1MV2)"], lines
    )
    parts = []
    for name, (_, _, what) in VARIANTS.items():
        run = "lfw-public-eps20" if name == "D" else f"lfw-public-{name}"
        parts.append([what, _mean(over_folds(rows, run)), f"{PAPER_VARIANTS[name]:.2f}"])
    second = markdown(["variant, eps 20 per released pixel", f"LFW, {WAYS['public']}, %", "paper, %"], parts)
    return f"{first}\nMean and standard error over the ten folds.\n\n{second}"


def figure(findings: Findings) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, legend, line, panels

    drawn, (axis,) = panels(1, width=5.6)
    for (way, text), colour in zip(WAYS.items(), COLOURS, strict=False):
        means = {eps: over_folds(findings["faces"], f"lfw-{way}-eps{eps:g}") for eps in BUDGETS}
        line(
            axis,
            {eps: [float(np.mean(values))] for eps, values in means.items() if values},
            f"dlib's network, {text}",
            colour,
        )
    line(
        axis,
        {eps: [value / 100] for eps, value in zip(BUDGETS, PAPER, strict=True)},
        "paper: IR-50 trained on MS1MV2",
        "0.4",
        "--",
    )
    axis.set(
        title="LFW, ten folds",
        xlabel="eps of one released pixel, per release (local)",
        ylabel="verification accuracy, %",
    )
    legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "LFW verification from one release of every tested image. Two-way cross-fitting: folds 1 to 5 are tested by a network tuned on nobody "
    "in their pairs, folds 6 to 10 likewise; the threshold of a fold comes from the other four folds of its half. dlib's recogniser (CC0) "
    "is used as it comes, tuned with ArcFace on one release of each training image, and tuned on people taken to be public, whose "
    "originals the learner has and releases afresh as often as it likes. Tuning with ArcFace on so few people harms by itself, as the row "
    "without privacy shows: what it loses is not all due to the noise. Most is got by rebuilding faces first, with a network trained on "
    "public people, and showing them to the recogniser as it comes. Errors are over folds, not over seeds: every network was trained "
    "once. Batch-norm statistics and the mean embedding to start from are those of all photos of LFW",
    measure,
    table,
    figure,
)
