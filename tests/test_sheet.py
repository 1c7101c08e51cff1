from __future__ import annotations

import numpy as np
import pytest
from skimage.metrics import peak_signal_noise_ratio

from ldp_slicing import view
from ldp_slicing.sheet import GAP, SMALLEST, TEXT, TITLE, WARNING, Pixels, _fitting, look, make_sheet, psnr
from tests.markers import picture

SHAPES = [(1, 1), (1, 400), (400, 1), (2, 3), (96, 96), (97, 200), (300, 250)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("colour", [True, False], ids=["colour", "grey"])
def test_a_sheet_is_large_enough_and_carries_the_banner(shape: tuple[int, int], colour: bool) -> None:
    source = picture(*shape) if colour else picture(*shape)[..., 0]
    sheet = np.asarray(make_sheet(source, 64))
    banner, below = sheet[: 3 * TITLE], sheet[3 * TITLE + 1 :]
    assert np.all(banner[0] == WARNING)
    assert np.all(banner[-1] == WARNING)
    for line in (banner[8 : 8 + TITLE], banner[8 + TITLE :]):
        written = np.flatnonzero(np.any(line != WARNING, axis=(0, 2)))
        assert len(written) > 300  # the words are there
        assert written[-1] < sheet.shape[1] - GAP  # and end before the sheet does
    assert not np.any(np.all(below == WARNING, axis=-1))


def test_the_sheet_shows_the_source_and_its_bits() -> None:
    source = picture(96, 96)
    sheet = np.asarray(make_sheet(source, 96))
    first = (3 * TITLE + GAP + TITLE + 6, GAP)
    np.testing.assert_array_equal(tile(sheet, first, 96), source)
    planes = look(source, None)
    row = TITLE + 8 + 96 + 2 * TEXT + 6 + GAP
    for bit in (7, 6, 0):
        shown = tile(sheet, (first[0] + row, GAP + (7 - bit) * (96 + GAP)), 96)
        np.testing.assert_array_equal(shown[..., 0] == 255, planes[..., 0] >> bit & 1 == 1)


def tile(sheet: Pixels, corner: tuple[int, int], side: int) -> Pixels:
    return sheet[corner[0] : corner[0] + side, corner[1] : corner[1] + side]


@pytest.mark.parametrize("prune", ["haar", "dct"])
def test_the_look_of_a_view_is_what_the_noise_is_put_on(prune: view.Prune) -> None:
    source = picture(11, 13)
    words = view.to_ycbcr(np.ascontiguousarray(np.moveaxis(source, -1, 0)))
    for c in range(3):
        np.testing.assert_array_equal(look(source, prune)[..., c], view.prune_low(words[c], prune, 8))
    np.testing.assert_array_equal(look(source[..., 0], prune), view.prune_low(source[..., 0], prune, 8))


def test_every_sheet_shows_other_releases() -> None:
    assert not np.array_equal(np.asarray(make_sheet(picture(16, 16))), np.asarray(make_sheet(picture(16, 16))))


def test_psnr_is_that_of_everybody_else() -> None:
    a, b = picture(), picture()[::-1]
    assert psnr(a, b) == pytest.approx(peak_signal_noise_ratio(a, b, data_range=255))
    assert psnr(a, a) == float("inf")


def test_a_long_heading_is_made_small_enough_to_be_read_whole() -> None:
    words = "Releases with the low Haar band pruned, slices Y7+Y6,Y5,Y4+Y3,Cb7+Cr7,Cb6,Cr6; eps per released pixel"
    assert _fitting("Bit-planes", 16, 800).getlength("W") == _fitting("Bit", 16, 200).getlength("W")
    assert 800 >= _fitting(words, 16, 800).getlength(words) > 600
    assert _fitting(words, 16, 10).getlength(words) == _fitting(words, SMALLEST, 10).getlength(words)  # no smaller than can be read
