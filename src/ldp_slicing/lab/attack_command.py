"""One attack on one data set under one plan, as the user asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.attacks.attack_target import target_from_set
from ldp_slicing.lab.attacks.contact_sheet import OWNERS, contact_sheet, view_of
from ldp_slicing.lab.attacks.reconstruct import Reconstruction
from ldp_slicing.lab.data.sets import ImageSet
from ldp_slicing.lab.experiment import Row, describe
from ldp_slicing.lab.experiments import averaging, bayes, identity, reconstruction
from ldp_slicing.lab.experiments.leakage import blind_guess, columns_of, heads, judged, shown
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import Epoch, TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.learners.training import Limits, Splits, device_of, train
from ldp_slicing.lab.results import stamp
from ldp_slicing.lab.train_command import alone_in, belongs, changed
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
    """What the attack finds, also as ``folder/result.json``. None when the time was up.

    Of reconstructions ``folder/sheet.png`` shows some, beside the sources: it is the owner's.
    "found" has, for the identity attack, its advantage; for the others how near the release and the reconstruction come to the source.
    """
    where = device_of(device)
    slices = [[part.bits, part.epsilon] for part in asked.plan.slices]
    what: Row = {
        "attack": asked.name,
        "data": asked.images.name,
        "prune": asked.prune,
        "epsilon": asked.plan.epsilon,
        "slices": slices,
    }
    belongs(folder, what | {"images": asked.images.digest})

    def trained(
        task: TrainingTask, make: Callable[[TrainingTask, torch.device, Splits], TrainingRun]
    ) -> TrainingRun | None:
        run = next(train([task], where, folder, limits, report, make), None)
        return run if run and run.finished else None

    made = stamp(where)  # now: the package may change while it trains
    with alone_in(folder):
        row = _identity(asked, trained) if asked.name == "identity" else _reconstruction(asked, folder, where, trained)
    if row is not None:
        row = what | row | made
        row.pop("data_digest", None)  # as in ``study``
        (folder / "result.json").write_text(json.dumps(row, indent=1) + "\n")
    return row


def told(row: Row) -> tuple[list[str], list[list[str]]]:
    """What was found, as the head and the lines of a table."""
    if row["attack"] == "identity":
        (one,) = row["found"]
        low, high = (100 * end for end in one["advantage_interval"])
        cells = [
            str(one["pairs"]),
            f"{100 * one['accuracy']:.2f}",
            f"{100 * one['advantage']:.2f} ({low:.2f} to {high:.2f})",
        ]
        return ["pairs", "told rightly, %", "advantage, % of 50"], [cells]
    lines = [["no release (the mean image)", *judged(row["blind"])]]
    if row["attack"] == "averaging":
        lines += [
            [f"{one['releases']} release{'s' * (one['releases'] > 1)}", *judged(one["reconstruction"])]
            for one in row["found"]
        ]
    else:
        (one,) = row["found"]
        lines += [
            ["the release itself", *judged(one["release"])],
            ["the release, attacked", *judged(one["reconstruction"])],
        ]
    return ["made from", *heads(faces=False)], lines


def _reconstruction(asked: Attempt, folder: Path, where: torch.device, trained: Trained) -> Row | None:
    case, plan, prune = target_from_set(asked.images, where), asked.plan, asked.prune
    if asked.name == "averaging":
        found, tiles = averaging.attack(case, plan, prune)
        row: Row = {"found": found}
    elif asked.name == "bayes":
        found, tiles, fitted = bayes.attack(case, plan, prune)
        row = fitted | {"found": found}
    else:
        how = changed(
            recipe(f"{asked.name}-{'cifar' if max(case.sources.shape[2:]) <= SMALL else 'faces'}"), epochs=asked.epochs
        )
        task = TrainingTask(asked.name, case.training_set, how, prune=prune, release="none", plans=(plan,))
        run = trained(task, Reconstruction)
        if not isinstance(run, Reconstruction):
            return None
        judged, tiles = reconstruction.judge(run, case)
        row = describe(run) | judged | {"steps": run.epoch * run.steps}
    row["blind"] = blind_guess(case)
    sources = shown(case)
    contact_sheet(columns_of(sources, view_of(sources, prune), tiles), OWNERS).save(folder / "sheet.png")
    return row


def _identity(asked: Attempt, trained: Trained) -> Row | None:
    pairs = identity.test_pairs(asked.images)
    how = changed(recipe("pairs"), epochs=asked.epochs)
    run = trained(
        TrainingTask("identity", asked.images, how, asked.plan, asked.prune, "every-epoch", pairs=pairs), identity.make
    )
    return (
        None if run is None else describe(run) | {"steps": run.epoch * run.steps, "found": [identity.judge_pairs(run)]}
    )
