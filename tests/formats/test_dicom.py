"""DICOM files: what is read, what is written, and what is left out."""

from __future__ import annotations

import io
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gdcm
import numpy as np
import pydicom
import pytest
from numpy.typing import NDArray
from pydicom.dataset import Dataset

from ldp_slicing.errors import ImageError
from ldp_slicing.formats import dicom as dicom_format
from ldp_slicing.formats.base import Claims, Content, Entry, Options
from ldp_slicing.formats.dicom import pixels as stored_pixels
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.storage import TemporaryFile
from tests.formats.dicom_files import SLICE, STACK, dicom, saved
from tests.formats.tampering import problem_of
from tests.release.helpers import PNG, SECRET, card_of, expected, manifest_of, outputs, plant, release, spent, verified


def released(tmp_path: Path, data: bytes, key: Path, name: str = "a.dcm") -> Dataset:
    ran = release(plant(tmp_path / "in", {name: data}), tmp_path / "out", key=key)
    assert ran.problems == {}
    assert verified(tmp_path / "out") == []
    (path,) = outputs(tmp_path / "out")
    raw = (tmp_path / "out" / path).read_bytes()
    assert SECRET not in raw
    return pydicom.dcmread(io.BytesIO(raw))


def test_a_release_holds_nothing_but_pixels(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, saved(dicom(SLICE, 12, BurnedInAnnotation="NO")), key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))
    assert (made.BitsStored, made.HighBit, made.PixelRepresentation, made.PhotometricInterpretation) == (
        12,
        11,
        0,
        "MONOCHROME2",
    )
    assert (made.PatientName, made.PatientID, made.StudyDate, made.Modality) == ("", "", "", "OT")
    assert (made.PatientIdentityRemoved, made.BurnedInAnnotation) == ("YES", "NO")
    assert all(len(value) <= 64 for value in made.DeidentificationMethod)
    assert not {"1.2.3", "1.2.3.4", "1.2.3.4.5"} & {made.SOPInstanceUID, made.StudyInstanceUID, made.SeriesInstanceUID}
    assert len({made.SOPInstanceUID, made.StudyInstanceUID, made.SeriesInstanceUID}) == 3
    for gone in ("WindowCenter", "SmallestImagePixelValue", "IconImageSequence", "InstitutionName", "NumberOfFrames"):
        assert gone not in made
    assert not [item for item in made if item.tag.is_private or item.tag.group == 0x6000]
    assert card_of(tmp_path / "out")["statements"][0]["plan"]["word_bits"] == 12


def test_signed_pixels_keep_their_order_and_shift_back(tmp_path: Path, key: Path) -> None:
    signed = (SLICE.astype(np.int32) - 2048).astype(np.int16)
    made = released(
        tmp_path,
        saved(dicom(signed, 12, PixelRepresentation=1, SmallestImagePixelValue=0, LargestImagePixelValue=1)),
        key,
    )
    words = expected("a.dcm", "", SLICE, 12, key)
    np.testing.assert_array_equal(made.pixel_array, words)
    assert (made.RescaleIntercept, made.RescaleSlope, made.PixelRepresentation) == (-2048, 1, 0)
    assert made.PatientIdentityRemoved == "NO"
    assert "BurnedInAnnotation" not in made


def test_white_is_zero_becomes_black_is_zero(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, saved(dicom(4095 - SLICE, 12, PhotometricInterpretation="MONOCHROME1")), key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))
    assert made.PhotometricInterpretation == "MONOCHROME2"


def test_bits_above_the_stored_ones_are_removed(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, saved(dicom(SLICE | 0x8000, 12)), key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))


@pytest.mark.parametrize("bits", [8, 10, 16])
def test_every_depth_and_a_file_without_a_suffix(bits: int, tmp_path: Path, key: Path) -> None:
    pixels = (SLICE & ((1 << bits) - 1)).astype(np.uint8 if bits == 8 else np.uint16)
    made = released(tmp_path, saved(dicom(pixels[:, :-2], bits)), key, "IM0001")
    np.testing.assert_array_equal(made.pixel_array, expected("IM0001", "", pixels[:, :-2], bits, key))


SYNTAXES = ["JPEGLosslessProcess14_1", "JPEGLosslessProcess14", "JPEG2000Lossless", "JPEGLSLossless", "RLELossless"]


def packed(tmp_path: Path, pixels: NDArray[Any], syntax: str) -> bytes:
    plant(tmp_path, {"plain.dcm": saved(dicom(pixels, 12))})
    reader, change, writer = gdcm.ImageReader(), gdcm.ImageChangeTransferSyntax(), gdcm.ImageWriter()
    reader.SetFileName(str(tmp_path / "plain.dcm"))
    assert reader.Read()
    change.SetTransferSyntax(gdcm.TransferSyntax(getattr(gdcm.TransferSyntax, syntax)))
    change.SetInput(reader.GetImage())
    assert change.Change()
    writer.SetFileName(str(tmp_path / "packed.dcm"))
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    assert writer.Write()
    return (tmp_path / "packed.dcm").read_bytes()


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_compressed_files_are_decoded(syntax: str, tmp_path: Path, key: Path) -> None:
    data = packed(tmp_path, SLICE, syntax)
    assert pydicom.dcmread(io.BytesIO(data)).file_meta.TransferSyntaxUID.is_compressed
    made = released(tmp_path, data, key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_the_number_of_compressed_frames_must_be_the_stated_one(syntax: str, tmp_path: Path) -> None:
    source = pydicom.dcmread(io.BytesIO(packed(tmp_path, STACK, syntax)))
    files = {}
    for frames in (1, 2, 3, 4):
        source.NumberOfFrames = frames
        files[f"{frames}.dcm"] = saved(source)
    ran = release(plant(tmp_path / "in", files), tmp_path / "out")
    assert ran.problems == {
        f"{n}.dcm": f"cannot be decoded: it holds 3 compressed frames and states {n}" for n in (1, 2, 4)
    }
    assert pydicom.dcmread(tmp_path / "out" / "3.dcm").NumberOfFrames == spent().releases == 3


def test_a_compressed_frame_may_have_several_fragments(tmp_path: Path) -> None:
    source = pydicom.dcmread(io.BytesIO(packed(tmp_path, SLICE, "JPEG2000Lossless")))
    (frame,) = pydicom.encaps.generate_frames(source.PixelData, number_of_frames=1)
    source.PixelData = pydicom.encaps.encapsulate([frame], fragments_per_frame=3, has_bot=False)
    assert release(plant(tmp_path / "in", {"a.dcm": saved(source)}), tmp_path / "out").problems == {}


@pytest.mark.parametrize("bits", [8, 12])
def test_every_frame_is_a_release(bits: int, tmp_path: Path) -> None:
    frames = np.stack([(SLICE + i) % (1 << bits) for i in range(5)]).astype(np.uint8 if bits == 8 else np.uint16)
    source = plant(tmp_path / "in", {"a.dcm": saved(dicom(frames, bits))})
    assert release(source, tmp_path / "out").problems == {}
    made = pydicom.dcmread(tmp_path / "out" / "a.dcm")
    assert made.NumberOfFrames == 5
    assert made.pixel_array.shape == frames.shape
    assert spent().releases == 5
    statement = card_of(tmp_path / "out")["statements"][0]
    assert (statement["releases"], statement["most_releases_of_one_source"]) == (5, 5)
    assert manifest_of(tmp_path / "out")[0]["frames"] == 5
    assert verified(tmp_path / "out") == []
    assert "5 times" in release(source, tmp_path / "out2").problems["a.dcm"]


def test_frames_that_two_files_share_add_up(tmp_path: Path) -> None:
    frames = np.stack([SLICE + np.uint16(i) for i in range(10)])
    files = {f"{who}.dcm": saved(dicom(frames, 12, PatientName=who)) for who in ("anna", "bert")}
    release(plant(tmp_path / "in", files), tmp_path / "out")
    (statement,) = card_of(tmp_path / "out")["statements"]
    assert statement["releases"] == statement["most_releases_of_one_source"] == spent().releases == 20
    assert statement["most_spent_on_one_source"]["released_pixel"] == pytest.approx(20 * 5.0)
    assert verified(tmp_path / "out") == []
    again = release(
        plant(tmp_path / "third", {"c.dcm": saved(dicom(frames, 12, PatientName="carl"))}), tmp_path / "out3"
    )
    assert "at least 2 times" in again.problems["c.dcm"]


def test_many_files_in_one_batch(tmp_path: Path) -> None:
    files = {f"{i:03}.dcm": saved(dicom((SLICE + 7 * i) & 4095, 12)) for i in range(80)}
    ran = release(
        plant(tmp_path / "in", files | {"010b.dcm": saved(dicom(STACK ^ 5, 12)), "x.dcm": b"bad"}), tmp_path / "out"
    )
    assert set(ran.problems) == {"x.dcm"}
    assert len(outputs(tmp_path / "out")) == 81
    assert pydicom.dcmread(tmp_path / "out" / "010b.dcm").NumberOfFrames == 3
    assert verified(tmp_path / "out") == []
    assert (spent().releases, spent().unfinished) == (83, 0)


@pytest.mark.parametrize("name", ["CT.HEAD.0001.IMA", "scan.dic", "IM0001", "1.2.840.113619.2.55", "scan.DCM"])
def test_dicom_files_are_recognised_by_their_content(name: str, tmp_path: Path) -> None:
    ran = release(plant(tmp_path / "in", {name: saved(dicom(SLICE, 12))}), tmp_path / "out")
    assert ran.problems == {}
    assert [
        path.suffix for path in (tmp_path / "out").iterdir() if "card" not in path.name and "manifest" not in path.name
    ] == [".dcm"]


def test_a_file_that_does_not_state_how_pixels_are_stored(tmp_path: Path) -> None:
    source = dicom(SLICE, 12)
    del source.PhotometricInterpretation
    ran = release(plant(tmp_path / "in", {"a.dcm": saved(source)}), tmp_path / "out")
    assert ran.problems == {"a.dcm": "does not state how its pixels are stored: PhotometricInterpretation missing"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (saved(dicom(SLICE, 12, PhotometricInterpretation="HSV")), "is HSV with 1 samples per pixel; only MONOCHROME1"),
        (saved(dicom(SLICE, 12, SamplesPerPixel=2)), "is MONOCHROME2 with 2 samples per pixel"),
        (saved(dicom(SLICE, 12, HighBit=15)), "stores 12 bits with high bit 15"),
        (saved(dicom(SLICE.astype(np.uint32), 32)), "stores 32 bits, and words have at most 16: --range LOW:HIGH"),
        (saved(dicom(STACK, 12, NumberOfFrames=-1)), "no pixels"),
        (saved(dicom(SLICE, 12))[:-40], "it has 320 bytes of pixels, and 1 frames need 360"),
        (saved(dicom(STACK, 12, NumberOfFrames=2)), "1080 bytes of pixels, and 2 frames need 720"),
        (saved(dicom(STACK, 12, NumberOfFrames=1)), "1080 bytes of pixels, and 1 frames need 360"),
        (saved(dicom(STACK, 12, NumberOfFrames=4)), "1080 bytes of pixels, and 4 frames need 1440"),
        (b"\0" * 128 + b"DICM" + b"garbage" * 9, "cannot be decoded|has no pixels"),
        (b"text", "is not a DICOM file"),
    ],
)
def test_files_that_cannot_be_released(data: bytes, why: str, tmp_path: Path) -> None:
    ran = release(plant(tmp_path / "in", {"a.dcm": data}), tmp_path / "out")
    assert re.search(why, ran.problems["a.dcm"]), ran.problems
    assert outputs(tmp_path / "out") == {}
    assert spent().releases == 0


def test_a_file_without_pixels(tmp_path: Path) -> None:
    dataset = dicom(SLICE, 12)
    del dataset.PixelData
    assert (
        "has no pixels"
        in release(plant(tmp_path / "in", {"a.dcm": saved(dataset)}), tmp_path / "out").problems["a.dcm"]
    )


def with_value(data: bytes, tag: tuple[int, int], value: bytes) -> bytes:
    """Return the file with another value of a short element, and a group length that is right."""
    at = data.index(struct.pack("<HH", *tag), 132)
    size = struct.unpack_from("<H", data, at + 6)[0]
    changed = data[: at + 6] + struct.pack("<H", len(value)) + value + data[at + 8 + size :]
    if tag[0] == 2:
        length = struct.unpack_from("<L", data, 140)[0] + len(value) - size
        changed = changed[:140] + struct.pack("<L", length) + changed[144:]
    return changed


def with_pixels(data: bytes, pixels: bytes) -> bytes:
    at = data.index(b"\xe0\x7f\x10\x00")
    return data[: at + 8] + struct.pack("<L", len(pixels)) + pixels


def pixels_of(data: bytes) -> bytes:
    return data[data.index(b"\xe0\x7f\x10\x00") + 12 :]


def resaved(data: bytes, **about: Any) -> bytes:
    made = pydicom.dcmread(io.BytesIO(data))
    for name, value in about.items():
        setattr(made, name, value)
    return saved(made)


ATTACKS: dict[str, Callable[[bytes], bytes]] = {
    "preamble": lambda data: SECRET.ljust(128) + data[128:],
    "tail": lambda data: data + SECRET,
    "element after the pixels": lambda data: (
        data + struct.pack("<HH2sHL", 0xFFFC, 0xFFFC, b"OB", 0, 18) + SECRET + b"\0"
    ),
    "longer pixel data": lambda data: with_pixels(data, pixels_of(data) + SECRET + b"\0"),
    "an unused high bit": lambda data: with_pixels(data, b"\x00\x80" + pixels_of(data)[2:]),
    "cut off": lambda data: with_pixels(data, pixels_of(data)[:-2]),
    "patient's name": lambda data: with_value(data, (0x0010, 0x0010), b"Anna"),
    "text in an allowed tag": lambda data: with_value(data, (0x0012, 0x0063), SECRET + b" "),
    "spaces in an allowed tag": lambda data: with_value(data, (0x0008, 0x0060), b"OT  "),
    "rescale slope": lambda data: with_value(data, (0x0028, 0x1053), b"1.00000123456789"),
    "intercept": lambda data: with_value(data, (0x0028, 0x1052), b"-19700101 "),
    "UID of the study": lambda data: with_value(data, (0x0020, 0x000D), b"2.25.19700101 "),
    "UID of the series": lambda data: with_value(data, (0x0020, 0x000E), b"2.25." + b"9" * 39),
    "a frame of reference": lambda data: resaved(data, FrameOfReferenceUID="1.2.3"),
    "a code of our own": lambda data: with_value(data, (0x0008, 0x0060), b"ANNA"),
    "UID that is no number of ours": lambda data: with_value(data, (0x0008, 0x0018), b"1.2.19700101"),
    "implementation": lambda data: with_value(data, (0x0002, 0x0012), b"1.2.3.19700101"),
    "another element": lambda data: resaved(data, InstitutionName="Anna"),
    "another writer": resaved,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_verify_accounts_for_every_byte(attack: str, tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.dcm": saved(dicom(SLICE, 12))}), tmp_path / "out")
    assert verified(tmp_path / "out") == []
    assert problem_of(tmp_path / "out", "a.dcm", ATTACKS[attack]((tmp_path / "out" / "a.dcm").read_bytes())) is not None


def test_any_changed_byte_before_the_pixels_is_found_or_is_a_uid_or_was_kept(tmp_path: Path) -> None:
    source = dicom(STACK, 12, BurnedInAnnotation="NO", PixelSpacing=[0.5, 0.25], FrameOfReferenceUID="1.2.9")
    settings = ReleaseSettings(5.0, keep=("PixelSpacing",))
    release(plant(tmp_path / "in", {"a.dcm": saved(source)}), tmp_path / "out", settings)
    data = (tmp_path / "out" / "a.dcm").read_bytes()
    made, free = pydicom.dcmread(io.BytesIO(data)), set[int]()
    for text in (made.StudyInstanceUID, made.SeriesInstanceUID, made.FrameOfReferenceUID, "0.5\\0.25"):
        start = data.index(text.encode())
        free.update(range(start, start + len(text)))
    claims = Claims({12: settings.slicer(12).plan})
    for at in sorted({*range(len(data) - len(pixels_of(data)))} - free):
        changed = bytearray(data)
        changed[at] ^= 1
        try:
            found = [one.problem for one in dicom_format.check(io.BytesIO(changed), claims)]
        except (ImageError, ValueError, LookupError, struct.error):
            continue
        assert found != [None, None], f"byte {at}"


def test_the_padding_of_odd_pixels_is_zero(tmp_path: Path) -> None:
    pixels = (SLICE[:11] & 255).astype(np.uint8)
    release(plant(tmp_path / "in", {"a.dcm": saved(dicom(pixels, 8))}), tmp_path / "out")
    data = (tmp_path / "out" / "a.dcm").read_bytes()
    assert data[-1] == 0
    assert verified(tmp_path / "out") == []
    assert "bytes after" in str(problem_of(tmp_path / "out", "a.dcm", data[:-1] + b"\1"))


@pytest.mark.parametrize(
    ("bits", "frames", "burned", "signed"),
    [
        *((bits, frames, "", False) for bits in (*range(1, 17), 24) for frames in (1, 2)),
        *((bits, 1, burned, True) for bits in (8, 12, 16) for burned in ("YES", "NO")),
        (12, 12_000, "NO", True),  # the page numbers do not fit into a short element
    ],
)
def test_every_release_is_accepted_and_read_by_pydicom(bits: int, frames: int, burned: str, signed: bool) -> None:
    file, numbers = io.BytesIO(), np.random.default_rng(bits)
    writer = dicom_format.Writer(cast("Any", TemporaryFile(file)), Options())
    shape, depth = ((frames, 3, 1, 3), 8) if bits == 24 else ((frames, 3, 1), bits)
    stack = numbers.integers(0, 1 << depth, shape, np.uint8 if depth <= 8 else np.uint16)
    for pixels in stack:
        entry = Entry("", pixels, bits, None, kept={"signed": signed, "burned": burned, "groups": {}, "tags": {}})
        canvas = SimpleNamespace(pixels=pixels)
        writer.add(entry, "a", "0" * 32, cast("Any", canvas))
    writer.close()
    file.seek(0)
    assert [*dicom_format.check(file, Claims())] == [Content(None, 1, 3, bits, frames)]
    file.seek(0)
    made = pydicom.dcmread(file)
    np.testing.assert_array_equal(made.pixel_array.reshape(stack.shape), stack)
    assert made.get("NumberOfFrames", 1) == frames
    assert made.get("BurnedInAnnotation", "PERHAPS") == (burned or "PERHAPS")
    file.seek(0)
    for entry, pixels in zip(dicom_format.read(file, Options()), stack, strict=True):
        np.testing.assert_array_equal(entry.pixels, pixels)


def test_sources_that_declare_too_much_are_refused_before_memory_is_taken(tmp_path: Path) -> None:
    huge = dicom(SLICE, 12, Rows=65535, Columns=65535)
    large = pydicom.dcmread(io.BytesIO(packed(tmp_path, SLICE, "JPEG2000Lossless")))
    (frame,) = pydicom.encaps.generate_frames(large.PixelData, number_of_frames=1)
    coded = frame[:8] + struct.pack(">LL", 60_000, 60_000) + frame[16:]
    large.PixelData = pydicom.encaps.encapsulate([coded])
    files = {"huge.dcm": saved(huge), "coded.dcm": saved(large)}
    ran = release(plant(tmp_path / "in", files), tmp_path / "out")
    assert "declares 65535 x 65535 pixels" in ran.problems["huge.dcm"]
    assert "a compressed frame has 60000 x 60000 pixels" in ran.problems["coded.dcm"]
    assert set(ran.problems) == {"huge.dcm", "coded.dcm"}


JP2 = b"\0\0\0\x0cjP  \r\n\x87\n" + b"\0\0\0\x14ftypjp2 \0\0\0\0jp2 " + b"\0\0\0\0jp2c"


def test_the_size_of_a_compressed_frame_is_found_wherever_its_header_is(tmp_path: Path) -> None:
    """The header may be spread over fragments, or lie in a JP2 file."""
    source = pydicom.dcmread(io.BytesIO(packed(tmp_path, SLICE, "JPEG2000Lossless")))
    (frame,) = pydicom.encaps.generate_frames(source.PixelData, number_of_frames=1)
    size = frame[:8] + struct.pack(">LL", 60_000, 60_000) + frame[16:]
    (samples,) = struct.unpack_from(">H", frame, 40)
    assert samples == 1
    more = struct.pack(">H", 38 + 3 * 4000) + frame[6:40] + struct.pack(">H", 4000) + 4000 * b"\x07\1\1"
    files = {}
    for name, coded in {"size": size, "samples": frame[:4] + more + frame[45:], "right": frame}.items():
        if name != "right":  # a JP2 that can be decoded has more in it
            source.PixelData = pydicom.encaps.encapsulate([JP2 + coded], has_bot=False)
            files[f"{name}, JP2.dcm"] = saved(source)
        source.PixelData = pydicom.encaps.encapsulate([coded])
        whole = bytes(source.PixelData)
        at = whole.index(b"\xff\x4f\xff\x51")
        source.PixelData = (
            whole[: at - 8]
            + b"".join(struct.pack("<HHL", 0xFFFE, 0xE000, len(part)) + part for part in (coded[:1], coded[1:]))
            + b"\xfe\xff\xdd\xe0\0\0\0\0"
        )
        files[f"{name}, fragments.dcm"] = saved(source)
    source.PixelData = pydicom.encaps.encapsulate([b"\0\0" + frame])
    files["nothing.dcm"] = saved(source)
    ran = release(plant(tmp_path / "in", files), tmp_path / "out")
    assert ran.problems.pop("nothing.dcm") == "cannot be decoded: the beginning of a compressed frame is missing"
    wrong = {
        "size": "60000 x 60000 pixels of 1 samples",
        "samples": f"{SLICE.shape[1]} x {SLICE.shape[0]} pixels of 4000 samples",
    }
    for name, what in wrong.items():
        for where in ("JP2", "fragments"):
            assert f"a compressed frame has {what}" in ran.problems.pop(f"{name}, {where}.dcm")
    assert ran.problems == {}


def test_a_run_of_bytes_that_is_longer_than_its_frame_is_not_expanded(tmp_path: Path) -> None:
    source = pydicom.dcmread(io.BytesIO(packed(tmp_path, SLICE, "RLELossless")))
    (frame,) = pydicom.encaps.generate_frames(source.PixelData, number_of_frames=1)
    source.PixelData = pydicom.encaps.encapsulate([frame + b"\x81\0" * 10_000])
    ran = release(plant(tmp_path / "in", {"a.dcm": saved(source)}), tmp_path / "out")
    assert re.fullmatch(
        r"cannot be decoded: a compressed frame has \d+ bytes, for \d+ of pixels", ran.problems["a.dcm"]
    )


def test_frames_are_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For one of them, pydicom looks through all before it: 4,000 frames in 0.3 MB took 38 s."""
    for where in ("pydicom.encaps", "pydicom.pixels.decoders.base"):
        monkeypatch.setattr(f"{where}.get_frame", lambda *_, **__: pytest.fail("a single frame was looked for"))
    frames = np.stack([np.full((3, 5), value, np.uint8) for value in range(9)])
    runs = [struct.pack("<16L", 1, 64, *([0] * 14)) + bytes([256 - 14, value]) for value in range(9)]  # of 15 bytes
    source = dicom(frames, 8)
    source.file_meta.TransferSyntaxUID = pydicom.uid.RLELossless
    source.PixelData = pydicom.encaps.encapsulate(runs, has_bot=False)
    source["PixelData"].is_undefined_length = True
    read = list(dicom_format.read(io.BytesIO(saved(source)), Options()))
    assert np.array_equal(np.stack([entry.pixels for entry in read]), frames)


def test_a_deflated_file_is_recognised_whatever_length_its_meta_information_states(
    tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = dicom(SLICE, 12)
    source.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    source.file_meta.MediaStorageSOPInstanceUID = source.SOPInstanceUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    data = saved(source)
    forms = {
        "stated": data,
        "wrong": data[:140] + struct.pack("<L", 12) + data[144:],
        "missing": data[:132] + data[144:],
    }
    for name, form in forms.items():
        made = released(tmp_path / name, form, key)
        np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))
    monkeypatch.setattr(stored_pixels, "_MOST_INFLATED", 1 << 8)
    other = data.replace(b"\2\0\2\0UI", b"\2\0\2\0SQ", 1)
    ran = release(
        plant(tmp_path / "in", {f"{name}.dcm": form for name, form in forms.items()} | {"other.dcm": other}),
        tmp_path / "out",
    )
    assert ran.problems.pop("other.dcm") == "cannot be decoded: its file meta information is damaged"
    assert len(ran.problems) == 3
    assert all("larger than 256 bytes" in problem for problem in ran.problems.values())


def test_a_sparse_file_is_not_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = plant(tmp_path / "in", {"a.dcm": saved(dicom(SLICE, 12)), "b.dcm": b""})
    for name in ("a.dcm", "b.dcm"):
        os.truncate(source / name, 1 << 23)
    monkeypatch.setattr("ldp_slicing.formats.dicom.reader._MOST_BYTES", 1 << 20)
    ran = release(source, tmp_path / "out")
    assert ran.problems == {
        "a.dcm": "has more than 1,048,576 bytes: split it into files of fewer frames",
        "b.dcm": "is not a DICOM file: its header is missing",
    }


def test_a_deflated_file_is_inflated_up_to_a_limit(tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = dicom(SLICE, 12)
    source.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    data = saved(source)
    assert SLICE.tobytes() not in data
    made = released(tmp_path / "whole", data, key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))
    files = {"cut.dcm": data[:-50], "damaged.dcm": data[:-300] + b"\xff" * 300}
    monkeypatch.setattr(stored_pixels, "_MOST_INFLATED", 1 << 20)
    bomb = dicom(np.zeros((1024, 1024), np.uint16), 12)
    bomb.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    ran = release(plant(tmp_path / "in", files | {"bomb.dcm": saved(bomb)}), tmp_path / "out")
    assert set(ran.problems) == {"cut.dcm", "damaged.dcm", "bomb.dcm"}
    assert "larger than 1,048,576 bytes" in ran.problems["bomb.dcm"]


def test_under_an_owners_key_different_pixels_have_different_identities(tmp_path: Path, key: Path) -> None:
    """Two patients whose files have the same path, in two runs."""
    made, names = [], []
    for who in range(2):
        source = saved(dicom(SLICE + np.uint16(who), 12))
        out = tmp_path / f"out{who}"
        release(
            plant(tmp_path / f"in{who}", {"IM0001.dcm": source, "a.png": PNG}),
            out,
            ReleaseSettings(5.0, names="random"),
            key=key,
        )
        names.append({Path(name).name for name in outputs(out)})
        (path,) = (name for name in outputs(out) if name.endswith(".dcm"))
        made.append(pydicom.dcmread(out / path))
        assert verified(out) == []
    assert made[0].SOPInstanceUID != made[1].SOPInstanceUID
    assert made[0].StudyInstanceUID == made[1].StudyInstanceUID  # as their sources have
    assert not names[0] & names[1]


def test_under_an_owners_key_files_that_share_a_first_frame_are_told_apart(tmp_path: Path, key: Path) -> None:
    black, others = np.zeros_like(SLICE), [SLICE + np.uint16(i) for i in range(5)]
    first, second = (
        saved(dicom(np.stack([black, SLICE + np.uint16(9)]), 12)),
        saved(dicom(np.stack([black, *others]), 12)),
    )
    release(plant(tmp_path / "in1", {"f.dcm": first}), tmp_path / "out1", ReleaseSettings(10.0), key=key)
    release(plant(tmp_path / "in2", {"f.dcm": second}), tmp_path / "out2", ReleaseSettings(40.0), spend=True)
    release(tmp_path / "in2", tmp_path / "out3", ReleaseSettings(10.0), key=key, spend=True)
    (statement,) = card_of(tmp_path / "out3")["statements"]
    assert statement["most_releases_of_one_source"] >= 12
    assert statement["most_spent_on_one_source"]["released_pixel"] >= 6 * 40 + 6 * 10 - 1e-6
    assert verified(tmp_path / "out3") == []


def test_padding_after_the_pixels_is_ignored(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, saved(dicom(SLICE, 12, PixelData=SLICE.tobytes() + b"\0\0")), key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))


def test_another_plan_gives_another_uid(tmp_path: Path, key: Path) -> None:
    source = plant(tmp_path / "in", {"a.dcm": saved(dicom(SLICE, 12))})
    release(source, tmp_path / "one", ReleaseSettings(20.0), key=key)
    release(source, tmp_path / "two", ReleaseSettings(5.0), key=key, spend=True)
    made = [pydicom.dcmread(tmp_path / folder / "a.dcm").SOPInstanceUID for folder in ("one", "two")]
    assert made[0] != made[1]
