"""The frequency maps are those of a plain block DCT, and least squares takes them back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.fft import dctn
from torch import Tensor
from torch.nn import functional

from ldp_slicing.lab.metrics.images import psnr
from ldp_slicing.lab.peers.dct import (
    MAPS,
    STEPS,
    channels_of,
    fill_maps,
    from_maps,
    invert_kept,
    invert_linearly,
    to_maps,
)
from tests.lab.peers.faces import smooth_images


def plain_maps(image: Tensor) -> np.ndarray:
    """[3, H, W] to [192, H, W]: enlarge, convert, then transform one block after the other."""
    large = functional.interpolate(image[None].double(), scale_factor=8, mode="bilinear", align_corners=True)[0]
    red, green, blue = large.numpy()
    planes = np.stack(
        [
            0.299 * red + 0.587 * green + 0.114 * blue - 128,
            -0.168735892 * red - 0.331264108 * green + 0.5 * blue,
            0.5 * red - 0.418687589 * green - 0.081312411 * blue,
        ]
    )
    maps = np.empty((MAPS, *image.shape[1:]))
    for i, j in np.ndindex(*image.shape[1:]):
        blocks = planes[:, 8 * i : 8 * i + 8, 8 * j : 8 * j + 8]
        maps[:, i, j] = dctn(blocks, axes=(1, 2), norm="ortho").reshape(MAPS)
    return maps


@pytest.mark.parametrize("shape", [(6, 6), (5, 8)])
def test_the_maps_equal_those_of_a_plain_block_dct(shape: tuple[int, int]) -> None:
    image = torch.randint(256, (3, *shape), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)
    assert np.abs(to_maps(image[None])[0].numpy() - plain_maps(image)).max() < 2e-3  # of up to 1024, in float32


def test_the_inverse_of_the_systems_is_nearly_exact() -> None:
    images = smooth_images(3)
    assert psnr(from_maps(to_maps(images)), images).min() > 45
    assert torch.equal(from_maps(torch.zeros(1, MAPS, 4, 4)), torch.full((1, 3, 4, 4), 128.0))


def test_least_squares_returns_the_image_from_all_maps_without_noise() -> None:
    images = smooth_images(3, 12)
    found = invert_linearly(to_maps(images), torch.full((MAPS,), 1e-4))
    assert psnr(found.images, images).min() > 60
    assert found.residual.max() < 1e-5


def test_least_squares_returns_the_image_without_dc_up_to_the_mean_colour() -> None:
    images = smooth_images(2, 12)
    kept = channels_of(range(1, 64))
    prior = images.double().mean((2, 3), keepdim=True)
    for image, colour in zip(images, prior, strict=True):
        found = invert_kept(to_maps(image[None])[:, kept], kept, colour.expand(-1, 12, 12)).images
        assert psnr(found, image[None]) > 50
    grey = invert_kept(to_maps(images)[:, kept], kept).images
    assert (grey.mean((2, 3)) - 128).abs().max() < 1e-6  # nothing is known about it
    assert psnr(grey - grey.mean((2, 3), keepdim=True) + prior, images).min() > 50


def test_maps_that_are_not_there_do_not_matter() -> None:
    images, kept = smooth_images(1, 8), channels_of([3, 7, 9])
    maps = to_maps(images)
    scales = torch.full((MAPS,), torch.inf)
    scales[kept] = 0.1
    with_others = invert_linearly(maps, scales, steps=20).images
    assert torch.allclose(with_others, invert_linearly(fill_maps(maps[:, kept], kept), scales, steps=20).images)


def test_least_squares_has_converged_where_many_frequencies_are_missing() -> None:
    images, kept = smooth_images(2, 40), channels_of(range(10, 64))
    maps, prior = to_maps(images)[:, kept], images.double().mean(0)
    found, longer = (invert_kept(maps, kept, prior, steps=steps).images for steps in (STEPS, 20 * STEPS))
    assert (found - longer).abs().max() < 0.01
    assert psnr(found, images).min() > psnr(invert_kept(maps, kept, prior, steps=2).images, images).max()
