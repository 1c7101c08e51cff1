"""How the peers' networks are trained: one loop, and a student of the recogniser that reads any number of maps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.learners.models.face_networks import DlibCrop, DlibOfCrop
from ldp_slicing.lab.peers.interface import BATCH, STATISTICS, Peer, derive_keys

SomePeer = TypeVar("SomePeer", bound=Peer)


@dataclass(frozen=True)
class TrainingSchedule:
    """How long and how fast to train. Batches are drawn anew in every epoch, in an order that the seed decides."""

    epochs: int
    rate: float = 1e-3
    batch: int = 64
    seed: int = 0


def minimise(
    loss: Callable[[Tensor], Tensor],
    parameters: Iterable[Tensor] | list[dict[str, object]],
    count: int,
    schedule: TrainingSchedule,
    device: torch.device,
) -> float:
    """Minimise loss(indices of a batch) with Adam over ``count`` examples; return the mean loss of the last epoch.

    The rate falls to 0 along a cosine.
    """
    optimiser = torch.optim.Adam(parameters, lr=schedule.rate)
    generator = torch.Generator().manual_seed(schedule.seed)
    steps = max(1, schedule.epochs * -(-count // schedule.batch))
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    last: list[Tensor] = []
    for _ in range(schedule.epochs):
        last = []
        for indices in torch.split(torch.randperm(count, generator=generator), schedule.batch):
            optimiser.zero_grad(set_to_none=True)
            value = loss(indices.to(device))
            value.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            plan.step()
            last.append(value.detach())
    return float(torch.stack(last).mean()) if last else float("nan")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Initialise networks from a seed, and leave the global generator unchanged."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU only; torch.manual_seed would reseed every GPU
        yield


def half_precision(device: torch.device) -> torch.autocast:
    """bfloat16 for networks on a GPU. Maps must be standardised first: raw ones differ by five orders of magnitude."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


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
    return torch.cat([judge(part.float()).float() for part in torch.split(images, BATCH)])


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
    return copied


def distil(
    peer: Peer,
    public: Tensor,
    people: Tensor,
    teacher: nn.Module,
    schedule: TrainingSchedule,
    *,
    releases: int | None = 1,
) -> nn.Module:
    """Teach a student to give the teacher's embedding of the source from a release of it.

    It is a recogniser for releases, and as such the utility of a peer. It also links releases to unprotected images, so
    it is an attack too (FaceLinkGen).

    releases: how many releases there are of each public image. None: a new one in every epoch, as methods that redraw
    their noise do.
    """
    wanted = embeddings_of(teacher, public)
    wanted = wanted - wanted.mean(0)
    channels = peer.protect(public[:1], derive_keys("one", 1), people[:1]).as_input().shape[1]
    student = student_of(teacher, channels, public, seed=schedule.seed).train()
    seen = torch.zeros(len(public), dtype=torch.int64)  # how often each image was used
    known = [derive_keys(f"release {number}", len(public)) for number in range(releases or schedule.epochs)]

    def loss(indices: Tensor) -> Tensor:
        chosen = indices.cpu()
        keys = [known[int(seen[i]) % len(known)][i] for i in chosen.tolist()]
        seen[chosen] += 1
        with torch.no_grad():
            inputs = peer.protect(public[indices], keys, people[indices]).as_input()
        with half_precision(public.device):
            return cosine_loss(student(inputs), wanted[indices])

    minimise(loss, student.parameters(), len(public), schedule, public.device)
    return student.eval()
