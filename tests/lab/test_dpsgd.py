from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from scipy.stats import norm
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.learners import dpsgd
from ldp_slicing.lab.learners.checkpoint import load_checkpoint, save_checkpoint
from ldp_slicing.lab.learners.dpsgd import RECIPE, DpSgdRecipe, Schedule, Stack
from ldp_slicing.lab.learners.scattering import scatter
from ldp_slicing.lab.rows import Row
from ldp_slicing.plan import BUDGETS

CPU = torch.device("cpu")
ROWS = np.random.default_rng(5).normal(size=(48, 6, 1)).astype(np.float16)
RECIPE_OF_40 = replace(RECIPE, epochs=3, batch=10, statistics_noise=0.0)  # 12 steps on 40 examples
TINY = replace(
    RECIPE, epochs=6, batch=32, statistics_clips=(1e-3, 1e-3)
)  # with so few images the noise would drown them


def halves(count: int = 96, size: int = 16) -> ImageSet:
    """Two classes that differ in the brightness of their upper halves, and a test set of other pictures."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    images = rng.integers(100, 156, (count, size, size, 3), dtype=np.uint8)
    images[labels == 1, : size // 2] += 90
    splits = [Split(images[part], labels[part].astype(np.int64)) for part in (slice(0, 64), slice(64, None))]
    return ImageSet("halves", 2, *splits)


# --- scattering


def test_81_channels_at_a_quarter_of_the_size() -> None:
    assert scatter(torch.rand(2, 32, 32)).shape == (2, 81, 8, 8)
    assert scatter(torch.rand(3, 16, 16)).shape == (3, 81, 4, 4)


def test_a_constant_image_has_only_order_0() -> None:
    found = scatter(torch.full((1, 32, 32), 0.7))[0]
    assert torch.allclose(found[0], torch.tensor(0.7))
    assert found[1:].abs().max() < 1e-6


@pytest.mark.parametrize("scale", [0, 1])
@pytest.mark.parametrize("turn", range(8))
def test_each_first_order_path_responds_most_to_its_own_wave(scale: int, turn: int) -> None:
    row, column = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    angle, frequency = (3 - turn) * math.pi / 8, 0.75 * math.pi / 2**scale
    wave = torch.cos(frequency * (row * math.cos(angle) + column * math.sin(angle)))
    answers = scatter(wave[None])[0, 1:17, 2:6, 2:6].mean((1, 2))
    assert answers.argmax() == 8 * scale + turn


@pytest.mark.parametrize(
    ("scale", "path", "tolerance"), [(0, 1, 1e-4), (1, 9, 0.02)]
)  # scale 1 is averaged over every second pixel
def test_a_path_is_the_wavelets_modulus_averaged_in_space(scale: int, path: int, tolerance: float) -> None:
    """Order 1 by the formulas in space, far from the borders: no Fourier transform, no wrapping."""
    plane = torch.rand(64, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64).numpy()
    sigma, frequency, angle = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, 3 * math.pi / 8
    far = np.arange(-14, 15)
    along = math.cos(angle) * far[:, None] + math.sin(angle) * far
    across = -math.sin(angle) * far[:, None] + math.cos(angle) * far
    envelope = np.exp(-(along**2 + across**2 / 4) / (2 * sigma**2)) / (4 * math.pi * sigma**2)
    wave = envelope * np.exp(1j * frequency * along)
    wavelet = (wave - envelope * wave.sum() / envelope.sum())[::-1, ::-1]
    expected = 0.0
    for row in range(24, 41):
        for column in range(24, 41):
            modulus = abs((plane[row - 14 : row + 15, column - 14 : column + 15] * wavelet).sum())
            expected += (
                modulus * math.exp(-((row - 32) ** 2 + (column - 32) ** 2) / (2 * 1.6**2)) / (2 * math.pi * 1.6**2)
            )
    assert scatter(torch.from_numpy(plane).float()[None])[0, path, 8, 8].item() == pytest.approx(
        expected, rel=tolerance
    )


def test_scattering_is_nonexpansive_and_stable_to_shifts() -> None:
    """A coefficient covers 16 pixels. A shift by one pixel changes the features far less than the pixels."""
    generator = torch.Generator().manual_seed(0)
    images, others = torch.rand(2, 8, 32, 32, generator=generator)
    distance = 4 * (scatter(images) - scatter(others)).flatten(1).norm(dim=1)
    assert (distance <= (images - others).flatten(1).norm(dim=1)).all()
    centred = images - images.mean((1, 2), keepdim=True)
    shifted = centred.roll(1, 2)

    def moved(before: Tensor, after: Tensor) -> Tensor:
        return ((after - before).flatten(1).norm(dim=1) / before.flatten(1).norm(dim=1)).max()

    assert moved(scatter(centred), scatter(shifted)) < 0.35 * moved(centred, shifted)


# --- features


def test_features_are_scattering_image_by_image() -> None:
    images = halves().train.images[:4]
    found = dpsgd.features(images, RECIPE, CPU)
    assert (found.shape, found.dtype) == ((4, 3 * 81, 16), np.float16)
    green = scatter(torch.from_numpy(images[2:3, :, :, 1]) / 63.75 - 2)[0].flatten(1)
    for path, gain in ((0, 1), (5, 16), (12, 8), (40, 128)):
        assert np.allclose(found[2, 81 + path], gain * green[path], rtol=2e-3, atol=1e-3)
    assert np.allclose(dpsgd.features(images[2:3], RECIPE, CPU)[0], found[2], rtol=2e-3, atol=1e-4)


def test_the_feature_file_is_made_once_for_the_same_images_and_scaling(tmp_path: Path) -> None:
    data, said = halves(), list[str]()
    threads = torch.get_num_threads()
    rows = dpsgd.feature_file(data, tmp_path, RECIPE, CPU, said.append)
    assert torch.get_num_threads() == threads
    assert rows.shape == (96, 3 * 81, 16)
    assert np.allclose(rows[64:66], dpsgd.features(data.test.images[:2], RECIPE, CPU), rtol=2e-3, atol=1e-4)
    assert np.array_equal(dpsgd.feature_file(data, tmp_path, RECIPE, CPU, said.append), rows)
    assert len(said) == 1
    dpsgd.feature_file(data, tmp_path, replace(RECIPE, mean=(0.4, 0.4, 0.4)), CPU, said.append)
    dpsgd.feature_file(replace(data, test=data.train), tmp_path, RECIPE, CPU, said.append)
    assert len(said) == len(list(tmp_path.iterdir())) == 3


def test_statistics_without_noise_are_the_channels_own() -> None:
    rows = np.random.default_rng(3).normal([[[1.0], [-2.0]]], [[[0.5], [3.0]]], (600, 2, 4)).astype(np.float16)
    plain = replace(RECIPE, statistics_noise=0.0, statistics_clips=(1e6, 1e6))
    mean, deviation = dpsgd.statistics(rows, plain, torch.Generator())
    assert np.allclose(mean, rows.mean((0, 2), dtype=np.float64), atol=1e-4)
    assert np.allclose(deviation, rows.std((0, 2), dtype=np.float64), atol=1e-3)


def test_one_image_moves_the_statistics_by_no_more_than_the_clips() -> None:
    """Their noise is a multiple of this: an image with the largest float16 values moves the sums by the clips."""
    rows = np.random.default_rng(3).normal(size=(300, 5, 4)).astype(np.float16)
    silent = replace(RECIPE, statistics_noise=0.0)
    more = np.concatenate([rows, np.full((1, 5, 4), 6e4, np.float16)])
    (mean, deviation), (mean_more, deviation_more) = (
        dpsgd.statistics(both, silent, torch.Generator()) for both in (rows, more)
    )
    assert (301 * mean_more - 300 * mean).norm().item() == pytest.approx(16.0, rel=1e-3)
    squares = [
        len(both) * (d.square() + m.square())
        for both, m, d in ((rows, mean, deviation), (more, mean_more, deviation_more))
    ]
    assert (squares[1] - squares[0]).norm().item() == pytest.approx(64.0, rel=1e-3)


def test_the_noise_of_the_statistics_is_what_was_accounted_for() -> None:
    rows = np.zeros((10, 20_000, 1), np.float16)
    mean, deviation = dpsgd.statistics(rows, RECIPE, torch.Generator().manual_seed(1))
    assert mean.std().item() == pytest.approx(60 * 16 / 10, rel=0.03)
    square = deviation.square() + mean.square()  # of those that are above the floor
    assert square[deviation > 0.11].max() > 60 * 64 / 10
    assert deviation.min() == pytest.approx(0.1)


# --- accounting


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_noise_spends_the_budget_and_no_more(budget: float) -> None:
    schedule = Schedule.of(RECIPE, 50_000)
    assert (schedule.rate, schedule.steps, schedule.delta) == (0.16384, 366, 1e-10)
    assert 0.99 * budget <= schedule.epsilon(schedule.noise(budget)) <= budget


def test_both_releases_of_statistics_are_accounted_for() -> None:
    """Two Gaussian releases are one with noise smaller by the square root of 2."""
    statistics_alone, one_step_alone = Schedule(1.0, 1, 1e-10, 4.0), Schedule(1.0, 1, 1e-10, 1e9)
    assert statistics_alone.epsilon(1e9) == pytest.approx(one_step_alone.epsilon(4 / math.sqrt(2)))


def test_a_budget_below_what_the_statistics_cost_is_refused() -> None:
    with pytest.raises(LdpSlicingError, match=r"eps 0\.1 is less"):
        replace(Schedule.of(RECIPE, 50_000), statistics_noise=5.0).noise(0.1)


@pytest.mark.parametrize("noise", [1.0, 4.0, 20.0])
def test_one_step_on_everything_is_the_gaussian_mechanism(noise: float) -> None:
    """Whose delta is known exactly (Balle and Wang 2018): the accountant's eps is enough for it, and not far off."""
    epsilon = Schedule(1.0, 1, 1e-10, 1e9).epsilon(noise)

    def delta(eps: float) -> float:
        half, shift = 1 / (2 * noise), eps * noise
        return float(norm.cdf(half - shift) - math.exp(eps) * norm.cdf(-half - shift))

    assert delta(epsilon) <= 1e-10 < delta(0.9 * epsilon)


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(LdpSlicingError, match=r"batch of 8192 cannot be sampled from 64"):
        Schedule.of(RECIPE, 64)


def test_poisson_samples_vary_in_size_and_take_each_example_at_the_rate() -> None:
    generator = torch.Generator().manual_seed(3)
    drawn = [dpsgd.poisson_sample(1000, 0.2, generator) for _ in range(1000)]
    sizes = np.array([len(sample) for sample in drawn])
    assert abs(sizes.mean() - 200) < 5 * math.sqrt(160 / 1000)
    assert 130 < sizes.var() < 190  # 1000 x 0.2 x 0.8 = 160; shuffled batches would have 0
    counts = np.bincount(np.concatenate(drawn), minlength=1000)
    assert np.abs(counts - 200).max() < 6 * math.sqrt(160)


# --- learning


def stack(recipe: DpSgdRecipe, noises: Mapping[int, float], *, seed: int = 0, rows: np.ndarray = ROWS) -> Stack:
    """40 training and 8 test rows in 3 classes."""
    labels = np.random.default_rng(6).integers(0, 3, 48)
    blank = np.zeros((48, 4, 4, 3), np.uint8)
    data = ImageSet("rows", 3, *(Split(blank[part], labels[part]) for part in (slice(0, 40), slice(40, None))))
    return Stack(rows, data, noises, recipe, seed=seed, device=CPU)


def to_the_end(one: Stack) -> Stack:
    while not one.finished:
        one.advance()
    return one


@pytest.mark.parametrize("clip", [0.1, 1.0, 100.0])
def test_clipping_without_writing_gradients_out_is_opacus_clipping(clip: float) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(12, 6, generator=generator, requires_grad=True), torch.arange(12) % 3
    found = []
    for _ in range(2):
        weights, bias = torch.randn(6, 3, generator=generator), torch.randn(3, generator=generator)
        errors = (inputs @ weights + bias).softmax(1) - functional.one_hot(labels, 3)
        layer = GradSampleModule(nn.Linear(6, 3), loss_reduction="sum")
        with torch.no_grad():
            for parameter, value in zip(layer.parameters(), (weights.T, bias), strict=True):
                parameter.copy_(value)
        functional.cross_entropy(layer(inputs), labels, reduction="sum").backward()
        gradients = [parameter.grad_sample for parameter in layer.parameters()]
        lengths = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
        factors = (clip / lengths).clamp(max=1)
        expected = [torch.einsum("b,b...->...", factors, gradient) for gradient in gradients]
        found.append((errors, expected))
    both = dpsgd.clipped_sum(inputs, torch.stack([errors for errors, _ in found], 1), clip)
    for at, (_, (weight, bias)) in enumerate(found):
        assert torch.allclose(both[0][:, 3 * at : 3 * at + 3], weight.T, atol=1e-5)
        assert torch.allclose(both[1][3 * at : 3 * at + 3], bias, atol=1e-5)


def test_without_noise_and_sampling_the_steps_are_those_of_opacus_optimiser() -> None:
    """Every example in every batch: five steps equal those of Opacus, with momentum and expected batch size."""
    recipe = replace(RECIPE, epochs=5, batch=40, clip=0.5, statistics_noise=0.0)
    ours = to_the_end(stack(recipe, {2: 0.0, 3: 0.0}))
    layer = GradSampleModule(nn.Linear(6, 3), loss_reduction="mean")
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    inner = torch.optim.SGD(layer.parameters(), recipe.learning_rate, recipe.momentum)
    theirs = DPOptimizer(inner, noise_multiplier=0.0, max_grad_norm=recipe.clip, expected_batch_size=40)
    inputs, iterates = ours._outputs(np.arange(40), ours.weights)[0].requires_grad_(), []
    for _ in range(5):
        theirs.zero_grad()
        functional.cross_entropy(layer(inputs), ours.labels[:40]).backward()
        theirs.step()
        iterates.append([parameter.detach().clone() for parameter in layer.parameters()])
    for at in (slice(0, 3), slice(3, 6)):
        assert torch.allclose(ours.weights[0][:, at], iterates[-1][0].T, rtol=1e-3, atol=1e-5)
        assert torch.allclose(ours.weights[1][at], iterates[-1][1], rtol=1e-3, atol=1e-5)
        averaged = torch.stack([weight for weight, _ in iterates[2:]]).mean(
            0
        )  # the last half, from step round(2.5) = 2 on
        assert torch.allclose(ours.means[0][:, at], averaged.T, rtol=1e-3, atol=1e-5)


def test_the_noise_has_the_deviation_that_was_accounted_for() -> None:
    """Rows of zeros have a gradient for the bias only: after one step the weights are noise of a known deviation."""
    recipe = replace(RECIPE, epochs=1, batch=20, learning_rate=20.0, learning_rate_at_noise_1=1e9, statistics_noise=0.0)
    width = 4000
    one = stack(recipe, {2: 2.0, 3: 10.0, 4: 0.0}, rows=np.zeros((48, width, 1), np.float16))
    one.advance()
    first, second, none = one.weights[0].split(3, 1)
    for drawn, expected in ((first, 0.2), (second, 1.0)):
        assert drawn.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * 3 * width))
        assert abs(drawn.mean().item()) < 5 * expected / math.sqrt(3 * width)
    assert not none.any()
    assert abs(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1]) < 5 / math.sqrt(3 * width)


def test_the_learning_rate_falls_with_the_noise_and_is_each_models_own() -> None:
    assert RECIPE.learning_rate_for(0.0) == RECIPE.learning_rate_for(0.1) == 16.0
    assert RECIPE.learning_rate_for(8.0) == pytest.approx(3.0)
    both = stack(RECIPE_OF_40, {2: 0.0, 3: 8.0})
    assert both.rates.tolist() == pytest.approx([16.0] * 3 + [3.0] * 3)


def test_a_model_does_not_depend_on_the_others_of_its_stack() -> None:
    together, alone = (to_the_end(stack(RECIPE_OF_40, noises, seed=4)) for noises in ({100: 3.0, 200: 1.0}, {200: 1.0}))
    other = to_the_end(stack(RECIPE_OF_40, {200: 1.0}, seed=5))
    assert torch.allclose(together.weights[0][:, 3:], alone.weights[0], atol=1e-5)
    assert not torch.allclose(other.weights[0], alone.weights[0], atol=1e-2)


def test_a_resumed_stack_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, halted, resumed = (stack(RECIPE_OF_40, {2: 1.0, 3: 0.5}) for _ in range(3))
    to_the_end(whole)
    for _ in range(5):
        halted.advance()
    save_checkpoint(halted, tmp_path / "x.pt")
    load_checkpoint(resumed, tmp_path / "x.pt")
    assert resumed.step == 5
    assert resumed.seconds == halted.seconds > 0
    to_the_end(resumed)
    for ours, theirs in zip([*whole.weights, *whole.means], [*resumed.weights, *resumed.means], strict=True):
        assert torch.equal(ours, theirs)
    assert whole.accuracies(whole.means) == resumed.accuracies(resumed.means)


def measured(work: Path, budgets: Sequence[float] = (20.0,), *, done: Sequence[Row] = (), **options: Any) -> list[Row]:
    rows = [row for row in dpsgd.rows_of("halves", budgets, (0, 1)) if row.label not in {one.label for one in done}]
    return list(dpsgd.measure(halves(), work, recipe=TINY, rows=rows, device=CPU, say=lambda _: None, **options))


def test_rows_record_the_mechanism_and_its_parameters(tmp_path: Path) -> None:
    rows = measured(tmp_path, (1.0, 58.0))
    assert [(row.method, row.epsilon, row.seed) for row in rows] == [
        (method, eps, seed)
        for seed in (0, 1)
        for method, eps in (("dp-sgd", 1.0), ("dp-sgd", 58.0), ("no-noise", None))
    ]
    assert [Row.from_dict(json.loads(json.dumps(row.to_dict()))) for row in rows] == rows
    strict, loose, without = (row.metrics for row in rows[:3])
    assert 0.99 < strict["epsilon_realised"] <= 1.0
    assert 57.5 < loose["epsilon_realised"] <= 58.0
    assert strict["noise_multiplier"] > loose["noise_multiplier"] > without["noise_multiplier"] == 0.0
    assert without["delta"] is without["epsilon_realised"] is None
    assert (strict["sampling_rate"], strict["steps"], strict["delta"]) == (0.5, 12, 1e-10)
    assert without["test_accuracy"] == without["test_accuracy_last_iterate"] == 1.0
    assert all(row.finished for row in rows)
    (again,) = measured(tmp_path, (1.0, 58.0), done=[row for row in rows if row is not rows[3]])
    assert replace(again, seconds=0, metrics={**again.metrics, "models_at_once": 3}) == replace(rows[3], seconds=0)


def test_rows_are_unfinished_when_the_time_is_up_and_the_next_call_resumes(tmp_path: Path) -> None:
    clock = iter(range(100))
    halted = measured(tmp_path, time_is_up=lambda: next(clock) >= 7)
    assert [(row.seed, row.finished, row.metrics["steps_done"]) for row in halted] == [(0, False, 7)] * 2
    assert not any("test_accuracy" in row.metrics for row in halted)
    rows = measured(tmp_path)
    assert rows[0].seconds is not None
    assert halted[0].seconds is not None
    assert rows[0].seconds > halted[0].seconds
    elsewhere = measured(tmp_path / "elsewhere")
    assert [row.metrics["test_accuracy"] for row in rows] == [row.metrics["test_accuracy"] for row in elsewhere]
