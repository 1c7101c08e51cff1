from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ldp_slicing import Plan, Slice
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.attacks.contact_sheet import low_band_of, view_of
from ldp_slicing.lab.attacks.outcome import example_columns
from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.learners.checkpoint import save_checkpoint
from ldp_slicing.lab.learners.models import adversaries as networks
from ldp_slicing.lab.learners.models.adversaries import BlackBox, WhiteBox
from ldp_slicing.lab.learners.objectives import ReconstructionObjective
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.learners.training import Limits, checkpoint_path, train
from ldp_slicing.lab.metrics.images import psnr, ssim
from ldp_slicing.torch.simulate import apply_view, to_rgb
from ldp_slicing.view import Prune
from tests.lab.attacks.images import disc_images

CPU = torch.device("cpu")
PLANS = (Plan.paper(200.0), Plan.paper(20.0), Plan([Slice(0xE0C0C0, 5.2)]))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(networks.NETWORKS, "unet", lambda channels, gain: BlackBox(channels, width=12, scales=2))
    monkeypatch.setitem(
        networks.NETWORKS, "two-stage", lambda channels, gain: WhiteBox(channels, gain, width=8, scales=2)
    )


def task(
    kind: str, *, prune: Prune = None, epochs: int = 12, batch: int = 12, sources: torch.Tensor | None = None
) -> TrainingTask:
    images = np.ascontiguousarray((disc_images(60) if sources is None else sources).permute(0, 2, 3, 1).numpy())
    labels = np.zeros(60, np.int64)
    data = ImageSet("disc_images", 1, Split(images, labels), Split(images[:0], labels[:0]))
    how = replace(recipe(f"{kind}-cifar"), epochs=epochs, batch=batch, learning_rate=4e-3)
    return TrainingTask(kind, data, how, prune=prune, release="none", plans=PLANS)


def trained(what: TrainingTask, folder: Path, limits: Limits | None = None) -> TrainingRun:
    (run,) = train([what], CPU, folder, limits or Limits())
    return run


def objective_of(run: TrainingRun) -> ReconstructionObjective:
    assert isinstance(run.objective, ReconstructionObjective)
    return run.objective


@pytest.mark.parametrize("kind", ["black-box", "white-box"])
def test_trained_adversaries_beat_the_release(kind: str, tmp_path: Path) -> None:
    run, sources = trained(task(kind), tmp_path), disc_images(8, seed=9)
    network = objective_of(run)
    assert run.finished
    assert run.history[-1].loss < 0.8 * run.history[0].loss
    assert all(epoch.train_accuracy is None and epoch.test_accuracy is None for epoch in run.history)
    for plan in PLANS[1:]:
        releases = network.release(sources, plan)
        shown = to_rgb(releases.to(torch.int32)) if network.adversary.takes == "ycbcr" else releases
        found = network.reconstruct(releases, plan)
        assert found.shape == sources.shape
        assert 0 <= found.min() <= found.max() <= 255
        assert psnr(found, sources).mean() > psnr(shown, sources).mean() + 1
        assert ssim(found, sources).mean() > ssim(shown, sources).mean()
    if kind == "white-box":  # the easy target falls; at this size the U-Net has not the steps for it
        assert psnr(network.reconstruct(network.release(sources, PLANS[0]), PLANS[0]), sources).mean() > 20


def test_a_pruned_low_band_is_guessed_from_public_images(tmp_path: Path) -> None:
    sources = disc_images(68) // 3
    sources[:, :, :12] += 150  # as faces are bright and what is below them is not
    run = trained(task("white-box", prune="haar", epochs=16, sources=sources[:60]), tmp_path)
    network = objective_of(run)
    found = network.reconstruct(network.release(sources[60:], PLANS[0]), PLANS[0])
    view = to_rgb(apply_view(sources[60:], "haar", colour=True))
    assert psnr(found, sources[60:]).mean() > psnr(view, sources[60:]).mean() + 3


def test_every_budget_gets_its_share_of_a_batch() -> None:
    run = objective_of(TrainingRun(task("white-box"), CPU))
    assert run.shares == [plan for plan in PLANS for _ in range(4)]
    assert run.known.shape == (12, 24)
    few = objective_of(TrainingRun(task("black-box", batch=2), CPU))  # fewer images than budgets
    assert few.shares == list(PLANS[:2])
    assert torch.isfinite(few.loss(torch.arange(2)).value)


def test_small_releases_are_reconstructed_at_the_size_of_their_sources(tmp_path: Path) -> None:
    sources = disc_images(8, seed=9)
    height, width = sources.shape[2:]
    small = replace(task("white-box"), size=7)
    network = objective_of(trained(small, tmp_path))
    releases = network.release(sources, PLANS[0])
    assert releases.shape == sources.shape
    for axis, side in ((2, height), (3, width)):  # a released pixel is repeated where its source pixels are
        first = np.arange(7) * side // 7
        assert len(torch.unique_consecutive(releases, dim=axis).unbind(axis)) == 7
        changes = [i for i in range(1, side) if not torch.equal(*(releases.select(axis, j) for j in (i - 1, i)))]
        assert changes == first[1:].tolist()
    noisy = network.release(sources, PLANS[1])
    found = network.reconstruct(noisy, PLANS[1])
    assert found.shape == sources.shape
    assert psnr(found, sources).mean() > psnr(to_rgb(noisy.to(torch.int32)), sources).mean() + 1
    assert checkpoint_path(small, tmp_path) != checkpoint_path(replace(small, size=8), tmp_path)
    with pytest.raises(LdpSlicingError, match="only the loss 'source' knows a size"):
        replace(small, recipe=recipe("cifar-fast"), plans=())


def test_noise_is_fresh_in_every_step() -> None:
    network, sources = objective_of(TrainingRun(task("white-box"), CPU)), disc_images(2)
    assert not torch.equal(network.release(sources, PLANS[1]), network.release(sources, PLANS[1]))


def test_a_resumed_adversary_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = trained(task("black-box", epochs=3), tmp_path / "whole")

    def losses(run: TrainingRun) -> list[float]:
        return [epoch.loss for epoch in run.history]

    begun = TrainingRun(task("black-box", epochs=3), CPU)
    begun.begin_epoch()
    while begun.advance():
        pass
    begun.end_epoch(look=False)
    (tmp_path / "parts").mkdir()
    save_checkpoint(begun, checkpoint_path(begun.task, tmp_path / "parts"))
    again = trained(task("black-box", epochs=3), tmp_path / "parts")
    assert losses(again) == losses(whole)
    for one, other in zip(whole.model.state_dict().values(), again.model.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_a_network_for_other_plans_has_another_checkpoint(tmp_path: Path) -> None:
    trained(task("black-box", epochs=1), tmp_path)
    other = trained(replace(task("black-box", epochs=1), plans=PLANS[:1]), tmp_path)
    assert set(objective_of(other).shares) == {PLANS[0]}
    assert len(list(tmp_path.glob("*.pt"))) == 2
    with pytest.raises(LdpSlicingError, match="plans belong to the loss"):
        replace(task("black-box"), plans=())


def test_sheets_of_a_pruned_white_box_show_the_low_band() -> None:
    sources = torch.arange(15, dtype=torch.uint8).view(1, 1, 3, 5)
    band = low_band_of(sources)
    assert band.shape == sources.shape
    assert band[0, 0, :2, :2].unique().tolist() == [3.0]  # the mean of 0, 1, 5 and 6
    assert band[0, 0, 2, 4] == 14  # the corner is paired with itself
    pruned = view_of(sources[..., :2, :4], "haar")
    torch.testing.assert_close(low_band_of(pruned), torch.full_like(pruned, 128))  # nothing of it is left
    examples = {5.2: (sources, sources)}
    one = example_columns(sources, sources, examples, "eps", low_band=True)
    assert list(one) == ["source,\nview,\nlow band", "eps 5.2: release,\nreconstruction,\nlow band recovered"]
    assert torch.equal(one["source,\nview,\nlow band"][2:], band)
    two = sources.expand(2, -1, -1, -1)
    several = example_columns(two, two, {5.2: (two, two)}, "eps", low_band=True)
    sources_and_attack = ["source", "view", "low band", "eps 5.2\nrelease", "eps 5.2\nattack"]
    assert list(several) == [*sources_and_attack, "eps 5.2\nlow band\nrecovered"]
    assert len(example_columns(two, two, {5.2: (two, two)}, "eps")) == 4
