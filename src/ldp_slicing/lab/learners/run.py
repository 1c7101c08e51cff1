"""A task on a device: data, augmentation, noise and the optimiser's step in one CUDA graph."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.files import atomic_path
from ldp_slicing.lab.data.sets import Split, image_digest
from ldp_slicing.lab.learners.models import build, build_embedder, load_weights
from ldp_slicing.lab.learners.models.face_networks import ArcFaceHead, Dropout
from ldp_slicing.lab.learners.task import TrainingTask, read_kept
from ldp_slicing.torch.decode import Decoder
from ldp_slicing.torch.simulate import apply_view, simulate, to_rgb

DECODED_MEAN, DECODED_STD = (128 / 255,), (32 / 255,)  # of decoded pictures, whatever the recipe says of sources
AHEAD = 24  # steps that wait on the device, so that it has work while the host looks after another run


@dataclass
class Epoch:
    """What is written down of an epoch. Accuracies are shares; test accuracy only of runs that hold nothing out for validation.

    ``epoch`` counts from 0, and so does whatever names an epoch: logs, rows, what is printed.
    """

    epoch: int
    learning_rate: float
    loss: float
    train_accuracy: float | None
    validation_accuracy: float | None
    test_accuracy: float | None
    seconds: float


def resemblance_loss(outputs: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """Two [B, D] to a scalar: each output should resemble the batch's taught embeddings as its own taught embedding does.

    It tells the rows of a batch apart, where a plain distance to the taught embedding is already small for one answer to all.
    """
    taught = functional.normalize(taught)
    wanted = functional.softmax(taught @ taught.T / temperature, dim=1)
    return functional.cross_entropy(functional.normalize(outputs) @ taught.T / temperature, wanted)


class TrainingRun:
    """A task's network, its data, and how far it is. ``splits``: what ``task.released()`` gave, where it was made ahead of time."""

    def __init__(
        self, task: TrainingTask, device: torch.device, splits: tuple[Split, Split, Split] | None = None
    ) -> None:
        self.task, self.device, recipe = task, device, task.recipe
        torch.backends.cudnn.benchmark = (
            True  # every step has the same shapes, so that looking for the fastest algorithm pays
        )
        torch.manual_seed(task.seed)
        model, self.head = self._build()
        if task.weights:
            load_weights(model, task.weights)
        self.model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        heads = self.head.parameters() if self.head else ()
        self.parameters = [parameter for parameter in (*self.model.parameters(), *heads) if parameter.requires_grad]
        self.learning_rate = torch.tensor(
            recipe.learning_rate, device=device
        )  # on the device: one graph serves every epoch
        self.optimiser = self._make_optimiser()
        self.generator = torch.Generator(device).manual_seed(task.seed)
        for module in self.model.modules():
            if isinstance(module, Dropout):
                module.generator = self.generator
        self.history: list[Epoch] = []
        self.best: dict[str, Tensor] | None = None  # the network at the epoch that validation chose
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._decoder: Decoder | None = None
        self._load(splits or task.released())
        self.order = torch.zeros(len(self.labels), dtype=torch.int64, device=device)
        self.at = torch.zeros((), dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.right = torch.zeros((), device=device)
        scale = (DECODED_MEAN, DECODED_STD) if task.decode else (recipe.mean, recipe.std)
        self.mean, self.std = (255 * torch.tensor(values, device=device).view(1, -1, 1, 1) for values in scale)
        self._training = self.model  # what trains; compiled, it shares its weights with the model
        self._graph: torch.cuda.CUDAGraph | None = None
        self._left, self._began = 0, 0.0
        self._waiting: deque[torch.cuda.Event] = deque()

    def _build(self) -> tuple[nn.Module, ArcFaceHead | None]:
        """A new network, and the head that its loss needs."""
        task, recipe = self.task, self.task.recipe
        if recipe.loss == "classes":
            return build(recipe.model, task.data.classes), None
        model, size = build_embedder(recipe.model)
        return model, ArcFaceHead(task.data.classes, embedding=size, margin=recipe.margin).to(
            self.device
        ) if recipe.loss == "arcface" else None

    def _make_optimiser(self) -> torch.optim.Optimizer:
        recipe, fused = self.task.recipe, self.device.type == "cuda"  # fused reads the learning rate on the device
        rate: Any = self.learning_rate if fused else recipe.learning_rate
        if recipe.optimiser == "adamw":
            return torch.optim.AdamW(
                self.parameters, rate, weight_decay=recipe.weight_decay, fused=fused, capturable=fused
            )
        return torch.optim.SGD(self.parameters, rate, recipe.momentum, weight_decay=recipe.weight_decay, fused=fused)

    def _load(self, splits: tuple[Split, Split, Split]) -> None:
        """uint8 [N, H, W, C] on the device, padded for the crops; tests and validation [N, C, H, W]."""
        received = [torch.from_numpy(split.images).to(self.device) for split in splits]
        if self.task.decode and self.task.plan is not None:
            self._decoder = Decoder.fit(received[0].permute(0, 3, 1, 2), self.task.plan, prune=self.task.prune)
        images, held, tests = map(self._see, received)
        pad = self.task.recipe.pad
        self.padded = functional.pad(
            images, (0, 0, pad, pad, pad, pad), value=128 if self.task.decode else 0
        )  # 128: nothing is known
        self.labels, held_labels, test_labels = (torch.from_numpy(split.labels).to(self.device) for split in splits)
        if self.task.targets is not None:
            self.labels = torch.from_numpy(self.task.targets).to(self.device)
        self.validation = held.permute(0, 3, 1, 2), held_labels
        self.test = tests.permute(0, 3, 1, 2), test_labels

    def receive(self, images: NDArray[np.uint8], kept: Path | None = None) -> Tensor:
        """uint8 [N, H, W, C] sources, other than the task's own, to uint8 [N, C, H, W] as the learner would get them.

        ``kept``: a file for their releases, so that asking again, also for some of them, does not release them again.
        """
        once = kept is not None and self.task.release == "once"
        released = self._release_to(kept, images) if once and kept else self.task.release_once(images)
        return self._see(torch.from_numpy(released).to(self.device)).permute(0, 3, 1, 2)

    def _release_to(self, kept: Path, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The release of each that the file has, by its source's digest; the others are released, and then in it, too."""
        known = read_kept(kept) if kept.is_file() else {}
        names = [image_digest(image) for image in images]
        missing = {name: i for i, name in enumerate(names) if name not in known}
        if missing:
            known |= zip(missing, self.task.release_once(images[list(missing.values())]), strict=True)
            with atomic_path(kept) as temporary:
                np.savez(temporary, **known)
        return np.stack([known[name] for name in names])

    def _see(self, images: Tensor) -> Tensor:
        """What the network learns from: releases decoded, or the view without noise, where that is what the task asks for."""
        if not len(images):
            return images
        if self._decoder:
            return self._by_parts(images, self._decoder)
        if self.task.release != "view":
            return images
        colour = images.shape[3] == 3

        def view(part: Tensor) -> Tensor:
            seen = apply_view(part, self.task.prune, colour=colour)
            return (to_rgb(seen) if colour else seen).to(torch.uint8)

        return self._by_parts(images, view)

    @staticmethod
    def _by_parts(images: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """uint8 [N, H, W, C] to the same through what takes and gives [N, C, H, W]."""
        parts = [change(part.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) for part in torch.split(images, 1000)]
        return torch.cat(parts).contiguous()

    @property
    def epoch(self) -> int:
        return len(self.history)

    @property
    def finished(self) -> bool:
        return self.epoch >= self.task.recipe.epochs

    @property
    def steps(self) -> int:
        return max(1, len(self.order) // self.task.recipe.batch)

    def noise(self, images: Tensor) -> Tensor:
        """uint8 [N, C, H, W]: new noise where the task releases in every epoch."""
        if self.task.release != "every-epoch" or self.task.plan is None:
            return images
        return simulate(images, self.task.plan, self.generator, prune=self.task.prune)

    def normalise(self, images: Tensor) -> Tensor:
        """uint8 [N, C, H, W] to the network's input."""
        return ((images.float() - self.mean) / self.std).contiguous(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        """uint8 [N, C, H, W] to what the network says about them, float32."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda", cache_enabled=False):
            outputs: Tensor = (self._training if self.model.training else self.model)(self.normalise(images))
        return outputs.float()

    def compile(self) -> None:
        """Train with fused kernels. They take a minute or so to make, which pays in long runs of deep, narrow networks."""
        self._training = torch.compile(self.model, dynamic=False)  # every step has the same shapes

    def _next(self) -> Tensor:
        """int64 [B]: which images are next."""
        count = min(self.task.recipe.batch, len(self.order))
        return self.order[self.at * count + torch.arange(count, device=self.device)]

    def _cut(self, index: Tensor) -> Tensor:
        """int64 [B] to those images, cropped and flipped at random: uint8 [B, C, H, W]."""
        recipe, device, count = self.task.recipe, self.device, len(index)
        height, width = (side - 2 * recipe.pad for side in self.padded.shape[1:3])
        shift = torch.randint(2 * recipe.pad + 1, (2, count, 1), device=device, generator=self.generator)
        rows, columns = (
            shift[0] + torch.arange(height, device=device),
            torch.arange(width, device=device).expand(count, width),
        )
        if recipe.flip:
            turned = torch.randint(2, (count, 1), device=device, generator=self.generator) == 1
            columns = torch.where(turned, width - 1 - columns, columns)
        columns = columns + shift[1]
        return self.padded[index[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)

    def _loss(self) -> Tensor:
        """Of the next batch. Part of the graph: nothing may go to or come from the host."""
        index = self._next()
        labels = self.labels[index]
        outputs = self.forward(self.noise(self._cut(index)))
        if self.task.recipe.loss == "teacher":
            return resemblance_loss(outputs, labels, self.task.recipe.temperature)
        return self._against(self.head(outputs, labels) if self.head else outputs, labels)

    def _against(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy, and how many were right."""
        self.right += (outputs.detach().argmax(1) == labels).sum()
        return functional.cross_entropy(outputs, labels)

    def _step(self) -> None:
        loss = self._loss()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        clip = self.task.recipe.clip or (self.task.recipe.clip_private if self.task.plan else 0.0)
        if clip:
            nn.utils.clip_grad_norm_(self.parameters, clip)
        self.optimiser.step()
        self.loss_sum += loss.detach()
        self.at += 1

    def _state(self) -> list[Tensor]:
        kept = [
            value for state in self.optimiser.state.values() for value in state.values() if isinstance(value, Tensor)
        ]
        return [*self.parameters, *self.model.buffers(), *kept, self.at, self.loss_sum, self.right]

    def _capture(self) -> torch.cuda.CUDAGraph:
        """The step as a graph. Warming up trains; what it changed is put back."""
        before = [tensor.detach().clone() for tensor in self._state()]
        fresh, drawn = not self.optimiser.state, self.generator.get_state()
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self._step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph, stream=self.stream):
            self._step()
        with torch.no_grad():
            if fresh:  # momenta and counts that the warming up has made were nothing before it
                for state in self.optimiser.state.values():
                    for value in state.values():
                        if isinstance(value, Tensor):
                            value.zero_()
                steady = [*self.parameters, *self.model.buffers(), self.at, self.loss_sum, self.right]
            else:
                steady = self._state()
            for tensor, value in zip(steady, before, strict=True):
                tensor.copy_(value)
        self.generator.set_state(drawn)
        torch.cuda.synchronize()
        return graph

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        with torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext():
            yield

    def begin_epoch(self) -> None:
        """Shuffles and sets the learning rate."""
        rate = self.task.recipe.learning_rate_at(self.epoch)
        self._began = time.monotonic()
        if self.stream is not None and self._graph is None:
            self._graph = self._capture()
        with self.on_stream():
            self.learning_rate.fill_(rate)
            if self.stream is None:
                for group in self.optimiser.param_groups:
                    group["lr"] = rate
            self.model.train()
            torch.randperm(len(self.order), device=self.device, generator=self.generator, out=self.order)
            for counter in (self.at, self.loss_sum, self.right):
                counter.zero_()
        self._left = self.steps

    def advance(self) -> bool:
        """Begin another step of the epoch if there is one and the device does not have enough in hand; whether one was begun."""
        while self._waiting and self._waiting[0].query():  # type: ignore[no-untyped-call]
            self._waiting.popleft()
        if not self._left or len(self._waiting) >= AHEAD:
            return False
        if self._graph is None:
            self._step()
        else:
            with self.on_stream():
                self._graph.replay()
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record()
            self._waiting.append(event)
        self._left -= 1
        return True

    @property
    def epoch_is_over(self) -> bool:
        return not self._left and not self._waiting

    def end_epoch(self, *, look: bool) -> Epoch:
        """Writes the epoch down; ``look`` asks for accuracies. The best network by validation is kept."""
        with self.on_stream():
            trained, classes = (
                self.steps * min(self.task.recipe.batch, len(self.order)),
                self.task.recipe.loss in ("classes", "arcface"),
            )
            loss, right = self.loss_sum.item() / self.steps, self.right.item() / trained
            held = len(self.validation[1]) > 0
            validated = self.accuracy(*self.validation) if look and held else None
            tested = (
                self.accuracy(*self.test)
                if look and not held and self.task.recipe.loss in ("classes", "pairs")
                else None
            )
            rate = self.task.recipe.learning_rate_at(self.epoch)
            done = Epoch(
                self.epoch, rate, loss, right if classes else None, validated, tested, time.monotonic() - self._began
            )
            if validated is not None and validated > max(
                (e.validation_accuracy or 0.0 for e in self.history), default=0.0
            ):
                self.best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.history.append(done)
        return done

    @torch.no_grad()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """Of uint8 [N, C, H, W]: sources, their one release, or new noise each time, as in training."""
        self.model.eval()
        right = torch.zeros((), device=self.device)
        for part, answers in zip(torch.split(images, 500), torch.split(labels, 500), strict=True):
            right += (self.forward(self.noise(part)).argmax(1) == answers).sum()
        self.model.train()
        return right.item() / len(images)

    @property
    def chosen(self) -> Epoch | None:
        """The epoch whose network ``choose`` takes: the first of the best by validation, as ``end_epoch`` keeps it; else the last."""
        looked = [epoch for epoch in self.history if epoch.validation_accuracy]
        return (
            max(looked, key=lambda epoch: epoch.validation_accuracy or 0.0)
            if looked
            else self.history[-1]
            if self.history
            else None
        )

    def choose(self) -> None:
        """Put the network of the epoch that validation chose in place of the last one's."""
        if self.best is not None:
            self.model.load_state_dict(self.best)

    def save(self, path: Path) -> None:
        """Everything needed to go on, under its name or not at all."""
        content = {
            "device": self.device.type,
            "model": self.model.state_dict(),
            "head": self.head.state_dict() if self.head else None,
            "best": self.best,
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "history": [asdict(epoch) for epoch in self.history],
        }
        with atomic_path(path) as temporary:
            torch.save(content, temporary)

    def resume(self, path: Path) -> None:
        content = torch.load(path, map_location=self.device, weights_only=True)
        if (
            saved := content.get("device", self.device.type)
        ) != self.device.type:  # a generator's state is of its device
            raise LdpSlicingError(
                f"{path} was trained on {saved} so far: go on there (--device {saved}), or name another folder"
            )
        self.model.load_state_dict(content["model"])
        if self.head:
            self.head.load_state_dict(content["head"])
        self.best = content["best"]
        self.optimiser.load_state_dict(content["optimiser"])
        if self.stream is not None:
            for group in self.optimiser.param_groups:
                group["lr"] = self.learning_rate
        try:
            self.generator.set_state(content["generator"].cpu())
        except RuntimeError:  # of a checkpoint that does not say its device
            raise LdpSlicingError(
                f"{path} was trained on another kind of device so far: go on there, or name another folder"
            ) from None
        self.history = [Epoch(**epoch) for epoch in content["history"]]
