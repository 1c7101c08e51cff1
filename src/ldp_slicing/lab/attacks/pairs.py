"""The paper's identity distinguishing attack: do a release and a public image show the same person, or class?"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.data.sets import ImageSet
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.metrics.shares import Share
from ldp_slicing.lab.rows import Metrics

PAIRS = 10_000  # of a test set, at most


def draw_pairs(labels: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """int64 [count, 3]: an image, another image, and 1 if both are of one class, as half of the pairs are.

    Images that are alone in their class never come first. No image comes first twice before all have: pairs that share
    a release are not independent.
    """
    rng = np.random.default_rng(seed)
    members = {int(kind): np.flatnonzero(labels == kind) for kind in np.unique(labels)}
    several = np.flatnonzero([len(members[int(kind)]) > 1 for kind in labels])
    if len(members) < 2 or not len(several):
        raise LdpSlicingError("pairs need two images of one class and an image of another class")
    rows, firsts = [], np.concatenate([rng.permutation(several) for _ in range(-(-count // len(several)))])
    for i, first in enumerate(firsts[:count].tolist()):
        mine = members[int(labels[first])]
        others = np.flatnonzero(labels != labels[first])
        same = i % 2
        rows.append((first, int(rng.choice(mine[mine != first] if same else others)), same))
    return np.array(rows, np.int64)


def pairs_of_test_set(images: ImageSet) -> NDArray[np.int64]:
    """int64 [M, 3]: pairs of test images, the same for every adversary."""
    return draw_pairs(images.test.labels, min(PAIRS, 4 * len(images.test.labels)), seed=0)


def attack_with_pairs(run: TrainingRun) -> Metrics:
    """The advantage of a network on the task's test pairs."""
    assert run.task.pairs is not None  # noqa: S101 - the task has checked it
    return advantage(round(run.test_accuracy() * len(run.task.pairs)), len(run.task.pairs))


def attack_with_classifier(run: TrainingRun, public: NDArray[np.float32] | None = None) -> Metrics:
    """The advantage of a classifier of releases.

    public: float32 [N, classes], log probabilities of the classes of the test images as public images; without them the
    adversary knows the true class of the public image of a pair.
    """
    pairs, images = pairs_of_test_set(run.task.data), run.task.data
    first, second, same = pairs.T
    released = class_log_probabilities(run)
    if public is None:
        says_same = above_prior(released, images)[first, images.test.labels[second]]
    else:
        says_same = same_class(released[first], public[second], images)
    return advantage(int((says_same == (same == 1)).sum()), len(pairs))


def class_log_probabilities(run: TrainingRun) -> NDArray[np.float32]:
    """float32 [N, classes]: what a classifier says about the test images, each released once if the task releases."""
    with torch.no_grad():
        run.model.eval()
        parts = torch.split(run.inputs.test[0], 500)
        logits = torch.cat([run.objective.forward(run.inputs.noise(part)).float().cpu() for part in parts])
    return np.asarray(logits.log_softmax(1).numpy(), np.float32)


def same_class(first: NDArray[np.float32], second: NDArray[np.float32], images: ImageSet) -> NDArray[np.bool_]:
    """Two float32 [N, classes] posterior log probabilities to bool [N]: whether one class is the likelier explanation.

    Half of the pairs match, so a pair matches if the sum over classes of p(c | first) p(c | second) / p(c) exceeds 1.
    """
    return np.asarray((np.exp(first + second) / _prior(images)).sum(1) > 1)


def above_prior(log_probabilities: NDArray[np.float32], images: ImageSet) -> NDArray[np.bool_]:
    """float32 [N, classes] posterior log probabilities to bool [N, classes]: whether they exceed the prior.

    This is the optimal test. Half of the pairs of class c match, so a pair matches if p(release | c) > p(release).
    """
    return np.asarray(np.exp(log_probabilities) > _prior(images))


def _prior(images: ImageSet) -> NDArray[np.float64]:
    counts = np.bincount(images.train.labels, minlength=images.classes)
    return np.asarray(np.maximum(counts, 1) / len(images.train.labels))


def advantage(correct: int, pairs: int) -> Metrics:
    """|P(correct) - 1/2| with a 95 % Clopper-Pearson interval. An adversary below 1/2 would invert its answers."""
    low, high = Share(correct, pairs).interval
    inside = low <= 0.5 <= high
    ends = sorted((abs(low - 0.5), abs(high - 0.5)))
    return {
        "pairs": pairs,
        "correct": correct,
        "accuracy": correct / pairs,
        "advantage": abs(correct / pairs - 0.5),
        "advantage_low_95": 0.0 if inside else ends[0],
        "advantage_high_95": ends[1],
    }
