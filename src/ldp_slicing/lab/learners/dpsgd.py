"""DP-SGD: in the central model a trusted curator sees every source and releases only a noisy model.

Its eps is for a **whole image** (added or removed) and needs that trust. The eps of a plan is for **one released
pixel** and needs no trust. The two numbers are not comparable. The recipe is Tramèr and Boneh's (ICLR 2021): a linear
model on scattering features.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.files import atomic_path
from ldp_slicing.lab.data.sets import ImageSet
from ldp_slicing.lab.learners.checkpoint import load_checkpoint, save_checkpoint
from ldp_slicing.lab.learners.recipes import Recipe
from ldp_slicing.lab.learners.scattering import scatter
from ldp_slicing.lab.rows import Row

ORDERS = [
    1.25,
    1.5,
    1.75,
    2,
    2.5,
    *range(3, 64),
    64,
    96,
    128,
    192,
    256,
    384,
    512,
]  # of Rényi; more of them gain less than 1 %
GAINS = (
    [1.0] + [16.0] * 8 + [8.0] * 8 + [128.0] * 64
)  # of the 81 paths: powers of two that bring CIFAR-100's to deviations about 1
LEAST_VARIANCE = 0.01  # where noise leaves less
ROWS = 256  # examples that are multiplied at once: few, so that they stay in the cache


@dataclass(frozen=True)
class DpSgdRecipe(Recipe):
    """Momentum SGD on a linear model. The noisy sum is divided by ``batch``, the expected size of a Poisson sample."""

    clip: float = 0.1  # the largest norm of an example's gradient
    statistics_noise: float = 60.0  # the multiplier for the releases of the channels' means and of their mean squares
    statistics_clips: tuple[float, float] = (16.0, 64.0)  # the largest norms of an image's means and mean squares
    averaged: float = 0.5  # the share of the last steps whose mean iterate is the model; this costs no privacy
    learning_rate_at_noise_1: float = 12.0
    delta: float = 1e-10

    def learning_rate_for(self, noise: float) -> float:
        """A smaller rate for more noise, at most ``learning_rate``."""
        if not noise:
            return self.learning_rate
        return float(min(self.learning_rate, self.learning_rate_at_noise_1 * noise ** (-2 / 3)))


RECIPE = DpSgdRecipe(
    name="scatter-linear",
    source="Tramèr and Boneh, Differentially Private Learning Needs Better Features (ICLR 2021)",
    deviations=(
        "the data are normalised by noisy statistics with constant clips, accounted for; theirs depend on the data",
        "batches are Poisson samples, as the accountant assumes; their published code shuffles batches of this size",
        "delta 1e-10 instead of 1e-5",
        "the learning rate is 12 x noise^(-2/3), at most 16 (they search 2 to 16 at this batch): a rule for all "
        "budgets, chosen on 5,000 training images held out in an earlier run; that choice is not accounted for",
        "the model is the mean of the iterates of the last half; weights begin at zero",
        "pixels are scaled to -2..2, not by ImageNet's mean and deviation; powers of two equalise the paths",
    ),
    model="linear on scattering features (J = 2, L = 8, order 2)",
    epochs=60,
    batch=8192,
    learning_rate=16.0,
    weight_decay=0.0,
    mean=(0.5, 0.5, 0.5),
    std=(0.25, 0.25, 0.25),
)


@dataclass(frozen=True)
class Schedule:
    """What the accountant must know about a run, apart from the noise."""

    rate: float
    steps: int
    delta: float
    statistics_noise: float

    @staticmethod
    def of(recipe: DpSgdRecipe, examples: int) -> Schedule:
        if recipe.batch > examples:
            raise LdpSlicingError(
                f"a batch of {recipe.batch} cannot be sampled from {examples} examples: use a smaller batch"
            )
        return Schedule(
            recipe.batch / examples,
            round(recipe.epochs * examples / recipe.batch),
            recipe.delta,
            recipe.statistics_noise,
        )

    def epsilon(self, noise: float) -> float:
        """The eps of a run with this noise multiplier, by Opacus's Rényi accountant: all steps and both statistics."""
        from opacus.accountants import RDPAccountant  # type: ignore[import-untyped] # only DP-SGD needs it

        accountant = RDPAccountant()
        accountant.history = [(noise, self.rate, self.steps), (self.statistics_noise, 1.0, 2)]
        return float(accountant.get_epsilon(self.delta, alphas=ORDERS))

    def noise(self, epsilon: float) -> float:
        """The noise multiplier for a budget, rounded up: it spends at most ``epsilon``, and at least 99 % of it."""
        low, high = 0.0, 1.0
        while self.epsilon(high) > epsilon:
            low, high = high, 2 * high
            if high > 1e4:
                raise LdpSlicingError(
                    f"eps {epsilon:g} is less than the statistics cost: use a larger eps, or statistics with more noise"
                )
        while high - low > high / 2000:
            middle = (low + high) / 2
            low, high = (low, middle) if self.epsilon(middle) <= epsilon else (middle, high)
        return high


def features(images: NDArray[np.uint8], recipe: DpSgdRecipe, device: torch.device) -> NDArray[np.float16]:
    """uint8 [N, H, W, 3] to float16 [N, 3 * 81, H/4 * W/4]: scattering features, each from its own image alone."""
    mean, deviation = (torch.tensor(values, device=device) for values in (recipe.mean, recipe.std))
    planes = ((torch.from_numpy(images).to(device) / 255 - mean) / deviation).permute(0, 3, 1, 2)
    paths = scatter(planes.flatten(0, 1)).flatten(2) * torch.tensor(GAINS, device=device)[:, None]
    return np.asarray(paths.reshape(len(images), -1, paths.shape[2]).half().cpu().numpy())


def statistics(rows: NDArray[np.float16], recipe: DpSgdRecipe, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noisy means and deviations of the channels, float32 [C] each, from [N, C, P]; each image's means are clipped."""
    sums = [torch.zeros(rows.shape[1]) for _ in range(2)]
    for start in range(0, len(rows), ROWS):
        inputs = torch.from_numpy(rows[start : start + ROWS].astype(np.float32))
        for total, own, clip in zip(
            sums, (inputs.mean(2), inputs.square().mean(2)), recipe.statistics_clips, strict=True
        ):
            total += (own * (clip / own.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
    for total, clip in zip(sums, recipe.statistics_clips, strict=True):
        total += recipe.statistics_noise * clip * torch.randn(len(total), generator=generator)
    mean, square = (total / len(rows) for total in sums)
    return mean, (square - mean.square()).clamp(min=LEAST_VARIANCE).sqrt()


def _write_features(path: Path, images: NDArray[np.uint8], recipe: DpSgdRecipe, device: torch.device) -> None:
    shape = (len(images), *features(images[:1], recipe, device).shape[1:])
    rows = np.lib.format.open_memmap(path, "w+", np.float16, shape)
    block = 8 if device.type == "cpu" else 512

    def fill(start: int) -> None:
        rows[start : start + block] = features(images[start : start + block], recipe, device)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # planes are too small to share between threads
    try:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(fill, range(0, len(images), block)):
                pass
    finally:
        torch.set_num_threads(threads)
    rows.flush()


def feature_file(
    data: ImageSet, work: Path, recipe: DpSgdRecipe, device: torch.device, say: Callable[[str], None]
) -> NDArray[np.float16]:
    """Features of the training set, then of the test set, memory-mapped from a file in ``work``."""
    images = np.concatenate([data.train.images, data.test.images])
    name = f"scattering-{_digest(images.shape, hashlib.sha256(images.data).digest(), recipe.mean, recipe.std)}"
    path = work / f"{name}.npy"
    if not path.is_file():
        say(f"scattering features of {len(images)} images: {path}")
        with atomic_path(path) as temporary:
            _write_features(temporary, images, recipe, device)
    return np.asarray(np.load(path, mmap_mode="r"))


def _digest(*what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def poisson_sample(examples: int, rate: float, generator: torch.Generator) -> NDArray[np.int64]:
    """The indices of a Poisson sample: each example is in it with probability ``rate``, independently of the others."""
    return np.asarray((torch.rand(examples, generator=generator, dtype=torch.float64) < rate).nonzero()[:, 0].numpy())


def clipped_sum(inputs: Tensor, errors: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """The sums of clipped gradients of M linear models: [F, M * K] for the weights, [M * K] for the biases.

    inputs: float32 [B, F]. errors: float32 [B, M, K], the derivatives of the loss by the outputs. An example's gradient
    is the outer product of its inputs (and a 1 for the bias) with its errors, so its norm is the product of both norms.
    """
    norms = (torch.linalg.vector_norm(inputs, dim=1, keepdim=True).square() + 1).sqrt() * errors.norm(dim=2)
    scaled = (errors * (clip / norms).clamp(max=1)[:, :, None]).flatten(1)
    return inputs.T @ scaled, scaled.sum(0)


class Stack:
    """M linear models that learn from the same Poisson samples, each with its own noise, in float32.

    ``seed`` determines statistics and samples; ``seed`` and a model's key determine its noise, whatever the others are.
    """

    def __init__(
        self,
        rows: NDArray[np.float16],
        data: ImageSet,
        noises: Mapping[int, float],
        recipe: DpSgdRecipe,
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        """rows: [N, C, P], the training set first. noises: each model's noise multiplier by its key, above 1."""
        self.rows, self.recipe, self.device, self.classes = rows, recipe, device, data.classes
        self.labels = torch.from_numpy(np.concatenate([data.train.labels, data.test.labels])).to(device)
        self.examples = len(data.train.labels)
        self.schedule = Schedule.of(recipe, self.examples)
        self.noises = list(noises.values())
        self.rates = torch.tensor(
            [recipe.learning_rate_for(noise) for noise in self.noises], device=device
        ).repeat_interleave(self.classes)
        seeds = [int(np.random.SeedSequence((seed, key)).generate_state(1)[0]) for key in (0, 1, *noises)]
        first, *self.generators = (
            torch.Generator().manual_seed(value) for value in seeds
        )  # of the statistics, the samples, the models
        self.mean, self.deviation = (
            found[:, None].to(device) for found in statistics(rows[: self.examples], recipe, first)
        )
        sizes = ((rows[0].size, len(self.rates)), (len(self.rates),))
        self.weights, self.momenta, self.means = (
            [torch.zeros(size, device=device) for size in sizes] for _ in range(3)
        )
        self.step, self.seconds = 0, 0.0

    @property
    def finished(self) -> bool:
        return self.step == self.schedule.steps

    def advance(self) -> bool:
        """Take one step if there is one left; return whether there was."""
        if self.finished:
            return False
        began = time.monotonic()
        first_averaged = round((1 - self.recipe.averaged) * self.schedule.steps)
        gradients = self._gradients(poisson_sample(self.examples, self.schedule.rate, self.generators[0]))
        for weights, momentum, mean, gradient in zip(self.weights, self.momenta, self.means, gradients, strict=True):
            momentum.mul_(self.recipe.momentum).add_((gradient + self._noise(weights.shape)) / self.recipe.batch)
            weights -= self.rates * momentum
            if self.step >= first_averaged:
                mean += weights / (self.schedule.steps - first_averaged)
        self.step += 1
        self.seconds += time.monotonic() - began
        return True

    def _gradients(self, chosen: NDArray[np.int64]) -> list[Tensor]:
        """The sums of clipped gradients over the chosen examples."""
        sums = [torch.zeros_like(weights) for weights in self.weights]
        for start in range(0, len(chosen), ROWS):
            at = chosen[start : start + ROWS]
            inputs, outputs = self._outputs(at, self.weights)
            errors = outputs.softmax(2) - functional.one_hot(self.labels[at], self.classes)[:, None]
            for so_far, part in zip(sums, clipped_sum(inputs, errors, self.recipe.clip), strict=True):
                so_far += part
        return sums

    def _outputs(self, at: NDArray[np.int64], models: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        inputs = torch.from_numpy(self.rows[at]).to(self.device).float().sub_(self.mean).div_(self.deviation).flatten(1)
        return inputs, (inputs @ models[0] + models[1]).view(len(at), -1, self.classes)

    def _noise(self, shape: torch.Size) -> Tensor:
        """Gaussian noise with the deviation noise x clip, for each model from its own generator."""
        part = (*shape[:-1], self.classes)
        pairs = zip(self.noises, self.generators[1:], strict=True)
        return torch.cat(
            [noise * self.recipe.clip * torch.randn(part, generator=generator) for noise, generator in pairs], -1
        ).to(self.device)

    def accuracies(self, models: Sequence[Tensor]) -> list[float]:
        """The test accuracy of each model."""
        right = torch.zeros(len(self.noises), device=self.device)
        for start in range(self.examples, len(self.rows), ROWS):
            at = np.arange(start, min(start + ROWS, len(self.rows)))
            right += (self._outputs(at, models)[1].argmax(2) == self.labels[at, None]).sum(0)
        return [count / (len(self.rows) - self.examples) for count in right.tolist()]

    def test_accuracy(self) -> list[float]:
        """The test accuracy of each model: of the mean of its last iterates."""
        return self.accuracies(self.means)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to continue."""
        return {
            "weights": self.weights,
            "momenta": self.momenta,
            "means": self.means,
            "generators": [generator.get_state() for generator in self.generators],
            "step": self.step,
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights, self.momenta, self.means = (state[name] for name in ("weights", "momenta", "means"))
        for generator, drawn in zip(self.generators, state["generators"], strict=True):
            generator.set_state(drawn.cpu())
        self.step, self.seconds = state["step"], state["seconds"]


def rows_of(dataset: str, budgets: Sequence[float], seeds: Sequence[int]) -> list[Row]:
    """A row for each seed and budget, and one without noise for the ceiling of the recipe."""
    base = Row("dp-sgd", dataset, "dp-sgd")
    private = [replace(base, options={"epsilon": eps}) for eps in budgets]
    return [replace(row, seed=seed) for seed in seeds for row in (*private, replace(base, method="no-noise"))]


def measure(
    data: ImageSet,
    work: Path,
    *,
    recipe: DpSgdRecipe,
    rows: Sequence[Row],
    device: torch.device,
    time_is_up: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = print,
) -> Iterator[Row]:
    """The rows, measured; see ``rows_of``. All budgets of a seed are trained at once.

    When the time is up, the state is saved in ``work`` and the rows are yielded unfinished.
    """
    schedule = Schedule.of(recipe, len(data.train.labels))
    noises = {eps: schedule.noise(eps) if eps else 0.0 for eps in {_epsilon(row) for row in rows}}
    work.mkdir(parents=True, exist_ok=True)
    for seed in sorted({row.seed for row in rows}):
        pending = [row for row in rows if row.seed == seed]
        features = feature_file(data, work, recipe, device, say)
        keyed = {2 + round(1000 * _epsilon(row)): noises[_epsilon(row)] for row in pending}
        stack = Stack(features, data, keyed, recipe, seed=seed, device=device)
        budgets = [_epsilon(row) for row in pending]
        checkpoint = work / f"dp-sgd-{_digest(data.name, data.digest, recipe, budgets, seed)}.pt"
        if checkpoint.is_file():
            load_checkpoint(stack, checkpoint)
        while not (stack.finished or time_is_up()):
            stack.advance()
            if stack.step % 20 == 0:
                save_checkpoint(stack, checkpoint)
                say(f"{data.name} seed {seed}: step {stack.step} of {schedule.steps}, {stack.seconds:.0f} s")
        save_checkpoint(stack, checkpoint)
        yield from _measured(stack, pending)
        if not stack.finished:
            return


def _epsilon(row: Row) -> float:
    """0 for the row without noise."""
    return float(row.options.get("epsilon", 0.0))


def _measured(stack: Stack, rows: Sequence[Row]) -> Iterator[Row]:
    schedule, recipe = stack.schedule, stack.recipe
    accuracies = (stack.accuracies(models) for models in (stack.means, stack.weights))
    for row, noise, averaged, last in zip(rows, stack.noises, *accuracies, strict=True):
        metrics: dict[str, Any] = {
            "epsilon_realised": schedule.epsilon(noise) if noise else None,
            "delta": recipe.delta if noise else None,
            "accountant": f"Rényi, Opacus {metadata.version('opacus')}",
            "noise_multiplier": noise,
            "noise_multiplier_statistics": recipe.statistics_noise,
            "sampling_rate": schedule.rate,
            "learning_rate": recipe.learning_rate_for(noise),
            "steps": schedule.steps,
            "steps_done": stack.step,
            "models_at_once": len(rows),
        }
        if stack.finished:
            metrics |= {"test_accuracy": averaged, "test_accuracy_last_iterate": last}
        described = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(recipe).items()}
        yield replace(row, finished=stack.finished, recipe=described, metrics=metrics, seconds=stack.seconds)
