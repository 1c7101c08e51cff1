"""Training on the device: data, augmentation, noise and the optimiser's step in one CUDA graph; several runs side by side."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.data import ImageSet
from ldp_slicing.lab.models import build
from ldp_slicing.lab.recipes import Recipe
from ldp_slicing.plan import Plan
from ldp_slicing.slicer import Slicer
from ldp_slicing.torch.simulate import simulate
from ldp_slicing.view import Prune

ReleaseMode = Literal["none", "once", "every-epoch"]


@dataclass(frozen=True)
class Task:
    """One network to be trained.

    release: "none" trains on sources; "once" on one release of each image, made by the secure engine before training begins;
    "every-epoch" draws new noise for every batch, the authors' way: each training image is then released once per epoch.
    """

    name: str
    data: ImageSet
    recipe: Recipe
    plan: Plan | None = None
    prune: Prune = "haar"
    release: ReleaseMode = "once"
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.plan is None) != (self.release == "none"):
            raise LdpSlicingError(f"task {self.name!r}: release={self.release!r} does not go with plan={self.plan!r}")

    @property
    def epsilon_per_source(self) -> float | None:
        """What the training set has cost per released pixel when training ends."""
        if self.plan is None:
            return None
        return self.plan.realised_epsilon * (self.recipe.epochs if self.release == "every-epoch" else 1)


@dataclass
class Epoch:
    """What is written down of an epoch."""

    epoch: int
    loss: float
    train_accuracy: float
    test_accuracy: float | None
    seconds: float


class Run:
    """A task on a device: its network, its data and how far it is."""

    def __init__(self, task: Task, device: torch.device) -> None:
        self.task, self.device = task, device
        torch.manual_seed(task.seed)
        self.model = build(task.recipe.model, task.data.classes).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        recipe = task.recipe
        self.optimiser = torch.optim.SGD(self.parameters, recipe.learning_rate, recipe.momentum, weight_decay=recipe.weight_decay)
        self.generator = torch.Generator(device).manual_seed(task.seed)
        self.history: list[Epoch] = []
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        images, tests = (self._prepare(split.images) for split in (task.data.train, task.data.test))
        self.padded = functional.pad(images, (0, 0, recipe.pad, recipe.pad, recipe.pad, recipe.pad))
        self.labels = torch.from_numpy(task.data.train.labels).to(device)
        self.tests = tests.permute(0, 3, 1, 2)
        self.test_labels = torch.from_numpy(task.data.test.labels).to(device)
        self.order = torch.zeros(len(images), dtype=torch.int64, device=device)
        self.at = torch.zeros((), dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.right = torch.zeros((), device=device)
        self.mean, self.std = (255 * torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (recipe.mean, recipe.std))
        self._graph: tuple[float, torch.cuda.CUDAGraph] | None = None

    def _prepare(self, images: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
        """uint8 [N, H, W, C] on the device: sources, or the one release of each."""
        if self.task.release == "once" and self.task.plan is not None:
            images = np.asarray(Slicer(self.task.plan, prune=self.task.prune)(images), np.uint8)
        return torch.from_numpy(np.ascontiguousarray(images)).to(self.device)

    @property
    def epoch(self) -> int:
        return len(self.history)

    @property
    def steps(self) -> int:
        return len(self.order) // self.task.recipe.batch

    def _noise(self, images: Tensor) -> Tensor:
        if self.task.release != "every-epoch" or self.task.plan is None:
            return images
        return simulate(images, self.task.plan, self.generator, prune=self.task.prune)

    def _normalise(self, images: Tensor) -> Tensor:
        return ((images.float() - self.mean) / self.std).contiguous(memory_format=torch.channels_last)

    def _batch(self) -> tuple[Tensor, Tensor]:
        """The next images, cropped and flipped at random: uint8 [B, 3, H, W]."""
        recipe, size, device = self.task.recipe, self.padded.shape[1] - 2 * self.task.recipe.pad, self.device
        index = self.order[self.at * recipe.batch + torch.arange(recipe.batch, device=device)]
        shift = torch.randint(2 * recipe.pad + 1, (2, recipe.batch, 1), device=device, generator=self.generator)
        rows, columns = shift[0] + torch.arange(size, device=device), torch.arange(size, device=device).expand(recipe.batch, size)
        if recipe.flip:
            turned = torch.randint(2, (recipe.batch, 1), device=device, generator=self.generator) == 1
            columns = torch.where(turned, size - 1 - columns, columns)
        columns = columns + shift[1]
        return self.padded[index[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2), self.labels[index]

    def _step(self) -> None:
        images, labels = self._batch()
        inputs = self._normalise(self._noise(images))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda", cache_enabled=False):
            outputs = self.model(inputs)
            loss = functional.cross_entropy(outputs.float(), labels)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        clip = self.task.recipe.clip_private
        if clip and self.task.release != "none":
            nn.utils.clip_grad_norm_(self.parameters, clip)
        self.optimiser.step()
        self.loss_sum += loss.detach()
        self.right += (outputs.argmax(1) == labels).sum()
        self.at += 1

    def _state(self) -> list[Tensor]:
        momenta = [state["momentum_buffer"] for state in self.optimiser.state.values() if state.get("momentum_buffer") is not None]
        return [*self.parameters, *self.model.buffers(), *momenta, self.at, self.loss_sum, self.right]

    def _capture(self, learning_rate: float) -> torch.cuda.CUDAGraph:
        """The step as a graph. Warming up trains; what it changed is put back."""
        for parameter in self.parameters:  # so that momentum exists before it is saved
            self.optimiser.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
        saved, drawn = [tensor.detach().clone() for tensor in self._state()], self.generator.get_state()
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self._step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph, stream=self.stream):
            self._step()
        with torch.no_grad():
            for tensor, before in zip(self._state(), saved, strict=True):
                tensor.copy_(before)
        self.generator.set_state(drawn)
        self._graph = (learning_rate, graph)
        return graph

    def begin_epoch(self) -> Callable[[], None]:
        """Shuffles, sets the learning rate, and returns what makes one step."""
        learning_rate = self.task.recipe.learning_rate_at(self.epoch)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate
        self.model.train()
        torch.randperm(len(self.order), device=self.device, generator=self.generator, out=self.order)
        for counter in (self.at, self.loss_sum, self.right):
            counter.zero_()
        if self.stream is None:
            return self._step
        if self._graph is None or self._graph[0] != learning_rate:
            self._capture(learning_rate)
        assert self._graph is not None  # noqa: S101
        return self._graph[1].replay

    def end_epoch(self, seconds: float, *, test: bool) -> Epoch:
        trained = self.steps * self.task.recipe.batch
        done = Epoch(self.epoch, self.loss_sum.item() / self.steps, self.right.item() / trained, self.evaluate() if test else None, seconds)
        self.history.append(done)
        return done

    @torch.no_grad()
    def evaluate(self) -> float:
        """Accuracy on the test set: sources, their one release, or new noise each time, as in training."""
        self.model.eval()
        right = torch.zeros((), device=self.device)
        for start in range(0, len(self.tests), 1000):
            images = self._noise(self.tests[start : start + 1000])
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                outputs = self.model(self._normalise(images))
            right += (outputs.argmax(1) == self.test_labels[start : start + 1000]).sum()
        self.model.train()
        return right.item() / len(self.tests)

    def save(self, path: Path) -> None:
        """Everything needed to go on, under its name or not at all."""
        content = {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "history": [asdict(epoch) for epoch in self.history],
        }
        partial = path.with_suffix(".partial")
        torch.save(content, partial)
        partial.replace(path)

    def resume(self, path: Path) -> None:
        content = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(content["model"])
        self.optimiser.load_state_dict(content["optimiser"])
        self.generator.set_state(content["generator"].cpu())
        self.history = [Epoch(**epoch) for epoch in content["history"]]


@dataclass
class Limits:
    """When to stop and how often to look."""

    seconds: float = float("inf")
    test_every: int = 5
    test_always_from: float = 0.8  # of the epochs
    save_every: int = 10
    started: float = field(default_factory=time.monotonic)


def train(runs: Sequence[Run], folder: Path, limits: Limits, report: Callable[[Run, Epoch], None]) -> bool:
    """Train all runs side by side, one step of each in turn; True when all are done, False when the time was up (resumable)."""
    folder.mkdir(parents=True, exist_ok=True)
    for run in runs:
        if (path := folder / f"{run.task.name}.pt").is_file():
            run.resume(path)
    longest = 0.0
    while pending := [run for run in runs if run.epoch < run.task.recipe.epochs]:
        if time.monotonic() - limits.started + 1.5 * longest > limits.seconds:
            break
        began = time.monotonic()
        steps = [(run, run.begin_epoch()) for run in pending]
        for _ in range(max(run.steps for run in pending)):
            for run, step in steps:
                with _on_stream(run):
                    step()
        if any(run.stream for run in pending):
            torch.cuda.synchronize()
        seconds = time.monotonic() - began
        for run in pending:
            epochs = run.task.recipe.epochs
            last = run.epoch + 1 == epochs
            test = last or run.epoch % limits.test_every == 0 or run.epoch >= limits.test_always_from * epochs
            report(run, run.end_epoch(seconds, test=test))
            if last or run.epoch % limits.save_every == 0:
                run.save(folder / f"{run.task.name}.pt")
        longest = max(longest, time.monotonic() - began)
    for run in runs:
        run.save(folder / f"{run.task.name}.pt")
    return not pending


@contextlib.contextmanager
def _on_stream(run: Run) -> Iterator[None]:
    if run.stream is None:
        yield
    else:
        with torch.cuda.stream(run.stream):
            yield
