"""The identity attack on peers, from data to page, and on pairs that are easy to tell apart."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ldp_slicing.lab.attacks.pairs import draw_pairs
from ldp_slicing.lab.attacks.peer_pairs import attack_pairs, train_on_pairs
from ldp_slicing.lab.experiments import peers_identity
from ldp_slicing.lab.learners.models import EMBEDDERS
from ldp_slicing.lab.peers import MODULES, load_peer
from ldp_slicing.lab.peers.random_image import RandomImage
from ldp_slicing.lab.peers.training import TrainingSchedule
from ldp_slicing.lab.peers.unprotected import Unprotected
from ldp_slicing.lab.reproduce import reproduce
from ldp_slicing.lab.rows import read_rows
from tests.lab.datasets import tiny, write_both
from tests.lab.peers.faces import fitted, smooth_images


def test_the_experiment_runs_from_data_to_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_both(tmp_path / "data")
    monkeypatch.setattr(peers_identity, "PEERS", ("none", "partialface"))
    monkeypatch.setattr(peers_identity, "MODULES", ("none", "partialface", "random"))
    monkeypatch.setattr(peers_identity, "FURTHER_ON_FACES", ())
    monkeypatch.setitem(EMBEDDERS, "dlib", (lambda: tiny(128), 128))
    monkeypatch.setattr(peers_identity, "WIDTHS", dict.fromkeys(peers_identity.NAMES, 1))
    where = (tmp_path / "data", tmp_path / "results", tmp_path / "work")
    done, path = reproduce("peers-identity", *where, epochs=1, device="cpu", say=lambda _: None)
    rows = read_rows(path)
    assert done
    assert {(row.dataset, row.options["peer"]) for row in rows} == {
        *((dataset, peer) for dataset in peers_identity.NAMES for peer in peers_identity.PEERS),
        ("lfw", "random"),
    }
    assert all(0 <= row.metrics["advantage"] <= 0.5 for row in rows)
    assert all({*row.metrics["seconds"]} == {"fit", "network"} for row in rows)
    page = path.with_suffix(".md").read_text()
    assert "| 19.75 |" not in page  # DuetFace was not measured
    assert "| 16.28 |" in page
    assert path.with_suffix(".png").is_file()


def test_a_system_is_attacked_on_faces_as_soon_as_it_is_in_the_list_of_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = (replace(load_peer("peep"), components=3), replace(load_peer("peep"), components=5))
    monkeypatch.setitem(sys.modules, "ldp_slicing.lab.peers.of_a_stranger", SimpleNamespace(PEERS=settings))
    before = peers_identity._peers_on("lfw")
    monkeypatch.setitem(MODULES, "stranger", "of_a_stranger")
    assert set(peers_identity._peers_on("lfw")) == {*before, "peep:k3"}
    assert "peep:k3" not in peers_identity._peers_on("cifar10")


def test_further_settings_are_known_and_nothing_is_attacked_twice() -> None:
    attacked = peers_identity._peers_on("lfw")
    assert [load_peer(name).name for name in attacked] == attacked
    assert len(set(attacked)) == len(attacked)
    assert set(attacked) > {*peers_identity.PEERS, *peers_identity.FURTHER_ON_FACES}


def test_the_network_tells_unprotected_classes_apart_and_fails_without_information() -> None:
    colours = torch.tensor([[200, 40, 40], [40, 40, 200]], dtype=torch.uint8)[:, :, None, None]
    labels = torch.arange(64) % 2
    images = (colours[labels] + smooth_images(64, 32) // 8).to(torch.uint8)
    pairs = draw_pairs(labels.numpy(), 64, seed=0)
    found = []
    for peer in (fitted(Unprotected(), side=32), fitted(RandomImage(), side=32)):
        network = train_on_pairs(peer, images, labels, TrainingSchedule(5, 3e-3, 16), width=1)
        found.append(attack_pairs(network, peer, images, pairs))
    assert found[0]["accuracy"] > 0.9
    assert found[1]["accuracy"] < 0.75
    assert found[0]["pairs"] == 64
