"""Faces from embeddings of releases, with the help of a prior: an attack like Map2V (CVPR 2024) on any peer.

The adversary has the embedding of the victim's release, and searches for a face of the prior whose own embedding is
similar. Its loss is 1 - cosine, and a penalty on the distance from the mean of the prior: without it the search leaves
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

Access = Literal["gradients", "scores"]
Embed = Callable[[Tensor, int], Tensor]  # float32 [N, 3, H, W] of 0..255, and a step, to float32 [N, D] of length 1
BATCH = 128


@dataclass(frozen=True)
class Search:
    """How long to search. candidates: random faces to start from, the nearest few of which are averaged.

    Latents are measured in standard deviations of the candidates. directions, reach: if there are only scores, how many
    random directions are tried in a step, and how far. penalty: of the mean squared distance from the candidates' mean.
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
        """How many scores the system is asked for, for each victim; the candidates are shared by all."""
        return 0 if access == "gradients" else self.candidates + self.steps * (1 + self.directions)


class EmbedReleases:
    """The embedding of a release of each face: what a system that returns similarity scores gives away.

    All faces of one step are released with the same randomness. The adversary may choose it, because the faces are its
    own. In full precision, because small differences of scores matter.
    """

    def __init__(self, peer: Peer, recogniser: nn.Module) -> None:
        self.peer, self.recogniser = peer, recogniser

    @torch.no_grad()
    def __call__(self, images: Tensor, step: int) -> Tensor:
        keys = derive_keys(f"map2v {step}", len(images))
        inputs = self.peer.protect(to_bytes(images), keys).as_input()
        return embed_inputs(self.recogniser, inputs, precise=True)


def embed_unprotected(peer: Peer, recogniser: nn.Module) -> Embed:
    """The embedding of faces themselves, with gradients. peer: no protection, fitted. recogniser: its student."""
    known = peer.public_statistics
    return lambda images, _step: embed_inputs(recogniser, (images - known.mean) / known.deviation)


def embed_inputs(recogniser: nn.Module, inputs: Tensor, *, precise: bool = False) -> Tensor:
    """A peer's inputs to float32 [N, D] of length 1."""
    with half_precision(inputs.device, enabled=not precise):
        out: Tensor = recogniser(inputs)
    return functional.normalize(out.float())


def find_faces(
    wanted: Tensor, embed: Embed, prior: FacePrior, size: tuple[int, int], access: Access, search: Search
) -> Tensor:
    """float32 [N, D] embeddings of the victims' releases to uint8 [N, 3, *size]: the faces found.

    "gradients" follows those of ``embed``; "scores" has its results alone.
    """
    generator = torch.Generator().manual_seed(search.seed)
    candidates = prior.sample(search.candidates, generator)
    loss = _Loss(embed, prior, size, candidates, search.penalty, precise=access == "scores")
    found = loss.nearest(wanted, search.nearest).requires_grad_(True)
    optimiser = torch.optim.Adam([found], lr=search.rate)
    plan = torch.optim.lr_scheduler.MultiStepLR(optimiser, [3 * search.steps // 4], 0.1)
    slope = _gradient if access == "gradients" else _estimate
    for step in range(search.steps):
        found.grad = slope(found.detach(), wanted, loss, step, search, generator)
        optimiser.step()
        plan.step()
    with torch.no_grad():
        return to_bytes(torch.cat([loss.render(part) for part in torch.split(found, BATCH)]))


class _Loss:
    """How far faces are from the wanted embeddings, and from the mean of the prior.

    Points are latents in standard deviations of the candidates, float32 [N, ...].
    """

    def __init__(
        self,
        embed: Embed,
        prior: FacePrior,
        size: tuple[int, int],
        candidates: Tensor,
        penalty: float,
        *,
        precise: bool,
    ) -> None:
        self.embed, self.prior, self.size, self.penalty, self.precise = embed, prior, size, penalty, precise
        self.mean, self.deviation = candidates.mean(0), candidates.std(0).clamp_min(1e-6)
        self.candidates = (candidates - self.mean) / self.deviation

    def render(self, points: Tensor) -> Tensor:
        latents = self.mean + self.deviation * points
        return enlarge_images(self.prior.render(latents, precise=self.precise), self.size).clamp(0, 255)

    def distance(self, points: Tensor, wanted: Tensor, step: int) -> Tensor:
        """float32 [N]: 1 - cosine."""
        return 1 - (self.embed(self.render(points), step) * wanted).sum(1)

    def penalties(self, points: Tensor) -> Tensor:
        """float32 [N]."""
        return self.penalty * points.square().flatten(1).mean(1)

    @torch.no_grad()
    def nearest(self, wanted: Tensor, count: int) -> Tensor:
        """The mean of the candidates that are most similar to each victim."""
        seen = torch.cat([self.embed(self.render(part), -1) for part in torch.split(self.candidates, BATCH)])
        best = (wanted @ seen.T).topk(min(count, len(seen))).indices
        return self.candidates[best].mean(1)


def _gradient(
    found: Tensor, wanted: Tensor, loss: _Loss, step: int, _search: Search, _generator: torch.Generator
) -> Tensor:
    parts = []
    for some, aim in zip(torch.split(found, BATCH), torch.split(wanted, BATCH), strict=True):
        points = some.clone().requires_grad_(True)
        total = loss.distance(points, aim, step) + loss.penalties(points)
        parts.append(torch.autograd.grad(total.sum(), points)[0])
    return torch.cat(parts)


def _estimate(
    found: Tensor, wanted: Tensor, loss: _Loss, step: int, search: Search, generator: torch.Generator
) -> Tensor:
    """The mean of (distance(x + reach u) - distance(x)) / reach u over random directions u; the penalty's gradient."""
    points = found.clone().requires_grad_(True)
    slope = torch.autograd.grad(loss.penalties(points).sum(), points)[0]
    with torch.no_grad():
        here = _distances(found, wanted, loss, step)
        for _ in range(search.directions):
            direction = torch.randn(found.shape, generator=generator).to(found.device)
            change = (_distances(found + search.reach * direction, wanted, loss, step) - here) / search.reach
            slope = slope + change.view(-1, *[1] * (found.ndim - 1)) * direction / search.directions
    return slope


def _distances(points: Tensor, wanted: Tensor, loss: _Loss, step: int) -> Tensor:
    parts = zip(torch.split(points, BATCH), torch.split(wanted, BATCH), strict=True)
    return torch.cat([loss.distance(some, aim, step) for some, aim in parts])
