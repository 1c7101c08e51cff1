"""Small networks for any size of image, and the loop that trains them until a number of steps or a stop."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ldp_slicing.lab.bits import log_odds
from ldp_slicing.lab.learners.graph import capture
from ldp_slicing.lab.peers.training import channels_last, searching_for_algorithms, seeded
from ldp_slicing.plan import Plan

EMBEDDING = 128
COARSEST = 6  # the side at which a network stops halving
STAGES = 4  # at most
GRAPHED = 20  # steps from which on capturing a graph pays
QUEUED = 32  # steps that wait on the device, at most
FEW = {"cuda": (4, 40), "cpu": (1, 2)}  # steps to time; the first ones of a kind are slow


class Stopped(Exception):  # noqa: N818 - not an error
    """The time is up, or the owner has interrupted."""


class Stoppable(TorchFunctionMode):
    """Check before every call of torch whether to stop: for work that takes seconds but has no training steps.

    >>> with Stoppable(bench.stop):             # doctest: +SKIP
    ...     decoder = Decoder.fit(released, plan)
    """

    def __init__(self, stop: Callable[[], bool]) -> None:
        super().__init__()
        self.stop = stop

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:  # noqa: ANN401 - of any function of torch
        if self.stop():
            raise Stopped
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Effort:
    """How large networks and batches are: what a device can afford.

    width: channels of the first layer. pixels: of one batch, at most. rate: of the network that reconstructs; with few
    steps a high one gets further.
    """

    width: int
    batch: int
    pixels: int
    attacked: int
    tested: int
    rate: float = 1e-3

    @classmethod
    def on(cls, device: torch.device) -> Effort:
        if device.type == "cuda":
            return cls(width=48, batch=256, pixels=1_600_000, attacked=800, tested=4000)
        return cls(width=16, batch=32, pixels=32_768, attacked=120, tested=1500, rate=3e-3)

    def batch_of(self, pixels: int, count: int) -> int:
        """Images in a batch, if each has so many pixels and there are ``count`` of them."""
        return max(1, min(self.batch, max(8, self.pixels // pixels), count))


class SmallNetwork(nn.Module):
    """[N, channels, H, W] to [N, outputs]: convolutions that halve the image until it is small, with shortcuts."""

    def __init__(self, channels: int, outputs: int, side: int, width: int) -> None:
        super().__init__()
        stride = 2 if side > 96 else 1  # the first layer of large images halves them
        halvings = max(1, min(STAGES, round(math.log2(max(2.0, side / stride / COARSEST)))))
        widths = [min(width << i, 8 * width) for i in range(halvings + 1)]
        self.stem = _unit(channels, widths[0], stride)
        self.stages = nn.ModuleList(_Stage(a, b) for a, b in itertools.pairwise(widths))
        self.head = nn.Linear(2 * widths[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        out: Tensor = self.head(torch.cat((x.mean((2, 3)), x.amax((2, 3))), 1))
        return out


class _Stage(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.enter = _unit(inside, outside, 1)
        self.inner = nn.Sequential(_unit(outside, outside, 1), _unit(outside, outside, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.enter(x), 2)
        out: Tensor = x + self.inner(x)
        return out


def _unit(inside: int, outside: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)
    )


def build(channels: int, outputs: int, side: int, effort: Effort, seed: int, device: torch.device) -> SmallNetwork:
    with seeded(seed):
        return channels_last(SmallNetwork(channels, outputs, side, effort.width).to(device)).train()


def fit(
    loss: Callable[[], Tensor],
    network: nn.Module,
    steps: int,
    batches: Batches,
    *,
    rate: float,
    decay: float,
    stop: Callable[[], bool],
    graph: bool = True,
) -> float:
    """Minimise ``loss()``, which draws its own batch, with AdamW; return the seconds that it took.

    The rate rises for a fifth of the steps and then falls to 0 along a cosine. Raises Stopped if ``stop`` says so.
    graph: whether the loss works on the device alone; then a GPU replays each step as a CUDA graph.
    """
    device = batches.device
    warm = max(1, steps // 5)

    def rate_at(step: int) -> float:
        rises = step < warm
        return rate * ((step + 1) / warm if rises else 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm))))

    with searching_for_algorithms(device):
        advance = _stepper(loss, network, batches, rate, decay, graph=graph and steps >= GRAPHED)
        began = clock(device)
        for step in range(steps):
            if stop():
                raise Stopped
            advance(rate_at(step))
            if step % QUEUED == QUEUED - 1:
                clock(device)  # so that a stop is noticed soon
        return clock(device) - began


def _stepper(
    loss: Callable[[], Tensor], network: nn.Module, batches: Batches, rate: float, decay: float, *, graph: bool
) -> Callable[[float], None]:
    """A function that takes one step at a given rate."""
    device = batches.device
    cuda = device.type == "cuda"
    trained = [one for one in network.parameters() if one.requires_grad]
    current = torch.tensor(rate, device=device)  # on the device: one graph for all rates
    where: Any = current if cuda else rate
    optimiser = torch.optim.AdamW(trained, lr=where, weight_decay=decay, fused=cuda or None, capturable=cuda)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()

    def eager(now: float) -> None:
        current.fill_(now)
        if not cuda:
            for group in optimiser.param_groups:
                group["lr"] = now
        step()

    if not (cuda and graph):
        return eager
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    state = [*network.parameters(), *network.buffers()]
    captured = capture(step, state, optimiser, batches.generator, stream)

    def replay(now: float) -> None:
        with torch.cuda.stream(stream):
            current.fill_(now)
            captured.replay()

    return replay


def clock(device: torch.device) -> float:
    """The time, after everything that the device was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic()


class Batches:
    """Random batches of indices and random shifts and mirror images, all on the device."""

    def __init__(self, count: int, size: int, seed: int, device: torch.device) -> None:
        self.count, self.size, self.device = count, size, device
        self.generator = torch.Generator(device).manual_seed(seed)

    def draw(self) -> Tensor:
        return self.number(self.count, self.size)

    def number(self, below: int, count: int) -> Tensor:
        return torch.randint(below, (count,), device=self.device, generator=self.generator)

    def vary(self, images: Tensor) -> Tensor:
        """[N, C, H, W]: each image shifted by up to an eighth and mirrored at random. The edges are repeated."""
        count, _, height, width = images.shape
        rows, columns = (torch.arange(side, device=self.device).expand(count, side) for side in (height, width))
        columns = torch.where(self.number(2, count)[:, None] == 1, width - 1 - columns, columns)
        by = [self.number(2 * (side // 8) + 1, count)[:, None] - side // 8 for side in (height, width)]
        rows, columns = (rows + by[0]).clamp(0, height - 1), (columns + by[1]).clamp(0, width - 1)
        images = images.gather(2, rows[:, None, :, None].expand(-1, images.shape[1], -1, width))
        return images.gather(3, columns[:, None, None, :].expand(-1, images.shape[1], height, -1))


def odds_of(plan: Plan, device: torch.device) -> Tensor:
    """float32 [8 C]: the log-odds of every bit."""
    return torch.from_numpy(log_odds(plan)).flatten().float().to(device)
