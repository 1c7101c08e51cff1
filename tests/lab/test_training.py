from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from ldp_slicing import Plan
from ldp_slicing.cli import app
from ldp_slicing.errors import DivergedError, LdpSlicingError
from ldp_slicing.lab.data.sets import ImageSet, ReleaseInfo, Split, hold_out
from ldp_slicing.lab.describe import describe, row_of
from ldp_slicing.lab.learners.accounting import epsilon_per_source
from ldp_slicing.lab.learners.checkpoint import load_checkpoint, save_checkpoint
from ldp_slicing.lab.learners.inputs import RENEWED_AFTER
from ldp_slicing.lab.learners.models import EMBEDDERS, MODELS, build
from ldp_slicing.lab.learners.models.face_networks import Dropout
from ldp_slicing.lab.learners.objectives import ClassificationObjective, classification_loss
from ldp_slicing.lab.learners.recipes import recipe, recipes
from ldp_slicing.lab.learners.releases import release_images, stored_splits
from ldp_slicing.lab.learners.run import Epoch, TrainingRun
from ldp_slicing.lab.learners.task import InputMode, ReleaseMode, TrainingTask
from ldp_slicing.lab.learners.training import Limits, checkpoint_path, train
from ldp_slicing.torch import Decoder, Reconstructor
from ldp_slicing.torch.networks import share_of_newest, track_statistics

CPU = torch.device("cpu")
TINY = replace(recipe("cifar-authors"), model="tiny", epochs=3, batch=16, learning_rate=0.01, milestones=(2,))


@pytest.fixture(autouse=True)
def _a_network_that_trains_in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def tiny(classes: int) -> nn.Module:
        layers = (
            nn.Conv2d(3, 8, 3, 2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.LazyLinear(classes),
        )
        network = nn.Sequential(*layers)
        network(torch.zeros(2, 3, 16, 16))
        return network

    monkeypatch.setitem(MODELS, "tiny", tiny)


def bright_or_dark(count: int = 64) -> ImageSet:
    """Two classes that anything can tell apart, also through noise: bright and dark upper halves."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    images = rng.integers(100, 156, (count, 16, 16, 3), dtype=np.uint8)
    images[labels == 1, :8] += 90
    split = Split(images, labels.astype(np.int64))
    return ImageSet("halves", 2, split, Split(images[:20], labels[:20].astype(np.int64)))


def only(task: TrainingTask, folder: Path, limits: Limits | None = None) -> TrainingRun:
    (run,) = train([task], CPU, folder, limits or Limits())
    return run


def test_networks_have_their_published_sizes() -> None:
    assert {
        "resnet56",
        "resnet9",
        "resnet9-narrow",
        "wrn28",
        "resnet50-grey",
        "five-blocks-grey",
        "ir50",
        "tiny",
    } == set(MODELS)
    assert (
        sum(p.numel() for p in build("resnet56", 10).parameters()) == 853_018
    )  # 0.85 million, no parameters in the shortcuts
    for name in ("resnet56", "resnet9"):
        assert build(name, 7)(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    with pytest.raises(LdpSlicingError, match="vgg"):
        build("vgg", 10)


def test_recipes_name_their_deviations_and_differ_where_paper_and_code_do() -> None:
    code, paper = recipe("cifar-authors"), recipe("cifar-paper")
    assert (code.factor, paper.factor) == (0.5, 0.1)
    assert all(recipe(name).deviations for name in recipes())
    assert [round(code.learning_rate_at(epoch), 6) for epoch in (0, 79, 80, 160, 200, 249)] == [
        0.1,
        0.1,
        0.05,
        0.025,
        0.0125,
        0.0125,
    ]
    with pytest.raises(LdpSlicingError, match="cifar-authors"):
        recipe("nothing")


def test_one_cycle_rises_and_falls_once() -> None:
    how = recipe("cifar-once")
    rates = [how.learning_rate_at(epoch) for epoch in range(how.epochs)]
    top = rates.index(max(rates))
    assert max(rates) == how.learning_rate
    assert top == how.warm_up * how.epochs
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0 < rates[-1] < 0.02 * how.learning_rate


def test_held_out_images_are_not_trained_on() -> None:
    split = Split(np.arange(50, dtype=np.uint8).repeat(12).reshape(50, 2, 2, 3), np.arange(50))
    kept, held = hold_out(split, 15, seed=1)
    assert (len(kept.labels), len(held.labels)) == (35, 15)
    assert sorted([*kept.labels, *held.labels]) == list(range(50))
    assert (kept.images[:, 0, 0, 0] == kept.labels).all()
    assert not np.array_equal(hold_out(split, 15, seed=2)[1].labels, held.labels)
    assert hold_out(split, 0, seed=1)[0] is split
    with pytest.raises(LdpSlicingError, match="50"):
        hold_out(split, 50, seed=1)


def test_held_out_groups_are_not_trained_on() -> None:
    groups = np.repeat(np.arange(30), np.random.default_rng(3).integers(1, 5, 30))
    split = Split(np.zeros((len(groups), 2, 2, 3), np.uint8), np.arange(len(groups)), groups)
    for seed in range(20):
        kept, held = hold_out(split, 15, seed)
        assert kept.groups is not None
        assert held.groups is not None
        assert not set(kept.groups) & set(held.groups)
        assert sorted([*kept.labels, *held.labels]) == list(range(len(groups)))
        assert abs(len(held.labels) - 15) <= 2  # half of the largest group
        assert (split.groups[held.labels] == held.groups).all()  # type: ignore[index]
    assert not np.array_equal(hold_out(split, 15, seed=2)[1].labels, hold_out(split, 15, seed=1)[1].labels)
    pair = Split(split.images[:4], split.labels[:4], np.array([7, 7, 7, 2]))
    assert {len(hold_out(pair, 1, seed)[1].labels) for seed in range(10)} == {1, 3}  # some group is always left
    with pytest.raises(LdpSlicingError, match="of one group"):
        hold_out(Split(split.images[:4], split.labels[:4], np.zeros(4, np.int64)), 1, seed=1)


@pytest.mark.parametrize(
    ("validation", "chosen"),
    [([0.5, None, 0.7, 0.7], 3), ([0.7, 0.7, 0.5, 0.6], 1), ([None, None, None, None], 3), ([0.0, 0.0, 0.0, 0.0], 3)],
)
def test_the_row_names_the_epoch_whose_network_was_chosen(
    validation: list[float | None], chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = TrainingRun(
        TrainingTask("halves", bright_or_dark(), replace(TINY, epochs=4), release="none", validation=10),
        torch.device("cpu"),
    )
    weights = []
    for accuracy in validation:
        monkeypatch.setattr(run.objective, "accuracy", lambda *_, found=accuracy: found)
        run.begin_epoch()
        while not run.epoch_is_over:
            run.advance()
        run.end_epoch(look=accuracy is not None)
        weights.append(run.model.state_dict()["0.weight"].clone())
    run.choose()
    training = describe(run, row_of(run.task, "train")).training
    assert training is not None
    assert (training.chosen_epoch, training.held_out_by) == (chosen, "image")
    assert torch.equal(run.model.state_dict()["0.weight"], weights[chosen])


@pytest.mark.parametrize(
    ("release", "plan"), [("none", None), ("view", None), ("once", Plan.paper(58.0)), ("every-epoch", Plan.paper(58.0))]
)
def test_every_release_mode_learns_an_easy_task(release: str, plan: Plan | None, tmp_path: Path) -> None:
    longer = replace(TINY, epochs=30, learning_rate=0.05, milestones=(25,))  # until the running means have settled
    run = only(TrainingTask("easy", bright_or_dark(), longer, plan, None, release), tmp_path, Limits())
    assert run.finished
    assert run.history[-1].test_accuracy is not None
    assert run.history[-1].test_accuracy >= 0.9
    assert run.history[-1].loss < run.history[0].loss


def test_grey_images_and_another_optimiser(tmp_path: Path) -> None:
    colour = bright_or_dark(32)
    grey = ImageSet(
        "grey", 2, *(Split(split.images[..., :1].copy(), split.labels) for split in (colour.train, colour.test))
    )
    how = replace(recipe("chest"), epochs=1, batch=16, pad=0, learning_rate=1e-3)
    run = only(TrainingTask("grey", grey, how, Plan.grey(58.0, 8), validation=8), tmp_path)
    assert run.inputs.padded.shape == (24, 16, 16, 1)
    assert not np.array_equal(run.inputs.padded.numpy(), hold_out(grey.train, 8, 0)[0].images)
    assert run.history[0].validation_accuracy is not None


def test_the_view_alone_is_pruned_and_not_noisy() -> None:
    flat = Split(np.full((2, 4, 4, 3), 77, np.uint8), np.zeros(2, np.int64))
    run = TrainingRun(
        TrainingTask("t", ImageSet("flat", 2, flat, flat), replace(TINY, model="resnet9", pad=0), release="view"), CPU
    )
    assert (run.inputs.padded == 128).all()  # nothing but the middle is left of a flat image
    assert (
        TrainingRun(
            TrainingTask(
                "t", ImageSet("flat", 2, flat, flat), replace(TINY, model="resnet9", pad=0), prune=None, release="view"
            ),
            CPU,
        ).inputs.padded
        == 77
    ).all()


def test_epsilon_per_source_counts_all_releases() -> None:
    once, every = (
        TrainingTask("t", bright_or_dark(), TINY, Plan.paper(20.0), release=mode) for mode in ("once", "every-epoch")
    )
    assert max(once.data.times.values()) == 2  # the test set has the same pictures again
    assert epsilon_per_source(once) == pytest.approx(2 * 20.0)
    assert epsilon_per_source(every) == pytest.approx(2 * 60.0)
    given = replace(once.data, release_info=ReleaseInfo(Plan.paper(5.0), None, 15.0))
    assert epsilon_per_source(TrainingTask("t", given, TINY, Plan.paper(5.0), None, "existing")) == 15.0
    for plan, release in ((None, "once"), (Plan.paper(1.0), "none"), (Plan.paper(1.0), "view")):
        with pytest.raises(LdpSlicingError, match=release):
            TrainingTask("t", bright_or_dark(), TINY, plan, release=release)
    with pytest.raises(LdpSlicingError, match="teacher"):
        TrainingTask("t", bright_or_dark(), replace(TINY, loss="teacher"), release="none")


def test_once_means_that_training_sees_the_same_release_in_every_epoch() -> None:
    run = TrainingRun(TrainingTask("t", bright_or_dark(), TINY, Plan.paper(20.0)), CPU)
    before = run.inputs.padded.clone()
    assert not torch.equal(run.inputs.padded[:, 4:-4, 4:-4], torch.from_numpy(bright_or_dark().train.images))
    run.begin_epoch()
    run.advance()
    assert torch.equal(run.inputs.padded, before)


@pytest.mark.parametrize("release", ["once", "every-epoch"])
def test_a_resumed_run_equals_an_uninterrupted_one(release: str, tmp_path: Path) -> None:
    task = TrainingTask("t", bright_or_dark(), TINY, Plan.paper(20.0), release=release, validation=16)
    folders = tmp_path / "straight", tmp_path / "parts"
    straight = only(task, folders[0])
    folders[1].mkdir()
    for kept in folders[0].glob("*.releases.npz"):  # the same releases for both: they are not repeatable
        (folders[1] / kept.name).write_bytes(kept.read_bytes())
    first = TrainingRun(task, CPU, stored_splits(task, folders[1]))
    first.begin_epoch()
    while first.advance():
        pass
    first.end_epoch(look=True)
    save_checkpoint(first, checkpoint_path(task, folders[1]))
    second = only(task, folders[1])
    assert torch.equal(
        first.inputs.padded, second.inputs.padded
    )  # stopped and resumed, it is still one release of each image
    assert [epoch.loss for epoch in second.history] == [epoch.loss for epoch in straight.history]
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters, second.parameters, strict=True))
    third = only(task, folders[1])
    assert third.finished
    assert third.epoch == second.epoch


def test_another_recipe_reuses_releases_and_no_checkpoint(tmp_path: Path) -> None:
    task = TrainingTask("t", bright_or_dark(), TINY, Plan.paper(20.0), validation=16)
    first = only(task, tmp_path)
    longer = only(replace(task, recipe=replace(TINY, epochs=TINY.epochs + 1)), tmp_path)
    assert longer.epoch == TINY.epochs + 1
    assert longer.history[0].learning_rate == longer.task.recipe.learning_rate_at(0)
    assert torch.equal(first.inputs.padded, longer.inputs.padded)
    other = only(replace(task, plan=Plan.paper(5.2)), tmp_path)
    assert not torch.equal(first.inputs.padded, other.inputs.padded)


def test_releases_of_different_runs_are_different(tmp_path: Path) -> None:
    task = TrainingTask("t", bright_or_dark(), replace(TINY, epochs=1), Plan.paper(20.0))
    one, other = train([task, replace(task, seed=1)], CPU, tmp_path, Limits())
    assert not torch.equal(one.inputs.padded, other.inputs.padded)


def test_validation_chooses_the_epoch_and_its_network(tmp_path: Path) -> None:
    task = TrainingTask("t", bright_or_dark(), replace(TINY, epochs=6), Plan.paper(5.2), validation=16)
    run = only(task, tmp_path, Limits())
    assert all(epoch.test_accuracy is None for epoch in run.history)
    best = max(epoch.validation_accuracy or 0.0 for epoch in run.history)
    run.choose()
    assert run.validation_accuracy() == pytest.approx(best)


def test_training_stops_when_the_time_is_up_and_can_be_resumed(tmp_path: Path) -> None:
    task = TrainingTask("t", bright_or_dark(), TINY, release="none")
    assert not list(train([task], CPU, tmp_path, Limits(seconds=0.0)))
    limits = Limits(seconds=3600.0)
    (run,) = train([task], CPU, tmp_path, limits, lambda *_: setattr(limits, "seconds", -1.0))
    assert (run.epoch, run.finished) == (1, False)
    assert only(task, tmp_path).finished


def test_a_negative_time_limit_is_refused() -> None:
    for minutes in (-1.0, float("nan")):
        with pytest.raises(LdpSlicingError, match="0 minutes or more"):
            Limits(seconds=60 * minutes)


def test_checkpoints_are_written_by_time(tmp_path: Path) -> None:
    """A checkpoint is written when some time has passed, not when some epochs have."""
    task, seen = TrainingTask("t", bright_or_dark(), replace(TINY, epochs=4), release="none"), []

    def report(run: TrainingRun, epoch: Epoch) -> None:
        seen.append(sorted(path.name for path in tmp_path.glob("*.pt")))
        if epoch.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(train([task], CPU, tmp_path, Limits(save_after=0.0), report))
    assert [len(names) for names in seen] == [0, 1, 1]
    run = TrainingRun(task, CPU)
    load_checkpoint(run, tmp_path / seen[-1][0])
    assert run.epoch == 2


def test_a_checkpoint_of_another_device_is_refused(tmp_path: Path) -> None:
    task = TrainingTask("t", bright_or_dark(), TINY, release="none")
    run = only(task, tmp_path)
    path = checkpoint_path(task, tmp_path)
    torch.save(torch.load(path, weights_only=True) | {"device": "cuda"}, path)
    with pytest.raises(LdpSlicingError, match="--device cuda"):
        load_checkpoint(run, path)


def test_a_resumed_network_with_dropout_equals_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        MODELS,
        "tiny",
        lambda classes: nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), Dropout(0.5), nn.Linear(48, classes)),
    )
    task = TrainingTask("t", bright_or_dark(), replace(TINY, model="tiny", epochs=3), release="none")
    whole, limits = only(task, tmp_path / "whole"), Limits()
    (part,) = train([task], CPU, tmp_path / "parts", limits, lambda *_: setattr(limits, "seconds", 0.0))
    assert part.epoch == 1
    again = only(task, tmp_path / "parts")
    assert all(
        torch.equal(a, b)
        for a, b in zip(whole.model.state_dict().values(), again.model.state_dict().values(), strict=True)
    )
    run = TrainingRun(task, CPU)
    x = torch.ones(10, 3, 16, 16)
    run.model.eval()
    assert torch.equal(run.model(x), run.model(x))
    run.model.train()
    assert not torch.equal(run.model(x), run.model(x))


def test_distillation_reduces_its_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        EMBEDDERS, "dlib", (lambda: nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 16)), 16)
    )
    rng = np.random.default_rng(0)
    faces = Split(rng.integers(0, 256, (32, 16, 16, 3), dtype=np.uint8), np.zeros(32, np.int64))
    how = replace(recipe("faces-teacher"), epochs=40, batch=16, learning_rate=1e-2)
    targets = rng.standard_normal((32, 16)).astype(np.float32)
    run = only(TrainingTask("t", ImageSet("faces", 1, faces, faces), how, release="none", targets=targets), tmp_path)
    assert run.history[-1].loss < 0.7 * run.history[0].loss
    assert run.history[0].train_accuracy is None
    assert (run.history[0].test_accuracy, run.objective.head) == (None, None)


def test_reproduce_refuses_a_missing_data_set(tmp_path: Path) -> None:
    ran = CliRunner().invoke(
        app, ["lab", "reproduce", "fidelity", "--data", str(tmp_path), "--results", str(tmp_path / "r")]
    )
    assert ran.exit_code == 2
    assert "cifar-10-batches-py" in ran.output
    assert not (tmp_path / "r").exists()


def test_results_that_cannot_be_written_are_refused_first(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    where = ["--results", str(tmp_path / "file" / "r"), "--data", str(tmp_path)]
    ran = CliRunner().invoke(app, ["lab", "reproduce", "psnr", *where])
    assert ran.exit_code == 2
    assert "cannot write to" in ran.output


def test_a_compiled_network_learns_the_same(tmp_path: Path) -> None:
    task = TrainingTask("halves", bright_or_dark(), replace(TINY, epochs=2), release="none")
    plain, compiled = only(task, tmp_path / "plain"), only(task, tmp_path / "compiled", Limits(compile=True))
    assert [epoch.loss for epoch in compiled.history] == pytest.approx(
        [epoch.loss for epoch in plain.history], rel=1e-3
    )
    for ours, theirs in zip(compiled.model.state_dict().items(), plain.model.state_dict().items(), strict=True):
        assert ours[0] == theirs[0]
        assert torch.allclose(ours[1].float(), theirs[1].float(), atol=1e-3)


def test_releases_are_decoded_before_training(tmp_path: Path) -> None:
    how = replace(TINY, epochs=10, learning_rate=0.05)
    task = TrainingTask(
        "halves", bright_or_dark(), how, Plan.sliced(6.0, "Y7,Y6"), prune=None, validation=10, mode="decoded"
    )
    run = only(task, tmp_path)
    splits = stored_splits(task, tmp_path)
    released = [torch.from_numpy(split.images).permute(0, 3, 1, 2) for split in splits]
    decoder = Decoder.fit(released[0], Plan.sliced(6.0, "Y7,Y6"), prune=None)
    assert torch.equal(run.inputs.validation[0], decoder(released[1]))
    assert torch.equal(run.inputs.test[0], decoder(released[2]))
    assert run.test_accuracy() > 0.8
    others = run.inputs.prepare(torch.from_numpy(release_images(task, bright_or_dark(8).test.images)))
    assert set(others.unique().tolist()) <= set(run.inputs.padded.unique().tolist())
    assert checkpoint_path(task, tmp_path) != checkpoint_path(replace(task, mode="raw"), tmp_path)


@pytest.mark.parametrize("mode", ["reconstructed", "reconstructed-public"])
def test_releases_are_reconstructed_before_training_and_again_in_the_same_way(mode: InputMode, tmp_path: Path) -> None:
    beside = mode == "reconstructed"
    how, plan = replace(TINY, epochs=2, reconstructor_steps=2, beside_decoded=beside), Plan.sliced(6.0, "Y7,Y6")
    public = bright_or_dark(8) if mode == "reconstructed-public" else None
    task = TrainingTask("halves", bright_or_dark(), how, plan, prune=None, validation=10, mode=mode, public=public)
    run = only(task, tmp_path)
    [kept] = tmp_path.glob("*.reconstructor.pt")
    trained_on, _, released = (
        torch.from_numpy(split.images).permute(0, 3, 1, 2) for split in stored_splits(task, tmp_path)
    )
    reconstructor = Reconstructor.from_state_dict(torch.load(kept, weights_only=True))
    if public is not None:  # the kept one serves all seeds
        reconstructor = reconstructor.fitted_to(trained_on)
        only(replace(task, seed=1), tmp_path)
    decoded = [reconstructor.decoder(released)] if beside else []
    assert torch.equal(run.inputs.test[0], torch.cat((reconstructor(released), *decoded), 1))
    before = kept.stat().st_mtime_ns
    assert torch.equal(only(task, tmp_path).inputs.padded, run.inputs.padded)
    assert kept.stat().st_mtime_ns == before
    assert [*tmp_path.glob("*.reconstructor.pt")] == [kept]
    assert row_of(task, "train").mode == mode


def public_of_three(count: int = 48) -> ImageSet:
    halves = bright_or_dark(count).train
    split = Split(halves.images, np.arange(count) % 3)
    return ImageSet("thirds", 3, split, Split(halves.images[:9], np.arange(9) % 3))


def test_a_network_starts_from_the_classes_of_public_images(tmp_path: Path) -> None:
    how = replace(TINY, epochs=1, reconstructor_steps=2, pretrain_epochs=2, learning_rate=1e-30, weight_decay=0.0)
    plan, public = Plan.sliced(6.0, "Y7,Y6"), public_of_three()
    task = TrainingTask("halves", bright_or_dark(), how, plan, mode="reconstructed-public", public=public)
    seen: list[tuple[str, int]] = []
    tasks = [task, replace(task, seed=1)]
    runs = [*train(tasks, CPU, tmp_path, Limits(), lambda run, epoch: seen.append((run.task.name, epoch.epoch)))]
    first = [("pretraining-thirds-eps6", 0), ("pretraining-thirds-eps6", 1)]  # once for both seeds
    assert seen == [*first, ("halves", 0), ("halves", 0)]
    assert [run.task.seed for run in runs] == [0, 1]
    assert task.pretraining is not None
    public_run = only(task.pretraining, tmp_path)
    for run in runs:  # the rate is too small to change anything, so only the last layer is its own
        shapes = {name: value.shape for name, value in run.model.state_dict().items()}
        for name, value in public_run.model.state_dict().items():
            if name.startswith("6."):
                assert shapes[name] == (2, *value.shape[1:])
            elif not name.endswith(("running_mean", "running_var", "num_batches_tracked")):
                assert torch.allclose(run.model.state_dict()[name], value, rtol=0, atol=1e-20)
    assert [*tmp_path.glob("*.reconstructor.pt")] != []
    assert replace(task, recipe=replace(how, pretrain_epochs=0)).pretraining is None
    assert replace(task, public=replace(public, classes=1)).pretraining is None
    assert replace(how, pretrain_epochs=9).lasting(4).pretrain_epochs == 4


def test_a_task_is_left_out_if_there_was_no_time_for_its_pretraining(tmp_path: Path) -> None:
    how = replace(TINY, epochs=1, reconstructor_steps=2, pretrain_epochs=3)
    plan, public = Plan.sliced(6.0, "Y7,Y6"), public_of_three()
    task = TrainingTask("halves", bright_or_dark(), how, plan, mode="reconstructed-public", public=public)
    seen: list[tuple[str, int]] = []

    def report(run: TrainingRun, epoch: Epoch) -> None:
        seen.append((run.task.name, epoch.epoch))

    limits = Limits(stop_requested=lambda: len(seen) == 1)
    assert not [*train([task], CPU, tmp_path, limits, report)]
    assert len(seen) == 1
    assert [run.finished for run in train([task], CPU, tmp_path, Limits(), report)] == [True]
    assert seen == [*(("pretraining-thirds-eps6", epoch) for epoch in range(3)), ("halves", 0)]  # it was resumed


@pytest.mark.parametrize("mode", ["reconstructed", "reconstructed-public"])
def test_the_training_of_a_reconstructor_is_reported_and_can_be_stopped(mode: InputMode, tmp_path: Path) -> None:
    """It precedes the first epoch, and takes hours on a CPU."""
    how, public = replace(TINY, epochs=1, reconstructor_steps=200), bright_or_dark(8)
    task = TrainingTask(
        "halves",
        bright_or_dark(8),
        how,
        Plan.sliced(6.0, "Y7,Y6"),
        mode=mode,
        public=public if mode == "reconstructed-public" else None,
    )
    seen: list[tuple[int, int]] = []

    def note(done: int, steps: int) -> None:
        seen.append((done, steps))

    limits = Limits(stop_requested=lambda: len(seen) == 3, reconstructing=note)
    assert not [*train([task], CPU, tmp_path, limits)]
    assert seen == [(0, 200), (2, 200), (4, 200)]
    assert not [*tmp_path.glob("*.reconstructor.pt")]


def test_public_images_are_released_again_every_few_epochs(tmp_path: Path) -> None:
    public, how = bright_or_dark(), replace(TINY, pad=2, reconstructor_steps=2)
    plan, options = Plan.sliced(6.0, "Y7,Y6"), {"mode": "reconstructed-public", "public": public}
    run = TrainingRun(TrainingTask("halves", public, how, plan, None, "every-epoch", **options), CPU)  # type: ignore[arg-type]
    before = run.inputs.padded.clone()
    for epoch in range(RENEWED_AFTER):
        run.inputs.begin_epoch(epoch)
        assert torch.equal(run.inputs.padded, before)
    run.inputs.begin_epoch(RENEWED_AFTER)
    inside = (slice(None), slice(2, -2), slice(2, -2))
    assert not torch.equal(run.inputs.padded[inside], before[inside])
    assert (run.inputs.padded[inside].float().mean() - before[inside].float().mean()).abs() < 1
    edge = torch.ones_like(before, dtype=torch.bool)
    edge[inside] = False
    assert torch.equal(run.inputs.padded[edge], before[edge])
    batch = run.inputs.crop(torch.arange(4))
    assert torch.equal(run.inputs.noise(batch), batch)  # it is noisy already
    with pytest.raises(LdpSlicingError, match="only images that were released once can be reconstructed-public"):
        TrainingTask("halves", bright_or_dark(), how, plan, None, "every-epoch", **options)  # type: ignore[arg-type]


def test_a_loss_that_diverges_is_reported(tmp_path: Path) -> None:
    task = TrainingTask("halves", bright_or_dark(), replace(TINY, learning_rate=1e30), Plan.paper(20.0))
    with pytest.raises(LdpSlicingError, match=r"diverged in epoch .* smaller learning rate than 1e.30"):
        only(task, tmp_path)


def test_a_finite_loss_far_above_that_of_guessing_has_diverged() -> None:
    run = TrainingRun(TrainingTask("halves", bright_or_dark(), TINY, release="none"), CPU)
    run._check_loss(5.0)  # the first epoch may begin anywhere
    run.history.append(Epoch(0, 0.1, 5.0, None, None, None, 1.0))
    run._check_loss(1.3)
    with pytest.raises(DivergedError, match=r"\(loss 1.5; guessing has 0.693\): .* than 0.01, such as 0.0025"):
        run._check_loss(1.5)


def test_averaged_weights_are_measured_kept_and_resumed(tmp_path: Path) -> None:
    how = replace(TINY, average=0.5)
    run = TrainingRun(TrainingTask("halves", bright_or_dark(), how, release="none"), CPU)
    weight, seen = run.model.state_dict()["0.weight"], []
    expected, step = weight.clone(), run._step

    def watched() -> None:
        step()
        seen.append(weight.clone())

    run._step = watched  # type: ignore[method-assign]
    run.begin_epoch()
    while not run.epoch_is_over:
        run.advance()
    for trained in seen:
        expected.lerp_(trained, 0.5)
    with run.averaged():
        assert torch.allclose(weight, expected)
    assert torch.equal(weight, seen[-1])  # training goes on from there
    run.end_epoch(look=True)
    save_checkpoint(run, tmp_path / "run.pt")
    again = TrainingRun(run.task, CPU)
    load_checkpoint(again, tmp_path / "run.pt")
    again.choose()
    assert torch.allclose(again.model.state_dict()["0.weight"], expected)


def test_a_run_of_a_few_steps_is_measured_as_it_was_trained(tmp_path: Path) -> None:
    """Averages of the weights and of the batch norms that forget slowly would show the initial network."""
    how = replace(TINY, average=0.98, epochs=2, optimiser="adamw", learning_rate=0.01)
    run = only(TrainingTask("halves", bright_or_dark(160), how, release="none", validation=16), tmp_path)
    assert run.steps * how.epochs == 18
    run.choose()
    assert run.test_accuracy() >= 0.9
    assert run.model[1].momentum == pytest.approx(5 / 18)  # type: ignore[index]


@pytest.mark.parametrize("name", ["small-set", "medium-set", "chest-small", "cifar-decoded", "chest", "cifar-fast"])
def test_long_runs_average_as_their_recipe_says(name: str) -> None:
    """The shortest measured run of a recipe that averages weights has 1,022 steps (`chest-small`)."""
    network = nn.Sequential(nn.BatchNorm2d(3))
    track_statistics(network, 50)
    assert network[0].momentum == 0.1
    assert min(recipe(name).average, 1 - share_of_newest(1000)) == recipe(name).average


def test_rare_classes_weigh_as_much_as_common_ones() -> None:
    data = bright_or_dark()
    labels = (np.arange(64) % 8 == 0).astype(np.int64)
    data = replace(data, train=replace(data.train, labels=labels))
    how = replace(TINY, class_weights=True, smoothing=0.1)
    objective = TrainingRun(TrainingTask("rare", data, how, release="none"), CPU).objective
    assert isinstance(objective, ClassificationObjective)
    assert objective.class_weights is not None
    assert (objective.class_weights[torch.from_numpy(labels)]).sum() == pytest.approx(64)
    assert objective.class_weights.tolist() == pytest.approx([64 / (2 * 56), 64 / (2 * 8)])
    outputs, answers = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1])
    plain = classification_loss(outputs, answers).value
    weighted = classification_loss(outputs, answers, weights=objective.class_weights).value
    assert weighted > plain  # the rare class is the one that is wrong


def test_a_square_of_each_training_image_is_erased() -> None:
    data, plan = bright_or_dark(), Plan.sliced(6.0, "Y7,Y6")
    run = TrainingRun(
        TrainingTask("erased", data, replace(TINY, erase=4, pad=0, flip=False), plan, mode="decoded"), CPU
    )
    index = torch.arange(64)
    whole, erased = run.inputs.padded.permute(0, 3, 1, 2), run.inputs.crop(index)
    changed = whole != erased
    assert (erased[changed] == 128).all()  # as unknown as the padding
    rows, columns = (changed.any(1).any(axis).sum(1) for axis in (2, 1))
    assert 0 < int(rows.max()) <= 4
    assert 0 < int(columns.max()) <= 4
    assert len({int(one.flatten().int().argmax()) for one in changed}) > 1  # at different places


def test_images_and_labels_are_mixed_in_the_same_shares() -> None:
    outputs, labels = torch.tensor([[2.0, 0.0], [0.5, 1.0], [1.0, 3.0]]), torch.tensor([0, 1, 1])
    plain = classification_loss(outputs, labels).value
    assert classification_loss(outputs, labels, other_share=torch.zeros(3)).value == pytest.approx(plain.item())
    other = classification_loss(outputs, labels.roll(1)).value
    half = classification_loss(outputs, labels, other_share=torch.full((3,), 0.5)).value
    assert half == pytest.approx((plain + other).item() / 2)

    seen = list[Tensor]()
    run = TrainingRun(
        TrainingTask("mixed", bright_or_dark(), replace(TINY, mix=0.5, pad=0, flip=False), release="none"), CPU
    )
    run.objective.forward = lambda images: seen.append(images) or torch.zeros(len(images), 2)  # type: ignore[method-assign,func-returns-value]
    assert run.objective.loss(torch.arange(8)).value == pytest.approx(np.log(2))
    sources = run.inputs.padded.permute(0, 3, 1, 2)[:8].float()
    share = (seen[0] - sources).flatten(1).norm(dim=1) / (sources.roll(1, 0) - sources).flatten(1).norm(dim=1)
    assert share.max() < 0.5
    assert len(set(share.tolist())) > 4


def test_public_images_belong_to_their_mode() -> None:
    data, plan = bright_or_dark(), Plan.sliced(6.0, "Y7,Y6")
    with pytest.raises(LdpSlicingError, match="'reconstructed-public' needs public images"):
        TrainingTask("halves", data, TINY, plan, mode="reconstructed-public")
    with pytest.raises(LdpSlicingError, match="'reconstructed-public' needs public images"):
        TrainingTask("halves", data, TINY, plan, mode="reconstructed", public=data)


@pytest.mark.parametrize(("release", "plan"), [("none", None), ("view", None), ("every-epoch", Plan.paper(20.0))])
def test_only_images_released_once_are_decoded(release: ReleaseMode, plan: Plan | None) -> None:
    with pytest.raises(LdpSlicingError, match="released once can be decoded"):
        TrainingTask("halves", bright_or_dark(), TINY, plan, release=release, mode="decoded")


def test_a_recipe_in_fewer_epochs_keeps_its_steps() -> None:
    short = recipe("cifar-paper").lasting(25)
    assert (short.epochs, short.milestones) == (25, (8, 16, 20))
    assert short.learning_rate_at(24) == pytest.approx(0.1 * 0.1**3)
    assert replace(short, epochs=0).lasting(3).epochs == 0


@pytest.mark.parametrize(
    ("every", "seen"), [(2, [0, 2, 4, 6, 8, 9]), (0, [0, 8, 9]), (5, [0, 5, 8, 9]), (1, list(range(10)))]
)
def test_epochs_at_which_accuracy_is_measured(every: int, seen: list[int]) -> None:
    how = replace(recipe("cifar-once"), epochs=10, look_every=every)
    assert [epoch for epoch in range(10) if how.looks_at(epoch)] == seen


def test_other_initial_weights_have_another_checkpoint(tmp_path: Path) -> None:
    starts = []
    for number in range(2):
        torch.save({"x": torch.full((1,), float(number))}, tmp_path / f"{number}.pt")
        starts.append(
            TrainingTask(
                "easy", bright_or_dark(), recipe("cifar-once"), release="none", weights=tmp_path / f"{number}.pt"
            )
        )
    assert (
        len(
            {
                checkpoint_path(task, tmp_path)
                for task in (*starts, TrainingTask("easy", bright_or_dark(), recipe("cifar-once"), release="none"))
            }
        )
        == 3
    )


def test_concurrent_runs_share_their_releases(tmp_path: Path) -> None:
    """Else each image would be released twice."""
    task = TrainingTask("t", bright_or_dark(), TINY, Plan.paper(20.0), validation=16)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: stored_splits(task, tmp_path), range(4)))
    assert all(np.array_equal(one[0].images, made[0][0].images) for one in made)
    (kept,) = tmp_path.glob("*.npz")
    kept.write_bytes(kept.read_bytes()[:-500])
    with pytest.raises(
        LdpSlicingError, match="is damaged, and its releases cannot be made again without spending again"
    ):
        stored_splits(task, tmp_path)
