"""Animated images: refused by name, or released frame by frame."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.errors import ReleaseError
from ldp_slicing.integrity import is_animation
from ldp_slicing.release.settings import ReleaseSettings
from tests.formats.shards import shard
from tests.formats.videos import frames_of
from tests.markers import encoded, gradient
from tests.release.helpers import SETTINGS, card_of, expected, outputs, plant, release, spent, verified

av = pytest.importorskip("av")
WITH_FRAMES = ReleaseSettings(epsilon=5.0, frames=True)
FRAMES = [Image.fromarray(np.roll(gradient(24, 32), 5 * i, axis=1)) for i in range(4)]
KINDS = {"GIF": "a.gif", "PNG": "a.png", "WEBP": "a.webp", "AVIF": "a.avif"}


def animation(kind: str, frames: list[Image.Image] = FRAMES, **options: object) -> bytes:
    first, *others = [frame.quantize(64) for frame in frames] if kind == "GIF" else frames
    lossless = {"lossless": True} if kind == "WEBP" else {}
    return encoded(first, kind, save_all=True, append_images=others, **{"duration": 100} | lossless | options)


def by_pillow(data: bytes) -> list[NDArray[np.uint8]]:
    with Image.open(io.BytesIO(data)) as image:
        found = []
        for number in range(image.n_frames):
            image.seek(number)
            found.append(np.asarray(image.convert("RGB")))
        return found


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_option_an_animation_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    ran = release(plant(tmp_path / "in", {KINDS[kind]: animation(kind)}), tmp_path / "out")
    problem = ran.problems[KINDS[kind]]
    assert problem.startswith("is an animation of 4 frames")
    assert "--frames" in problem
    assert "4 times eps" in problem
    assert spent().releases == 0
    assert outputs(tmp_path / "out") == {}


@pytest.mark.parametrize("kind", KINDS)
def test_each_frame_is_a_release(kind: str, tmp_path: Path, key: Path) -> None:
    data, name = animation(kind), KINDS[kind]
    source = plant(tmp_path / "in", {name: data, "still.png": encoded(FRAMES[0].rotate(180), "PNG")})
    assert release(source, tmp_path / "out", WITH_FRAMES, key=key).problems == {}
    assert set(outputs(tmp_path / "out")) == {"a.mkv", "still.png"}
    released, stored = frames_of(tmp_path / "out" / "a.mkv"), by_pillow(data)
    assert len(released) == len(stored) == 4
    for number, (frame, pixels) in enumerate(zip(released, stored, strict=True), 1):
        np.testing.assert_array_equal(frame, expected(name, str(number), pixels, 24, key, settings=WITH_FRAMES))
    (statement,) = card_of(tmp_path / "out")["statements"]
    assert (statement["releases"], statement["most_releases_of_one_source"]) == (5, 4)
    assert verified(tmp_path / "out") == []


def test_the_rate_is_the_nearest_common_one(tmp_path: Path) -> None:
    files = {"slow.gif": animation("GIF", duration=510), "fast.gif": animation("GIF", FRAMES[::-1], duration=30)}
    release(plant(tmp_path / "in", files), tmp_path / "out", WITH_FRAMES)
    rates = {}
    for name in ("slow", "fast"):
        with av.open(tmp_path / "out" / f"{name}.mkv") as container:
            rates[name] = container.streams.video[0].average_rate
    assert rates == {"slow": 2, "fast": 30}


def test_a_still_image_before_the_animation_is_left_out(tmp_path: Path) -> None:
    data = animation("PNG", default_image=True)
    with Image.open(io.BytesIO(data)) as image:
        assert image.n_frames == 4
    assert release(plant(tmp_path / "in", {"a.png": data}), tmp_path / "out", WITH_FRAMES).problems == {}
    assert len(frames_of(tmp_path / "out" / "a.mkv")) == spent().releases == 3


def test_a_single_file_needs_the_suffix_of_a_video(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.gif": animation("GIF")}) / "a.gif"
    with pytest.raises(ReleaseError, match=r"must end in \.mkv"):
        release(source, tmp_path / "out.png", WITH_FRAMES)
    assert release(source, tmp_path / "out.mkv", WITH_FRAMES).problems == {}
    assert len(frames_of(tmp_path / "out.mkv")) == 4
    asked = CliRunner().invoke(app, ["ledger", str(source)])
    assert (asked.exit_code, "a.gif: 4 releases, epsilon 20 per released pixel" in asked.stdout) == (0, True)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "AVIF", "JPEG", "TIFF"])
def test_a_still_image_is_no_animation(kind: str) -> None:
    assert not is_animation(encoded(FRAMES[0].quantize(9) if kind == "GIF" else FRAMES[0], kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_animation_is_refused(kind: str, tmp_path: Path) -> None:
    data = animation(kind)
    files = {f"{cut}{KINDS[kind][1:]}": data[:cut] for cut in (len(data) // 3, len(data) // 2, len(data) - 1)}
    ran = release(plant(tmp_path / "in", files), tmp_path / "out", WITH_FRAMES)
    assert set(ran.problems) == set(files)
    assert outputs(tmp_path / "out") == {}
    assert spent().releases == 0


def test_an_animation_in_a_shard_is_left_out_and_named(tmp_path: Path) -> None:
    data = shard({"a.gif": animation("GIF"), "b.png": encoded(FRAMES[0], "PNG")})
    for settings in (SETTINGS, WITH_FRAMES):
        ran = release(plant(tmp_path / "in", {"s.tar": data}), tmp_path / f"out{settings.frames}", settings, spend=True)
        assert "animation of 4 frames" in ran.problems["s.tar: a.gif"]


def test_a_run_is_resumed_with_the_same_choice_only(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.gif": animation("GIF"), "b.png": encoded(FRAMES[0], "PNG")})
    release(source, tmp_path / "out")
    with pytest.raises(ReleaseError, match="frames: False then, True now"):
        release(source, tmp_path / "out", WITH_FRAMES)
