from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.errors import DataError
from ldp_slicing.lab.attacks.recognition import WEIGHTS
from ldp_slicing.lab.data import face_sets
from ldp_slicing.lab.data.face_sets import draw_face_pairs, open_face_set
from ldp_slicing.lab.learners.models import EMBEDDERS
from ldp_slicing.lab.rows import read_rows
from tests.lab.datasets import tiny, write_bin, write_lfw

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("listed", [True, False])
def test_drawn_pairs_are_different_and_nobody_is_in_two_folds(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not listed:
        monkeypatch.setattr(face_sets, "ALL_AT_ONCE", 0)
    people = RNG.permutation(np.repeat(np.arange(60), RNG.integers(1, 7, 60)))
    pairs = draw_face_pairs(people, folds=5, count=8, seed=1)
    assert np.bincount(pairs.folds).tolist() == [16] * 5
    assert np.bincount(pairs.folds, pairs.same).tolist() == [8] * 5
    assert (people[pairs.first] == people[pairs.second]).tolist() == pairs.same.tolist()
    assert len({frozenset(pair) for pair in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)}) == 80
    assert (pairs.first != pairs.second).all()
    everybody = [
        set(people[np.concatenate((pairs.first, pairs.second))][np.tile(pairs.folds, 2) == k]) for k in range(5)
    ]
    assert sum(map(len, everybody)) == len(set.union(*everybody))
    again, other = (draw_face_pairs(people, folds=5, count=8, seed=seed) for seed in (1, 2))
    assert np.array_equal(pairs.first, again.first)
    assert not np.array_equal(pairs.first, other.first)


def test_too_few_people_are_refused() -> None:
    with pytest.raises(DataError, match=r"fold 1 of 2 has 2 people and 2 pairs of one person; 3 are wanted"):
        draw_face_pairs(np.repeat(np.arange(4), 2), folds=2, count=3)
    with pytest.raises(DataError, match="0 pairs of two people"):
        draw_face_pairs(np.repeat(np.arange(2), 4), folds=2, count=3)


def write_people(folder: Path) -> None:
    for person in range(20):
        (folder / f"p{person:02d}").mkdir(parents=True)
        for i in range(3):
            image = Image.fromarray(RNG.integers(0, 256, (112, 112, 3), dtype=np.uint8))
            image.save(folder / f"p{person:02d}" / f"{i}.png")


def test_a_folder_and_a_list_of_it_are_one_set(tmp_path: Path) -> None:
    write_people(tmp_path / "people")
    lines = [f"people/p{person:02d}/{i}.png {person}" for person in range(20) for i in range(3)]
    (tmp_path / "people.txt").write_text("\n".join(lines))
    one, other = (open_face_set(tmp_path / name, count=2) for name in ("people", "people.txt"))
    assert one.name == other.name == "people"
    assert np.array_equal(one.images, other.images)
    assert np.array_equal(one.pairs.second, other.pairs.second)
    assert len(one.images) == len(np.unique(np.concatenate((one.pairs.first, one.pairs.second)))) < 60
    for path, words in (
        (tmp_path / "people" / "p00" / "0.png", "is no verification set"),
        (tmp_path / "nowhere.txt", "does not exist"),
        (tmp_path / "people", "people: fold 1 of 10 has 2 people and 6 pairs of one person"),
    ):
        with pytest.raises(DataError, match=words):
            open_face_set(path)
    Image.new("RGB", (8, 8)).save(tmp_path / "people" / "p01" / "0.png")
    with pytest.raises(DataError, match=r"8 x 8|aligned"):
        open_face_set(tmp_path / "people", count=2)


def test_pairs_of_lfw_are_read_with_their_folds(tmp_path: Path) -> None:
    write_lfw(tmp_path)
    found = open_face_set(tmp_path / "lfw112")
    assert found.pairs.folds.tolist() == np.repeat(range(4), 4).tolist()
    assert found.pairs.same.tolist() == [True, True, False, False] * 4
    with Image.open(tmp_path / "lfw112" / "P0" / "P0_0001.webp") as image:
        assert np.array_equal(found.images[found.pairs.first[0]], np.asarray(image))
    (tmp_path / "lfw112" / "P0" / "P0_0001.webp").unlink()
    with pytest.raises(DataError, match="lacks P0/P0_0001"):
        open_face_set(tmp_path / "lfw112")


def test_verify_faces_measures_any_set_and_adds_to_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EMBEDDERS, "dlib", (lambda: tiny(128), 128))
    write_bin(tmp_path / "agedb_30.bin")
    write_people(tmp_path / "people")
    torch.save(tiny(128).state_dict(), tmp_path / WEIGHTS)

    def verify(*options: str) -> str:
        common = ["--recogniser", str(tmp_path), "--out", str(tmp_path / "out"), "--pairs", "2", "--device", "cpu"]
        ran = CliRunner().invoke(app, ["lab", "verify-faces", *options, *common], catch_exceptions=False)
        assert ran.exit_code == 0, ran.output
        return ran.output

    said = verify(str(tmp_path / "agedb_30.bin"), "--epsilon", "5.2", "--epsilon", "20")
    assert said.count("verification accuracy") == 3
    path = tmp_path / "out" / "face-sets.json"
    first = read_rows(path)
    assert [(row.epsilon, row.epsilon_spent is None) for row in first] == [(20.0, False), (5.2, False), (None, True)]
    said = verify(str(tmp_path / "agedb_30.bin"), str(tmp_path / "people"), "--epsilon", "20")
    assert said.count("verification accuracy") == 2  # of the new set
    page = (tmp_path / "out" / "face-sets.md").read_text()
    assert "| 20, pruned |" in page
    assert "96.68" in page
    assert "**people** (40 drawn pairs" in page
    assert verify(str(tmp_path / "people"), "--epsilon", "20", "--prune", "none").count("verification accuracy") == 1
    assert "| 20, not pruned |" in (tmp_path / "out" / "face-sets.md").read_text()
    refused = CliRunner().invoke(
        app, ["lab", "verify-faces", str(tmp_path / "people"), "--recogniser", str(tmp_path / "out")]
    )
    assert refused.exit_code == 2


def test_a_network_of_train_faces_is_verified_with_its_own_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 5, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 8))
    monkeypatch.setitem(EMBEDDERS, "ir50", (lambda: network, 8))
    write_people(tmp_path / "people")
    write_bin(tmp_path / "toy.bin")
    run = ["--out", str(tmp_path / "run"), "--epochs", "1", "--release", "none", "--device", "cpu"]
    trained = CliRunner().invoke(
        app, ["lab", "train-faces", "people", "--data", str(tmp_path), "--verify", str(tmp_path / "toy.bin"), *run]
    )
    assert trained.exit_code == 0, trained.output
    out = ["--out", str(tmp_path / "out"), "--epsilon", "20", "--device", "cpu"]
    ran = CliRunner().invoke(
        app, ["lab", "verify-faces", str(tmp_path / "toy.bin"), "--recogniser", str(tmp_path / "run"), *out]
    )
    assert ran.exit_code == 0, ran.output
    accuracy = trained.output.split("toy: verification accuracy ")[1].split("±")[0]
    assert f"toy, faces-paper, without privacy: verification accuracy {accuracy}" in ran.output
