"""The identity attack on faces: pairs of View 2 of LFW, the first face released, the second public.

Nobody in a tested pair is in the training set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ldp_slicing.lab.attacks.pairs import advantage, attack_with_pairs
from ldp_slicing.lab.data.lfw import FaceSet, Side, images_in_pairs, load_lfw, sides
from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.experiment import ExperimentContext, Trial, train_all
from ldp_slicing.lab.experiments.lfw_sides import Teacher, load_teachers, pairs_of, people_of, people_with_several
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.metrics.verification import fold_accuracy
from ldp_slicing.lab.rows import Metrics, Row
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

Target = tuple[float, Prune]  # eps and view

HALVES = ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))  # of the folds


def identity_row(dataset: str, method: str, target: Target, folds: tuple[int, ...] = ()) -> Row:
    """The row of an adversary."""
    eps, prune = target
    return Row("identity", dataset, method, (Plan.paper(eps),), prune, "every-epoch", "raw", folds)


def measure_people(context: ExperimentContext, targets: Mapping[str, Sequence[Target]]) -> Iterator[Row]:
    """targets: of the adversaries "untuned", "tuned" and "wide-resnet"."""
    wanted = [(method, one) for method, some in targets.items() for one in some]
    rows = [identity_row("lfw", method, target, half) for method, target in wanted for half in HALVES]
    if not context.wants_any(rows):
        return
    faces = load_lfw(context.data)
    halves = sides(faces)
    teachers = load_teachers(faces, halves, context)
    attacks = {side.folds: _Half(faces, side, teachers[side.folds], context) for side in halves}
    trials = [trial for half in attacks.values() for trial in half.trials(targets)]
    yield from train_all(trials, context, lambda run, row: attacks[row.folds].attack(run, row))


@dataclass(frozen=True, eq=False)
class _Half:
    """One half of the folds: its public people, and the adversaries that are trained on them."""

    faces: FaceSet
    side: Side
    teacher: Teacher
    context: ExperimentContext

    def trials(self, targets: Mapping[str, Sequence[Target]]) -> Iterator[Trial]:
        tuned = recipe("faces-teacher")
        recipes = {"untuned": replace(tuned, name="untuned", epochs=0), "tuned": tuned}
        options: dict[str, Any] = {"weights": self.teacher.weights, "started_from": self.teacher.origin}
        for method, how in recipes.items():
            for target in targets[method]:
                row = identity_row("lfw", method, target, self.side.folds)
                same = replace(row, experiment="faces", method="public") if method == "tuned" else None
                yield self.context.trial(row, self.people, how, shared_with=same, targets=self.taught, **options)
        for target in targets["wide-resnet"]:
            row = identity_row("lfw", "wide-resnet", target, self.side.folds)
            yield self.context.trial(row, self.paired, _pairs_recipe(), pairs=pairs_of(self.faces, self.side))

    @cached_property
    def people(self) -> ImageSet:
        return people_of(self.faces, self.side)

    @property
    def taught(self) -> NDArray[np.float32]:
        return self.teacher.embeddings[self.side.images]

    @cached_property
    def paired(self) -> ImageSet:
        """The public people who have several images."""
        several, numbers = people_with_several(self.side)
        train = Split(self.faces.images[self.side.images[several]], numbers)
        return ImageSet("lfw", int(numbers.max()) + 1, train, self.people.test)

    def attack(self, run: TrainingRun, row: Row) -> Row:
        pairs = run.task.pairs is not None
        return replace(row, metrics=attack_with_pairs(run) if pairs else self._link(run))

    def _link(self, run: TrainingRun) -> Metrics:
        """The advantage of comparing the embedding of a release with the teacher's embedding of a public image."""
        tested = images_in_pairs(self.faces, self.side)
        pairs = pairs_of(self.faces, self.side)
        images = torch.cat([run.inputs.noise(part) for part in torch.split(run.inputs.test[0], 256)])
        released = embed(run.model, images, prepare=run.inputs.normalise, batch=256).numpy()
        if run.epoch == 0:  # the embeddings of the untuned network still have the mean that the teacher's do not
            released = released - self.teacher.mean
        public = self.teacher.embeddings[tested]
        apart = 1 - (_unit(released)[pairs[:, 0]] * _unit(public)[pairs[:, 1]]).sum(1)
        # folds have equal sizes, so the mean over them gives the count
        found = fold_accuracy(apart, pairs[:, 2] == 1, self.faces.pairs.folds[self.faces.tested(self.side.folds)])
        return advantage(round(found.accuracy * len(pairs)), len(pairs))


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths: NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths


def _pairs_recipe() -> Recipe:
    pairs = recipe("pairs")
    smaller = "width 2 and 30 epochs in batches of 128, on faces of LFW; the paper's was trained on BUPT"
    deviations = (smaller, *pairs.deviations[1:])
    return replace(pairs, name="pairs-faces", width=2, batch=128, epochs=30, deviations=deviations)
