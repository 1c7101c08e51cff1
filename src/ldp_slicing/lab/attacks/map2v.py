"""Faces from similarity scores, with the help of a prior: an attack like Map2V (CVPR 2024) on any peer.

The adversary has one release of the victim and a recogniser E for releases. It searches for a face of the prior whose
own releases have the victim's embedding: the loss is 1 - cos(E(protect(face)), E(release of the victim)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.attacks.face_prior import FacePrior, enlarge_images
from ldp_slicing.lab.peers.interface import Peer, derive_keys, to_bytes
from ldp_slicing.lab.peers.training import half_precision

Access = Literal["white-box", "zeroth-order"]
BATCH = 128
TRUNCATION = 0.8  # faces lie between the start and what was found


@dataclass(frozen=True)
class Search:
    """How long to search. candidates: random faces to start from, the nearest few of which are averaged.

    directions, reach: for the zeroth order, how many random directions are tried in a step, and how far. A query is one
    release of one image of the adversary's; the victim has released one image once.
    """

    steps: int
    rate: float = 0.05
    candidates: int = 500
    nearest: int = 5
    directions: int = 16
    reach: float = 0.1
    seed: int = 0

    def queries(self, access: Access) -> int:
        """For each victim, but the candidates are shared by all."""
        return self.candidates + self.steps * (1 if access == "white-box" else 1 + self.directions)


class _System:
    """The attacked system: faces of the prior, released under new keys for every query, to embeddings of length 1."""

    def __init__(self, peer: Peer, recogniser: nn.Module, prior: FacePrior, size: tuple[int, int]) -> None:
        self.peer, self.recogniser, self.prior, self.size, self.asked = peer, recogniser, prior, size, 0

    def embed(self, latents: Tensor, *, gradients: bool = False) -> Tensor:
        images = enlarge_images(self.prior.render(latents), self.size)
        keys = derive_keys(f"map2v {self.asked}", len(latents))
        self.asked += 1
        if gradients:
            release = self.peer.protect_softly(images.clamp(0, 255), keys)
        else:
            release = self.peer.protect(to_bytes(images), keys)
        return embed_inputs(self.recogniser, release.as_input())


def embed_inputs(recogniser: nn.Module, inputs: Tensor) -> Tensor:
    """A peer's inputs to float32 [N, D] of length 1."""
    with half_precision(inputs.device):
        out: Tensor = recogniser(inputs)
    return functional.normalize(out.float())


def find_faces(
    wanted: Tensor,
    peer: Peer,
    recogniser: nn.Module,
    prior: FacePrior,
    size: tuple[int, int],
    access: Access,
    search: Search,
) -> Tensor:
    """float32 [N, D] embeddings of the victims' releases to uint8 [N, 3, *size]: the faces found.

    recogniser: frozen, E of the module's docstring. "white-box" has its gradients and those of the release;
    "zeroth-order" has the scores alone.
    """
    system = _System(peer, recogniser, prior, size)
    generator = torch.Generator().manual_seed(search.seed)
    start = _nearest(wanted, system, prior.sample(search.candidates, generator), search.nearest)
    found = start.clone().requires_grad_(True)
    optimiser = torch.optim.Adam([found], lr=search.rate)
    plan = torch.optim.lr_scheduler.MultiStepLR(optimiser, [3 * search.steps // 4], 0.1)
    slope = _gradient if access == "white-box" else _estimate
    for _ in range(search.steps):
        found.grad = slope(found, start, wanted, system, search, generator)
        optimiser.step()
        plan.step()
    with torch.no_grad():
        faces = [prior.render(part) for part in torch.split(_truncated(found, start), BATCH)]
        return to_bytes(enlarge_images(torch.cat(faces), size))


def _truncated(found: Tensor, start: Tensor) -> Tensor:
    return start + TRUNCATION * (found - start)


@torch.no_grad()
def _nearest(wanted: Tensor, system: _System, candidates: Tensor, count: int) -> Tensor:
    """The mean latent of the candidates that are most similar to each victim."""
    seen = torch.cat([system.embed(part) for part in torch.split(candidates, BATCH)])
    best = (wanted @ seen.T).topk(min(count, len(candidates))).indices
    return candidates[best].mean(1)


def _gradient(
    found: Tensor, start: Tensor, wanted: Tensor, system: _System, _search: Search, _generator: torch.Generator
) -> Tensor:
    whole = torch.empty_like(found)
    for i in range(0, len(found), BATCH):
        part = found.detach()[i : i + BATCH].requires_grad_(True)
        seen = system.embed(_truncated(part, start[i : i + BATCH]), gradients=True)
        loss = (1 - (seen * wanted[i : i + BATCH]).sum(1)).sum()
        (whole[i : i + BATCH],) = torch.autograd.grad(loss, part)
    return whole


@torch.no_grad()
def _estimate(
    found: Tensor, start: Tensor, wanted: Tensor, system: _System, search: Search, generator: torch.Generator
) -> Tensor:
    """The mean of (loss(w + reach u) - loss(w)) / reach u over random unit directions u."""
    count, rest = len(found), found.shape[1:]
    drawn = torch.randn(search.directions, count, *rest, generator=generator).to(found.device)
    directions = functional.normalize(drawn.flatten(2), dim=2).view(drawn.shape)
    tried = torch.cat((found[None], found + search.reach * directions)).flatten(0, 1)
    repeated = [one.repeat(1 + search.directions, *[1] * (one.ndim - 1)) for one in (start, wanted)]
    losses = _losses(_truncated(tried, repeated[0]), repeated[1], system.embed).view(1 + search.directions, count)
    change = (losses[1:] - losses[:1]) / search.reach
    return (change.view(*change.shape, *[1] * len(rest)) * directions).mean(0)


def _losses(latents: Tensor, wanted: Tensor, embed: Callable[[Tensor], Tensor]) -> Tensor:
    parts = zip(torch.split(latents, BATCH), torch.split(wanted, BATCH), strict=True)
    return torch.cat([1 - (embed(some) * aim).sum(1) for some, aim in parts])
