"""DICOM files: colour, series, attributes that are kept by name, and values that are mapped to a range."""

from __future__ import annotations

import io
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.pixels.processing import apply_color_lut, convert_color_space
from typer.testing import CliRunner

from ldp_slicing import Plan
from ldp_slicing.card import Card
from ldp_slicing.card.prose import SERIES
from ldp_slicing.cli import app
from ldp_slicing.digests import source_digest
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.formats.base import Entry, Original
from ldp_slicing.formats.dicom.tags import TAGS, parse_tag
from ldp_slicing.keys import Secret, read_key_file
from ldp_slicing.release import records
from ldp_slicing.release.ledger_client import digests_of
from ldp_slicing.release.opening import prepare
from ldp_slicing.release.run import on_this_machine
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.value_range import RangeMap, ValueRange
from tests.formats.dicom_files import SLICE, STACK, dicom, saved
from tests.markers import gradient
from tests.release.helpers import PNG, SETTINGS, card_of, expected, outputs, plant, release, spent, verified, write_card

COLOUR = gradient(12, 14)
DEEP = SLICE.astype(np.int16) - 1024  # values of CT


def released(tmp_path: Path, source: Dataset, settings: ReleaseSettings = SETTINGS, **options: Any) -> Dataset:
    ran = release(plant(tmp_path / "in", {"a.dcm": saved(source)}), tmp_path / "out", settings, **options)
    assert ran.problems == {}
    assert verified(tmp_path / "out") == []
    return pydicom.dcmread(tmp_path / "out" / "a.dcm")


# Colour


def test_rgb_is_released_by_the_colour_plan(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, dicom(COLOUR, 8, PhotometricInterpretation="RGB"), key=key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", COLOUR, 24, key))
    assert (made.PhotometricInterpretation, made.SamplesPerPixel, made.PlanarConfiguration) == ("RGB", 3, 0)
    assert "RescaleSlope" not in made
    assert card_of(tmp_path / "out")["statements"][0]["plan"]["word_bits"] == 24


def test_ybr_becomes_rgb(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, dicom(COLOUR, 8, PhotometricInterpretation="YBR_FULL"), key=key)
    rgb = convert_color_space(COLOUR, "YBR_FULL", "RGB")
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", rgb, 24, key))


def test_a_palette_is_applied_and_not_released(tmp_path: Path, key: Path) -> None:
    indices = (SLICE & 255).astype(np.uint8)
    source = dicom(indices, 8, PhotometricInterpretation="PALETTE COLOR")
    for colour in ("Red", "Green", "Blue"):
        table = np.roll(np.arange(256), len(colour)).astype("<u2") * 257
        setattr(source, f"{colour}PaletteColorLookupTableDescriptor", [256, 0, 16])
        setattr(source, f"{colour}PaletteColorLookupTableData", table.tobytes())
    made = released(tmp_path, source, key=key)
    rgb = (apply_color_lut(indices, source) >> 8).astype(np.uint8)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", rgb, 24, key))
    assert "RedPaletteColorLookupTableData" not in made


def test_deep_colour_is_reduced_with_a_notice(tmp_path: Path, key: Path) -> None:
    deep = COLOUR * np.uint16(256) + np.uint16(77)
    source = dicom(deep, 16, PhotometricInterpretation="RGB")
    ran = release(plant(tmp_path / "in", {"a.dcm": saved(source)}), tmp_path / "out", key=key)
    assert ran.reports["a.dcm"].notices == {"16 bits per channel are reduced to 8": 1}
    made = pydicom.dcmread(tmp_path / "out" / "a.dcm")
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", COLOUR, 24, key))


def test_frames_in_colour(tmp_path: Path) -> None:
    frames = np.stack([COLOUR, COLOUR[::-1], COLOUR[:, ::-1]])
    made = released(tmp_path, dicom(frames, 8, PhotometricInterpretation="RGB"))
    assert made.pixel_array.shape == frames.shape
    assert made.SOPClassUID == "1.2.840.10008.5.1.4.1.1.7.4"
    assert spent().releases == 3


@pytest.mark.parametrize("bits", [1, 5])
def test_few_bits_are_words_of_few_bits(bits: int, tmp_path: Path, key: Path) -> None:
    pixels = (SLICE & ((1 << bits) - 1)).astype(np.uint8)
    made = released(tmp_path, dicom(pixels, bits), key=key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", pixels, bits, key))


# Series


def test_a_series_stays_a_series_under_new_uids(tmp_path: Path) -> None:
    def file(number: int, series: str, study: str = "1.2.3", place: str = "1.2.9") -> bytes:
        about = {"SeriesInstanceUID": series, "StudyInstanceUID": study, "FrameOfReferenceUID": place}
        return saved(dicom(SLICE ^ np.uint16(number), 12, SOPInstanceUID=f"1.2.3.{number}", **about))

    files = {"a.dcm": file(1, "1.1"), "b.dcm": file(2, "1.1"), "c.dcm": file(3, "1.2"), "d.dcm": file(4, "1.3", "1.4")}
    source = plant(tmp_path / "in", files)
    assert release(source, tmp_path / "out").problems == {}
    a, b, c, d = (pydicom.dcmread(tmp_path / "out" / name) for name in sorted(files))
    assert a.SeriesInstanceUID == b.SeriesInstanceUID != c.SeriesInstanceUID
    assert a.StudyInstanceUID == c.StudyInstanceUID != d.StudyInstanceUID
    assert a.FrameOfReferenceUID == d.FrameOfReferenceUID
    assert len({one.SOPInstanceUID for one in (a, b, c, d)}) == 4
    assert all(one.InstanceNumber is None for one in (a, b, c, d))
    assert SERIES in card_of(tmp_path / "out")["not_protected"]
    assert verified(tmp_path / "out") == []
    assert release(source, tmp_path / "again", spend=True).problems == {}
    assert pydicom.dcmread(tmp_path / "again" / "a.dcm").SeriesInstanceUID != a.SeriesInstanceUID  # another run


def test_names_of_scans_are_warned_of_and_a_preset_for_scans_hides_them(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"Maier_Anna_2020.dcm": saved(dicom(SLICE, 12))})

    def privatize(target: str, *options: str) -> str:
        done = CliRunner().invoke(app, ["privatize", str(source), str(tmp_path / target), *options])
        assert done.exit_code == 0, done.output
        return " ".join(done.stderr.split())

    assert "releases of DICOM files have the names of their sources, and" in privatize("out", "--epsilon", "5")
    assert "names of their sources" not in privatize("out2", "--preset", "chest-xrays", "--spend")
    (name,) = outputs(tmp_path / "out2")
    assert re.fullmatch(r"[0-9a-f]{2}/[0-9a-f]{32}\.dcm", name)


def test_names_of_scans_that_were_refused_are_not_warned_of(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.dcm": saved(dicom(SLICE, 12))[:-9], "b.png": PNG})
    ran = CliRunner().invoke(app, ["privatize", str(source), str(tmp_path / "out"), "--epsilon", "5", "--json"])
    found = json.loads(ran.stdout)
    assert [one["source"] for one in found["problems"]] == ["a.dcm"]
    assert not any("names of their sources" in one["notice"] for one in found["notices"])


def test_a_card_that_hides_the_series_is_wrong(tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.dcm": saved(dicom(SLICE, 12))}), tmp_path / "out")
    card = card_of(tmp_path / "out")
    card["not_protected"].remove(SERIES)
    write_card(tmp_path / "out", card)
    assert any("belong together" in problem for _, problem in verified(tmp_path / "out"))


def test_without_dicom_files_the_card_does_not_speak_of_series(tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "out")
    assert SERIES not in card_of(tmp_path / "out")["not_protected"]


# Attributes kept by name


GEOMETRY = {
    "PixelSpacing": [0.5, 0.25],
    "InstanceNumber": 7,
    "ImagePositionPatient": [-1.5, 2, 3e-7],
    "PatientPosition": "HFS",
}


def test_only_what_is_named_is_kept(tmp_path: Path) -> None:
    keep = ("InstanceNumber", "Modality", "PatientPosition", "PixelSpacing")
    made = released(tmp_path, dicom(SLICE, 12, **GEOMETRY), ReleaseSettings(5.0, keep=keep))
    assert (list(made.PixelSpacing), made.InstanceNumber, made.Modality) == ([0.5, 0.25], 7, "CT")
    assert made.PatientPosition == "HFS"
    assert "ImagePositionPatient" not in made
    assert card_of(tmp_path / "out")["kept_beside"] == sorted(keep)


@pytest.mark.parametrize(
    ("keep", "why"),
    [
        ("PatientName", "PatientName of a DICOM file cannot be kept; these can: AcquisitionNumber"),
        ("WindowCenter", "WindowCenter of a DICOM file cannot be kept"),
        ("Laterality", "has no Laterality to keep; it has "),
    ],
)
def test_what_may_not_be_kept_is_refused_before_anything_is_spent(keep: str, why: str, tmp_path: Path) -> None:
    # In a shard, any name may be one to keep.
    files = {"a.dcm": saved(dicom(SLICE, 12, **GEOMETRY)), "a shard first.tar": b""}
    source = plant(tmp_path / "in", files)
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=(keep,)))
    assert ran.problems["a.dcm"].startswith(why)
    assert spent().releases == 0


def test_distances_between_pixels_are_not_kept_of_shrunk_images(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.dcm": saved(dicom(SLICE, 12, **GEOMETRY))})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("PixelSpacing",), size=6))
    assert ran.problems["a.dcm"].startswith("PixelSpacing would be wrong for a smaller image")
    assert release(source, tmp_path / "out2", ReleaseSettings(5.0, keep=("InstanceNumber",), size=6)).problems == {}
    assert pydicom.dcmread(tmp_path / "out2" / "a.dcm").pixel_array.shape == (4, 6)
    assert verified(tmp_path / "out2") == []


def test_shrinking_and_a_range(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, ct(), ReleaseSettings(5.0, value_range="CT", size=5), key=key)
    assert (made.pixel_array.shape, made.BitsStored) == ((4, 5), 12)


def test_text_in_a_code_is_refused(tmp_path: Path) -> None:
    source = dicom(SLICE, 12, PatientPosition="ANNA")
    ran = release(
        plant(tmp_path / "in", {"a.dcm": saved(source)}),
        tmp_path / "out",
        ReleaseSettings(5.0, keep=("PatientPosition",)),
    )
    assert ran.problems == {
        "a.dcm": "its PatientPosition has a value that cannot be kept: leave out --keep PatientPosition"
    }


def test_what_is_kept_has_one_encoding() -> None:
    for value in (0.1, 1 / 3, -123456.7890123456, 1e-30, 5.0, -0.0, 1e15 / 7):
        text = TAGS["SliceThickness"].encode([value])
        assert len(text) <= 16
        assert parse_tag("SliceThickness", text) == text
    assert parse_tag("SliceThickness", "1") is None  # it is written 1.0
    assert parse_tag("SliceThickness", "nan") is None
    assert parse_tag("InstanceNumber", "07") is None
    assert parse_tag("InstanceNumber", "99999999999") is None
    assert parse_tag("PixelSpacing", "1.0") is None
    assert parse_tag("Modality", "ANNA") is None


# Burned-in text


def test_the_owners_word_on_burned_in_text(tmp_path: Path) -> None:
    files = {"a.dcm": saved(dicom(SLICE, 12)), "b.dcm": saved(dicom(SLICE ^ 1, 12, BurnedInAnnotation="YES"))}
    ran = release(plant(tmp_path / "in", files), tmp_path / "out", ReleaseSettings(5.0, not_burned_in=True))
    assert ran.problems == {"b.dcm": "states that text is burned into its pixels, which contradicts --not-burned-in"}
    made = pydicom.dcmread(tmp_path / "out" / "a.dcm")
    assert (made.BurnedInAnnotation, made.PatientIdentityRemoved) == ("NO", "YES")
    assert verified(tmp_path / "out") == []


# Values mapped to a range


CT = ReleaseSettings(5.0, value_range="CT")


def ct(pixels: NDArray[Any] = DEEP, bits: int = 16, **about: Any) -> Dataset:
    """Return a CT file whose stored numbers are values in HU."""
    unset = {"SmallestImagePixelValue": 0, "LargestImagePixelValue": 0}
    return dicom(pixels, bits, **{"PixelRepresentation": 1, "RescaleIntercept": 0, **unset, **about})


def by_definition(by: RangeMap, words: NDArray[Any], key: Path) -> NDArray[Any]:
    """Return the release of source words that are mapped to a range, one by one, under the owner's key."""
    mapped = np.array([by.word(Fraction(int(word))) for word in words.ravel()], np.uint16).reshape(words.shape)
    slicer, secret = CT.slicer(12), Secret(read_key_file(key), is_owners=True)
    made = secret.image_key(b"", source_digest(words, 16), slicer.plan, slicer.prune, None, str(by))
    return slicer(mapped, key=made)


def test_values_are_mapped_before_the_noise(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, ct(), CT, key=key)
    by = RangeMap(ValueRange.parse("CT"), Fraction(1), Fraction(-32768))
    words = (DEEP.astype(np.int32) + 32768).astype(np.uint16)
    np.testing.assert_array_equal(made.pixel_array, by_definition(by, words, key))
    assert (made.BitsStored, made.RescaleIntercept, made.RescaleSlope) == (12, -1024, 1)
    (statement,) = card_of(tmp_path / "out")["statements"]
    assert statement["view"]["range"] == "-1024:3071:12"
    assert statement["plan"]["word_bits"] == 12
    assert "for the range -1024:3071:12" in str(Card.read(tmp_path / "out" / "card.json"))


def test_inverted_and_rescaled_values(tmp_path: Path, key: Path) -> None:
    stored = (SLICE * 2).astype(np.uint16)
    about = {"PixelRepresentation": 0, "RescaleSlope": "0.5", "RescaleIntercept": -1000}
    made = released(tmp_path, ct(stored, 16, PhotometricInterpretation="MONOCHROME1", **about), CT, key=key)
    words = 65535 - stored
    by = RangeMap(ValueRange.parse("CT"), Fraction(-1, 2), Fraction(65535, 2) - 1000, inverted=True)
    np.testing.assert_array_equal(made.pixel_array, by_definition(by, words, key))
    assert (made.PhotometricInterpretation, made.RescaleIntercept, made.RescaleSlope) == ("MONOCHROME2", 3071, -1)


def test_equal_pixels_with_other_units_do_not_share_noise(tmp_path: Path, key: Path) -> None:
    """Under an owner's key they have equal digests; one mask for both would reveal the difference of their words."""
    slicer, secret = CT.slicer(12), Secret(read_key_file(key), is_owners=True)
    maps = [RangeMap(ValueRange.parse("CT"), Fraction(1), Fraction(intercept)) for intercept in (0, -1024)]
    keys = [secret.image_key(b"", bytes(32), slicer.plan, "haar", None, str(by)).take() for by in maps]
    plain = secret.image_key(b"", bytes(32), slicer.plan, "haar", None).take()
    assert len({*keys, plain}) == 3
    files = {"a.dcm": saved(ct()), "b.dcm": saved(ct(RescaleIntercept=-7))}
    for name, data in files.items():
        source = plant(tmp_path / name, {name: data})
        assert release(source, tmp_path / f"out-{name}", CT, key=key, spend=True).problems == {}
    assert spent().releases == 2  # not one release that was made again


def test_the_ledger_knows_a_source_with_and_without_a_range(tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.dcm": saved(ct())}), tmp_path / "out", CT)
    other = plant(tmp_path / "other", {"b.dcm": saved(ct(PatientName="Bert"))})  # other bytes, the same pixels
    assert "was released before" in release(other, tmp_path / "out2").problems["b.dcm"]
    narrow = ReleaseSettings(5.0, value_range="-160:240")
    assert "was released before" in release(other, tmp_path / "out3", narrow).problems["b.dcm"]


def test_floats_do_not_share_noise_with_integers_of_the_same_bytes() -> None:
    """Under an owner's key, equal digests mean equal masks, and here the views differ."""
    by = RangeMap(ValueRange.parse("0:80:12"), Fraction(1), Fraction(0))
    floats = np.linspace(0, 80, 64, dtype=np.float32).reshape(8, 8)
    sources = [
        Entry("", by.apply(pixels), 12, None, original=Original(pixels, 32, str(by)))
        for pixels in (floats, floats.view(np.uint32))
    ]
    assert not np.array_equal(sources[0].pixels, sources[1].pixels)
    digests = [digests_of(source)[0] for source in sources]
    secret, plan = Secret(bytes(32), is_owners=True), Plan.grey(5.0, 12)
    keys = {secret.image_key(b"", digest, plan, "haar", None, str(by)).take() for digest in digests}
    assert len(keys) == 2


@pytest.mark.parametrize("kind", ["32 bits", "float", "double"])
def test_long_and_floating_point_pixels_need_a_range(kind: str, tmp_path: Path) -> None:
    values = SLICE.astype({"32 bits": np.uint32, "float": np.float32, "double": np.float64}[kind]) * 1000
    source = dicom(values.astype(np.uint32), 32, Modality="RTDOSE")
    if kind == "32 bits":
        source.DoseGridScaling = "1E-4"
    else:
        del source.PixelData, source.BitsStored, source.HighBit, source.PixelRepresentation
        source.BitsAllocated = 32 if kind == "float" else 64
        setattr(source, "FloatPixelData" if kind == "float" else "DoubleFloatPixelData", (values / 10000).tobytes())
        source.RescaleIntercept = 0
    folder = plant(tmp_path / "in", {"a.dcm": saved(source)})
    assert "--range LOW:HIGH" in release(folder, tmp_path / "out").problems["a.dcm"]
    made = released(tmp_path / "second", source, ReleaseSettings(5.0, value_range="0:80:12"))
    assert (made.BitsStored, made.RescaleIntercept) == (12, 0)
    assert made.RescaleSlope == pytest.approx(80 / 4095)


def test_pixels_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    source = dicom(SLICE.astype(np.uint32), 32)
    del source.PixelData, source.BitsStored, source.HighBit, source.PixelRepresentation
    source.FloatPixelData = np.full(SLICE.shape, np.nan, np.float32).tobytes()
    settings = ReleaseSettings(5.0, value_range="0:80")
    ran = release(plant(tmp_path / "in", {"a.dcm": saved(source)}), tmp_path / "out", settings)
    assert ran.problems == {"a.dcm": "has pixels that are not numbers (NaN)"}


def test_a_range_refuses_what_it_is_not_for(tmp_path: Path) -> None:
    lut = ct()
    del lut.RescaleSlope, lut.RescaleIntercept
    lut.ModalityLUTSequence = [Dataset()]
    files = {
        "colour.dcm": saved(dicom(COLOUR, 8, PhotometricInterpretation="RGB")),
        "image.png": PNG,
        "mr.dcm": saved(ct(Modality="MR")),
        "lut.dcm": saved(lut),
        "flat.dcm": saved(ct(RescaleSlope=0)),
        "odd.dcm": saved(ct(RescaleSlope="1E99")),
    }
    problems = release(plant(tmp_path / "in", files), tmp_path / "out", CT).problems
    assert set(problems) == set(files)
    assert "--range is for grey" in problems["colour.dcm"]
    assert "no units" in problems["image.png"]
    assert problems["mr.dcm"] == "has the modality MR, and the range CT is not for it"
    assert "modality LUT" in problems["lut.dcm"]
    assert "slope of 0" in problems["flat.dcm"]
    assert "not a usual number" in problems["odd.dcm"]
    assert spent().releases == 0


def test_slopes_of_single_frames(tmp_path: Path) -> None:
    source = dicom(STACK, 12, Modality="PT")
    del source.RescaleSlope, source.RescaleIntercept
    groups = []
    for number in range(3):
        values, group = Dataset(), Dataset()
        values.RescaleSlope, values.RescaleIntercept = number + 1, 0
        group.PixelValueTransformationSequence = [values]
        groups.append(group)
    source.PerFrameFunctionalGroupsSequence = groups
    made = released(tmp_path, source, ReleaseSettings(30.0, prune=None, value_range="0:12285"))  # 3 x 4095
    means = made.pixel_array.reshape(3, -1).mean(axis=1) * float(made.RescaleSlope)
    assert means[0] < means[1] < means[2]


@pytest.mark.parametrize(
    ("pixels", "about", "noticed"),
    [
        (DEEP, {"PixelRepresentation": 1}, True),
        (SLICE, {"PixelRepresentation": 0}, True),
        (SLICE << 4, {"PixelRepresentation": 0}, False),
        ((SLICE << 4).astype(np.int16), {"PixelRepresentation": 1}, False),
        (~SLICE, {"PixelRepresentation": 0, "PhotometricInterpretation": "MONOCHROME1"}, False),
        (SLICE, {"PixelRepresentation": 0, "PhotometricInterpretation": "MONOCHROME1"}, True),
    ],
)
def test_bits_that_are_never_used_are_noticed(
    pixels: NDArray[Any], about: dict[str, Any], noticed: bool, tmp_path: Path
) -> None:
    run = prepare(plant(tmp_path / "in", {"a.dcm": saved(ct(pixels, 16, **about))}), tmp_path / "out", SETTINGS)
    list(run.run(on_this_machine(1)))
    notices = [one.notice for one in records.notices(run.state)]
    run.close()
    assert any("--range LOW:HIGH" in notice for notice in notices) == noticed


def test_a_card_with_another_range_is_wrong(tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.dcm": saved(ct())}), tmp_path / "out", CT)
    card = card_of(tmp_path / "out")
    view = card["statements"][0]["view"]
    for text in ("-1000:3095:12", None):
        changed = card | {"statements": [card["statements"][0] | {"view": {**view}}]}
        if text is None:
            del changed["statements"][0]["view"]["range"]
        else:
            changed["statements"][0]["view"]["range"] = text
        write_card(tmp_path / "out", changed)
        assert any("does not follow from the card" in problem for _, problem in verified(tmp_path / "out"))
    for text in ("-1024:3071:11", "-1024.0:3071:12", "CT"):
        changed["statements"][0]["view"]["range"] = text
        write_card(tmp_path / "out", changed)
        assert any("not a valid card" in problem for _, problem in verified(tmp_path / "out"))


def test_a_wrong_range_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.dcm": saved(ct())})
    with pytest.raises(LdpSlicingError, match="a range is LOW:HIGH"):
        release(source, tmp_path / "out", ReleaseSettings(5.0, value_range="x"))
    assert not (tmp_path / "out").exists()
    assert outputs(tmp_path) == {"in/a.dcm": saved(ct())}


def test_releases_are_read_back_as_their_words(tmp_path: Path) -> None:
    made = released(tmp_path, ct(), CT)
    again = pydicom.dcmread(io.BytesIO((tmp_path / "out" / "a.dcm").read_bytes()))
    np.testing.assert_array_equal(made.pixel_array, again.pixel_array)
    assert int(again.pixel_array.max()) < 4096


@pytest.mark.parametrize("stated", [b"yes ", b"Y   ", b"Y\\NO"])
def test_the_owners_word_on_burned_in_text_does_not_outweigh_what_is_unclear(stated: bytes, tmp_path: Path) -> None:
    data = saved(dicom(SLICE, 12, BurnedInAnnotation="YES")).replace(b"CS\4\0YES ", b"CS\4\0" + stated)
    ran = release(plant(tmp_path / "in", {"a.dcm": data}), tmp_path / "out", ReleaseSettings(5.0, not_burned_in=True))
    assert "which may contradict --not-burned-in" in ran.problems["a.dcm"]
