"""Faces from one release, with the help of a prior: an attack like Map2V (CVPR 2024) on any peer.

The adversary has the embedding of the victim's release, and searches for a face of the prior whose own embedding is
similar. Its loss is 1 - cosine, and a penalty on latents that the prior would hardly draw: without it the search leaves
the faces and finds images that deceive one network alone.
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
Embed = Callable[[Tensor], Tensor]  # float32 [N, 3, H, W] of 0..255 to float32 [N, D] of length 1
BATCH = 128


@dataclass(frozen=True)
class Search:
    """How long to search. candidates: random faces to start from, the nearest few of which are averaged.

    directions, reach: for the zeroth order, how many random directions are tried in a step, and how far. penalty: of
    the mean squared deviation of a latent from the candidates', in units of their variance.
    """

    steps: int
    rate: float = 0.05
    candidates: int = 500
    nearest: int = 5
    directions: int = 16
    reach: float = 0.1
    penalty: float = 0.0
    seed: int = 0

    def queries(self, access: Access) -> int:
        """How many faces are embedded for each victim; the candidates are shared by all."""
        return self.candidates + self.steps * (1 if access == "white-box" else 1 + self.directions)


class EmbedReleases:
    """The embedding of a new release of each face: what a system that returns similarity scores gives away."""

    def __init__(self, peer: Peer, recogniser: nn.Module) -> None:
        self.peer, self.recogniser, self.asked = peer, recogniser, 0

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        keys = derive_keys(f"map2v {self.asked}", len(images))
        self.asked += 1
        return embed_inputs(self.recogniser, self.peer.protect(to_bytes(images), keys).as_input())


def embed_unprotected(peer: Peer, recogniser: nn.Module) -> Embed:
    """The embedding of faces themselves, with gradients. peer: no protection, fitted. recogniser: its student."""
    known = peer.public_statistics
    return lambda images: embed_inputs(recogniser, (images - known.mean) / known.deviation)


def embed_inputs(recogniser: nn.Module, inputs: Tensor) -> Tensor:
    """A peer's inputs to float32 [N, D] of length 1."""
    with half_precision(inputs.device):
        out: Tensor = recogniser(inputs)
    return functional.normalize(out.float())


def find_faces(
    wanted: Tensor, embed: Embed, prior: FacePrior, size: tuple[int, int], access: Access, search: Search
) -> Tensor:
    """float32 [N, D] embeddings of the victims' releases to uint8 [N, 3, *size]: the faces found.

    "white-box" follows the gradients of ``embed``; "zeroth-order" has its results alone.
    """
    generator = torch.Generator().manual_seed(search.seed)
    candidates = prior.sample(search.candidates, generator)
    loss = _Loss(embed, prior, size, candidates, search.penalty)
    found = loss.nearest(wanted, candidates, search.nearest).requires_grad_(True)
    optimiser = torch.optim.Adam([found], lr=search.rate)
    plan = torch.optim.lr_scheduler.MultiStepLR(optimiser, [3 * search.steps // 4], 0.1)
    slope = _gradient if access == "white-box" else _estimate
    for _ in range(search.steps):
        found.grad = slope(found.detach(), wanted, loss, search, generator)
        optimiser.step()
        plan.step()
    with torch.no_grad():
        return to_bytes(torch.cat([loss.render(part) for part in torch.split(found, BATCH)]))


class _Loss:
    """How far faces are from the wanted embeddings, and their latents from what the prior draws."""

    def __init__(
        self, embed: Embed, prior: FacePrior, size: tuple[int, int], candidates: Tensor, penalty: float
    ) -> None:
        self.embed, self.prior, self.size, self.penalty = embed, prior, size, penalty
        self.mean, self.deviation = candidates.mean(0), candidates.std(0).clamp_min(1e-6)

    def render(self, latents: Tensor) -> Tensor:
        return enlarge_images(self.prior.render(latents), self.size).clamp(0, 255)

    def __call__(self, latents: Tensor, wanted: Tensor) -> Tensor:
        """float32 [N]."""
        unlikely = ((latents - self.mean) / self.deviation).square().flatten(1).mean(1)
        return 1 - (self.embed(self.render(latents)) * wanted).sum(1) + self.penalty * unlikely

    @torch.no_grad()
    def nearest(self, wanted: Tensor, candidates: Tensor, count: int) -> Tensor:
        """The mean latent of the candidates that are most similar to each victim."""
        seen = torch.cat([self.embed(self.render(part)) for part in torch.split(candidates, BATCH)])
        best = (wanted @ seen.T).topk(min(count, len(candidates))).indices
        return candidates[best].mean(1)


def _gradient(found: Tensor, wanted: Tensor, loss: _Loss, _search: Search, _generator: torch.Generator) -> Tensor:
    parts = []
    for some, aim in zip(torch.split(found, BATCH), torch.split(wanted, BATCH), strict=True):
        latents = some.clone().requires_grad_(True)
        parts.append(torch.autograd.grad(loss(latents, aim).sum(), latents)[0])
    return torch.cat(parts)


@torch.no_grad()
def _estimate(found: Tensor, wanted: Tensor, loss: _Loss, search: Search, generator: torch.Generator) -> Tensor:
    """The mean of (loss(w + reach u) - loss(w)) / reach u over random unit directions u."""
    count, rest = len(found), found.shape[1:]
    drawn = torch.randn(search.directions, count, *rest, generator=generator).to(found.device)
    directions = functional.normalize(drawn.flatten(2), dim=2).view(drawn.shape)
    tried = torch.cat((found[None], found + search.reach * directions)).flatten(0, 1)
    aims = wanted.repeat(1 + search.directions, 1)
    parts = zip(torch.split(tried, BATCH), torch.split(aims, BATCH), strict=True)
    losses = torch.cat([loss(some, aim) for some, aim in parts]).view(1 + search.directions, count)
    change = (losses[1:] - losses[:1]) / search.reach
    return (change.view(*change.shape, *[1] * len(rest)) * directions).mean(0)
