"""What every peer must do: shapes, repeatable releases, noise of its own for each image, sizes."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.experiments import map2v, peers, peers_identity
from ldp_slicing.lab.peers import MODULES, load_peer, load_peers
from ldp_slicing.lab.peers.interface import Peer
from ldp_slicing.lab.peers.training import TrainingSchedule
from ldp_slicing.torch.simulate import to_rgb
from tests.lab.peers.faces import SIDE, fitted, keys, people, quick, smooth_images

EVERY = [peer.name for system in MODULES for peer in load_peers(system)]
DETERMINISTIC = ("none", "duetface", "pro-face", "ppfr-fd-like", "advface-like")


@pytest.fixture(scope="module", params=EVERY)
def peer(request: pytest.FixtureRequest) -> Peer:
    return fitted(quick(load_peer(request.param)))


def test_a_release_has_all_its_forms(peer: Peer) -> None:
    images = smooth_images(3)
    release = peer.protect(images, keys(3), people(3))
    inputs, shown, decoded = release.as_input(), release.as_image(), release.decode()
    assert len(release.values) == 3
    assert inputs.dtype == torch.float32
    assert inputs.shape[2:] == (SIDE, SIDE)
    assert inputs.isfinite().all()
    assert (shown.dtype, shown.shape) == (torch.uint8, images.shape)
    assert decoded is None or (decoded.dtype, decoded.shape) == (torch.uint8, images.shape)
    size = release.size()
    assert size.values == release.values[0].numel()
    assert size.bytes == size.values * release.values.element_size()
    assert 0 < size.zlib_bytes <= size.bytes + 100
    assert str(release.values.dtype) == f"torch.{size.dtype}"


def test_the_key_decides_the_release(peer: Peer) -> None:
    image = smooth_images(1).expand(2, -1, -1, -1)
    first, second = keys(2)
    same = peer.protect(image, [first, first]).values
    assert torch.equal(same[0], same[1])
    both = peer.protect(image, [first, second]).values
    alone = peer.protect(image[:1], [second]).values[0]
    assert torch.equal(both[0], same[0])
    torch.testing.assert_close(both[1], alone, rtol=1e-4, atol=1e-3)  # it does not depend on the rest of the batch
    if not peer.name.startswith(DETERMINISTIC):
        several = peer.protect(smooth_images(1).expand(8, -1, -1, -1), keys(8)).values  # noise of its own for each
        assert len({one.numpy().tobytes() for one in several}) > 1


def test_inputs_are_standardised_on_public_images_and_weighted(peer: Peer) -> None:
    inputs = peer.protect(smooth_images(8, seed=99), keys(8, "statistics"), people(8)).as_input()
    weights = torch.ones(inputs.shape[1], 1, 1) if peer.input_weights is None else peer.input_weights
    standardised = inputs / weights.clamp_min(1e-6)  # as the inputs are
    assert standardised.mean((0, 2, 3)).abs().max() < 0.01
    assert (standardised.std((0, 2, 3), correction=0) - 1).abs().max() < 0.05
    assert weights.max() >= 1


def test_every_peer_says_what_it_is(peer: Peer) -> None:
    assert peer.hidden_from
    assert peer.name == "none" or peer.deviations
    assert peer.guarantee is None or (peer.guarantee.unit and peer.guarantee.epsilon >= 0)
    assert peer.name.partition(":")[0] in MODULES


def test_every_network_has_seed_0_as_the_pages_say() -> None:
    values = [getattr(peer, field.name) for peer in map(load_peer, EVERY) for field in fields(peer)]
    own = [one for one in values if isinstance(one, TrainingSchedule)]
    attacks = (peers.STUDENT, peers.NETWORK, peers_identity.OBJECTS, peers_identity.FACES, *map2v.SEARCHES.values())
    assert own
    assert {one.seed for one in (*own, *attacks)} == {0}


@pytest.mark.parametrize(("name", "bits"), [("ldp-slicing:eps20", 24), ("ldp-slicing:thick-eps5.2", 4)])
def test_networks_read_the_bits_of_our_releases(name: str, bits: int) -> None:
    peer = load_peer(name)
    release = peer.protect(smooth_images(2), keys(2))
    seen = peer.input_of(release)
    assert seen.shape[1] == bits + 3
    assert set(seen[:, :bits].unique().tolist()) == {0.0, 1.0}
    assert torch.equal(seen[:, bits:], release.values.float())
    assert (release.as_image() == to_rgb(release.values.int())).all()


def test_names_are_unique_and_known() -> None:
    assert len(set(EVERY)) == len(EVERY)
    with pytest.raises(LdpSlicingError, match="there is no peer 'enigma'; there are none"):
        load_peer("enigma")
    with pytest.raises(LdpSlicingError, match="there is no peer 'ldp-slicing:eps1'; there are ldp-slicing:eps20"):
        load_peer("ldp-slicing:eps1")
    assert load_peer("ldp-slicing").name == "ldp-slicing:eps20"


def test_wrong_arguments_are_refused() -> None:
    peer = load_peer("none")
    with pytest.raises(LdpSlicingError, match="every image needs a key of its own; got 1 for 2"):
        peer.protect(smooth_images(2), keys(1))
    with pytest.raises(LdpSlicingError, match=r"uint8 \[N, 3, H, W\]"):
        peer.protect(smooth_images(2).float(), keys(2))
    with pytest.raises(LdpSlicingError, match="none was not fitted"):
        peer.protect(smooth_images(1), keys(1)).as_input()
