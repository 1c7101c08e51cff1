"""The same values at another bit depth, or in grey and in colour, are one source for the ledger."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ldp_slicing.digests import common_digests, source_digest
from tests.formats.dicom_files import dicom, saved
from tests.markers import encoded, gradient
from tests.release.helpers import card_of, outputs, plant, release, spent

GREY = gradient(9, 7)[..., 0]
VALUES = np.arange(63, dtype=np.uint16).reshape(9, 7) * 29
FORMS = {
    "grey.png": encoded(GREY, "PNG"),
    "rgb.png": encoded(np.repeat(GREY[..., None], 3, axis=2), "PNG"),
    "deep.png": encoded(GREY.astype(np.uint16) * 257, "PNG"),
}


def test_grey_colour_and_16_bits_have_a_form_in_common() -> None:
    rgb, deep = np.repeat(GREY[..., None], 3, axis=2), GREY.astype(np.uint16) * 257
    forms = [common_digests(pixels, bits) for pixels, bits in ((GREY, 8), (rgb, 8), (deep, 16))]
    assert len(set(forms)) == 1
    assert common_digests(gradient(9, 7), 8) == ()
    assert common_digests(GREY + np.uint8(1), 8) != forms[0]
    assert common_digests(GREY.T, 8) != forms[0]
    assert common_digests(VALUES, 12) == common_digests(VALUES, 16) != common_digests(VALUES + 1, 12)
    digests = [source_digest(pixels, bits) for pixels, bits in ((GREY, 8), (rgb, 8), (deep, 16))]
    assert len(set(digests)) == 3  # from which keys are derived: two forms never share a mask


def test_signed_values_have_a_form_in_common_at_every_depth() -> None:
    stored = VALUES.astype(np.int32) - 900
    forms = [common_digests((stored + (1 << (bits - 1))).astype(np.uint16), bits, signed=True) for bits in (12, 13, 16)]
    assert len(set.intersection(*map(set, forms))) == 1
    inverted = [common_digests((1 << bits) - 1 - VALUES, bits, inverted=True) for bits in (12, 13, 16)]
    assert len(set.intersection(*map(set, inverted))) == 1


@pytest.mark.parametrize("first", list(FORMS))
def test_another_form_of_a_released_image_is_refused(first: str, tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {first: FORMS[first]}), tmp_path / "out")
    ran = release(plant(tmp_path / "again", FORMS), tmp_path / "out2")
    assert set(ran.problems) == set(FORMS)
    assert all("was released before, once" in problem for problem in ran.problems.values())
    assert spent().releases == 1


def test_forms_within_one_run_have_noise_of_their_own_and_are_added_up(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", FORMS)
    release(source, tmp_path / "out")
    made = outputs(tmp_path / "out")
    assert len(set(made.values())) == 3
    (statement, *_) = card_of(tmp_path / "out")["statements"]
    assert statement["most_releases_of_one_source"] == 3


@pytest.mark.parametrize("signed", [False, True])
def test_a_dicom_file_at_another_bit_depth_is_refused(signed: bool, tmp_path: Path) -> None:
    values = VALUES.astype(np.int32) - (900 if signed else 0)

    def stored(bits: int) -> bytes:
        words = (values & ((1 << bits) - 1)).astype(np.uint16)
        return saved(dicom(words, bits, PixelRepresentation=int(signed), LargestImagePixelValue=0))

    release(plant(tmp_path / "in", {"a.dcm": stored(12)}), tmp_path / "out")
    ran = release(plant(tmp_path / "again", {f"{bits}.dcm": stored(bits) for bits in (12, 13, 16)}), tmp_path / "out2")
    assert set(ran.problems) == {"12.dcm", "13.dcm", "16.dcm"}
    assert spent().releases == 1
