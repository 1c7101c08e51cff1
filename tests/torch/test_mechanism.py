"""The interface of a mechanism, and that slicing implements it."""

from __future__ import annotations

import pytest
import torch

from ldp_slicing import Plan
from ldp_slicing.torch.mechanism import Mechanism, Slicing

MECHANISMS: list[tuple[Mechanism, int]] = [  # and the number of channels
    (Slicing(Plan.paper(12.0)), 3),
    (Slicing(Plan.sliced(5.2, "Y7+Y6+Cb7+Cr7"), prune=None), 3),
    (Slicing(Plan.grey(5.0), prune="dct"), 1),
]


@pytest.mark.parametrize(("mechanism", "channels"), MECHANISMS)
def test_values_have_the_stated_likelihood(mechanism: Mechanism, channels: int) -> None:
    images = torch.full((1, channels, 200, 200), 77, dtype=torch.uint8)
    view, protected = mechanism.view(images), mechanism.protect(images, torch.Generator().manual_seed(3))
    assert protected.dtype == torch.uint8
    assert protected.shape == images.shape
    for channel in range(channels):
        (value,) = view[0, channel].unique().tolist()
        found = torch.bincount(protected[0, channel].flatten(), minlength=256) / protected[0, channel].numel()
        chances = mechanism.likelihood(channel, torch.device("cpu"))
        assert torch.allclose(found.double(), chances[:, value], atol=0.02)
        assert torch.allclose(chances.sum(0), torch.ones(256, dtype=torch.float64))


@pytest.mark.parametrize("mechanism", [mechanism for mechanism, _ in MECHANISMS])
def test_no_likelihood_ratio_exceeds_the_stated_epsilon(mechanism: Mechanism) -> None:
    chances = mechanism.likelihood(0, torch.device("cpu"))
    possible = chances[chances.sum(1) > 0]
    ratios = possible.max(1).values / possible.min(1).values
    assert 0 < float(ratios.max().log()) <= mechanism.epsilon * (1 + 1e-9)
