"""One task in training: inputs, objective and optimiser, advanced step by step, each step one CUDA graph on a GPU."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from ldp_slicing.errors import DivergedError, LdpSlicingError
from ldp_slicing.lab.learners.graph import capture
from ldp_slicing.lab.learners.inputs import Inputs
from ldp_slicing.lab.learners.models import load_body
from ldp_slicing.lab.learners.models.face_networks import Dropout
from ldp_slicing.lab.learners.objectives import OBJECTIVES
from ldp_slicing.lab.learners.releases import Splits, release_splits
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.torch.networks import share_of_newest, track_statistics
from ldp_slicing.torch.reconstruct import Report

QUEUED_STEPS = 24  # that wait on the device, so that it has work while the host looks after another run
Weights = Mapping[str, Tensor]
DIVERGED = 2.0  # a classifier has diverged if, after its first epoch, its loss is so many times that of guessing


@dataclass
class Epoch:
    """The record of one epoch. Epochs count from 0, in logs and rows too.

    Accuracies are shares. The test accuracy is recorded only by runs that hold out nothing for validation.
    """

    epoch: int
    learning_rate: float
    loss: float
    train_accuracy: float | None
    validation_accuracy: float | None
    test_accuracy: float | None
    seconds: float


class TrainingRun:
    """A task in training.

    >>> run.begin_epoch()                                               # doctest: +SKIP
    >>> while not run.epoch_is_over:                                    # doctest: +SKIP
    ...     run.advance()
    >>> run.end_epoch(look=True)                                        # doctest: +SKIP

    splits: what ``release_splits(task)`` returns, if it was called before.
    folder: where a reconstructor is kept, if any.
    start: the weights of the network of ``task.pretraining``; none if there is no such network.
    report: called while a reconstructor is trained, as by ``Reconstructor.fit``.
    """

    def __init__(
        self,
        task: TrainingTask,
        device: torch.device,
        splits: Splits | None = None,
        folder: Path | None = None,
        start: Weights = MappingProxyType({}),
        report: Report | None = None,
    ) -> None:
        torch.backends.cudnn.benchmark = True  # every step has the same shapes, so searching for algorithms pays
        self.task = task
        generator = torch.Generator(device).manual_seed(task.seed)
        self.inputs = Inputs(task, splits or release_splits(task), device, generator, folder, report)
        torch.manual_seed(task.seed)
        self.objective = OBJECTIVES[task.recipe.loss](task, self.inputs)
        if start:
            load_body(self.model, start)
        for module in self.model.modules():
            if isinstance(module, Dropout):
                module.generator = generator
        trained = [self.model, *([self.objective.head] if self.objective.head else [])]
        self.parameters = [each for module in trained for each in module.parameters() if each.requires_grad]
        self.learning_rate = torch.tensor(task.recipe.learning_rate, device=device)  # there: one graph for all epochs
        self.optimiser = _make_optimiser(task, self.parameters, self.learning_rate)
        self._live = [value for value in self.model.state_dict().values() if value.is_floating_point()]
        steps = self.steps * task.recipe.epochs
        track_statistics(self.model, steps)
        decay = min(task.recipe.average, 1 - share_of_newest(steps))
        self.average = [value.clone() for value in self._live] if decay else []  # of the weights, see the recipe
        self._update_average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        self.history: list[Epoch] = []
        self.best: dict[str, Tensor] | None = None  # the network at the epoch with the best validation accuracy
        self.order = torch.zeros(len(self.inputs), dtype=torch.int64, device=device)
        self.at = torch.zeros((), dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.correct = torch.zeros((), device=device)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._steps_left, self._began = 0, 0.0
        self._queued: deque[torch.cuda.Event] = deque()

    @property
    def device(self) -> torch.device:
        return self.inputs.device

    @property
    def model(self) -> nn.Module:
        return self.objective.model

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self.history)

    @property
    def finished(self) -> bool:
        return self.epoch >= self.task.recipe.epochs

    @property
    def batch(self) -> int:
        return min(self.task.recipe.batch, len(self.inputs))

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return max(1, len(self.inputs) // self.task.recipe.batch)

    @property
    def epoch_is_over(self) -> bool:
        return not self._steps_left and not self._queued

    @property
    def chosen(self) -> Epoch | None:
        """The epoch that ``choose`` restores: the last with the best validation accuracy, or else the last of all.

        Few held-out images often tie, and the later network has learnt for longer.
        """
        validated = [epoch for epoch in self.history if epoch.validation_accuracy]
        if validated:
            return max(validated[::-1], key=lambda epoch: epoch.validation_accuracy or 0.0)
        return self.history[-1] if self.history else None

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        with torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext():
            yield

    def begin_epoch(self) -> None:
        """Shuffle the images and set the learning rate."""
        rate = self.task.recipe.learning_rate_at(self.epoch)
        self._began = time.monotonic()
        if self.stream is not None and self._graph is None:
            counters = [*self.parameters, *self.model.buffers(), *self.average, self.at, self.loss_sum, self.correct]
            self._graph = capture(self._step, counters, self.optimiser, self.inputs.generator, self.stream)
        with self.on_stream():
            self.inputs.begin_epoch(self.epoch)
            self.learning_rate.fill_(rate)
            if self.stream is None:
                for group in self.optimiser.param_groups:
                    group["lr"] = rate
            self.model.train()
            torch.randperm(len(self.order), device=self.device, generator=self.inputs.generator, out=self.order)
            for counter in (self.at, self.loss_sum, self.correct):
                counter.zero_()
        self._steps_left = self.steps

    def advance(self) -> bool:
        """Start another step of the epoch, unless none is left or enough are queued; return whether one was started."""
        while self._queued and self._queued[0].query():  # type: ignore[no-untyped-call]
            self._queued.popleft()
        if not self._steps_left or len(self._queued) >= QUEUED_STEPS:
            return False
        if self._graph is None:
            self._step()
        else:
            with self.on_stream():
                self._graph.replay()
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record()
            self._queued.append(event)
        self._steps_left -= 1
        return True

    def _step(self) -> None:
        index = self.order[self.at * self.batch + torch.arange(self.batch, device=self.device)]
        loss = self.objective.loss(index)
        self.optimiser.zero_grad(set_to_none=True)
        loss.value.backward()  # type: ignore[no-untyped-call]
        clip = self.task.recipe.clip or (self.task.recipe.clip_private if self.task.plan else 0.0)
        if clip:
            nn.utils.clip_grad_norm_(self.parameters, clip)
        self.optimiser.step()
        if self.average:
            self._update_average(self.average, self._live, self.at)
        self.loss_sum += loss.value.detach()
        if loss.correct is not None:
            self.correct += loss.correct
        self.at += 1

    def end_epoch(self, *, look: bool) -> Epoch:
        """Record the epoch, with accuracies if ``look``, and keep the network with the best validation accuracy."""
        with self.on_stream():
            loss, correct = self.loss_sum.item() / self.steps, self.correct.item() / (self.steps * self.batch)
            self._check_loss(loss)
            has_validation = len(self.inputs.validation[1]) > 0
            with self.averaged():
                validated = self.validation_accuracy() if look and has_validation else None
                looks_at_test = look and not has_validation and self.objective.tests_every_epoch
                tested = self.test_accuracy() if looks_at_test else None
                best_before = max((epoch.validation_accuracy or 0.0 for epoch in self.history), default=0.0)
                if validated is not None and validated >= best_before:
                    self.best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
            done = Epoch(
                epoch=self.epoch,
                learning_rate=self.task.recipe.learning_rate_at(self.epoch),
                loss=loss,
                train_accuracy=correct if self.objective.counts_correct else None,
                validation_accuracy=validated,
                test_accuracy=tested,
                seconds=time.monotonic() - self._began,
            )
        if self.stream is not None:
            self.stream.synchronize()  # checkpoints and ``choose`` use another stream
        self.history.append(done)
        return done

    def _check_loss(self, loss: float) -> None:
        """Raise DivergedError if the mean loss of an epoch shows that training leads nowhere."""
        recipe, guessing = self.task.recipe, math.log(self.task.data.classes)
        too_large = recipe.loss == "classes" and self.epoch > 0 and loss > DIVERGED * guessing
        if not math.isfinite(loss) or too_large:
            compared = f" (loss {loss:.3g}; guessing has {guessing:.3g})" if too_large else f" (loss {loss})"
            raise DivergedError(
                f"task {self.task.name!r}: the loss diverged in epoch {self.epoch}{compared}: use a smaller learning "
                f"rate than {recipe.learning_rate:g}, such as {recipe.learning_rate / 4:.2g}"
            )

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Within this context the network has the average of its weights, if the recipe asks for one."""
        trained = [value.clone() for value in self._live] if self.average else []
        self._copy(self.average)
        yield
        self._copy(trained)

    def _copy(self, values: list[Tensor]) -> None:
        for live, value in zip(self._live, values, strict=bool(values)):
            live.copy_(value)

    def validation_accuracy(self) -> float:
        return self.objective.accuracy(*self.inputs.validation)

    def test_accuracy(self) -> float:
        return self.objective.accuracy(*self.inputs.test)

    def choose(self) -> None:
        """Restore the network of the epoch with the best validation accuracy; without one, average the weights."""
        if self.best is not None:
            self.model.load_state_dict(self.best)
        else:
            self._copy(self.average)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to continue."""
        head = self.objective.head
        return {
            "device": self.device.type,
            "model": self.model.state_dict(),
            "head": head.state_dict() if head else None,
            "best": self.best,
            "average": self.average,
            "optimiser": self.optimiser.state_dict(),
            "generator": self.inputs.generator.get_state(),
            "history": [asdict(epoch) for epoch in self.history],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict()``, which must come from the same kind of device."""
        if state["device"] != self.device.type:  # the state of a generator belongs to its kind of device
            raise LdpSlicingError(
                f"it was trained on {state['device']}: continue there with --device {state['device']}, "
                "or name another folder"
            )
        self.model.load_state_dict(state["model"])
        if self.objective.head:
            self.objective.head.load_state_dict(state["head"])
        self.best = state["best"]
        self.average = state["average"]
        self.optimiser.load_state_dict(state["optimiser"])
        if self.stream is not None:
            for group in self.optimiser.param_groups:
                group["lr"] = self.learning_rate
        self.inputs.generator.set_state(state["generator"].cpu())
        self.history = [Epoch(**epoch) for epoch in state["history"]]


def _make_optimiser(task: TrainingTask, parameters: list[nn.Parameter], learning_rate: Tensor) -> torch.optim.Optimizer:
    recipe, fused = task.recipe, learning_rate.is_cuda  # a fused optimiser reads the learning rate on the device
    rate: Any = learning_rate if fused else recipe.learning_rate
    if recipe.optimiser == "adamw":
        return torch.optim.AdamW(parameters, rate, weight_decay=recipe.weight_decay, fused=fused, capturable=fused)
    return torch.optim.SGD(parameters, rate, recipe.momentum, weight_decay=recipe.weight_decay, fused=fused)
