"""DuetFace, PartialFace and DCTDP: what is sent, and what least squares makes of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from ldp_slicing.lab.metrics.images import psnr
from ldp_slicing.lab.peers.dct import to_maps
from ldp_slicing.lab.peers.dctdp import KEPT, Dctdp
from ldp_slicing.lab.peers.duetface import CLIENT, SERVER, DuetFace
from ldp_slicing.lab.peers.partialface import (
    ORDERS,
    RANKS,
    SUBSETS,
    TRIPLES,
    PartialFace,
    find_ranks,
    rank_channels,
    ranks_of,
)
from ldp_slicing.lab.peers.training import TrainingSchedule
from tests.lab.peers.faces import fitted, keys, people, smooth_images, teacher


def test_duetface_sends_54_frequencies_and_least_squares_returns_the_image() -> None:
    images = smooth_images(2)
    release = fitted(DuetFace()).protect(images, keys(2))
    assert release.values.shape == (2, 162, 16, 16)
    assert sorted(CLIENT + SERVER) == list(range(64))
    decoded = release.decode()
    assert decoded is not None
    level = decoded.float() - decoded.float().mean((2, 3), keepdim=True) + images.float().mean((2, 3), keepdim=True)
    assert psnr(level, images).min() > 25  # up to the mean colour, which is not sent


def test_partialface_sends_nine_of_the_54_frequencies() -> None:
    assert sorted(sum(SUBSETS, ())) == sorted(set(range(64)) - {0, 1, 2, 3, 8, 9, 10, 16, 17, 24})
    assert all(sorted(order) == list(range(9)) for order in ORDERS)
    assert len(TRIPLES) == 20
    images = smooth_images(1)
    values = PartialFace().protect(images, keys(1)).values
    assert any(torch.equal(values, to_maps(images)[:, rank_channels(*rank)]) for rank in RANKS)


def test_a_person_in_training_uses_three_subsets() -> None:
    drawn = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    subsets, orders = ranks_of(drawn, torch.full((200,), 25)).unbind(1)
    assert {*subsets.tolist()} == set(TRIPLES[5])
    assert {*orders.tolist()} == {0, 1, 2}
    assert {*map(tuple, ranks_of(drawn).tolist())} == {*RANKS}


def test_the_secret_rank_of_partialface_is_found() -> None:
    image, wanted = smooth_images(1, 12), [(0, 0), (2, 1), (5, 2), (3, 0)]
    values = torch.cat([to_maps(image)[:, rank_channels(*rank)] for rank in wanted])
    images, ranks = find_ranks(values, image[0].float().mean((1, 2), keepdim=True).expand(-1, 12, 12))
    assert ranks == wanted
    assert images.shape == (4, 3, 12, 12)


def test_a_found_rank_is_compared_with_that_of_the_key() -> None:
    release = fitted(PartialFace(), side=12).protect(smooth_images(6, 12), keys(6))
    assert release.peer.finds_secret(release, keys(6)).tolist() == [True] * 6
    assert not release.peer.finds_secret(release, keys(6, "another")).all()
    assert DuetFace().protect(smooth_images(1), keys(1)).peer.finds_secret(release, keys(6)) is None


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_noise_of_dctdp_has_the_scale_of_the_public_code(epsilon: float) -> None:
    images = smooth_images(1).expand(4, -1, -1, -1)
    noise = Dctdp(epsilon=epsilon, sensitivity="code").protect(images, keys(4)).values - to_maps(images)[:, KEPT]
    assert noise.abs().mean().item() == pytest.approx(1 / epsilon, rel=0.02)  # the scale of Laplace noise
    assert noise.square().mean().item() == pytest.approx(2 / epsilon**2, rel=0.05)
    flat = noise.flatten(1)
    assert torch.corrcoef(flat).fill_diagonal_(0).abs().max() < 0.02  # each image has a noise tensor of its own


def test_networks_read_the_maps_of_dctdp_by_how_clear_they_are() -> None:
    peer = fitted(Dctdp(epsilon=0.5, sensitivity="code"))
    weights = peer.input_weights
    assert weights is not None
    by_frequency = weights.view(3, 63)
    assert by_frequency[0, 0] > 0.9  # frequency (0, 1) of Y
    assert by_frequency[:, -1].max() < 0.2  # frequency (7, 7), of which nothing but noise is left
    first, second = (peer.protect(smooth_images(8), keys(8, label)).as_input() for label in ("a", "b"))
    agreement = (first * second).mean((0, 2, 3)) / (first.square().mean((0, 2, 3)) + 1e-12)
    assert agreement[weights.flatten() > 0.9].min() > 0.8


def test_the_noise_of_dctdp_covers_the_range_of_each_coefficient() -> None:
    peer = fitted(Dctdp(epsilon=0.5, sensitivity="range"))
    assert peer.low is not None
    assert peer.high is not None
    images = smooth_images(200, seed=5)
    clipped = to_maps(images)[:, KEPT].clamp(peer.low, peer.high)
    noise = (peer.protect(images, keys(200)).values - clipped).abs().mean((0, 2, 3))
    expected = (2 * (peer.high - peer.low)).mean((1, 2))
    assert ((noise / expected - 1).abs() < 0.1).all()
    assert peer.guarantee is not None
    assert (peer.guarantee.unit, peer.guarantee.epsilon) == ("coefficient", 0.5)
    assert Dctdp(epsilon=0.5, sensitivity="code").guarantee is None


@pytest.mark.parametrize("learned", [False, True])
def test_dctdp_moves_coefficients_into_their_public_range_before_noise_is_added(learned: bool) -> None:
    """The noise covers that range and nothing beyond it."""
    public = smooth_images(8, seed=99) // 4 + 96  # of little contrast
    schedule = TrainingSchedule(epochs=1, batch=4)
    clean, noisy = (
        Dctdp(epsilon=epsilon, sensitivity="range", learned=learned, schedule=schedule).fit(
            public, people(8), teacher()
        )
        for epsilon in (1e6, 0.5)
    )
    assert clean.low is not None
    assert clean.high is not None
    low, high = clean.low, clean.high
    image = 255 * (smooth_images(1) > 127).to(torch.uint8)
    maps = to_maps(image)[0, KEPT]
    centre = maps.clamp(low, high)
    assert ((maps < low) | (maps > high)).float().mean() > 0.5
    assert ((clean.protect(image, keys(1)).values[0] - centre) / (high - low)).abs().max() < 1e-3
    values = noisy.protect(image.expand(200, -1, -1, -1), keys(200)).values
    scaled = (values - centre) / noisy.scale()
    below, above = scaled[:, maps < low], scaled[:, maps > high]
    for part in (below, above):  # more than 5 standard errors: 200 draws for each of thousands
        assert part.mean().abs() < 0.01
        assert part.abs().mean().item() == pytest.approx(1, rel=0.02)


def test_learned_budgets_keep_their_mean() -> None:
    peer = fitted(Dctdp(epsilon=0.5, sensitivity="range", learned=True, schedule=TrainingSchedule(epochs=2, batch=4)))
    assert peer.shares is not None
    assert peer.shares.mean().item() == pytest.approx(1, rel=1e-4)
    assert peer.shares.std() > 0
    assert peer.guarantee is not None
    assert peer.guarantee.largest == pytest.approx(0.5 * peer.shares.max().item())
    assert peer.high is not None
    assert peer.low is not None
    assert torch.allclose(peer.scale() * peer.shares * 0.5, peer.high - peer.low, rtol=1e-4)


def test_learned_budgets_go_to_the_maps_that_tell_most() -> None:
    schedule = TrainingSchedule(epochs=40, batch=8)
    peer = fitted(Dctdp(epsilon=0.5, sensitivity="range", learned=True, schedule=schedule), count=32)
    uniform = fitted(Dctdp(epsilon=0.5, sensitivity="range"), count=32)
    assert peer.shares is not None
    by_map = peer.shares.mean((1, 2))
    assert by_map.max() > 3
    images = smooth_images(32, seed=7)

    def agreement(one: Dctdp) -> Tensor:
        """How alike two releases of an image are to a network, compared with releases of different images."""
        first, second = (one.protect(images, keys(32, label)).as_input().flatten(1) for label in ("a", "b"))
        alike = cosine_similarity(first[:, None], second[None], dim=-1)
        return alike.diagonal().mean() - alike.mean()

    assert agreement(peer) > 2 * agreement(uniform)


def test_least_squares_reads_the_public_code_of_dctdp_but_not_its_paper() -> None:
    images = smooth_images(3, 12)
    means, errors = images.float().mean((2, 3), keepdim=True), {}
    for kind in ("code", "range"):
        decoded = fitted(Dctdp(epsilon=0.5, sensitivity=kind), side=12).protect(images, keys(3)).decode()
        assert decoded is not None
        errors[kind] = psnr(decoded - decoded.float().mean((2, 3), keepdim=True) + means, images).mean()
    assert errors["code"] > errors["range"] + 5
