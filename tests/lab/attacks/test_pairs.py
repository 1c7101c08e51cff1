from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from ldp_slicing import Plan
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.attacks.pairs import (
    above_prior,
    advantage,
    attack_with_classifier,
    draw_pairs,
    pairs_of_test_set,
    same_class,
)
from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.learners import objectives
from ldp_slicing.lab.learners.objectives import PairObjective
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.learners.training import Limits, train

CPU = torch.device("cpu")
LABELS = np.array([0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 0, 1], np.int64)


def task(count: int = 12, epochs: int = 1) -> TrainingTask:
    labels = np.resize(LABELS, count)
    rng = np.random.default_rng(0)
    images = (60 * labels[:, None, None, None] + rng.integers(0, 60, (count, 8, 8, 3))).astype(np.uint8)
    split = Split(images, labels)
    how = replace(recipe("pairs"), batch=48, epochs=epochs, pad=0, learning_rate=0.05)
    return TrainingTask(
        "t",
        ImageSet("toy", 3, split, split),
        how,
        Plan.paper(58.0),
        None,
        "every-epoch",
        pairs=draw_pairs(labels, 200, seed=1),
    )


def objective(of: TrainingTask) -> PairObjective:
    made = TrainingRun(of, CPU).objective
    assert isinstance(made, PairObjective)
    return made


def test_half_of_the_drawn_pairs_match_and_no_image_is_its_own_partner() -> None:
    pairs = objective(task())
    index = torch.arange(12).repeat(2000)
    partner, same = pairs.partners.draw(index)
    assert not (partner == index).any()
    assert torch.equal(same == 1, pairs.inputs.labels[partner] == pairs.inputs.labels[index])
    assert abs(same.float().mean().item() - 0.5) < 0.02
    for i in range(12):  # every other image of the class, and every image of the others, occurs
        assert set(partner[index == i].tolist()) == set(range(12)) - {i}


def test_a_public_image_alone_does_not_give_the_answer() -> None:
    labels = np.repeat(np.arange(101), [30, *[3] * 100])  # somebody is on many photos
    split = Split(np.zeros((len(labels), 8, 8, 3), np.uint8), labels)
    asked = replace(task(), data=ImageSet("toy", 101, split, split))
    pairs, index = objective(asked), torch.arange(len(labels)).repeat(100)
    partner, same = pairs.partners.draw(index)
    often = pairs.inputs.labels[partner] == 0
    assert abs(same[often].float().mean().item() - 0.5) < 0.05
    assert abs(same[~often].float().mean().item() - 0.5) < 0.05


def test_test_pairs_are_balanced_and_reproducible() -> None:
    found = draw_pairs(LABELS, 400, seed=3)
    first, second, same = found.T
    assert (first != second).all()
    assert ((LABELS[first] == LABELS[second]) == (same == 1)).all()
    assert same.mean() == 0.5
    assert np.array_equal(found, draw_pairs(LABELS, 400, seed=3))
    for labels in ([0, 0, 0], [0, 1, 2], []):
        with pytest.raises(LdpSlicingError, match="pairs need two images of one class and an image of another class"):
            draw_pairs(np.array(labels, np.int64), 10, seed=0)
    assert np.unique(first[:12]).size == 12  # nobody twice before all were there
    alone = draw_pairs(np.array([0, 0, 1]), 50, seed=0)
    assert set(alone[:, 0]) == {0, 1}  # class 1 has nobody to be paired with


def test_pair_matching_learns_an_easy_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(classes: int, width: int, channels: int) -> nn.Module:
        assert (classes, width, channels) == (2, 4, 6)
        return nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, 2),
        )

    monkeypatch.setattr(objectives, "wide_resnet28", small)
    (run,) = train([task(192, epochs=60)], CPU, tmp_path, Limits())
    assert run.test_accuracy() > 0.8
    assert run.history[-1].test_accuracy is not None


def test_what_cannot_be_paired_is_refused() -> None:
    lonely = Split(np.zeros((3, 8, 8, 3), np.uint8), np.array([0, 0, 1], np.int64))
    good = task()
    with pytest.raises(LdpSlicingError, match="two training images"):
        TrainingRun(replace(good, data=ImageSet("x", 2, lonely, lonely)), CPU)
    with pytest.raises(LdpSlicingError, match="resnet9"):
        TrainingRun(replace(good, recipe=replace(good.recipe, model="resnet9")), CPU)
    with pytest.raises(LdpSlicingError, match="pairs"):
        replace(good, pairs=None)


def test_the_advantage_has_an_interval() -> None:
    none, some = advantage(500, 1000), advantage(900, 1000)
    assert none["advantage"] == 0
    assert none["advantage_low_95"] == 0
    assert 0.02 < none["advantage_high_95"] < 0.04
    assert some["advantage"] == pytest.approx(0.4)
    assert some["advantage_low_95"] < 0.4 < some["advantage_high_95"]
    below = advantage(100, 1000)
    for end in ("advantage_low_95", "advantage_high_95"):
        assert below[end] == pytest.approx(some[end], abs=1e-6)


def test_comparing_with_the_prior_beats_the_most_likely_class() -> None:
    """Releases of ten classes that tell a little: the best that can be done with them, and what argmax makes of it."""
    rng, classes, count = np.random.default_rng(5), 10, 20_000
    labels = rng.integers(0, classes, count)
    told = (
        rng.normal(size=(count, classes)) + np.eye(classes)[labels]
    )  # log p(release | class) is this, up to what all have
    chances = np.exp(told) / np.exp(told).sum(1, keepdims=True)
    images = ImageSet(
        "x",
        classes,
        Split(np.zeros((classes, 1, 1, 3), np.uint8), np.arange(classes)),
        Split(np.zeros((0, 1, 1, 3), np.uint8), labels[:0]),
    )
    first, second, same = draw_pairs(labels, count, seed=0).T
    best = above_prior(np.log(chances), images)[first, labels[second]] == (same == 1)
    plain = (chances.argmax(1)[first] == labels[second]) == (same == 1)
    assert best.mean() > plain.mean() + 0.05
    for shift in (0.5, 2.0):  # no other threshold is better, but for chance
        other = (chances > shift / classes)[first, labels[second]] == (same == 1)
        assert best.mean() > other.mean() - 0.005


def test_the_classifier_attack_compares_with_the_prior() -> None:
    """It is sure of nothing: every release makes its own class a little likelier, and another one likeliest."""
    labels = np.arange(40) % 4
    images = ImageSet(
        "toy", 4, Split(np.zeros((40, 2, 2, 3), np.uint8), labels), Split(np.zeros((40, 2, 2, 3), np.uint8), labels)
    )
    chances = torch.full((40, 4), 0.1)
    chances[torch.arange(40), torch.from_numpy(labels)] = 0.3
    chances[torch.arange(40), torch.from_numpy((labels + 1) % 4)] = 0.5
    place = torch.arange(40.0).reshape(40, 1, 1, 1).expand(40, 3, 2, 2)  # an "image" that says which one it is
    run = SimpleNamespace(
        task=SimpleNamespace(data=images, recipe=SimpleNamespace(loss="classes")),
        inputs=SimpleNamespace(test=(place, torch.from_numpy(labels)), noise=lambda part: part),
        model=nn.Identity(),
        objective=SimpleNamespace(forward=lambda part: chances[part[:, 0, 0, 0].long()].log()),
    )
    pairs = pairs_of_test_set(images)
    same = pairs[:, 2] == 1
    wrongly = ~same & (labels[pairs[:, 1]] == (labels[pairs[:, 0]] + 1) % 4)
    assert attack_with_classifier(run)["correct"] == len(pairs) - wrongly.sum()  # type: ignore[arg-type]


def test_two_posteriors_match_if_one_class_explains_both_better_than_chance() -> None:
    images = ImageSet.from_arrays(
        "x", (np.zeros((4, 2, 2, 3), np.uint8), [0, 0, 1, 1]), (np.zeros((2, 2, 2, 3), np.uint8), [0, 1])
    )
    sure, unsure = np.log([[0.9, 0.1]], dtype=np.float32), np.log([[0.5, 0.5]], dtype=np.float32)
    assert same_class(sure, sure, images).tolist() == [True]
    assert same_class(sure, sure[:, ::-1], images).tolist() == [False]
    assert same_class(sure, np.log([[0.6, 0.4]], dtype=np.float32), images).tolist() == [True]
    assert same_class(sure, unsure, images).tolist() == [False]  # exactly at chance
