"""The peers that are trained, and the student: at tiny size, training must help."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.learners.models.face_networks import DlibOfCrop
from ldp_slicing.lab.peers import MODULES, load_peer, load_peers
from ldp_slicing.lab.peers.advface import AdvFace, split_recogniser
from ldp_slicing.lab.peers.cloak import Cloak
from ldp_slicing.lab.peers.dct import channels_of, from_maps, to_maps
from ldp_slicing.lab.peers.interface import Peer
from ldp_slicing.lab.peers.minusface import MinusFace
from ldp_slicing.lab.peers.ppfrfd import PpfrFd
from ldp_slicing.lab.peers.proface import ProFace, obfuscate
from ldp_slicing.lab.peers.slicing import Slicing
from ldp_slicing.lab.peers.training import (
    PublicReleases,
    TrainingSchedule,
    distil,
    embeddings_of,
    minimise,
    student_of,
)
from ldp_slicing.plan import Plan
from tests.lab.peers.faces import fitted, keys, people, quick, smooth_images, teacher

TRAINED = ("dctdp:range-eps0.5", "minusface", "instahide:k2", "peep:k64", "pro-face", "cloak", "ppfr-fd", "advface")


def test_the_first_stage_of_minusface_learns_the_image() -> None:
    images = smooth_images(8, seed=99)
    short, long = (fitted(MinusFace(width=8, schedule=TrainingSchedule(epochs, 0.01, 8))) for epochs in (0, 50))
    errors = [
        (from_maps(to_maps(images) - one.residue(images).detach()) - images).abs().mean() for one in (short, long)
    ]
    assert errors[1] < 0.8 * errors[0]


def test_minusface_shuffles_all_maps_of_each_image_by_its_key() -> None:
    peer, image = fitted(quick(MinusFace())), smooth_images(1)
    values = peer.protect(image, keys(1)).values
    with torch.no_grad():
        plain = from_maps(peer.residue(image)) / 255
    assert not torch.allclose(values, plain)
    assert values.min() >= 0
    assert values.max() <= 1
    generator = torch.Generator().manual_seed(4)
    shuffled = peer.release_values(image, [generator])
    order = torch.rand(192, generator=torch.Generator().manual_seed(4)).argsort(stable=True)
    with torch.no_grad():
        assert torch.allclose(shuffled, from_maps(peer.residue(image)[:, order]) / 255, atol=1e-5)


def test_cloak_learns_more_noise_the_more_it_counts() -> None:
    steps = {"noise": TrainingSchedule(20, 0.05, 8), "accuracy": TrainingSchedule(1, 1e-4, 8)}
    little, much = (fitted(Cloak(trade_off=trade_off, **steps)) for trade_off in (0.0, 10.0))
    assert little.deviation is not None
    assert much.deviation is not None
    assert much.deviation.mean() > 2 * little.deviation.mean()
    images = smooth_images(1).expand(200, -1, -1, -1)
    values = much.protect(images, keys(200)).values
    assert torch.allclose(values.std(0).mean(), much.deviation.mean(), rtol=0.05)


def test_decoding_cloak_removes_its_offset() -> None:
    images, shape = smooth_images(3), (3, 16, 16)
    offset = torch.linspace(-0.8, 0.8, 768).view(shape)
    peer = replace(Cloak(trade_off=10.0), offset=offset, deviation=torch.full(shape, 1e-4))
    decoded = peer.decode(peer.protect(images, keys(3)))
    assert (decoded - images).abs().max() < 0.1


class _Texture(nn.Module):
    """[N, 3, H, W] to [N, 4]: how much neighbours differ in each quarter of an image, which a blur removes."""

    def forward(self, x: Tensor) -> Tensor:
        differences = (x[..., 1:] - x[..., :-1]).abs().mean(1, keepdim=True)
        return 0.02 * functional.adaptive_avg_pool2d(differences, 2).flatten(1)


def test_releases_of_pro_face_resemble_their_person_to_the_recogniser() -> None:
    who = people(8)
    quarter = torch.zeros(8, 4).scatter_(1, who[:, None], 1.0).view(8, 1, 2, 2)  # of each person, with stripes
    stripes = 60.0 * (-1) ** torch.arange(16) * quarter.repeat_interleave(8, 2).repeat_interleave(8, 3)
    images = (smooth_images(8, seed=99) / 2 + 64 + stripes).clamp(0, 255).to(torch.uint8)
    peer = ProFace(obfuscation="blur", schedule=TrainingSchedule(80, 3e-3, 8)).fit(images, who, _Texture())
    released, real = _Texture()(peer.image_of(peer.protect(images, keys(8)))), _Texture()(images.float())
    apart, same = torch.cdist(released, real), who[:, None] == who
    assert apart[~same].mean() - apart[same].mean() > 0.25  # without either triplet it is at most 0.06


def test_pro_face_learns_to_look_obfuscated() -> None:
    images = smooth_images(8, seed=99)
    looks = obfuscate(images.float(), "pixelate")
    errors = []
    for epochs in (0, 40):
        peer = fitted(ProFace(obfuscation="pixelate", schedule=TrainingSchedule(epochs, 3e-3, 8)))
        errors.append((peer.protect(images, keys(8)).as_image().float() - looks).abs().mean())
    assert errors[1] < 0.7 * errors[0]


def test_obfuscation_keeps_means_and_removes_detail() -> None:
    images = smooth_images(2, 28).float()
    for kind in ("blur", "pixelate"):
        seen = obfuscate(images, kind)
        assert seen.shape == images.shape
        assert seen.var() < images.var() / 1.5
        assert (seen.mean((2, 3)) - images.mean((2, 3))).abs().max() < 15
    assert len(obfuscate(images, "pixelate")[0, 0].unique()) <= 16
    assert torch.allclose(obfuscate(torch.full((1, 3, 20, 20), 9.0), "blur"), torch.full((1, 3, 20, 20), 9.0))


def test_ppfr_fd_like_sends_36_frequencies_mixed_and_normalised() -> None:
    images = smooth_images(3)
    strong, weak = (fitted(PpfrFd(choice=choice)) for choice in ("strong", "weak"))
    for peer in (strong, weak):
        values = peer.protect(images, keys(3)).values
        assert values.shape == (3, 108, 16, 16)
        assert values.mean((2, 3)).abs().max() < 1e-4
        assert (values.std((2, 3)) - 1).abs().max() < 1e-3
        assert 0 not in peer.frequencies
    assert 1 in strong.frequencies
    assert 1 not in weak.frequencies


def test_the_mixing_of_ppfr_fd_like_can_be_undone_but_for_one_direction() -> None:
    peer, images = fitted(PpfrFd(choice="strong")), smooth_images(1)
    mixing = peer.mixing()
    assert torch.linalg.matrix_rank(mixing) == 107
    maps = to_maps(images)[:, channels_of(peer.frequencies)].double().flatten(2)[0]
    back = torch.linalg.pinv(mixing) @ (mixing @ maps)
    assert (back - maps).norm() < 0.35 * maps.norm()


def test_advface_like_stays_within_its_bound_and_misleads_its_decoder() -> None:
    images = smooth_images(8, seed=99)
    peer = fitted(AdvFace(schedule=TrainingSchedule(15, 3e-3, 8)))
    assert peer.stem is not None
    assert peer.decoder is not None
    assert peer.spread is not None
    features = peer.stem(images.float())
    release = peer.protect(images, keys(8))
    assert ((release.values - features) / peer.spread).abs().max() <= peer.bound * (1 + 1e-4)
    clean, misled = (
        functional.l1_loss(peer.decoder(x / peer.spread), images / 255) for x in (features, release.values)
    )
    assert misled > clean
    assert peer.recognise(release).shape == (8, 8)
    assert "database" in peer.hidden_from


def test_the_parts_of_a_recogniser_give_its_embeddings() -> None:
    images = torch.randint(256, (2, 3, 112, 112), generator=torch.Generator().manual_seed(0)).float()
    model = DlibOfCrop().eval()
    stem, rest = split_recogniser(model)
    assert stem(images).shape == (2, 32, 35, 35)
    torch.testing.assert_close(rest(stem(images)), model(images), rtol=1e-4, atol=1e-5)
    with pytest.raises(LdpSlicingError, match="cannot split a Identity"):
        split_recogniser(nn.Identity())


def test_a_student_of_dlib_reads_any_number_of_maps() -> None:
    public = torch.randint(256, (4, 3, 112, 112), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    student = student_of(DlibOfCrop(), 5, public)
    assert student(torch.randn(2, 5, 112, 112)).shape == (2, 128)
    assert any(isinstance(part, nn.BatchNorm2d) for part in student.modules())


@pytest.mark.parametrize("redrawn", [False, True])
def test_a_student_learns_the_teachers_embedding(redrawn: bool) -> None:
    public, judge = smooth_images(16, seed=99), teacher()
    peer = fitted(Slicing(setting="clear", plan=Plan.paper(400.0), prune=None), 16)
    wanted = embeddings_of(judge, public)
    wanted = wanted - wanted.mean(0)
    inputs = peer.protect(public, keys(16)).as_input()
    likeness = []
    for epochs in (0, 40):
        releases = PublicReleases(peer, public, people(16), "release", redrawn=redrawn)
        assert (releases.kept is None) == redrawn
        student = distil(releases, judge, TrainingSchedule(epochs, 0.01, 8, warm_up=0.1, clip=1.0))
        with torch.no_grad():
            likeness.append(functional.cosine_similarity(student(inputs), wanted).mean())
    assert likeness[1] > likeness[0] + 0.3


def test_public_releases_are_kept_or_redrawn() -> None:
    peer, public = fitted(load_peer("dp-pix")), smooth_images(6, seed=99)
    once, redrawn = (PublicReleases(peer, public, None, "x", redrawn=one) for one in (False, True))
    some = torch.tensor([4, 1])
    assert torch.equal(once.inputs(some, 0), once.inputs(some, 1))
    assert torch.equal(once.inputs(some, 0), redrawn.inputs(some, 0))
    assert not torch.equal(redrawn.inputs(some, 0), redrawn.inputs(some, 1))
    assert once.kept is not None
    once.kept = None  # as if there were no room
    assert torch.equal(once.inputs(some, 0), once.inputs(some, 1))
    fixed = PublicReleases(fitted(load_peer("none")), public, None, "x", redrawn=True)
    assert fixed.kept is not None


@pytest.mark.parametrize("name", TRAINED)
def test_peers_that_must_be_fitted_say_so(name: str) -> None:
    peer: Peer = next(one for system in MODULES for one in load_peers(system) if one.name.startswith(name))
    with pytest.raises(LdpSlicingError, match=r"call fit\(public, people, teacher\) first"):
        peer.protect(smooth_images(1), keys(1))


def test_training_is_repeatable_and_leaves_the_global_generator_unchanged() -> None:
    before = torch.random.get_rng_state()
    first, second = (fitted(quick(replace(MinusFace(), width=4))) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    image = smooth_images(1)
    assert torch.equal(first.protect(image, keys(1)).values, second.protect(image, keys(1)).values)


def test_training_leaves_cudnn_on() -> None:
    weight, seen = torch.ones(1, requires_grad=True), []

    def loss(indices: Tensor, epoch: int) -> Tensor:
        del indices, epoch
        seen.append(torch.backends.cudnn.enabled)
        return weight.square().sum()

    minimise(loss, [weight], 4, TrainingSchedule(1, batch=2), torch.device("cpu"))
    assert seen == [True, True]  # `cudnn.flags(benchmark=True)` switches it off, which made training many times slower
