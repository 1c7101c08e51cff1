"""PartialFace (Mi et al., ICCV 2023): nine of 54 frequencies, which nine and in which order being secret."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ldp_slicing.lab.peers.dct import channels_of, fill_maps, from_maps, invert_kept, to_maps
from ldp_slicing.lab.peers.interface import Peer, Release, draw

SUBSETS = (
    (5, 34, 38, 21, 42, 55, 57, 50, 62),
    (45, 49, 54, 52, 19, 11, 47, 41, 63),
    (4, 60, 29, 13, 32, 61, 59, 33, 31),
    (48, 15, 35, 22, 27, 40, 14, 43, 18),
    (36, 39, 26, 6, 53, 23, 12, 20, 58),
    (46, 51, 56, 44, 25, 37, 28, 30, 7),
)
ORDERS = ((0, 1, 2, 3, 4, 5, 6, 7, 8), (7, 3, 0, 6, 5, 4, 1, 2, 8), (4, 8, 6, 0, 2, 5, 3, 7, 1))
RANKS = tuple(itertools.product(range(len(SUBSETS)), range(len(ORDERS))))
SEARCH_STEPS = 15  # of least squares for each rank, to compare the residuals
TRIPLES = tuple(itertools.combinations(range(len(SUBSETS)), 3))  # the subsets that a person's training images may use


@dataclass(frozen=True, eq=False, kw_only=True)
class PartialFace(Peer):
    """Releases are nine frequencies of three colours: float32 [N, 27, H, W]. The rank (subset, order) is not sent.

    With ``people``, as in training, a person's images use three of the six subsets.
    """

    @property
    def name(self) -> str:
        return "partialface"

    @property
    def deviations(self) -> tuple[str, ...]:
        return (
            "three orders, as in the public code; the paper has six and does not list them",
            "one release per image; the paper trains on 18 releases of each",
        )

    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        maps, drawn = to_maps(images), draw(generators, (2,), "uniform", images.device)
        subset, order = ranks_of(drawn, people).unbind(1)
        chosen = _all_channels(images.device)[subset, order]
        return maps.gather(1, chosen[:, :, None, None].expand(-1, -1, *maps.shape[2:]))

    def image_of(self, release: Release) -> Tensor:
        """As if every image had the first subset in its first order."""
        return from_maps(fill_maps(release.values, rank_channels(0, 0)))

    def decode(self, release: Release) -> Tensor:
        """By least squares for each of the 18 ranks; the one that fits best is kept."""
        return find_ranks(release.values, self.mean_image)[0]

    def finds_secret(self, release: Release, keys: Sequence[bytes]) -> Tensor:
        device = release.values.device
        secrets = ranks_of(draw(self._generators(keys, device), (2,), "uniform", device))
        found = torch.tensor(RANKS, device=device)[search_ranks(release.values, self.mean_image)]
        return (found == secrets).all(1)


def rank_channels(subset: int, order: int) -> list[int]:
    """The 27 of 192 maps that a rank sends, in the order that they are sent."""
    return channels_of([SUBSETS[subset][place] for place in ORDERS[order]])


def ranks_of(drawn: Tensor, people: Tensor | None = None) -> Tensor:
    """float [N, 2] of [0, 1), the randomness of each image, to int64 [N, 2]: its secret, the subset and the order."""
    if people is None:
        subset = (drawn[:, 0] * len(SUBSETS)).long()
    else:
        triples = torch.tensor(TRIPLES, device=drawn.device)[people % len(TRIPLES)]
        subset = triples.gather(1, (drawn[:, :1] * triples.shape[1]).long())[:, 0]
    return torch.stack((subset, (drawn[:, 1] * len(ORDERS)).long()), 1)


@lru_cache(maxsize=4)
def _all_channels(device: torch.device) -> Tensor:
    """int64 [6, 3, 27]: the maps of every rank."""
    rows = [[rank_channels(subset, order) for order in range(len(ORDERS))] for subset in range(len(SUBSETS))]
    return torch.tensor(rows, device=device)


def search_ranks(values: Tensor, prior: Tensor | None = None) -> Tensor:
    """float32 [N, 27, H, W] to int64 [N]: the place in ``RANKS`` of the rank that fits each image best.

    Maps of a wrong rank belong to no image, so least squares leaves a larger residual. A few steps show that.
    """
    residuals = [invert_kept(values, rank_channels(*rank), prior, steps=SEARCH_STEPS).residual for rank in RANKS]
    return torch.stack(residuals).argmin(0)


def find_ranks(values: Tensor, prior: Tensor | None = None) -> tuple[Tensor, list[tuple[int, int]]]:
    """float32 [N, 27, H, W] to reconstructions, float64 [N, 3, H, W], and the rank that was found for each image."""
    found = search_ranks(values, prior)
    images = torch.zeros(len(values), 3, *values.shape[2:], dtype=torch.float64, device=values.device)
    for place in sorted(set(found.tolist())):
        chosen = found == place
        images[chosen] = invert_kept(values[chosen], rank_channels(*RANKS[place]), prior).images
    return images, [RANKS[place] for place in found.tolist()]


PEERS = (PartialFace(),)
