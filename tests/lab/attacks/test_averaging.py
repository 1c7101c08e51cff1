from __future__ import annotations

import torch

from ldp_slicing import Plan, Slice
from ldp_slicing.lab.attacks.averaging import average
from ldp_slicing.lab.attacks.contact_sheet import view_of
from ldp_slicing.lab.metrics.images import psnr
from ldp_slicing.torch.simulate import simulate, to_rgb
from tests.lab.attacks.images import disc_images


def test_one_vote_is_the_release_and_many_are_the_source() -> None:
    sources, plan = disc_images(3), Plan.paper(20.0)
    found = dict(average(sources, plan, (1, 2, 5, 40), torch.Generator().manual_seed(3), prune=None, majority=True))
    release = simulate(sources, plan, torch.Generator().manual_seed(3), prune=None, output="ycbcr")
    assert (found[1] - to_rgb(release.to(torch.int32))).abs().max() <= 1
    assert torch.equal(found[2], found[1])  # a draw is settled by the first release
    near = [psnr(found[t], sources).mean().item() for t in (1, 5, 40)]
    assert near[0] < near[1] - 3 < near[2] - 8


def test_posterior_means_of_16_releases_are_nearer_than_of_one() -> None:
    """A majority of noisy bits is far off where it is wrong. At eps 1 even 16 releases of these images say little."""
    sources = disc_images(6)
    for epsilon in (2.4, 5.2, 20.0):
        plan = Plan.paper(epsilon)
        means, votes = (
            dict(average(sources, plan, (1, 16), torch.Generator().manual_seed(1), prune=None, majority=majority))
            for majority in (False, True)
        )
        near = {t: psnr(images, sources).mean().item() for t, images in means.items()}
        assert near[16] > near[1]
        assert near[1] > psnr(votes[1], sources).mean().item()
        assert near[16] > psnr(votes[16], sources).mean().item()


def test_averaging_a_pruned_view_finds_the_view() -> None:
    sources = disc_images(2)
    ((_, found),) = average(sources, Plan.paper(200.0), (9,), torch.Generator().manual_seed(0), prune="haar")
    assert psnr(found, view_of(sources, "haar")).min() > 35
    assert psnr(found, sources).max() < 20


def test_the_gain_of_a_view_is_undone() -> None:
    sources = (disc_images(2) // 8 + 100).to(torch.uint8)  # faint, so that nothing is clamped
    ((_, found),) = average(sources, Plan.paper(200.0), (9,), torch.Generator().manual_seed(0), prune="haar4")
    assert psnr(found, view_of(sources, "haar")).min() > 40


def test_averaging_works_for_thick_slices_and_grey_plans() -> None:
    sources, thick = disc_images(2), Plan([Slice(0xF0C0C0, 5.2)])
    one, many = (image for _, image in average(sources, thick, (1, 32), torch.Generator().manual_seed(0), prune=None))
    assert psnr(many, sources).mean() > psnr(one, sources).mean() + 4
    assert next(average(sources[:, :1], Plan.grey(8.0, 8), (2,)))[1].shape == (2, 1, 24, 24)
