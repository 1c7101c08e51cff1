from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from ldp_slicing.lab.metrics.images import CRITERIA, psnr, rmse, ssim
from ldp_slicing.lab.metrics.shares import Share, share_within
from ldp_slicing.lab.metrics.shift import tell_apart
from ldp_slicing.lab.metrics.thresholds import balanced_threshold, rates, roc_auc
from tests.lab.attacks.images import disc_images


@pytest.mark.parametrize(("height", "width"), [(11, 11), (24, 24), (33, 20)])
@pytest.mark.parametrize("noise", [2.0, 30.0, 200.0])
def test_ssim_and_psnr_equal_those_of_scikit_image(height: int, width: int, noise: float) -> None:
    a = disc_images(3, height, width).float()
    b = (a + noise * torch.randn(a.shape, generator=torch.Generator().manual_seed(1))).clamp(0, 255)
    for found, one, other in zip(ssim(a, b), a.numpy(), b.numpy(), strict=True):
        wanted = structural_similarity(
            one, other, channel_axis=0, data_range=255, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
        )
        assert found.item() == pytest.approx(wanted, abs=2e-4)
    for found, one, other in zip(psnr(a, b), a.numpy(), b.numpy(), strict=True):
        assert found.item() == pytest.approx(peak_signal_noise_ratio(one, other, data_range=255), abs=1e-3)


def test_equal_images_have_the_best_scores() -> None:
    a = disc_images(2)
    assert torch.allclose(ssim(a, a), torch.ones(2), atol=1e-5)
    assert (psnr(a, a) == 100).all()
    assert (rmse(a, 255 - a) > 0).all()
    assert torch.allclose(ssim(a / 255, (255 - a) / 255, peak=1.0), ssim(a, 255 - a), atol=1e-4)


def test_success_is_a_distance_of_at_most_r() -> None:
    a = disc_images(4).float()
    assert torch.equal(rmse(a, a + 25.5) <= CRITERIA[0].radius + 1e-4, torch.ones(4, dtype=torch.bool))
    by_name = {criterion.name: criterion for criterion in CRITERIA}
    assert by_name["ssim_at_least_0.7"].distance(a, a).abs().max() < 1e-5
    assert share_within(np.array([0.1, 0.3, 0.4]), 0.3) == Share(2, 3)


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (10, 10), (3, 20), (700, 1000)])
def test_intervals_are_clopper_pearson_intervals(hits: int, count: int) -> None:
    wanted = binomtest(hits, count).proportion_ci(0.95, method="exact")
    share = Share(hits, count)
    assert share.interval == pytest.approx((wanted.low, wanted.high), abs=1e-6)
    assert share.row() == {
        "share": hits / count,
        "low_95": share.interval[0],
        "high_95": share.interval[1],
        "count": count,
    }
    assert math.isclose(share.value, hits / count)


def test_the_threshold_balances_sensitivity_and_specificity() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(200, generator=generator) < 0.7).long()
    scores = torch.randn(200, generator=generator).mul(4).round() + 3 * labels  # with ties
    threshold = balanced_threshold(scores, labels)
    found = [sum(rates(scores, labels, float(one))) for one in torch.arange(-20, 20, 0.5)]
    assert sum(rates(scores, labels, threshold)) == pytest.approx(max(found))
    assert balanced_threshold(torch.tensor([0.0, 1.0, 5.0, 9.0]), torch.tensor([0, 0, 1, 1])) == 3.0
    pairs = [float(a > b) + float(a == b) / 2 for a in scores[labels == 1] for b in scores[labels == 0]]
    assert roc_auc(scores, labels) == pytest.approx(sum(pairs) / len(pairs))


def test_sets_that_differ_are_told_apart_and_parts_of_one_set_are_not() -> None:
    drawn = np.random.default_rng(5)
    patients = (np.repeat(np.arange(100), 2), np.arange(100, 200))
    alike = [drawn.integers(100, 150, (len(one), 30, 40, 1), dtype=np.uint8) for one in patients]
    assert abs(tell_apart(alike[0], alike[1], patients) - 0.5) < 0.12
    alike[1][:, :15] += 20
    assert tell_apart(alike[0], alike[1], patients) > 0.95
