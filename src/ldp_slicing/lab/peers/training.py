"""How the peers' networks are trained: one loop, and a student of the recogniser that reads any number of maps."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.learners.models.face_networks import DlibCrop, DlibOfCrop
from ldp_slicing.lab.learners.objectives import distillation_loss
from ldp_slicing.lab.peers.interface import BATCH, STATISTICS, Peer, Release, derive_keys

SomePeer = TypeVar("SomePeer", bound=Peer)
SomeNetwork = TypeVar("SomeNetwork", bound=nn.Module)
EMBEDDED = 256  # images in one forward pass of the teacher
KEPT_BYTES = 12 << 30  # releases that are made once are kept on the device if they take up no more
TEMPERATURE = 0.1  # of the student's loss


@dataclass(frozen=True)
class TrainingSchedule:
    """How long and how fast to train. Batches are drawn anew in every epoch, in an order that the seed decides.

    warm_up: the share of the steps in which the rate rises from 0. It then falls to 0 along a cosine, unless it is
    ``constant``. clip: the largest norm of a gradient; None does not limit it.
    """

    epochs: int
    rate: float = 1e-3
    batch: int = 64
    seed: int = 0
    warm_up: float = 0.0
    decay: float = 0.0
    clip: float | None = None
    constant: bool = False

    def recorded(self) -> dict[str, Any]:
        """As rows have it. What was added later is left out where it has no effect, so that older rows stay valid."""
        return {name: value for name, value in asdict(self).items() if name != "constant" or value}


def minimise(
    loss: Callable[[Tensor, int], Tensor],
    parameters: Iterable[Tensor] | list[dict[str, Any]],
    count: int,
    schedule: TrainingSchedule,
    device: torch.device,
) -> float:
    """Minimise loss(indices of a batch, epoch) with AdamW over ``count`` examples; return the last epoch's mean loss.

    All batches are of one size: what is left at the end of an epoch is left out. Indices are on the CPU. The loss must
    not wait for the device: then the next step is prepared while one is computed.
    """
    optimiser = torch.optim.AdamW(
        parameters, lr=schedule.rate, weight_decay=schedule.decay, fused=device.type == "cuda" or None
    )
    generator = torch.Generator().manual_seed(schedule.seed)
    batch = max(1, min(schedule.batch, count))
    steps = max(1, schedule.epochs * (count // batch))
    warm = schedule.warm_up * steps

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / (warm + 1)
        if schedule.constant:
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))

    plan = torch.optim.lr_scheduler.LambdaLR(optimiser, factor)
    trained = [one for group in optimiser.param_groups for one in group["params"]]
    last: list[Tensor] = []
    with searching_for_algorithms(device):
        for epoch in range(schedule.epochs):
            last = []
            order = torch.randperm(count, generator=generator)[: count - count % batch]
            for indices in torch.split(order, batch):
                optimiser.zero_grad(set_to_none=True)
                value = loss(indices, epoch)
                value.backward()  # type: ignore[no-untyped-call]
                if schedule.clip is not None:
                    nn.utils.clip_grad_norm_(trained, schedule.clip)
                optimiser.step()
                plan.step()
                last.append(value.detach())
    return float(torch.stack(last).mean()) if last else float("nan")


@contextmanager
def searching_for_algorithms(device: torch.device) -> Iterator[None]:
    """Let cuDNN search for the fastest algorithms: in training, every step has the same shapes, so that it pays.

    ``torch.backends.cudnn.flags(benchmark=True)`` would switch cuDNN off: what it is not told it sets to False.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = device.type == "cuda"
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Initialise networks from a seed, and leave the global generator unchanged."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU only; torch.manual_seed would reseed every GPU
        yield


def half_precision(device: torch.device, *, enabled: bool = True) -> torch.autocast:
    """bfloat16 for networks on a GPU. Maps must be standardised first: raw ones differ by five orders of magnitude.

    Unlike in ``learners.graph``, the casts of weights are cached: the peers were measured so.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled and device.type == "cuda")


def channels_last(network: SomeNetwork) -> SomeNetwork:
    """The network with weights in the order that convolutions in half precision are fastest in."""
    return network.to(memory_format=torch.channels_last)


def shortened(peer: SomePeer, epochs: int | None) -> SomePeer:
    """The peer with no training longer than this, to try an experiment out."""
    if epochs is None:
        return peer
    values = {one.name: getattr(peer, one.name) for one in fields(peer)}
    short: dict[str, Any] = {
        name: replace(value, epochs=min(value.epochs, epochs))
        for name, value in values.items()
        if isinstance(value, TrainingSchedule)
    }
    return replace(peer, **short)


def frozen(network: nn.Module) -> nn.Module:
    """A copy for evaluation whose parameters get no gradients."""
    return copy.deepcopy(network).eval().requires_grad_(False)


def cosine_loss(seen: Tensor, wanted: Tensor) -> Tensor:
    """1 - cosine, a mean over [N, D] embeddings."""
    return 1 - functional.cosine_similarity(seen.float(), wanted.float()).mean()


@torch.no_grad()
def embeddings_of(teacher: nn.Module, images: Tensor) -> Tensor:
    """float32 [N, D]: the teacher's embeddings of uint8 images."""
    judge = frozen(teacher)
    return torch.cat([judge(part.float()).float() for part in torch.split(images, EMBEDDED)])


def student_of(teacher: nn.Module, channels: int, public: Tensor, *, seed: int = 0) -> nn.Module:
    """A copy of the teacher whose first convolution is new and takes ``channels`` standardised maps.

    public: uint8 [N, 3, H, W], some hundred; dlib's network gets its batch norms back from them.
    """
    copied: nn.Module = copy.deepcopy(teacher).requires_grad_(True)
    if isinstance(copied, DlibOfCrop):
        copied.unfold(public[:STATISTICS])
        copied = nn.Sequential(DlibCrop(), copied.network)
    path, first = next((path, part) for path, part in copied.named_modules() if isinstance(part, nn.Conv2d))
    with seeded(seed):
        fresh = nn.Conv2d(
            channels,
            first.out_channels,
            first.kernel_size,  # type: ignore[arg-type]
            first.stride,  # type: ignore[arg-type]
            first.padding,  # type: ignore[arg-type]
            bias=first.bias is not None,
        )
    parent, _, name = path.rpartition(".")
    setattr(copied.get_submodule(parent), name, fresh.to(public.device))
    return channels_last(copied)


class PublicReleases:
    """Inputs for training: releases of public images, each made once or, if ``redrawn``, anew in every epoch.

    people: int64 [N], for systems whose training releases depend on the identity; None for queries, as adversaries make
    them. Releases that do not change are kept on the device if there is room.
    """

    def __init__(self, peer: Peer, public: Tensor, people: Tensor | None, label: str, *, redrawn: bool) -> None:
        self.peer, self.public, self.people, self.label = peer, public, people, label
        self.redrawn = redrawn and peer.is_random
        one = self._release(torch.arange(1), 0)
        self.channels = one.as_input().shape[1]
        self.kept: Tensor | None = None
        if not self.redrawn and len(public) * one.values[0].nbytes <= KEPT_BYTES:
            parts = torch.split(torch.arange(len(public)), BATCH)
            self.kept = torch.cat([self._release(part, 0).values for part in parts])

    def inputs(self, indices: Tensor, epoch: int) -> Tensor:
        """int64 [B] on the CPU to float32 [B, C', H, W] on the device: standardised inputs of these images."""
        if self.kept is None:
            return self._release(indices, epoch).as_input()
        height, width = self.public.shape[2:]
        return Release(self.kept[indices.to(self.kept.device)], self.peer, (height, width)).as_input()

    def _release(self, indices: Tensor, epoch: int) -> Release:
        keys = _keys_of(f"{self.label} {epoch if self.redrawn else 0}", len(self.public))
        where = indices.to(self.public.device)
        people = None if self.people is None else self.people[where]
        return self.peer.protect(self.public[where], [keys[i] for i in indices.tolist()], people)


@lru_cache(maxsize=4)
def _keys_of(label: str, count: int) -> list[bytes]:
    return derive_keys(label, count)


def distil(releases: PublicReleases, teacher: nn.Module, schedule: TrainingSchedule) -> nn.Module:
    """Teach a student to give the teacher's embedding of the source from a release of it.

    It is a recogniser for releases, and as such the utility of a peer. It also links releases to unprotected images, so
    it is an attack too (FaceLinkGen). The loss is that of the recipe "faces-teacher": each output should resemble the
    batch's embeddings as its own embedding does.
    """
    public = releases.public
    wanted = embeddings_of(teacher, public)
    wanted = wanted - wanted.mean(0)
    student = student_of(teacher, releases.channels, public, seed=schedule.seed).train()

    def loss(indices: Tensor, epoch: int) -> Tensor:
        inputs = releases.inputs(indices, epoch)
        with half_precision(public.device):
            seen = student(inputs)
        return distillation_loss(seen.float(), wanted[indices.to(wanted.device)], TEMPERATURE)

    minimise(loss, student.parameters(), len(public), schedule, public.device)
    return student.eval()
