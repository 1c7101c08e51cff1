"""Videos: what is read, what is written, and what is left out."""

from __future__ import annotations

import hashlib
import io
import json
import re
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import verify
from tests.formats.videos import FRAMES, frames_of, video
from tests.release.helpers import SECRET, card_of, expected, manifest_of, outputs, plant, release, spent, verified


@pytest.mark.parametrize("kind", ["colour", "grey"])
def test_a_video_is_released_frame_by_frame_without_loss_or_sound(kind: str, tmp_path: Path, key: Path) -> None:
    frames = FRAMES if kind == "colour" else [np.ascontiguousarray(frame[..., 0]) for frame in FRAMES]
    source = plant(tmp_path / "in", {"a.mp4": video(frames)})
    ran = release(source, tmp_path / "out", key=key)
    assert ran.problems == {}
    assert ran.reports["a.mp4"].notices == {"left out: 1 other stream (sound, subtitles)"}
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
def test_a_video_that_is_cut_off_is_refused(kind: str, codec: str, tmp_path: Path) -> None:
    data = in_container(kind, codec)
    ran = release(plant(tmp_path / "in", {"a.mkv": data[: len(data) * 6 // 10], "b.mkv": data}), tmp_path / "out")
    assert re.search("is cut off|is not a video|has no video stream", ran.problems.pop("a.mkv"))
    assert ran.problems == {}
    assert ran.reports["b.mkv"].notices == set()
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
    assert ran.reports["a.ts"].notices == {"may be cut off: this container does not state its length"}


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


def test_verify_finds_sound(tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.mkv": video(FRAMES)}), tmp_path / "out")
    (tmp_path / "out" / "a.mkv").write_bytes(video(FRAMES))
    line = manifest_of(tmp_path / "out")[0] | {
        "sha256": hashlib.sha256((tmp_path / "out" / "a.mkv").read_bytes()).hexdigest()
    }
    (tmp_path / "out" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    assert "2 streams, metadata: title" in verified(tmp_path / "out")[0][1]
