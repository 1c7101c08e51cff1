"""DP-SGD, the central model's way to learn from images: a trusted curator sees every source and releases only a noisy model.

Its eps is for a **whole image** (add or remove one) and needs that trust; the eps of a plan is for **one released pixel** and needs none.
The two numbers are not comparable. The recipe is Tramèr and Boneh's (ICLR 2021): a linear model on scattering features.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.accountants import RDPAccountant  # type: ignore[import-untyped]
from opacus.accountants.utils import get_noise_multiplier  # type: ignore[import-untyped]
from torch import Tensor
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.data import ImageSet
from ldp_slicing.lab.scattering import scatter

BUDGETS = (1.0, 2.4, 5.2, 12.0, 20.0, 32.0, 58.0)
UNIT = "a whole training image, added or removed, in the central model (a trusted curator); not comparable with eps per released pixel"
ORDERS = [1.1, 1.25, 1.5, 1.75, 2, 2.5, *range(3, 64), *range(64, 513, 8)]  # of Rényi; more broken ones are slow and gain next to nothing
ROWS = 256  # examples that are multiplied at once: few, so that they stay in the cache


@dataclass(frozen=True)
class DpSgdRecipe:
    """Momentum SGD on a linear model; ``batch`` is the expected size of a Poisson sample, and what the noisy sum is divided by."""

    name: str = "scatter-linear"
    source: str = "Tramèr and Boneh, Differentially private learning needs better features, ICLR 2021: the linear model"
    deviations: tuple[str, ...] = (
        "batches are Poisson samples, as the accountant assumes; theirs are shuffled",
        "delta 1e-10 instead of 1e-5",
        "weights begin at zero",
        "pixels are scaled by constants (0 to 255 becomes -2 to 2), not by the data's mean and deviation, which would cost privacy",
        "the model is the mean of the last half of the iterates, which costs nothing",
    )
    epochs: int = 60
    batch: int = 8192
    learning_rate: float = 4.0
    momentum: float = 0.9
    clip: float = 0.1
    groups: int = 27  # of channels, for group normalisation: image by image, so it costs nothing
    averaged: float = 0.5  # the last part of the steps whose iterates are averaged
    delta: float = 1e-10


RECIPE = DpSgdRecipe()


@dataclass(frozen=True)
class Schedule:
    """What the accountant has to know of a run, but for the noise."""

    rate: float
    steps: int
    delta: float

    @staticmethod
    def of(recipe: DpSgdRecipe, examples: int) -> Schedule:
        if recipe.batch > examples:
            raise LdpSlicingError(f"a batch of {recipe.batch} cannot be sampled from {examples} examples: take a smaller one")
        return Schedule(recipe.batch / examples, round(recipe.epochs * examples / recipe.batch), recipe.delta)

    def epsilon(self, noise: float) -> float:
        """What a run with this noise multiplier spends, by Opacus's Rényi accountant."""
        accountant = RDPAccountant()
        accountant.history = [(noise, self.rate, self.steps)]
        return float(accountant.get_epsilon(self.delta, alphas=ORDERS))

    def noise(self, epsilon: float) -> float:
        """The noise multiplier for a budget: it spends no more than ``epsilon``, and at most a thousandth less."""
        return float(
            get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=self.delta,
                sample_rate=self.rate,
                steps=self.steps,
                epsilon_tolerance=epsilon / 1000,
                alphas=ORDERS,
            )
        )


def features(images: NDArray[np.uint8], groups: int, device: torch.device) -> NDArray[np.float16]:
    """uint8 [N, H, W, C] -> float16 [N, C * 81 * H/4 * W/4]: scattering, then group normalisation; each row depends on its image alone."""
    planes = torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float() / 63.75 - 2  # of mean about 0 and deviation about 1
    channels = scatter(planes.flatten(0, 1))
    channels = channels.reshape(len(images), -1, *channels.shape[2:])
    return np.asarray(functional.group_norm(channels, groups).flatten(1).half().cpu().numpy())


def feature_file(data: ImageSet, work: Path, groups: int, device: torch.device, say: Callable[[str], None]) -> NDArray[np.float16]:
    """Features of the training set and then of the test set, memory-mapped; kept in ``work`` under a name made from the images."""
    images = np.concatenate([data.train.images, data.test.images])
    name = hashlib.sha256(repr((images.shape, groups)).encode() + images.tobytes()).hexdigest()[:16]
    path, partial = work / f"scattering-{name}.npy", work / f"scattering-{name}.partial"
    if path.is_file():
        return np.asarray(np.load(path, mmap_mode="r"))
    say(f"scattering features of {len(images)} images: {path}")
    work.mkdir(parents=True, exist_ok=True)
    width = features(images[:1], groups, device).shape[1]
    rows = np.lib.format.open_memmap(partial, "w+", np.float16, (len(images), width))
    block = 8 if device.type == "cpu" else 512

    def fill(start: int) -> None:
        rows[start : start + block] = features(images[start : start + block], groups, device)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a plane is too small to be shared out: blocks are
    try:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(fill, range(0, len(images), block)):
                pass
    finally:
        torch.set_num_threads(threads)
    rows.flush()
    partial.replace(path)
    return np.asarray(np.load(path, mmap_mode="r"))


def poisson_sample(examples: int, rate: float, generator: torch.Generator) -> NDArray[np.int64]:
    """Which of the examples are in: each with probability ``rate``, independently of the others, so that the size varies."""
    return np.asarray((torch.rand(examples, generator=generator, dtype=torch.float64) < rate).nonzero()[:, 0].numpy())


def clipped_sum(inputs: Tensor, errors: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """Sums of the examples' clipped gradients, for M linear models side by side: [F, M * K] for the weights, [M * K] for the biases.

    inputs: float32 [B, F]; errors: float32 [B, M, K], the loss's derivatives by the outputs. An example's gradient is the outer product
    of its inputs (and a 1 for the bias) with its errors, so its norm is the product of theirs and need not be written out.
    """
    norms = (torch.linalg.vector_norm(inputs, dim=1, keepdim=True).square() + 1).sqrt() * errors.norm(dim=2)
    scaled = (errors * (clip / norms).clamp(max=1)[:, :, None]).flatten(1)
    return inputs.T @ scaled, scaled.sum(0)


class Stack:
    """M linear models that learn side by side from the same Poisson samples, each with noise of its own; float32 throughout."""

    def __init__(
        self, rows: NDArray[np.float16], data: ImageSet, noises: Sequence[float], recipe: DpSgdRecipe, device: torch.device
    ) -> None:
        self.rows, self.recipe, self.device, self.classes = rows, recipe, device, data.classes
        self.labels = torch.from_numpy(np.concatenate([data.train.labels, data.test.labels])).to(device)
        self.examples = len(data.train.labels)
        self.schedule = Schedule.of(recipe, self.examples)
        self.noises = noises
        outputs = len(noises) * data.classes
        self.models = [torch.zeros(size, device=device) for size in ((rows.shape[1], outputs), (outputs,))]
        self.momenta, self.totals = ([torch.zeros_like(model) for model in self.models] for _ in range(2))

    def _outputs(self, at: NDArray[np.int64], models: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        inputs = torch.from_numpy(self.rows[at]).to(self.device).float()
        return inputs, (inputs @ models[0] + models[1]).view(len(at), -1, self.classes)

    def train(self, seed: int, keys: Sequence[int]) -> None:
        """The samples follow from ``seed``, the noise of a model from ``seed`` and its key: not from who else is in the stack."""
        seeds = [int(np.random.SeedSequence((seed, key)).generate_state(1)[0]) for key in (0, *keys)]
        sampler, *generators = (torch.Generator().manual_seed(value) for value in seeds)
        first_averaged = round((1 - self.recipe.averaged) * self.schedule.steps)
        for step in range(self.schedule.steps):
            gradients = self._gradients(poisson_sample(self.examples, self.schedule.rate, sampler))
            for model, momentum, gradient, total in zip(self.models, self.momenta, gradients, self.totals, strict=True):
                gradient += self._noise(model.shape, generators)
                momentum.mul_(self.recipe.momentum).add_(gradient / self.recipe.batch)
                model -= self.recipe.learning_rate * momentum
                if step >= first_averaged:
                    total += model / (self.schedule.steps - first_averaged)

    def _gradients(self, chosen: NDArray[np.int64]) -> list[Tensor]:
        """Sums of clipped gradients over the chosen examples."""
        sums = [torch.zeros_like(model) for model in self.models]
        for start in range(0, len(chosen), ROWS):
            at = chosen[start : start + ROWS]
            inputs, outputs = self._outputs(at, self.models)
            errors = outputs.softmax(2) - functional.one_hot(self.labels[at], self.classes)[:, None]
            for so_far, part in zip(sums, clipped_sum(inputs, errors, self.recipe.clip), strict=True):
                so_far += part
        return sums

    def _noise(self, shape: torch.Size, generators: Sequence[torch.Generator]) -> Tensor:
        """Gaussian, of deviation noise x clip, for each model from its own generator."""
        part = (*shape[:-1], self.classes)
        drawn = [
            noise * self.recipe.clip * torch.randn(part, generator=generator)
            for noise, generator in zip(self.noises, generators, strict=True)
        ]
        return torch.cat(drawn, -1).to(self.device)

    def test(self, models: Sequence[Tensor]) -> list[float]:
        """Each model's share of right answers on the test set."""
        right = torch.zeros(len(self.noises), device=self.device)
        for start in range(self.examples, len(self.rows), ROWS):
            at = np.arange(start, min(start + ROWS, len(self.rows)))
            right += (self._outputs(at, models)[1].argmax(2) == self.labels[at, None]).sum(0)
        return [share.item() for share in right / (len(self.rows) - self.examples)]


def measure(
    data: ImageSet,
    work: Path,
    *,
    recipe: DpSgdRecipe = RECIPE,
    budgets: Sequence[float] = BUDGETS,
    seeds: Sequence[int] = (0, 1, 2),
    device: torch.device,
    is_done: Callable[[str, int], bool],
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """A row for each seed and each budget, and one without noise for the recipe's ceiling; all budgets of a seed learn side by side."""
    schedule = Schedule.of(recipe, len(data.train.labels))
    noises = {f"{data.name}-eps{budget:g}": (budget, schedule.noise(budget)) for budget in budgets} | {f"{data.name}-no-noise": (None, 0.0)}
    for seed in seeds:
        pending = {run: both for run, both in noises.items() if not is_done(run, seed)}
        if not pending:
            continue
        rows = feature_file(data, work, recipe.groups, device, say)
        began = time.monotonic()
        stack = Stack(rows, data, [noise for _, noise in pending.values()], recipe, device)
        stack.train(seed, [1 + round(1000 * (budget or 0)) for budget, _ in pending.values()])
        averaged, last = stack.test(stack.totals), stack.test(stack.models)
        seconds = time.monotonic() - began
        for (run, (budget, noise)), accuracy, accuracy_last in zip(pending.items(), averaged, last, strict=True):
            say(f"{run} seed {seed}: {100 * accuracy:.2f} %")
            yield {
                "run": run,
                "seed": seed,
                "finished": True,
                "data": data.name,
                "epsilon_requested": budget,
                "epsilon_realised": schedule.epsilon(noise) if noise else None,
                "delta": recipe.delta,
                "epsilon_unit": UNIT,
                "accountant": f"RDP, Opacus {metadata.version('opacus')}",
                "noise_multiplier": noise,
                "sampling_rate": schedule.rate,
                "steps": schedule.steps,
                "generator": "torch's, seeded: good for a study, not for a release",
                "accuracy": accuracy,
                "accuracy_last_iterate": accuracy_last,
                "wall_seconds": seconds,
                "models_side_by_side": len(pending),
                "recipe": {**asdict(recipe), "deviations": list(recipe.deviations)},  # as JSON has it
            }
