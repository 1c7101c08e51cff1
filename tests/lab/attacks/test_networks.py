from __future__ import annotations

import pytest
import torch
from torch import nn

from ldp_slicing import Plan, Slice
from ldp_slicing.lab.bits import log_odds, mean_words, to_bits
from ldp_slicing.lab.learners.models.adversaries import (
    NETWORKS,
    BitUNet,
    BlackBox,
    Denoiser,
    FullScaleUNet,
    UNet,
    WhiteBox,
)
from ldp_slicing.torch.simulate import apply_view
from tests.lab.attacks.images import disc_images


@pytest.mark.parametrize("make", [UNet, FullScaleUNet])
@pytest.mark.parametrize("scales", [2, 4])
@pytest.mark.parametrize("size", [(16, 16), (13, 18)])
def test_any_size_comes_back_and_every_weight_learns(make: type[nn.Module], scales: int, size: tuple[int, int]) -> None:
    network = make(3, 2, 1, width=4, scales=scales)
    out = network(torch.randn(2, 3, *size), torch.ones(2, 1))
    assert out.shape == (2, 2, *size)
    out.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("channels", [1, 3])
def test_adversaries_return_images(channels: int) -> None:
    plan = Plan.paper(20.0) if channels == 3 else Plan.grey(8.0, 8)
    releases = torch.randint(256, (2, channels, 21, 18), dtype=torch.uint8)
    for make in (BlackBox, BitUNet, WhiteBox):
        network = make(channels, width=8, scales=2)
        guess, bits = network(releases, torch.tensor([network.plan_features(plan)] * 2))
        assert guess.shape == releases.shape
        assert bits.shape == (2, 8 * channels, 21, 18) if make is WhiteBox else bits is None
        (guess.sum() + (0 if bits is None else bits.sum())).backward()
        assert all(parameter.grad is not None for parameter in network.parameters())


def test_each_bit_plane_has_a_module_of_its_own() -> None:
    network = Denoiser(3, 24, width=8).eval()
    nn.init.zeros_(network.head.bias)
    evidence, known, heard = torch.randn(1, 24, 8, 8), torch.zeros(1, 24), []
    for b, module in enumerate(network.planes):
        module.register_forward_hook(lambda _module, given, _out, b=b: heard.append((b, given[1])))
    network(evidence, known)
    assert [b for b, _ in heard] == list(range(8))
    for b, plane in heard:
        assert torch.allclose(plane, torch.tanh(evidence[:, [b, 8 + b, 16 + b]] / 2))


def test_attention_reaches_across_the_image() -> None:
    network = Denoiser(3, 24, width=8).eval()
    evidence = torch.randn(1, 24, 64, 64, requires_grad=True)
    network(evidence, torch.zeros(1, 24))[0, :, 0, 0].sum().backward()
    assert evidence.grad is not None
    assert (evidence.grad[0, :, -4:, -4:] != 0).any()


def test_an_untrained_white_box_keeps_certain_bits() -> None:
    network, sources, plan = WhiteBox(width=8, scales=2).eval(), disc_images(2), Plan.paper(300.0)
    with torch.no_grad():
        for parameter in (
            network.denoiser.head.weight,
            network.denoiser.head.bias,
            network.low.head.weight,
            network.low.head.bias,
        ):
            parameter.zero_()
        seen = apply_view(sources, None, colour=True).to(torch.uint8)
        guess, bits = network(seen, torch.tensor([network.plan_features(plan)] * 2))
    assert torch.equal(bits > 0, to_bits(seen) == 1)
    assert (mean_words(torch.sigmoid(bits)) - seen).abs().max() < 2
    assert (guess - sources).abs().max() < 4


def test_plan_features_of_each_adversary() -> None:
    thick = Plan([Slice(0xC08080, 5.2)])
    assert len(BlackBox(width=4).plan_features(thick)) == 1
    assert WhiteBox(width=8).plan_features(thick) == log_odds(thick).flatten().tolist()
    known = WhiteBox(width=8).plan_features(thick)
    assert [i for i, value in enumerate(known) if value] == [6, 7, 15, 23]


def test_the_networks_of_the_recipes_are_of_moderate_size() -> None:
    for name in NETWORKS:
        assert 1e6 < sum(parameter.numel() for parameter in NETWORKS[name](3, 1).parameters()) < 1e7
