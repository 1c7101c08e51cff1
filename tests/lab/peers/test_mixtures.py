"""InstaHide, DP-Pix and PEEP: their mechanisms, as published."""

from __future__ import annotations

import pytest
import torch

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.peers.dppix import DpPix
from ldp_slicing.lab.peers.instahide import TRIES, InstaHide, mixing_coefficients
from ldp_slicing.lab.peers.interface import Release
from ldp_slicing.lab.peers.peep import Peep
from tests.lab.peers.faces import fitted, keys, people, smooth_images, teacher


@pytest.mark.parametrize("k", [2, 4, 6])
def test_the_absolute_value_removes_the_sign_mask_of_instahide(k: int) -> None:
    peer, image = fitted(InstaHide(mixed=k)), smooth_images(1)
    values = peer.release_values(image, [torch.Generator().manual_seed(3)])
    again = torch.Generator().manual_seed(3)
    torch.rand(image[0].shape, generator=again)  # the signs are drawn first
    mixture = peer.mixtures(image, [again])[0]
    assert torch.allclose(values[0].abs(), mixture.abs())
    assert 0.3 < ((values[0] > 0) == (mixture > 0)).float().mean() < 0.7
    seen = [peer.input_of(Release(signed, peer, (image.shape[2], image.shape[3]))) for signed in (values, -values)]
    assert torch.equal(*seen)  # what networks read has no signs


@pytest.mark.parametrize("k", [2, 4, 6])
def test_mixing_coefficients_sum_to_1_and_none_is_too_large(k: int) -> None:
    drawn = mixing_coefficients(torch.randn(300, TRIES, k, generator=torch.Generator().manual_seed(0)))
    assert torch.allclose(drawn.sum(1), torch.ones(300))
    assert drawn.min() >= 0
    assert drawn.max() <= 0.65
    assert drawn[:, 0].mean().item() == pytest.approx(1 / k, abs=0.03)


def test_instahide_needs_partners() -> None:
    with pytest.raises(LdpSlicingError, match="instahide:k2 has no partners to mix"):
        InstaHide(mixed=2).protect(smooth_images(1), keys(1))


def test_dp_pix_adds_noise_of_its_scale_to_block_means() -> None:
    peer = DpPix(block=4, pixels=1, epsilon=20.0)
    assert peer.scale == pytest.approx(255 * 3 / (16 * 20))
    images = torch.full((50, 3, 18, 16), 100, dtype=torch.uint8)
    release = peer.protect(images, keys(50))
    assert release.values.shape == (50, 3, 4, 4)
    assert (release.values - 100).abs().mean().item() == pytest.approx(peer.scale, rel=0.1)
    shown = release.as_image()
    assert shown.shape == images.shape
    assert torch.equal(shown[..., 15, :], shown[..., 17, :])  # the cropped rows repeat the last block
    with pytest.raises(LdpSlicingError, match="have no block of 16"):
        DpPix(block=16, pixels=16, epsilon=0.5).protect(smooth_images(1, 8), keys(1))


def test_dp_pix_promises_a_unit() -> None:
    one, many = DpPix(block=4, pixels=1, epsilon=20.0), DpPix(block=16, pixels=16, epsilon=0.5)
    assert (one.guarantee.unit, one.guarantee.epsilon) == ("source pixel", 20.0)
    assert many.guarantee.unit == "16 source pixels"
    assert many.scale == pytest.approx(95.6, abs=0.1)


def test_peep_without_noise_is_a_projection_and_with_noise_has_its_scale() -> None:
    images = smooth_images(30, seed=99)
    clean = fitted(Peep(components=24, epsilon=1e9), count=30)
    release = clean.protect(images, keys(30))
    assert release.values.shape == (30, 24)
    assert release.values.min() >= -1e-3
    assert release.values.max() <= 1 + 1e-3
    grey = images.float().mean(1, keepdim=True)
    shown = clean.input_of(release)
    assert torch.corrcoef(torch.stack((shown.flatten(), grey.flatten())))[0, 1] > 0.8  # halving the size loses some
    noisy = fitted(Peep(components=24, epsilon=5.0), count=30)
    difference = noisy.protect(images, keys(30)).values - release.values
    assert difference.abs().mean().item() == pytest.approx(1 / 5, rel=0.1)


def test_peep_moves_coefficients_into_the_public_range_before_noise_is_added() -> None:
    public = smooth_images(30, seed=99) // 4 + 96  # of little contrast
    clean, noisy = (Peep(components=4, epsilon=epsilon).fit(public, people(30), teacher()) for epsilon in (1e9, 5.0))
    images = 255 * (smooth_images(40) > 127).to(torch.uint8)
    values = clean.protect(images, keys(40)).values
    assert values.min() >= -1e-6
    assert values.max() <= 1 + 1e-6
    outside = ((values < 1e-6) | (values > 1 - 1e-6)).sum(1)
    assert (outside > 0).float().mean() > 0.9
    one = int(outside.argmax())
    many = noisy.protect(images[one : one + 1].expand(3000, -1, -1, -1), keys(3000)).values
    assert (many.mean(0) - values[one]).abs().max() < 0.03  # 5.8 standard errors


def test_peep_has_no_more_components_than_public_images_allow() -> None:
    assert fitted(Peep(components=64)).protect(smooth_images(1), keys(1)).values.shape == (1, 7)
