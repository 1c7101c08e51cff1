from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from scipy.stats import norm
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab import dpsgd
from ldp_slicing.lab.data import ImageSet, Split
from ldp_slicing.lab.dpsgd import RECIPE, DpSgdRecipe, Schedule, Stack
from ldp_slicing.lab.scattering import scatter

CPU = torch.device("cpu")
TINY = replace(RECIPE, epochs=6, batch=32)


def halves(count: int = 96, size: int = 16) -> ImageSet:
    """Two classes that differ in the brightness of their upper halves, and a test set of other pictures."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    images = rng.integers(100, 156, (count, size, size, 3), dtype=np.uint8)
    images[labels == 1, : size // 2] += 90
    splits = [Split(images[part], labels[part].astype(np.int64)) for part in (slice(0, 64), slice(64, None))]
    return ImageSet("halves", 2, *splits)


def never(_run: str, _seed: int) -> bool:
    return False


def silent(_line: str) -> None:
    pass


# --- scattering


def test_81_channels_at_a_quarter_of_the_size() -> None:
    assert scatter(torch.rand(2, 32, 32)).shape == (2, 81, 8, 8)
    assert scatter(torch.rand(3, 16, 16)).shape == (3, 81, 4, 4)


def test_a_constant_is_all_in_order_0() -> None:
    found = scatter(torch.full((1, 32, 32), 0.7))[0]
    assert torch.allclose(found[0], torch.tensor(0.7))
    assert found[1:].abs().max() < 1e-6


@pytest.mark.parametrize("scale", [0, 1])
@pytest.mark.parametrize("turn", range(8))
def test_each_first_order_path_answers_best_to_its_own_wave(scale: int, turn: int) -> None:
    row, column = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    angle, frequency = (3 - turn) * math.pi / 8, 0.75 * math.pi / 2**scale
    wave = torch.cos(frequency * (row * math.cos(angle) + column * math.sin(angle)))
    answers = scatter(wave[None])[0, 1:17, 2:6, 2:6].mean((1, 2))
    assert answers.argmax() == 8 * scale + turn


def test_a_path_is_the_wavelets_modulus_averaged_in_space() -> None:
    """Order 1 by the formulas in space, far from the borders: no Fourier transform, no wrapping."""
    plane = torch.rand(64, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64).numpy()
    sigma, frequency, angle = 0.8, 0.75 * math.pi, 3 * math.pi / 8  # scale 0, turn 0
    far = np.arange(-8, 9)
    along = math.cos(angle) * far[:, None] + math.sin(angle) * far
    across = -math.sin(angle) * far[:, None] + math.cos(angle) * far
    envelope = np.exp(-(along**2 + across**2 / 4) / (2 * sigma**2)) / (4 * math.pi * sigma**2)
    wave = envelope * np.exp(1j * frequency * along)
    wavelet = wave - envelope * wave.sum() / envelope.sum()
    gaussian = np.exp(-(far[:, None] ** 2 + far**2) / (2 * 1.6**2)) / (2 * math.pi * 1.6**2)

    def at(values: np.ndarray, row: int, column: int, kernel: np.ndarray) -> complex:
        return complex((values[row - 8 : row + 9, column - 8 : column + 9][::-1, ::-1] * kernel).sum())

    modulus = np.zeros((64, 64))
    for row in range(20, 45):
        for column in range(20, 45):
            modulus[row, column] = abs(at(plane, row, column, wavelet))
    expected = at(modulus, 32, 32, gaussian).real
    assert scatter(torch.from_numpy(plane).float()[None])[0, 1, 8, 8].item() == pytest.approx(expected, rel=1e-4)


def test_scattering_never_stretches_and_hardly_minds_a_shift() -> None:
    """A coefficient stands for 16 pixels. Distances shrink; a shift by a pixel moves the features far less than the pixels."""
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


def test_features_are_normalised_image_by_image() -> None:
    images = np.random.default_rng(2).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
    found = dpsgd.features(images, 27, CPU)
    assert (found.shape, found.dtype) == ((4, 3 * 81 * 16), np.float16)
    groups = found.astype(np.float64).reshape(4, 27, -1)
    assert np.abs(groups.mean(2)).max() < 1e-3
    assert ((groups.std(2) > 0.85) & (groups.std(2) < 1.001)).all()
    assert np.allclose(dpsgd.features(images[2:3], 27, CPU)[0], found[2], atol=2e-3)


def test_the_feature_file_is_made_once_for_the_same_images_and_groups(tmp_path: Path) -> None:
    data, said = halves(), list[str]()
    threads = torch.get_num_threads()
    rows = dpsgd.feature_file(data, tmp_path, 27, CPU, said.append)
    assert torch.get_num_threads() == threads
    assert rows.shape == (96, 3 * 81 * 16)
    assert np.allclose(rows[64:66], dpsgd.features(data.test.images[:2], 27, CPU), atol=2e-3)
    assert np.array_equal(dpsgd.feature_file(data, tmp_path, 27, CPU, said.append), rows)
    assert len(said) == 1
    dpsgd.feature_file(data, tmp_path, 9, CPU, said.append)
    dpsgd.feature_file(replace(data, test=data.train), tmp_path, 27, CPU, said.append)
    assert len(said) == len(list(tmp_path.iterdir())) == 3


# --- accounting


@pytest.mark.parametrize("budget", dpsgd.BUDGETS)
def test_the_noise_spends_the_budget_and_no_more(budget: float) -> None:
    schedule = Schedule.of(RECIPE, 50_000)
    assert (schedule.rate, schedule.steps, schedule.delta) == (0.16384, 366, 1e-10)
    assert 0.999 * budget <= schedule.epsilon(schedule.noise(budget)) <= budget


@pytest.mark.parametrize("noise", [1.0, 4.0, 20.0])
def test_one_step_on_everything_is_the_gaussian_mechanism(noise: float) -> None:
    """Whose delta is known exactly (Balle and Wang 2018): the accountant's eps is enough for it, and not far off."""
    epsilon = Schedule(1.0, 1, 1e-10).epsilon(noise)

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


def stack(recipe: DpSgdRecipe, noises: Sequence[float], *, scale: float = 1.0) -> Stack:
    """On 40 training and 8 test rows of 6 numbers in 3 classes."""
    rng = np.random.default_rng(5)
    rows = (scale * rng.normal(size=(48, 6))).astype(np.float16)
    labels = rng.integers(0, 3, 48)
    blank = np.zeros((48, 4, 4, 1), np.uint8)
    data = ImageSet("rows", 3, *(Split(blank[part], labels[part]) for part in (slice(0, 40), slice(40, None))))
    return Stack(rows, data, noises, recipe, CPU)


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
    """Every example in every batch: five steps of ours beside five of Opacus's engine, momentum and expected batch size included."""
    recipe = replace(RECIPE, epochs=5, batch=40, clip=0.5)
    ours = stack(recipe, [0.0, 0.0])
    ours.train(0, [1, 2])
    layer = GradSampleModule(nn.Linear(6, 3), loss_reduction="mean")
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    inner = torch.optim.SGD(layer.parameters(), recipe.learning_rate, recipe.momentum)
    theirs = DPOptimizer(inner, noise_multiplier=0.0, max_grad_norm=recipe.clip, expected_batch_size=40)
    inputs, iterates = torch.from_numpy(ours.rows[:40]).float().requires_grad_(), []
    for _ in range(5):
        theirs.zero_grad()
        functional.cross_entropy(layer(inputs), ours.labels[:40]).backward()
        theirs.step()
        iterates.append([parameter.detach().clone() for parameter in layer.parameters()])
    for at in (slice(0, 3), slice(3, 6)):
        assert torch.allclose(ours.models[0][:, at], iterates[-1][0].T, rtol=1e-3, atol=1e-5)
        assert torch.allclose(ours.models[1][at], iterates[-1][1], rtol=1e-3, atol=1e-5)
        averaged = torch.stack([weight for weight, _ in iterates[2:]]).mean(0)  # the last half, from step round(2.5) = 2 on
        assert torch.allclose(ours.totals[0][:, at], averaged.T, rtol=1e-3, atol=1e-5)


def test_the_noise_has_the_deviation_that_was_accounted_for() -> None:
    """Rows of zeros have no gradient but for the bias: after one step the weights are noise, of deviation noise x clip / batch x rate."""
    recipe = replace(RECIPE, epochs=1, batch=40, learning_rate=40.0, clip=0.1)
    width = 4000
    one = stack(recipe, [2.0, 10.0, 0.0], scale=0.0)
    one.rows = np.zeros((48, width), np.float16)
    one.models[0], one.momenta[0], one.totals[0] = (torch.zeros(width, 9) for _ in range(3))
    one.train(0, [1, 2, 3])
    first, second, silent_one = one.models[0].split(3, 1)
    for drawn, expected in ((first, 0.2), (second, 1.0)):
        assert drawn.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * 3 * width))
        assert abs(drawn.mean().item()) < 5 * expected / math.sqrt(3 * width)
    assert not silent_one.any()
    assert abs(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1]) < 5 / math.sqrt(3 * width)


def test_a_model_does_not_depend_on_who_learns_beside_it() -> None:
    recipe = replace(RECIPE, epochs=3, batch=10)
    together, alone, other = stack(recipe, [3.0, 1.0]), stack(recipe, [1.0]), stack(recipe, [1.0])
    together.train(4, [100, 200])
    alone.train(4, [200])
    other.train(5, [200])
    assert torch.allclose(together.models[0][:, 3:], alone.models[0], atol=1e-5)
    assert not torch.allclose(other.models[0], alone.models[0], atol=1e-2)


def test_rows_hold_all_that_was_done_and_what_is_done_is_skipped(tmp_path: Path) -> None:
    data = halves()
    rows = list(dpsgd.measure(data, tmp_path, recipe=TINY, budgets=(1.0, 58.0), seeds=(0, 1), device=CPU, is_done=never, say=silent))
    assert [(row["run"], row["seed"]) for row in rows] == [
        (run, seed) for seed in (0, 1) for run in ("halves-eps1", "halves-eps58", "halves-no-noise")
    ]
    assert json.loads(json.dumps(rows)) == rows
    strict, loose, without = rows[:3]
    assert 0.999 < strict["epsilon_realised"] <= 1.0
    assert 57.9 < loose["epsilon_realised"] <= 58.0
    assert strict["noise_multiplier"] > loose["noise_multiplier"] > without["noise_multiplier"] == 0.0
    assert without["epsilon_requested"] is without["epsilon_realised"] is None
    assert (strict["sampling_rate"], strict["steps"], strict["delta"]) == (0.5, 12, 1e-10)
    assert "whole training image" in strict["epsilon_unit"]
    assert "not comparable" in strict["epsilon_unit"]
    assert without["accuracy"] == without["accuracy_last_iterate"] == 1.0

    def all_but_one(run: str, seed: int) -> bool:
        return (run, seed) != ("halves-eps1", 1)

    (again,) = dpsgd.measure(data, tmp_path, recipe=TINY, budgets=(1.0, 58.0), seeds=(0, 1), device=CPU, is_done=all_but_one, say=silent)
    assert {**again, "wall_seconds": 0, "models_side_by_side": 3} == {**rows[3], "wall_seconds": 0}
