"""`lab attack`: one attack on one data set under one plan."""

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
from ldp_slicing.lab.attacks.pairs import attack_with_pairs, pairs_of_test_set
from ldp_slicing.lab.attacks.reconstruct import attack_with_network
from ldp_slicing.lab.data.lfw import load_lfw_set
from ldp_slicing.lab.data.sets import ImageSet
from ldp_slicing.lab.describe import describe, row_of
from ldp_slicing.lab.interfaces import Attack
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.learners.training import Limits, Report, find_device, train
from ldp_slicing.lab.mechanism import SlicingMechanism
from ldp_slicing.lab.provenance import provenance, stamped
from ldp_slicing.lab.rows import Row
from ldp_slicing.lab.run_folder import bind_folder, lock_folder, write_result
from ldp_slicing.lab.tables import attack_cells, attack_heads
from ldp_slicing.lab.train_command import open_set, with_overrides
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

ATTACKS = ("averaging", "bayes", "black-box", "white-box", "bit-unet", "identity")
SMALL = 64  # images up to this side are attacked with the recipe for CIFAR, larger ones with the one for faces

# Attacks by name that need no training. An attack of your own can be added: docs/guide/own-attack.md.
UNTRAINED: dict[str, Attack[AttackTarget, SlicingMechanism, Outcome]] = {
    "averaging": attack_by_averaging,
    "bayes": attack_by_posterior,
}

Train = Callable[[TrainingTask], TrainingRun | None]  # None if the time was up


@dataclass(frozen=True)
class AttackRequest:
    """name: one of ``ATTACKS``. images: the adversary owns the training set; releases of the test set are attacked."""

    name: str
    images: ImageSet
    plan: Plan
    prune: Prune = "haar"
    epochs: int | None = None

    def __post_init__(self) -> None:
        if self.name not in (known := dict.fromkeys((*ATTACKS, *UNTRAINED))):
            raise LdpSlicingError(f"no attack {self.name!r}; available: {', '.join(known)}")
        if self.name == "identity" and self.images.is_grey:
            raise LdpSlicingError("the attack 'identity' needs colour images")


def open_attacked(name: str, data: Path) -> ImageSet:
    """Load "lfw", or a set that `lab train` knows."""
    return load_lfw_set(data) if name == "lfw" else open_set(name, data)


def run_attack(
    request: AttackRequest,
    folder: Path,
    limits: Limits,
    *,
    device: str = "",
    report: Report = lambda run, epoch: None,
) -> Row | None:
    """Run the attack and write ``folder/result.json``. Returns None if the time was up.

    ``folder/sheet.png`` shows some reconstructions beside their sources, so it is for the owner only.
    """
    place = find_device(device)
    parameters = {
        "attack": request.name,
        "data": request.images.name,
        "prune": request.prune,
        "epsilon": request.plan.epsilon,
        "plan": request.plan.to_dict(),
        "images": request.images.digest,
    }
    bind_folder(folder, parameters)

    def train_one(task: TrainingTask) -> TrainingRun | None:
        run = next(train([task], place, folder, limits, report), None)
        return run if run and run.finished else None

    made_by, began = provenance(place), time.monotonic()
    with lock_folder(folder):
        if request.name == "identity":
            row = _identity(request, train_one)
        else:
            row = _reconstruction(request, folder, place, train_one)
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


def _reconstruction(request: AttackRequest, folder: Path, device: torch.device, train_one: Train) -> Row | None:
    target = target_from_set(request.images, device)
    found = _attack(request, target, train_one)
    if found is None:
        return None
    row, outcome = found
    sources = example_sources(target)
    unit = "t =" if request.name == "averaging" else "eps"
    columns = example_columns(sources, view_of(sources, request.prune), outcome.examples, unit)
    contact_sheet(columns, OWNERS).save(folder / "sheet.png")
    metrics = {**outcome.metrics, "mean_image": target.score_mean_image()}
    return replace(row, measurements=outcome.measurements, metrics=metrics)


def _attack(request: AttackRequest, target: AttackTarget, train_one: Train) -> tuple[Row, Outcome] | None:
    row = Row("attack", request.images.name, request.name, plans=(request.plan,), prune=request.prune)
    if request.name in UNTRAINED:
        return row, UNTRAINED[request.name](target, SlicingMechanism(request.plan, request.prune))
    size = "cifar" if max(target.sources.shape[2:]) <= SMALL else "faces"
    chosen = with_overrides(recipe(f"{request.name}-{size}"), epochs=request.epochs)
    public, plans = target.training_set, (request.plan,)
    task = TrainingTask(request.name, public, chosen, prune=request.prune, release="none", plans=plans)
    run = train_one(task)
    if run is None:
        return None
    return describe(run, row_of(task, "attack", method=request.name)), attack_with_network(run, target)


def _identity(request: AttackRequest, train_one: Train) -> Row | None:
    chosen, pairs = with_overrides(recipe("pairs"), epochs=request.epochs), pairs_of_test_set(request.images)
    task = TrainingTask("identity", request.images, chosen, request.plan, request.prune, "every-epoch", pairs=pairs)
    run = train_one(task)
    if run is None:
        return None
    return replace(describe(run, row_of(task, "attack", method="identity")), metrics=attack_with_pairs(run))
