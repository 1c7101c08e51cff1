from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from ldp_slicing import Plan, Slice
from ldp_slicing.lab.attacks.bayes import non_local_means, prepare
from ldp_slicing.lab.attacks.contact_sheet import view_of
from ldp_slicing.lab.bits import float_rgb
from ldp_slicing.lab.metrics.images import psnr
from ldp_slicing.torch.decode import posterior_mean
from ldp_slicing.torch.simulate import simulate
from tests.lab.attacks.images import disc_images


def by_hand(release: int, plan: Plan, prior: np.ndarray, kept: list[int]) -> list[float]:
    """The posterior mean over whole words, for a prior that lives on a few values of each channel."""
    total, means = 0.0, np.zeros(len(prior))
    for values in product(kept, repeat=len(prior)):
        word = int.from_bytes(bytes(values), "big")
        weight = float(np.prod([prior[c, v] for c, v in enumerate(values)]))
        for part in plan.slices:
            miss = float(plan.tables.miss_probability(part.bits))
            weight *= miss * ((word ^ release) & part.bits == 0) + (1 - miss) / 2 ** part.bits.bit_count()
        total += weight
        means += weight * np.array(values)
    return list(means / total)


@pytest.mark.parametrize(
    "plan",
    [
        Plan.paper(12.0),
        Plan([Slice(0xC08080, 3.0)]),  # one slice across channels
        Plan([Slice(0xC08080, 3.0), Slice(0x300000, 1.0), Slice(0x000060, 2.0)]),  # and others within
        Plan.sliced(8.0, "Y7+Cb7+Cr7,Y6+Cb6+Cr6"),  # several across channels
        Plan.grey(5.0, 8),
    ],
)
def test_the_posterior_is_the_one_over_whole_words(plan: Plan) -> None:
    rng, channels, kept = np.random.default_rng(0), 3 if plan.is_colour else 1, [3, 70, 131, 200, 250]
    prior = np.zeros((channels, 256))
    prior[:, kept] = rng.dirichlet(np.ones(len(kept)), channels)
    released = simulate(
        torch.from_numpy(rng.integers(0, 256, (1, channels, 3, 4), dtype=np.uint8)),
        plan,
        torch.Generator().manual_seed(1),
        output="ycbcr",
    )
    found = posterior_mean(released.transpose(0, 1).long(), plan, torch.from_numpy(prior)).transpose(0, 1)
    for row, column in product(range(3), range(4)):
        word = int.from_bytes(bytes(released[0, :, row, column].tolist()), "big")
        assert found[0, :, row, column].tolist() == pytest.approx(by_hand(word, plan, prior, kept), abs=1e-6)


def test_the_posterior_without_noise_is_the_release() -> None:
    released = torch.randint(256, (2, 3, 6, 5), dtype=torch.uint8)
    found = posterior_mean(
        released.transpose(0, 1).long(), Plan.paper(1000.0), torch.full((3, 256), 1 / 256)
    ).transpose(0, 1)
    assert torch.allclose(found, released.float(), atol=0.01)


@pytest.mark.parametrize(("row", "column"), [(12, 9), (0, 0), (23, 20)])
def test_non_local_means_by_hand(row: int, column: int) -> None:
    image = disc_images(1).float() / 255 + 0.1 * torch.randn(1, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    found = non_local_means(image, 0.2, patch=3, reach=4)
    whole = np.pad(image[0].numpy(), ((0, 0), (5, 5), (5, 5)), "reflect")
    row, column = row + 5, column + 5
    total, weights = np.zeros(3), 0.0
    for y, x in product(range(row - 4, row + 5), range(column - 4, column + 5)):
        here, there = (whole[:, a - 1 : a + 2, b - 1 : b + 2] for a, b in ((row, column), (y, x)))
        weight = np.exp(-((here - there) ** 2).mean() / 0.2**2)
        total += weight * whole[:, y, x]
        weights += weight
    assert found[0, :, row - 5, column - 5].tolist() == pytest.approx(list(total / weights), abs=1e-5)


@pytest.mark.parametrize("plan", [Plan.paper(20.0), Plan([Slice(0xE0C0C0, 4.0)])])
def test_the_attack_sees_more_than_the_release_shows(plan: Plan) -> None:
    draw, sources = torch.Generator().manual_seed(0), disc_images(4, seed=9)
    attack = prepare(disc_images(12), plan, draw, prune=None)
    words = simulate(sources, plan, draw, prune=None, output="ycbcr")
    release, found = float_rgb(words.float()).clamp(0, 255), attack.reconstruct(words)
    posterior = float_rgb(posterior_mean(words.transpose(0, 1).long(), plan, attack.prior).transpose(0, 1)).clamp(
        0, 255
    )
    assert attack.strength > 0
    assert psnr(found, sources).mean() > psnr(posterior, sources).mean() > psnr(release, sources).mean()


def test_the_easy_target_is_reconstructed_and_only_the_detail_of_a_pruned_view() -> None:
    draw, sources, plan = torch.Generator().manual_seed(0), disc_images(3, seed=9), Plan.paper(200.0)
    whole, pruned = (
        prepare(disc_images(6), plan, draw, prune=prune).reconstruct(
            simulate(sources, plan, draw, prune=prune, output="ycbcr")
        )
        for prune in (None, "haar")
    )
    assert psnr(whole, sources).mean() > 30
    assert psnr(pruned, view_of(sources, "haar")).mean() > 30
    assert psnr(pruned, sources).mean() < 20
