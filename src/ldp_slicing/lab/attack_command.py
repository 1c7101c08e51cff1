"""One attack on one data set under one plan, as the user asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.attacks.attack_target import AttackTarget, target_from_set
from ldp_slicing.lab.attacks.averaging import attack_by_averaging
from ldp_slicing.lab.attacks.bayes import attack_by_posterior
from ldp_slicing.lab.attacks.contact_sheet import OWNERS, contact_sheet, view_of
from ldp_slicing.lab.attacks.outcome import Outcome, example_columns, example_sources
from ldp_slicing.lab.attacks.pairs import judge_pairs, make_adversary, pairs_of_test_set
from ldp_slicing.lab.attacks.reconstruct import Reconstruction, judge_reconstruction
from ldp_slicing.lab.data.sets import ImageSet
from ldp_slicing.lab.describe import describe, row_of
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import Epoch, TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.learners.training import Limits, Splits, device_of, train
from ldp_slicing.lab.provenance import provenance, stamped
from ldp_slicing.lab.rows import Row
from ldp_slicing.lab.tables import attack_cells, attack_heads
from ldp_slicing.lab.train_command import alone_in, belongs, changed, write_result
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

ATTACKS = ("averaging", "bayes", "black-box", "white-box", "identity")
SMALL = 64  # images up to this side are attacked by the recipe for CIFAR, larger ones by the recipe for faces

Trained = Callable[[TrainingTask, Callable[[TrainingTask, torch.device, Splits], TrainingRun]], TrainingRun | None]


@dataclass(frozen=True)
class Attempt:
    """name: one of ``ATTACKS``. images: the training set is the adversary's own, releases of the test set are attacked."""

    name: str
    images: ImageSet
    plan: Plan
    prune: Prune = "haar"
    epochs: int | None = None

    def __post_init__(self) -> None:
        if self.name not in ATTACKS:
            raise LdpSlicingError(f"no attack {self.name!r}; there are {', '.join(ATTACKS)}")
        if self.name == "identity" and self.images.train.images.shape[3] != 3:
            raise LdpSlicingError("the identity attack takes colour images")


def make_attempt(
    asked: Attempt,
    folder: Path,
    limits: Limits,
    *,
    device: str = "",
    report: Callable[[TrainingRun, Epoch], None] = lambda run, epoch: None,
) -> Row | None:
    """What the attack measures, also written to ``folder/result.json``. None when the time was up.

    ``folder/sheet.png`` shows some reconstructions beside their sources, so it is for the owner only.
    """
    where = device_of(device)
    belongs(
        folder,
        {
            "attack": asked.name,
            "data": asked.images.name,
            "prune": asked.prune,
            "plan": asked.plan.to_dict(),
            "images": asked.images.digest,
        },
    )

    def trained(
        task: TrainingTask, make: Callable[[TrainingTask, torch.device, Splits], TrainingRun]
    ) -> TrainingRun | None:
        run = next(train([task], where, folder, limits, report, make), None)
        return run if run and run.finished else None

    made_by, began = provenance(where), time.monotonic()
    with alone_in(folder):
        row = _identity(asked, trained) if asked.name == "identity" else _reconstruction(asked, folder, where, trained)
    if row is not None:
        row = stamped(row, made_by, time.monotonic() - began)
        write_result(row, folder)
    return row


def result_table(row: Row) -> tuple[list[str], list[list[str]]]:
    """The measurements as the head and the lines of a table."""
    if row.method == "identity":
        found = row.metrics
        low, high = 100 * found["advantage_low_95"], 100 * found["advantage_high_95"]
        interval = f"{100 * found['advantage']:.2f} ({low:.2f} to {high:.2f})"
        cells = [str(found["pairs"]), f"{100 * found['accuracy']:.2f}", interval]
        return ["pairs", "accuracy, %", "advantage, % (at most 50)"], [cells]
    lines = [["no release (mean image)", *attack_cells(row.metrics["mean_image"])]]
    for one in row.measurements:
        if row.method != "averaging":
            lines.append(["release", *attack_cells(one.metrics["release"])])
        name = "reconstruction"
        if row.method == "averaging":
            name = f"{one.releases} release{'' if one.releases == 1 else 's'}"
        lines.append([name, *attack_cells(one.metrics["reconstruction"])])
    return ["image", *attack_heads(faces=False)], lines


def _reconstruction(asked: Attempt, folder: Path, where: torch.device, trained: Trained) -> Row | None:
    target = target_from_set(asked.images, where)
    found = _attack(asked, target, trained)
    if found is None:
        return None
    row, outcome = found
    sources = example_sources(target)
    unit = "t =" if asked.name == "averaging" else "eps"
    columns = example_columns(sources, view_of(sources, asked.prune), outcome.examples, unit)
    contact_sheet(columns, OWNERS).save(folder / "sheet.png")
    metrics = {**outcome.metrics, "mean_image": target.judge_mean_image()}
    return replace(row, measurements=outcome.measurements, metrics=metrics)


def _attack(asked: Attempt, target: AttackTarget, trained: Trained) -> tuple[Row, Outcome] | None:
    row = Row("attack", asked.images.name, asked.name, plans=(asked.plan,), prune=asked.prune)
    if asked.name == "averaging":
        return row, attack_by_averaging(target, asked.plan, asked.prune)
    if asked.name == "bayes":
        return row, attack_by_posterior(target, asked.plan, asked.prune)
    size = "cifar" if max(target.sources.shape[2:]) <= SMALL else "faces"
    how = changed(recipe(f"{asked.name}-{size}"), epochs=asked.epochs)
    task = TrainingTask(asked.name, target.training_set, how, prune=asked.prune, release="none", plans=(asked.plan,))
    run = trained(task, Reconstruction)
    if not isinstance(run, Reconstruction):
        return None
    return describe(run, row_of(task, "attack", method=asked.name)), judge_reconstruction(run, target)


def _identity(asked: Attempt, trained: Trained) -> Row | None:
    how, pairs = changed(recipe("pairs"), epochs=asked.epochs), pairs_of_test_set(asked.images)
    task = TrainingTask("identity", asked.images, how, asked.plan, asked.prune, "every-epoch", pairs=pairs)
    run = trained(task, make_adversary)
    if run is None:
        return None
    return replace(describe(run, row_of(task, "attack", method="identity")), metrics=judge_pairs(run))
