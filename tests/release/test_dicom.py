"""Medical images and films: what is read, what comes out, and what does not."""

from __future__ import annotations

import hashlib
import io
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import gdcm
import numpy as np
import pydicom
import pytest
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset

from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import verify
from tests.markers import picture
from tests.release.helpers import PNG, SECRET, card_of, expected, manifest_of, outputs, plant, release, spent, verified

# DICOM


def dicom(pixels: NDArray[Any], bits: int, **about: Any) -> Dataset:
    """A scan with the marker in every place that a scan has: names, icon, overlay, private tags, window."""
    made = Dataset()
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    made.SOPClassUID = made.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.2"
    made.SOPInstanceUID = made.file_meta.MediaStorageSOPInstanceUID = "1.2.3.4.5"
    made.StudyInstanceUID, made.SeriesInstanceUID, made.Modality = "1.2.3", "1.2.3.4", "CT"
    made.PatientName = made.PatientID = made.InstitutionName = made.StudyDescription = SECRET.decode()
    made.PatientBirthDate, made.StudyDate = "19700101", "20200101"
    made.WindowCenter, made.WindowWidth, made.RescaleSlope, made.RescaleIntercept = 40, 400, 1, -1024
    made.SmallestImagePixelValue, made.LargestImagePixelValue = int(pixels.min()), int(pixels.max())
    icon = Dataset()
    icon.Rows, icon.Columns, icon.BitsAllocated, icon.PixelData = 2, 2, 8, SECRET + b"\0"
    made.IconImageSequence = [icon]
    made.add_new(0x60003000, "OW", SECRET + b"\0")
    made.private_block(0x0009, "ACME", create=True).add_new(1, "LO", SECRET.decode())
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    if pixels.ndim == 3:
        made.NumberOfFrames = len(pixels)
    made.Rows, made.Columns = pixels.shape[-2:]
    made.BitsAllocated, made.BitsStored, made.HighBit, made.PixelRepresentation = (
        8 * pixels.dtype.itemsize,
        bits,
        bits - 1,
        0,
    )
    made.PixelData = pixels.tobytes() + b"\0" * (pixels.nbytes % 2)
    made["PixelData"].VR = "OB" if pixels.dtype.itemsize == 1 else "OW"
    for name, value in about.items():
        setattr(made, name, value)
    return made


def saved(dataset: Dataset) -> bytes:
    file = io.BytesIO()
    dataset.save_as(file, enforce_file_format=True)
    return file.getvalue()


SLICE = (np.arange(12 * 15).reshape(12, 15) * 37 % 4096).astype(np.uint16)
STACK = np.stack([SLICE, SLICE + 1, SLICE + 2]) & 4095


def released(tmp_path: Path, data: bytes, key: Path, name: str = "a.dcm") -> Dataset:
    ran = release(plant(tmp_path / "in", {name: data}), tmp_path / "out", key=key)
    assert ran.problems == {}
    assert verified(tmp_path / "out") == []
    (path,) = outputs(tmp_path / "out")
    raw = (tmp_path / "out" / path).read_bytes()
    assert SECRET not in raw
    return pydicom.dcmread(io.BytesIO(raw))


def test_a_scan_is_released_with_nothing_but_its_pixels(tmp_path: Path, key: Path) -> None:
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


def test_what_lies_above_the_stored_bits_is_gone(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, saved(dicom(SLICE | 0x8000, 12)), key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))


@pytest.mark.parametrize("bits", [8, 10, 16])
def test_every_depth_and_a_file_without_an_ending(bits: int, tmp_path: Path, key: Path) -> None:
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
def test_compressed_scans_are_decoded(syntax: str, tmp_path: Path, key: Path) -> None:
    data = packed(tmp_path, SLICE, syntax)
    assert pydicom.dcmread(io.BytesIO(data)).file_meta.TransferSyntaxUID.is_compressed
    made = released(tmp_path, data, key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_compressed_frames_are_as_many_as_are_stated(syntax: str, tmp_path: Path) -> None:
    scan = pydicom.dcmread(io.BytesIO(packed(tmp_path, STACK, syntax)))
    files = {}
    for frames in (1, 2, 3, 4):
        scan.NumberOfFrames = frames
        files[f"{frames}.dcm"] = saved(scan)
    ran = release(plant(tmp_path / "in", files), tmp_path / "out")
    assert ran.problems == {f"{n}.dcm": f"cannot be decoded: holds 3 compressed frames and says {n}" for n in (1, 2, 4)}
    assert pydicom.dcmread(tmp_path / "out" / "3.dcm").NumberOfFrames == spent().releases == 3


def test_a_compressed_frame_may_lie_in_pieces(tmp_path: Path) -> None:
    scan = pydicom.dcmread(io.BytesIO(packed(tmp_path, SLICE, "JPEG2000Lossless")))
    (frame,) = pydicom.encaps.generate_frames(scan.PixelData, number_of_frames=1)
    scan.PixelData = pydicom.encaps.encapsulate([frame], fragments_per_frame=3, has_bot=False)
    assert release(plant(tmp_path / "in", {"a.dcm": saved(scan)}), tmp_path / "out").problems == {}


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
    scans = {f"{who}.dcm": saved(dicom(frames, 12, PatientName=who)) for who in ("anna", "bert")}
    release(plant(tmp_path / "in", scans), tmp_path / "out")
    (statement,) = card_of(tmp_path / "out")["statements"]
    assert statement["releases"] == statement["most_releases_of_one_source"] == spent().releases == 20
    assert statement["most_spent_on_one_source"]["released_pixel"] == pytest.approx(20 * 5.0)
    assert verified(tmp_path / "out") == []
    again = release(
        plant(tmp_path / "third", {"c.dcm": saved(dicom(frames, 12, PatientName="carl"))}), tmp_path / "out3"
    )
    assert "at least 2 times" in again.problems["c.dcm"]


def test_many_scans_share_a_batch_and_are_whole(tmp_path: Path) -> None:
    scans = {f"{i:03}.dcm": saved(dicom((SLICE + 7 * i) & 4095, 12)) for i in range(80)}
    ran = release(
        plant(tmp_path / "in", scans | {"010b.dcm": saved(dicom(STACK ^ 5, 12)), "x.dcm": b"bad"}), tmp_path / "out"
    )
    assert set(ran.problems) == {"x.dcm"}
    assert len(outputs(tmp_path / "out")) == 81
    assert pydicom.dcmread(tmp_path / "out" / "010b.dcm").NumberOfFrames == 3
    assert verified(tmp_path / "out") == []
    assert (spent().releases, spent().unfinished) == (83, 0)


@pytest.mark.parametrize("name", ["CT.HEAD.0001.IMA", "scan.dic", "IM0001", "1.2.840.113619.2.55", "scan.DCM"])
def test_scans_are_known_by_what_they_are(name: str, tmp_path: Path) -> None:
    ran = release(plant(tmp_path / "in", {name: saved(dicom(SLICE, 12))}), tmp_path / "out")
    assert ran.problems == {}
    assert [
        path.suffix for path in (tmp_path / "out").iterdir() if "card" not in path.name and "manifest" not in path.name
    ] == [".dcm"]


def test_scans_that_do_not_say_how_they_are_stored(tmp_path: Path) -> None:
    scan = dicom(SLICE, 12)
    del scan.PhotometricInterpretation
    ran = release(plant(tmp_path / "in", {"a.dcm": saved(scan)}), tmp_path / "out")
    assert ran.problems == {"a.dcm": "does not say how its pixels are stored: PhotometricInterpretation missing"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (
            saved(
                dicom(
                    np.zeros((4, 4, 3), np.uint8),
                    8,
                    SamplesPerPixel=3,
                    PhotometricInterpretation="RGB",
                    Rows=4,
                    Columns=4,
                )
            ),
            "only grey",
        ),
        (saved(dicom(SLICE, 12, HighBit=15)), "12 bits stored below bit 16"),
        (saved(dicom(SLICE.astype(np.uint8), 8, BitsStored=6, HighBit=5)), "6 bits"),
        (saved(dicom(SLICE, 12))[:-40], "cannot be decoded: 320 bytes of pixels where its 1 frames have 360"),
        (saved(dicom(STACK, 12, NumberOfFrames=2)), "1080 bytes of pixels where its 2 frames have 720"),
        (saved(dicom(STACK, 12, NumberOfFrames=1)), "1080 bytes of pixels where its 1 frames have 360"),
        (saved(dicom(STACK, 12, NumberOfFrames=4)), "1080 bytes of pixels where its 4 frames have 1440"),
        (b"\0" * 128 + b"DICM" + b"garbage" * 9, "cannot be decoded|no pixels"),
        (b"text", "is no DICOM file"),
    ],
)
def test_scans_that_are_not_fit(data: bytes, why: str, tmp_path: Path) -> None:
    ran = release(plant(tmp_path / "in", {"a.dcm": data}), tmp_path / "out")
    assert re.search(why, ran.problems["a.dcm"]), ran.problems
    assert outputs(tmp_path / "out") == {}
    assert spent().releases == 0


def test_a_scan_without_pixels(tmp_path: Path) -> None:
    dataset = dicom(SLICE, 12)
    del dataset.PixelData
    assert "no pixels" in release(plant(tmp_path / "in", {"a.dcm": saved(dataset)}), tmp_path / "out").problems["a.dcm"]


@pytest.mark.parametrize("name", ["PatientName", "InstitutionName", "preamble"])
def test_verify_finds_what_a_scan_should_not_hold(name: str, tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.dcm": saved(dicom(SLICE, 12))}), tmp_path / "out")
    made = pydicom.dcmread(tmp_path / "out" / "a.dcm")
    if name == "preamble":
        made.preamble = SECRET.ljust(128)
    else:
        setattr(made, name, "Anna")
    made.save_as(tmp_path / "out" / "a.dcm")
    line = manifest_of(tmp_path / "out")[0] | {
        "sha256": hashlib.sha256((tmp_path / "out" / "a.dcm").read_bytes()).hexdigest()
    }
    (tmp_path / "out" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    assert "more than pixels" in verified(tmp_path / "out")[0][1]


# Video


def film(frames: list[NDArray[np.uint8]], *, sound: bool = True, codec: str = "ffv1", rate: int = 12) -> bytes:
    file = io.BytesIO()
    with av.open(file, mode="w", format="matroska") as container:
        container.metadata["title"] = SECRET.decode()
        stream = container.add_stream(codec, rate=rate)
        grey = frames[0].ndim == 2
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "gray" if grey else "bgr0"
        voice = container.add_stream("pcm_s16le", rate=8000) if sound else None
        for pixels in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="gray" if grey else "rgb24")))
        container.mux(stream.encode(None))
        if voice is not None:
            noise = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
            noise.sample_rate = 8000
            container.mux(voice.encode(noise))
            container.mux(voice.encode(None))
    return file.getvalue()


FRAMES = [np.roll(picture(24, 32), i, axis=1) for i in range(7)]


def frames_of(path: Path) -> list[NDArray[np.uint8]]:
    with av.open(path) as container:
        return [
            frame.to_ndarray(format="gray" if frame.format.name == "gray" else "rgb24")
            for frame in container.decode(video=0)
        ]


@pytest.mark.parametrize("kind", ["colour", "grey"])
def test_a_film_is_released_frame_by_frame_without_loss_or_sound(kind: str, tmp_path: Path, key: Path) -> None:
    frames = FRAMES if kind == "colour" else [np.ascontiguousarray(frame[..., 0]) for frame in FRAMES]
    source = plant(tmp_path / "in", {"a.mp4": film(frames)})
    ran = release(source, tmp_path / "out", key=key)
    assert ran.problems == {}
    assert ran.outcomes["a.mp4"].notices == ("1 other stream (sound, subtitles) left out",)
    data = (tmp_path / "out" / "a.mkv").read_bytes()
    assert SECRET not in data
    for got, pixels in zip(frames_of(tmp_path / "out" / "a.mkv"), frames, strict=True):
        np.testing.assert_array_equal(got, expected("a.mp4", "", pixels, 24 if kind == "colour" else 8, key))
    with av.open(tmp_path / "out" / "a.mkv") as container:
        assert [stream.type for stream in container.streams] == ["video"]
        assert container.streams.video[0].average_rate == Fraction(12)
    statement = card_of(tmp_path / "out")["statements"][0]
    assert (statement["releases"], statement["most_releases_of_one_source"]) == (7, 7)
    assert statement["levels"][-2]["unit"] == "source pixel, 7 releases"
    assert spent().releases == 7
    assert manifest_of(tmp_path / "out")[0]["frames"] == 7
    assert verify(LocalStorage(tmp_path / "out")).releases == 7
    assert verified(tmp_path / "out") == []
    (tmp_path / "out" / "a.mkv").unlink()
    release(source, tmp_path / "out", key=key)
    assert (tmp_path / "out" / "a.mkv").read_bytes() == data


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"no film", "is no film, or"), (film(FRAMES)[:900], "is cut off: 900 of"), (b"", "is empty")],
)
def test_films_that_are_not_fit(data: bytes, why: str, tmp_path: Path) -> None:
    ran = release(plant(tmp_path / "in", {"a.avi": data}), tmp_path / "out")
    assert re.search(why, ran.problems["a.avi"]), ran.problems
    assert outputs(tmp_path / "out") == {}
    assert spent().releases == 0


def in_container(kind: str, codec: str, *, rate: Fraction = Fraction(25), **options: str) -> bytes:
    file = io.BytesIO()
    with av.open(file, mode="w", format=kind, options=options) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        for pixels in FRAMES * 6:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "codec"),
    [("matroska", "mpeg4"), ("webm", "libvpx"), ("avi", "mpeg4"), ("mp4", "mpeg4"), ("mov", "mpeg4"), ("3gp", "mpeg4")],
)
def test_a_film_that_was_cut_off_is_refused(kind: str, codec: str, tmp_path: Path) -> None:
    data = in_container(kind, codec)
    ran = release(plant(tmp_path / "in", {"a.mkv": data[: len(data) * 6 // 10], "b.mkv": data}), tmp_path / "out")
    assert re.search("is cut off|is no film|no pictures", ran.problems.pop("a.mkv"))
    assert ran.problems == {}
    assert ran.outcomes["b.mkv"].notices == ()
    assert len(frames_of(tmp_path / "out" / "b.mkv")) == spent().releases == 42


@pytest.mark.parametrize(
    ("kind", "codec", "options"), [("mpegts", "mpeg2video", {}), ("matroska", "mpeg4", {"live": "1"})]
)
def test_where_nobody_can_tell_a_cut_it_is_said(kind: str, codec: str, options: dict[str, str], tmp_path: Path) -> None:
    data = in_container(kind, codec, **options)
    ran = release(plant(tmp_path / "in", {"a.ts": data}), tmp_path / "out")
    assert ran.problems == {}
    assert ran.outcomes["a.ts"].notices == ("may have been cut off: that cannot be told of this kind of film file",)


@pytest.mark.parametrize(
    ("rate", "usual"),
    [
        ("27699/923", "30"),
        ("29.9", "30000/1001"),
        ("30000/1001", "30000/1001"),
        ("24000/1001", "24000/1001"),
        ("12", "12"),
        ("1/10", "1"),
    ],
)
def test_a_release_runs_at_a_usual_rate(rate: str, usual: str, tmp_path: Path) -> None:
    """The exact average of a camera's own intervals would be close to a fingerprint of the source."""
    data = in_container("mp4", "mpeg4", rate=Fraction(rate))
    with av.open(io.BytesIO(data)) as container:
        assert container.streams.video[0].average_rate == Fraction(rate)
    release(plant(tmp_path / "in", {"a.mp4": data}), tmp_path / "out")
    with av.open(tmp_path / "out" / "a.mkv") as container:
        assert container.streams.video[0].average_rate == Fraction(usual)
        assert len([*container.decode(video=0)]) == 42


def test_verify_finds_sound_in_a_film(tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.mkv": film(FRAMES)}), tmp_path / "out")
    (tmp_path / "out" / "a.mkv").write_bytes(film(FRAMES))
    line = manifest_of(tmp_path / "out")[0] | {
        "sha256": hashlib.sha256((tmp_path / "out" / "a.mkv").read_bytes()).hexdigest()
    }
    (tmp_path / "out" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    assert "2 streams, title" in verified(tmp_path / "out")[0][1]


def test_under_an_owners_key_other_pixels_have_another_identity(tmp_path: Path, key: Path) -> None:
    """Two patients with the same path, in two runs."""
    made, names = [], []
    for who in range(2):
        scan = saved(dicom(SLICE + np.uint16(who), 12))
        out = tmp_path / f"out{who}"
        release(
            plant(tmp_path / f"in{who}", {"IM0001.dcm": scan, "a.png": PNG}),
            out,
            ReleaseSettings(5.0, names="random"),
            key=key,
        )
        names.append({Path(name).name for name in outputs(out)})
        (path,) = (name for name in outputs(out) if name.endswith(".dcm"))
        made.append(pydicom.dcmread(out / path))
        assert verified(out) == []
    for uid in ("SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID"):
        assert made[0][uid] != made[1][uid]
    assert not names[0] & names[1]


def test_a_film_under_an_owners_key_is_not_taken_for_another_with_its_first_frame(tmp_path: Path, key: Path) -> None:
    black, others = np.zeros_like(SLICE), [SLICE + np.uint16(i) for i in range(5)]
    first, second = (
        saved(dicom(np.stack([black, SLICE + np.uint16(9)]), 12)),
        saved(dicom(np.stack([black, *others]), 12)),
    )
    release(plant(tmp_path / "in1", {"f.dcm": first}), tmp_path / "out1", ReleaseSettings(10.0), key=key)
    release(plant(tmp_path / "in2", {"f.dcm": second}), tmp_path / "out2", ReleaseSettings(50.0), spend=True)
    release(tmp_path / "in2", tmp_path / "out3", ReleaseSettings(10.0), key=key, spend=True)
    (statement,) = card_of(tmp_path / "out3")["statements"]
    assert statement["most_releases_of_one_source"] >= 12
    assert statement["most_spent_on_one_source"]["released_pixel"] >= 6 * 50 + 6 * 10 - 1e-6
    assert verified(tmp_path / "out3") == []


def test_padding_behind_the_pixels_is_left_alone(tmp_path: Path, key: Path) -> None:
    made = released(tmp_path, saved(dicom(SLICE, 12, PixelData=SLICE.tobytes() + b"\0\0")), key)
    np.testing.assert_array_equal(made.pixel_array, expected("a.dcm", "", SLICE, 12, key))


def test_another_plan_makes_another_object(tmp_path: Path, key: Path) -> None:
    source = plant(tmp_path / "in", {"a.dcm": saved(dicom(SLICE, 12))})
    release(source, tmp_path / "one", ReleaseSettings(20.0), key=key)
    release(source, tmp_path / "two", ReleaseSettings(5.0), key=key, spend=True)
    made = [pydicom.dcmread(tmp_path / folder / "a.dcm").SOPInstanceUID for folder in ("one", "two")]
    assert made[0] != made[1]
