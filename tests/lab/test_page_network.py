from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.errors import DataError
from ldp_slicing.lab import page_network as lab
from ldp_slicing.plan import Plan
from ldp_slicing.torch.simulate import simulate
from tests.lab.datasets import write_cifar

SMALL = (4, 8, 8, 12)


def test_it_has_about_a_million_parameters_and_fits_into_three_megabytes(tmp_path: Path) -> None:
    network = lab.PageNetwork().eval()
    digest = lab.export_network(network, tmp_path / "n", name="n", about="", licence="", side=112)
    assert 0.9e6 < sum(p.numel() for p in network.parameters()) < 1.1e6
    content = (tmp_path / "n").read_bytes()
    assert len(content) < 3_000_000
    assert digest == hashlib.sha256(content).hexdigest()


def test_inputs_are_bits_weighted_by_how_often_they_flip() -> None:
    plan = Plan.sliced(2.0, "Y7")
    grey = torch.full((1, 3, 8, 8), 200, dtype=torch.uint8)
    seen = lab.inputs(grey, (plan,), "haar4")[0, :, 0, 0]
    flip = 1 / (1 + np.exp(2.0))
    assert seen[23] == pytest.approx(1 - 2 * flip)  # the highest bit of Y is 1
    assert seen[:23].abs().max() < 1e-6  # the others are dropped
    assert seen[24:].tolist() == pytest.approx([72 / 128, 0, 0, 1, 2 / 3])


def test_folded_convolutions_compute_the_same() -> None:
    torch.manual_seed(1)
    block = lab._Two(lab.INPUTS, 8)
    network = lab.PageNetwork(SMALL)
    x = torch.randn(5, lab.INPUTS, 16, 16)
    for _ in range(3):
        network(x), block(x)  # moves the running statistics away from 0 and 1
    network.eval()
    (weights, biases), *_ = network.folded()
    expected = network.down[0][2](network.down[0][1](network.down[0][0](x)))
    found = torch.relu(torch.nn.functional.conv2d(x, weights, biases, padding=1))
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_trained_network_reconstructs_single_images() -> None:
    ramps = (torch.arange(16) * 16 * torch.ones(8, 3, 16, 1)).to(torch.uint8)
    losses = list[float]()
    how = lab.NetworkTraining(
        200, torch.device("cpu"), batch=1, sides=(16,), report=lambda _, loss: losses.append(loss)
    )
    network = lab.train_network(ramps, how, SMALL)
    assert len(losses) == 200
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    plan = Plan.paper(20.0)
    for ramp in ramps.split(1):  # with running statistics, as the page has them
        guess = lab.reconstruct(network, simulate(ramp, plan, prune=None), plan, None)
        assert (guess.float() - ramp).abs().mean() < 40  # of grey: 64


def test_training_ends_when_its_time_is_up() -> None:
    steps = list[int]()
    how = lab.NetworkTraining(
        10**9, torch.device("cpu"), batch=1, seconds=0.01, sides=(16,), report=lambda step, _: steps.append(step)
    )
    network = lab.train_network(torch.zeros(2, 3, 16, 16, dtype=torch.uint8), how, SMALL)
    assert steps[0] == 1
    assert not network.training


def test_images_of_grey_plans_lose_their_colour() -> None:
    images = torch.randint(0, 256, (len(lab.PLANS), 3, 8, 8), dtype=torch.uint8)
    greyed = lab._greyed(images)
    is_grey = (greyed == greyed[:, :1]).all(dim=1).flatten(1).all(dim=1)
    assert is_grey.tolist() == [plan in lab.GREY_PLANS for plan in lab.PLANS]
    assert torch.equal(greyed[~is_grey], images[~is_grey])


def test_it_needs_colour_images() -> None:
    with pytest.raises(DataError, match="at least two colour images"):
        lab.train_network(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), lab.NetworkTraining(1, torch.device("cpu")))


def test_command(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    target = tmp_path / "network.bin"
    arguments = ["lab", "page-network", "cifar100", "--data", str(tmp_path), "--out", str(target)]
    done = CliRunner().invoke(app, [*arguments, "--steps", "9", "--batch", "1", "--minutes", "0.001"])
    assert done.exit_code == 0, done.output
    assert "200 images of cifar100, 32 x 32 pixels, for " in target.read_bytes()[:400].decode("latin-1")
    assert "SSIM of 100 reconstructed test images" in done.output


def test_folder_of_images(tmp_path: Path) -> None:
    for i in range(21):
        place = tmp_path / "faces" / f"{i % 3}"
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30 + i, 20), (i, 2, 3)).save(place / f"{i}.png")
    train, test = lab.load_sources("faces", tmp_path)
    assert (train.shape, test.shape) == ((19, 3, 112, 112), (2, 3, 112, 112))
