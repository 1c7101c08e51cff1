"""Priors of faces, the search with their help, and the experiment from data to page; all at tiny size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.nn import functional

from ldp_slicing.lab.attacks.face_prior import (
    PcaPrior,
    augment,
    enlarge_images,
    nearest_public,
    reduce_images,
    train_style_prior,
)
from ldp_slicing.lab.attacks.map2v import Access, EmbedReleases, Search, embed_unprotected, find_faces
from ldp_slicing.lab.experiment import ExperimentContext
from ldp_slicing.lab.experiments import map2v
from ldp_slicing.lab.experiments.peer_faces import PeerFaces
from ldp_slicing.lab.learners.models import EMBEDDERS
from ldp_slicing.lab.learners.models.style import LATENT, StyleGenerator
from ldp_slicing.lab.learners.training import Limits
from ldp_slicing.lab.peers import load_peer
from ldp_slicing.lab.peers.interface import to_bytes
from ldp_slicing.lab.peers.training import frozen, student_of
from ldp_slicing.lab.reproduce import reproduce
from ldp_slicing.lab.rows import read_rows
from tests.lab.datasets import tiny, write_lfw
from tests.lab.peers.faces import fitted, keys, smooth_images, teacher

WIDTHS = dict.fromkeys((4, 8, 16, 32, 64), 4)


def test_principal_components_render_public_faces_again() -> None:
    public = smooth_images(40, 64)
    prior = PcaPrior.fit(public, components=39)
    flat = reduce_images(public).flatten(1)
    coefficients = (flat - prior.mean) @ torch.linalg.pinv(prior.basis)
    assert (prior.render(coefficients).flatten(1) - flat).abs().mean() < 1.0
    assert coefficients.var(0).mean().item() == pytest.approx(1, rel=0.1)  # samples are as different as public faces
    assert prior.sample(3, torch.Generator().manual_seed(0)).shape == (3, 39)


def test_a_style_for_each_layer_decides_the_image() -> None:
    torch.manual_seed(0)
    network = StyleGenerator(WIDTHS)
    latents = network.mapping(torch.randn(2, LATENT))
    assert latents.shape == (2, network.layers, LATENT)
    images = network(latents)
    assert images.shape == (2, 3, 64, 64)
    changed = latents.clone()
    changed[0, -1] += 1
    again = network(changed)
    assert not torch.allclose(images[0], again[0])
    assert torch.allclose(images[1], again[1])


def test_the_generator_learns_the_colour_of_its_images() -> None:
    public = (smooth_images(32, 64) // 8 + 200).to(torch.uint8)
    prior = train_style_prior(public, shown=32 * 25, batch=32, widths=WIDTHS)
    untrained = train_style_prior(public, shown=0, batch=32, widths=WIDTHS)
    generator = torch.Generator().manual_seed(0)
    latents = prior.sample(16, generator)
    error = [(one.render(latents).mean() - public.float().mean()).abs() for one in (prior, untrained)]
    assert error[0] < 0.7 * error[1]
    found = nearest_public(prior, teacher(), public, count=8)
    assert found["generated"] >= 0
    assert found["between_public"] > 0


def test_augmentation_keeps_shapes_and_gradients() -> None:
    images = torch.rand(4, 3, 64, 64, requires_grad=True)
    changed = augment(images, torch.Generator().manual_seed(0))
    assert changed.shape == images.shape
    changed.sum().backward()  # type: ignore[no-untyped-call]
    assert images.grad is not None
    assert images.grad.abs().sum() > 0
    assert (changed == 0).float().mean() > 0.1  # what was cut out


@pytest.mark.parametrize("access", ["gradients", "scores"])
def test_the_search_finds_faces_with_the_wanted_embedding(access: Access) -> None:
    public = smooth_images(40, 64, seed=1)
    peer = fitted(load_peer("none"), side=64)
    prior, recogniser = PcaPrior.fit(public, components=20), frozen(student_of(teacher(), 3, public))
    victims = enlarge_images(prior.render(prior.sample(3, torch.Generator().manual_seed(5))), (64, 64))
    with torch.no_grad():
        wanted = functional.normalize(recogniser(peer.protect(to_bytes(victims), keys(3)).as_input()))
    embed = embed_unprotected(peer, recogniser) if access == "gradients" else EmbedReleases(peer, recogniser)
    likeness = []
    for steps in (0, 30):
        search = Search(steps=steps, rate=0.1, candidates=20, reach=0.5)
        faces = find_faces(wanted, embed, prior, (64, 64), access, search)
        assert (faces.dtype, faces.shape) == (torch.uint8, (3, 3, 64, 64))
        with torch.no_grad():
            seen = functional.normalize(recogniser(peer.protect(faces, keys(3, "again")).as_input()))
        likeness.append((seen * wanted).sum(1).mean())
    assert likeness[1] > likeness[0]
    assert search.queries("scores") == 20 + 30 * 17
    assert search.queries("gradients") == 0


def test_a_penalty_keeps_the_search_near_the_faces_of_the_prior() -> None:
    public = smooth_images(40, 64, seed=1)
    peer, prior = fitted(load_peer("none"), side=64), PcaPrior.fit(public, components=20)
    embed = embed_unprotected(peer, frozen(student_of(teacher(), 3, public)))
    wanted = functional.normalize(torch.randn(2, 8, generator=torch.Generator().manual_seed(0)))  # of no face
    contrast = []
    for penalty in (0.0, 10.0):
        search = Search(steps=60, rate=0.3, candidates=20, penalty=penalty)
        faces = find_faces(wanted, embed, prior, (64, 64), "gradients", search).float()
        contrast.append((faces - enlarge_images(prior.mean.view(1, 3, 64, 64), (64, 64))).square().mean())
    assert contrast[1] < contrast[0] / 4


def test_releases_of_one_step_have_the_same_randomness() -> None:
    peer = fitted(load_peer("ldp-slicing:eps20"), side=64)
    channels = peer.protect(smooth_images(1, 64), keys(1)).as_input().shape[1]
    embed = EmbedReleases(peer, frozen(student_of(teacher(), channels, smooth_images(8, 64))))
    faces = smooth_images(2, 64).float()
    assert torch.equal(embed(faces, 0), embed(faces, 0))
    assert not torch.equal(embed(faces, 0), embed(faces, 1))


def test_nothing_is_trained_on_the_people_of_the_penalty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lfw(tmp_path)
    monkeypatch.setitem(EMBEDDERS, "dlib", (lambda: tiny(128), 128))
    context = ExperimentContext(tmp_path, tmp_path, torch.device("cpu"), Limits())
    half = PeerFaces.load(context)
    rest, images = map2v._hold_out(half, 2)
    people = [
        {int(half.people[i]) for i, one in enumerate(half.public) if torch.equal(one, image)} for image in images[:, 0]
    ]
    assert people[0] == people[1]
    assert not people[0] & set(rest.people.tolist())
    assert not torch.equal(images[0, 0], images[1, 0])
    assert len(rest.public) == len(rest.people) < len(half.people)


def test_the_experiment_runs_from_data_to_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lfw(tmp_path / "data")
    monkeypatch.setitem(EMBEDDERS, "dlib", (lambda: tiny(128), 128))
    monkeypatch.setattr(map2v, "PEERS", ("none", "dp-pix:b4-m1-eps80"))
    monkeypatch.setattr(map2v, "WIDTHS", WIDTHS)
    monkeypatch.setattr(map2v, "TUNED_ON", 2)
    where = (tmp_path / "data", tmp_path / "results", tmp_path / "work")
    lines: list[str] = []
    done, path = reproduce("map2v", *where, epochs=1, device="cpu", say=lines.append)
    rows = read_rows(path)
    assert done
    assert len(rows) == 1 + 4 + 3
    assert all(row.metrics["penalty"] in map2v.PENALTIES for row in rows if row.method != "prior")
    another = next(row for row in rows if row.options.get("target") == "another")
    assert another.metrics["rank_1"]["share"] <= 0.5
    page = path.with_suffix(".md").read_text()
    assert "| none | a release of somebody else | gradients | style |" in page
    assert "the sources at 64 x 64" in page
    assert "Training this generator took" in page
    found = next(row for row in rows if row.method == "scores")
    assert found.seconds is not None
    assert found.provenance is not None
    times = [found.metrics["network_seconds"], found.metrics["seconds"], found.seconds]
    assert f"| {' | '.join(f'{one:,.0f}' for one in times)} | {str(found.provenance.time)[:10]} " in page
    with Image.open(path.with_name("map2v-portrait.png")) as sheet:
        assert sheet.width > 4 * 112
    assert path.with_suffix(".png").is_file()
    assert reproduce("map2v", *where, epochs=1, device="cpu", only="method=prior", say=lines.append)[0]
