from __future__ import annotations

import itertools
import math

import pytest
import torch

from ldp_slicing import Plan, Slice
from ldp_slicing.lab.mechanism import SlicingMechanism

PLANS = {
    "thick grey": Plan([Slice(0b1100_0000, 1.5), Slice(0b0010_0000, 0.5)], 8),
    "paper": Plan.paper(5.2),
    "colour": Plan([Slice(0x80C080, 3.0)]),
}


def test_the_likelihoods_of_all_releases_sum_to_1() -> None:
    mechanism = SlicingMechanism(PLANS["thick grey"], None)
    source = torch.full((1, 1, 1, 1), 77, dtype=torch.uint8)
    kept = [sum(bits) for bits in itertools.product((0, 0b1000_0000), (0, 0b0100_0000), (0, 0b0010_0000))]
    releases = torch.tensor(kept, dtype=torch.uint8).view(-1, 1, 1, 1)
    likelihoods = mechanism.log_likelihood(releases, source.expand(len(releases), -1, -1, -1)).exp()
    assert likelihoods.sum().item() == pytest.approx(1)
    assert (likelihoods.max() / likelihoods.min()).log().item() == pytest.approx(mechanism.epsilon, rel=1e-6)


@pytest.mark.parametrize("name", PLANS)
def test_no_two_sources_of_one_pixel_differ_by_more_than_epsilon(name: str) -> None:
    plan = PLANS[name]
    mechanism, channels = SlicingMechanism(plan, None), 3 if plan.is_colour else 1
    sources = torch.randint(256, (200, channels, 1, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    released = mechanism.protect(sources[:1], torch.Generator().manual_seed(1)).expand(len(sources), -1, -1, -1)
    found = mechanism.log_likelihood(released, sources)
    assert (found.max() - found.min()).item() <= mechanism.epsilon * (1 + 1e-9)


def test_frequencies_agree_with_likelihoods() -> None:
    mechanism = SlicingMechanism(PLANS["thick grey"], None)
    sources = torch.full((20_000, 1, 1, 1), 77, dtype=torch.uint8)
    released = mechanism.protect(sources, torch.Generator().manual_seed(2))
    values, counts = released.flatten().unique(return_counts=True)
    expected = mechanism.log_likelihood(values.view(-1, 1, 1, 1), sources[: len(values)]).exp() * len(sources)
    assert ((counts - expected).abs() < 5 * expected.sqrt()).all()


def test_pixels_are_independent() -> None:
    mechanism = SlicingMechanism(PLANS["paper"], None)
    sources = torch.randint(256, (3, 3, 2, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    released = mechanism.protect(sources)
    pixels = [
        mechanism.log_likelihood(released[..., i : i + 1, j : j + 1], sources[..., i : i + 1, j : j + 1])
        for i, j in itertools.product(range(2), repeat=2)
    ]
    assert mechanism.log_likelihood(released, sources).tolist() == pytest.approx(sum(pixels).tolist())
    assert math.isfinite(float(sum(pixels).sum()))
    assert mechanism.to_rgb(released).shape == sources.shape
