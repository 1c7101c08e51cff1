"""Videos: what is read, what is written, and what is left out."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from ldp_slicing.card import Card
from ldp_slicing.errors import ImageError
from ldp_slicing.formats import video as video_format
from ldp_slicing.formats.base import Claims, Content, Entry, Options
from ldp_slicing.storage import LocalStorage, TemporaryFile
from ldp_slicing.verify import verify, verify_file
from tests.formats.tampering import problem_of
from tests.formats.videos import FRAMES, frames_of, video
from tests.markers import encoded, gradient
from tests.release.helpers import SECRET, card_of, expected, manifest_of, outputs, plant, release, spent, verified


@pytest.mark.parametrize("kind", ["colour", "grey"])
def test_a_video_is_released_frame_by_frame_without_loss_or_sound(kind: str, tmp_path: Path, key: Path) -> None:
    frames = FRAMES if kind == "colour" else [np.ascontiguousarray(frame[..., 0]) for frame in FRAMES]
    source = plant(tmp_path / "in", {"a.mp4": video(frames)})
    ran = release(source, tmp_path / "out", key=key)
    assert ran.problems == {}
    assert ran.reports["a.mp4"].notices == {"left out: 1 other stream (sound, subtitles, cover)": 0}
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
    [(b"no video", "is not a video, or"), (video(FRAMES)[:900], "is cut off: it has 900 of"), (b"", "is empty")],
)
def test_files_that_cannot_be_released(data: bytes, why: str, tmp_path: Path) -> None:
    ran = release(plant(tmp_path / "in", {"a.avi": data}), tmp_path / "out")
    assert re.search(why, ran.problems["a.avi"]), ran.problems
    assert outputs(tmp_path / "out") == {}
    assert spent().releases == 0


NESTED = {  # FFmpeg recognises these by their content
    "a list": b"ffconcat version 1.0\nfile other.mp4\n",
    "a stream": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 45454 RTP/AVP 32\n",
    "a playlist": b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nother.mp4\n#EXT-X-ENDLIST\n",
}


@pytest.mark.parametrize("name", NESTED)
def test_a_file_that_names_other_videos_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(plant(tmp_path / "elsewhere", {"other.mp4": video(FRAMES)}))
    ran = release(plant(tmp_path / "in", {"a.mp4": NESTED[name]}), tmp_path / "out")
    assert "is not a video, or" in ran.problems["a.mp4"]
    assert spent().releases == 0
    with pytest.raises(ImageError, match="is not a video, or"):  # nor is it taken for a release
        list(video_format.members(io.BytesIO(NESTED[name])))


def in_container(kind: str, codec: str, *, rate: Fraction = Fraction(25), **options: str) -> bytes:
    file = io.BytesIO()
    with av.open(file, mode="w", format=kind, options=options) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        for pixels in FRAMES * 6:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))
    return file.getvalue()


def test_an_unknown_compression_is_refused(tmp_path: Path) -> None:
    data = in_container("avi", "mpeg4").replace(b"FMP4", b"zzzz")
    ran = release(plant(tmp_path / "in", {"a.mp4": data}), tmp_path / "out")
    assert ran.problems == {"a.mp4": "is compressed by a method that FFmpeg does not decode"}


def box(kind: bytes, content: bytes) -> bytes:
    return (len(content) + 8).to_bytes(4, "big") + kind + content


def test_a_cover_before_the_video_is_left_out(tmp_path: Path) -> None:
    data, cover = in_container("mp4", "mpeg4"), encoded(gradient(), "JPEG")
    item = box(b"covr", box(b"data", b"\0\0\0\r\0\0\0\0" + cover))
    handler = box(b"hdlr", bytes(8) + b"mdirappl" + bytes(9))
    about = box(b"udta", box(b"meta", bytes(4) + handler + box(b"ilst", item)))
    start, track = data.index(b"moov") - 4, data.index(b"trak") - 4
    size = int.from_bytes(data[start : start + 4], "big") + len(about)
    data = data[:start] + size.to_bytes(4, "big") + data[start + 4 : track] + about + data[track:]
    with av.open(io.BytesIO(data)) as container:
        assert container.streams.video[0].codec_context.name == "mjpeg"
    ran = release(plant(tmp_path / "in", {"a.mp4": data}), tmp_path / "out")
    assert ran.problems == {}
    assert ran.reports["a.mp4"].notices == {"left out: 1 other stream (sound, subtitles, cover)": 0}
    assert len(frames_of(tmp_path / "out" / "a.mkv")) == spent().releases == 42


@pytest.mark.parametrize(
    ("kind", "codec"),
    [("matroska", "mpeg4"), ("webm", "libvpx"), ("avi", "mpeg4"), ("mp4", "mpeg4"), ("mov", "mpeg4"), ("3gp", "mpeg4")],
)
def test_a_video_that_is_cut_off_is_refused(kind: str, codec: str, tmp_path: Path) -> None:
    data = in_container(kind, codec)
    ran = release(plant(tmp_path / "in", {"a.mkv": data[: len(data) * 6 // 10], "b.mkv": data}), tmp_path / "out")
    assert re.search("is cut off|is not a video|has no video stream", ran.problems.pop("a.mkv"))
    assert ran.problems == {}
    assert ran.reports["b.mkv"].notices == {}
    assert len(frames_of(tmp_path / "out" / "b.mkv")) == spent().releases == 42


@pytest.mark.parametrize(
    ("kind", "codec", "options"), [("mpegts", "mpeg2video", {}), ("matroska", "mpeg4", {"live": "1"})]
)
def test_a_container_without_a_stated_length_gives_a_notice(
    kind: str, codec: str, options: dict[str, str], tmp_path: Path
) -> None:
    data = in_container(kind, codec, **options)
    ran = release(plant(tmp_path / "in", {"a.ts": data}), tmp_path / "out")
    assert ran.problems == {}
    assert ran.reports["a.ts"].notices == {"may be cut off: this container does not state its length": 0}


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
def test_a_release_has_a_common_frame_rate(rate: str, usual: str, tmp_path: Path) -> None:
    """The exact average of a camera's intervals could identify the source."""
    data = in_container("mp4", "mpeg4", rate=Fraction(rate))
    with av.open(io.BytesIO(data)) as container:
        assert container.streams.video[0].average_rate == Fraction(rate)
    release(plant(tmp_path / "in", {"a.mp4": data}), tmp_path / "out")
    with av.open(tmp_path / "out" / "a.mkv") as container:
        assert container.streams.video[0].average_rate == Fraction(usual)
        assert len([*container.decode(video=0)]) == 42


def void(size: int) -> bytes:
    return b"\xec" + (1 << 56 | size).to_bytes(8, "big") + SECRET.ljust(size)


def in_segment(data: bytes, at: int, inserted: bytes) -> bytes:
    """Return the file with bytes inserted into its segment, whose size is corrected."""
    start = data.index(SEGMENT) + 4
    size = int.from_bytes(data[start + 1 : start + 8], "big") + len(inserted)
    return data[:start] + (1 << 56 | size).to_bytes(8, "big") + data[start + 8 : at] + inserted + data[at:]


def in_last_frame(data: bytes, inserted: bytes) -> bytes:
    """Return the file with bytes at the end of the last frame; all sizes are corrected."""
    cluster = data.rindex(b"\x1f\x43\xb6\x75") + 4
    block = data.index(b"\xa3", cluster + 8 + 17) + 1
    for at in (cluster, block):
        size = int.from_bytes(data[at + 1 : at + 8], "big") + len(inserted)
        data = data[:at] + (1 << 56 | size).to_bytes(8, "big") + data[at + 8 :]
    return in_segment(data, len(data), inserted)


def changed(data: bytes, old: bytes, new: bytes) -> bytes:
    assert old in data
    return data.replace(old, new, 1)


SEGMENT, TRACKS, CLUSTER = b"\x18\x53\x80\x67", b"\x16\x54\xae\x6b", b"\x1f\x43\xb6\x75"
TAGS = b"\x12\x54\xc3\x67" + (1 << 56 | 9).to_bytes(8, "big") + void(0)
TIME = b"\xe7\x01" + bytes(6) + b"\x08" + bytes(7)
ATTACKS: dict[str, Callable[[bytes], bytes]] = {
    "sound and a title": lambda data: video(FRAMES),
    "the same frames by another writer": lambda data: video(FRAMES, sound=False),
    "void before the segment": lambda data: changed(data, SEGMENT, void(40) + SEGMENT),
    "void before the tracks": lambda data: in_segment(data, data.index(TRACKS), void(40)),
    "void before the frames": lambda data: in_segment(data, data.index(CLUSTER), void(40)),
    "void after the frames": lambda data: in_segment(data, len(data), void(40)),
    "tags": lambda data: in_segment(data, len(data), TAGS),
    "a tail": lambda data: data + SECRET,
    "a second segment": lambda data: data + data[data.index(SEGMENT) :],
    "bytes in a frame": lambda data: in_last_frame(data, SECRET),
    "zeros in a frame": lambda data: in_last_frame(data, bytes(4)),
    "another application": lambda data: changed(data, b"ldp-slicing", b"anna-smiths"),
    "a time": lambda data: changed(data, TIME + b"\x53", TIME + b"\x54"),
    "a frame without its mark": lambda data: changed(data, b"\x81\0\0\x80", b"\x81\0\0\0"),
    "a missing frame": lambda data: data[: data.rindex(CLUSTER)],
    "cut off": lambda data: data[:-1],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_verify_accounts_for_every_byte(attack: str, tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.mkv": video(FRAMES)}), tmp_path / "out")
    assert verified(tmp_path / "out") == []
    assert problem_of(tmp_path / "out", "a.mkv", ATTACKS[attack]((tmp_path / "out" / "a.mkv").read_bytes())) is not None


def written(stack: NDArray[np.uint8], rate: Fraction = Fraction(25)) -> io.BytesIO:
    """Return the file that the writer makes of frames, uint8 [T, H, W, 3] or [T, H, W]."""
    file = io.BytesIO()
    writer = video_format.Writer(TemporaryFile(file), Options())
    for pixels in stack:
        entry = Entry("", pixels, 8 if pixels.ndim == 2 else 24, None, kept={"rate": rate})
        writer.add(entry, "a", "0" * 32, cast("Any", SimpleNamespace(pixels=pixels)))
    writer.close()
    file.seek(0)
    return file


@pytest.mark.parametrize("rate", video_format._COMMON_RATES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 3), (3, 2, 3), (2, 33), (64, 48, 3)])
def test_every_release_is_accepted_and_decoded_by_ffmpeg(shape: tuple[int, ...], rate: Fraction) -> None:
    stack = np.random.default_rng(1).integers(0, 256, (14, *shape), np.uint8)
    file = written(stack, rate)
    bits = 8 if len(shape) == 2 else 24
    assert [*video_format.check(file, Claims())] == [Content(None, shape[1], shape[0], bits, 14)]
    file.seek(0)
    entries = [*video_format.read(file, Options())]
    np.testing.assert_array_equal([entry.pixels for entry in entries], stack)
    assert {(entry.kept["rate"], entry.notices) for entry in entries} == {(rate, ())}
    assert written(stack, rate).getvalue() == file.getvalue()


def test_any_changed_byte_is_found() -> None:
    data = written(np.random.default_rng(1).integers(0, 256, (3, 4, 5), np.uint8)).getvalue()
    for at in range(len(data)):
        spoilt = bytearray(data)
        spoilt[at] ^= 1
        try:
            found = [one.problem for one in video_format.check(io.BytesIO(spoilt), Claims())]
        except (ImageError, av.FFmpegError):
            continue
        assert found != [None], f"byte {at}"


def test_a_release_larger_than_the_card_states_is_not_decoded() -> None:
    file = written(np.zeros((2, 40, 30), np.uint8))
    (found,) = video_format.check(file, Claims(largest={8: (30, 39), 24: (10, 10)}))
    assert "30 x 39" in str(found.problem)


def test_a_card_cannot_understate_the_frames_of_a_file(tmp_path: Path) -> None:
    """Every frame is a release of one source, in the sums without voided releases, too."""
    frames = [gradient(16, 16) ^ np.uint8(i) for i in range(5)]
    release(plant(tmp_path, {"a.mkv": video(frames)}) / "a.mkv", tmp_path / "b.mkv")
    path = tmp_path / "b.mkv.card.json"
    card = Card.read(path)
    (statement,) = card.statements
    epsilon = statement.plan.realised_epsilon

    def problems(**changes: Any) -> list[tuple[str, str]]:
        path.write_text(replace(card, statements=(replace(statement, **changes),)).to_json())
        return verify_file(LocalStorage(tmp_path), "b.mkv").problems

    assert problems() == []
    for changes in (
        {"times": 4},
        {"spent": (4 * epsilon, 20 * epsilon, 5 * 256 * epsilon)},
        {"spent": (5 * epsilon, 4 * epsilon, 5 * 256 * epsilon)},  # that of a source pixel
        {"unvoided": (1, epsilon, 4 * epsilon)},
        {"unvoided": (5, 5 * epsilon, 4 * epsilon)},
    ):
        ((file, problem),) = problems(**changes)
        assert (file, "one file has 5 frames" in problem) == ("b.mkv.card.json", True), changes
