"""Shrinking before the noise, on the command line as a user would run it."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from ldp_slicing import Card
from ldp_slicing.cli import app
from ldp_slicing.images import read_image
from ldp_slicing.keys import new_key_file
from tests.formats.dicom_files import dicom, saved
from tests.formats.parquet_files import table
from tests.formats.shards import members_of, shard
from tests.formats.videos import frames_of, video
from tests.markers import encoded, gradient
from tests.release.helpers import plant, verified

LARGE, TALL, SMALL = encoded(gradient(60, 80), "PNG"), encoded(gradient(90, 30), "PNG"), encoded(gradient(9, 7), "PNG")


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.stdout.split()), " ".join(result.stderr.split())


def privatize(source: Path, target: Path, *options: object) -> tuple[int, str, str]:
    return run("privatize", source, target, "--epsilon", 20, "--workers", 1, *options)


def sizes(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.stem: read_image(path).pixels.shape[1::-1] for path in sorted(folder.glob("*.png"))}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return plant(tmp_path / "in", {"large.png": LARGE, "small.png": SMALL, "tall.png": TALL})


def test_max_side_shrinks_large_images_and_leaves_small_ones(photos: Path, tmp_path: Path) -> None:
    status, out, _ = privatize(photos, tmp_path / "out", "--max-side", 40)
    assert status == 0
    assert sizes(tmp_path / "out") == {"large": (40, 30), "small": (7, 9), "tall": (13, 40)}
    assert "shrunk to at most 40 x 40" in out
    assert "shrinking lowered the epsilon of the largest image (colour) from 96,000 to 24,000" in out
    card = Card.read(tmp_path / "out" / "card.json")
    assert "width and height" in card.not_protected
    assert "96,000" not in str(card)  # it would tell the size of a source
    assert "4800" not in card.to_json()
    assert verified(tmp_path / "out") == []
    assert run("verify", tmp_path / "out")[0] == 0
    assert run("audit", tmp_path / "out")[0] in (0, 3)  # it reads them, and may not be able to tell


def test_fit_gives_all_releases_one_size_and_refuses_smaller_images_by_name(photos: Path, tmp_path: Path) -> None:
    status, out, err = privatize(photos, tmp_path / "out", "--fit", "20x10")
    assert status == 1
    assert "not released: small.png: the image has 7 x 9 pixels, but releases of 20 x 10 were requested" in err
    assert "for a longest side (--max-side), or for padding (--pad)" in err
    assert sizes(tmp_path / "out") == {"large": (20, 10), "tall": (20, 10)}
    assert not [line for line in Card.read(tmp_path / "out" / "card.json").not_protected if "width" in line]
    assert "2 of 3 files released" in out
    assert verified(tmp_path / "out") == []
    _, text, _ = run("ledger", "--json")
    assert len(json.loads(text)["releases"]) == 2  # nothing was spent on the small one
    status, text, _ = privatize(photos, tmp_path / "again", "--fit", "20x10", "--spend", "--json")
    (problem,) = json.loads(text)["problems"]
    assert (problem["source"], problem["reason"]) == ("small.png", "too small")
    (lowered,) = json.loads(text)["lowered_by_shrinking"]
    assert (lowered["image_epsilon"], lowered["without_shrinking"]) == pytest.approx((4000, 96_000))


def test_pad_surrounds_smaller_images_with_black_and_the_card_says_that_sizes_are_visible(
    photos: Path, tmp_path: Path
) -> None:
    # At this budget hardly a bit changes, so that the padding can be looked at.
    options = ("--force", "--fit", "20x10", "--pad", "--prune", "none")
    status, _, _ = run("privatize", photos, tmp_path / "out", "--epsilon", 400, "--workers", 1, *options)
    assert status == 0
    assert set(sizes(tmp_path / "out").values()) == {(20, 10)}
    (line,) = [line for line in Card.read(tmp_path / "out" / "card.json").not_protected if "width" in line]
    assert line == "width and height, although all releases have one size: the padding shows them"
    released, source = read_image(tmp_path / "out" / "small.png").pixels, gradient(9, 7)
    assert np.abs(released[:9, 6:13].astype(int) - source).mean() < 8
    assert np.median(released[:, :6]) == np.median(released[:, 13:]) == 0
    assert verified(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--pad",), "--pad applies to --fit only"),
        (("--fit", "20x10", "--max-side", 5), "--max-side and --fit exclude each other"),
        (("--fit", "20"), "--fit: expected width x height, such as 224x224; got '20'"),
        (("--fit", "99999x99999", "--pad"), "a release of 99999 x 99999 pixels is too large"),
        (("--max-side", "0"), "greater than or equal to 1"),
    ],
)
def test_wrong_sizes_are_refused_and_nothing_is_written(
    options: tuple[object, ...], problem: str, photos: Path, tmp_path: Path
) -> None:
    status, _, err = privatize(photos, tmp_path / "out", *options)
    assert status == 2
    assert problem in err.replace(" │ │ ", " ")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.owner").exists()


def test_a_resumed_run_must_have_the_same_size(photos: Path, tmp_path: Path) -> None:
    assert privatize(photos, tmp_path / "out", "--max-side", 40)[0] == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    plant(photos, {"new.png": encoded(gradient(50, 51), "PNG")})
    status, _, err = privatize(photos, tmp_path / "out", "--max-side", 41)
    assert status == 2
    assert "size: at most 40 x 40 then, at most 41 x 41 now" in err
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert privatize(photos, tmp_path / "out", "--max-side", 40)[0] == 0
    assert sizes(tmp_path / "out")["new"] == (40, 39)
    assert verified(tmp_path / "out") == []


def test_under_an_owners_key_another_size_is_another_release(photos: Path, tmp_path: Path) -> None:
    new_key_file(tmp_path / "my.key")
    for target, size, spend in (("one", 40, ()), ("two", 40, ()), ("three", 20, ("--spend",))):
        options = ("--key", tmp_path / "my.key", "--max-side", size, *spend)
        assert privatize(photos, tmp_path / target, *options)[0] == 0
    assert (tmp_path / "one" / "large.png").read_bytes() == (tmp_path / "two" / "large.png").read_bytes()
    # The small image keeps its size in both, so it is the same release again; the others are further releases.
    assert (tmp_path / "one" / "small.png").read_bytes() == (tmp_path / "three" / "small.png").read_bytes()
    (statement,) = Card.read(tmp_path / "three" / "card.json").statements
    assert statement.times == 2
    levels = {level.unit: level.epsilon for level in statement.levels}
    assert levels["image, 2 releases"] == pytest.approx(20 * (40 * 30 + 20 * 15), rel=1e-6)
    refused = privatize(photos, tmp_path / "four", "--key", tmp_path / "my.key", "--max-side", 21)
    assert refused[0] == 1
    assert "large.png: was released before" in refused[2]


def test_a_release_of_full_size_counts_in_full_on_the_card_of_a_shrunk_one(photos: Path, tmp_path: Path) -> None:
    assert privatize(photos, tmp_path / "full")[0] == 0
    assert privatize(photos, tmp_path / "small", "--max-side", 8, "--spend")[0] == 0
    (statement,) = Card.read(tmp_path / "small" / "card.json").statements
    levels = {level.unit: level.epsilon for level in statement.levels}
    assert levels["image"] == pytest.approx(20 * 6 * 8, rel=1e-6)
    assert levels["image, 2 releases"] == pytest.approx(20 * (60 * 80 + 6 * 8), rel=1e-6)
    assert verified(tmp_path / "small") == []


def test_every_format_is_shrunk(tmp_path: Path) -> None:
    scan = (np.arange(24 * 30).reshape(24, 30) * 37 % 4096).astype(np.uint16)
    batch = pickle.dumps({"data": np.arange(2 * 3072).astype(np.uint8).reshape(2, 3072), "labels": [0, 1]}, 2)
    source = plant(
        tmp_path / "in",
        {
            "shard.tar": shard({"a.png": LARGE, "b.jpg": encoded(gradient(40, 40), "JPEG")}),
            "rows.parquet": table([LARGE, TALL]),
            "data_batch_1": batch,
            "clip.mkv": video([gradient(24, 32), gradient(24, 32)[::-1].copy()]),
            "scan.dcm": saved(dicom(scan, 12, PixelSpacing=[0.5, 0.5])),
            "photo.png": LARGE,
        },
    )
    status, out, err = privatize(source, tmp_path / "out", "--fit", "16x12")
    assert (status, "6 of 6 files released" in out) == (0, True), err
    pngs = [data for name, data in members_of(tmp_path / "out" / "shard.tar").items() if name.endswith(".png")]
    pngs += [data for name, data in members_of(tmp_path / "out" / "data_batch_1.tar").items() if name.endswith(".png")]
    pq = pytest.importorskip("pyarrow.parquet")
    pngs += [row["bytes"] for row in pq.read_table(tmp_path / "out" / "rows.parquet")["image"].to_pylist()]
    assert [Image.open(io.BytesIO(data)).size for data in pngs] == [(16, 12)] * 6
    assert [frame.shape for frame in frames_of(tmp_path / "out" / "clip.mkv")] == [(12, 16, 3)] * 2
    released = pytest.importorskip("pydicom").dcmread(tmp_path / "out" / "scan.dcm")
    assert (released.Rows, released.Columns, released.pixel_array.shape) == (12, 16, (12, 16))
    assert "PixelSpacing" not in released
    assert not [line for line in Card.read(tmp_path / "out" / "card.json").not_protected if "width" in line]
    assert verified(tmp_path / "out") == []
    assert run("verify", tmp_path / "out")[0] == 0


def test_members_and_videos_that_are_too_small_are_left_out_or_refused(tmp_path: Path) -> None:
    source = plant(
        tmp_path / "in",
        {"shard.tar": shard({"a.png": LARGE, "b.png": SMALL}), "clip.mkv": video([gradient(9, 7)] * 2)},
    )
    status, _, err = privatize(source, tmp_path / "out", "--fit", "16x12")
    assert status == 1
    assert "not released: clip.mkv: the image has 7 x 9 pixels" in err
    assert "shard.tar: b.png: the image has 7 x 9 pixels" in err
    assert list(members_of(tmp_path / "out" / "shard.tar")) == ["a.png"]


def test_plan_takes_the_size_of_the_source_and_shows_what_shrinking_changes() -> None:
    slices = ("--epsilon", 5.2, "--slices", "Y7+Y6+Cb7+Cr7", "--prune", "none")
    status, out, _ = run("plan", *slices, "--size", "4000x3000", "--fit", "28x28")
    assert status == 0
    assert "shrunk to 28 x 28" in out
    assert "the epsilon of the largest image (colour) from 62,400,001 to 4076.8" in out
    _, text, _ = run("plan", *slices, "--size", "4000x3000", "--max-side", 224, "--json")
    (statement,) = json.loads(text)["statements"]
    assert (statement["width"], statement["height"]) == ([224, 224], [168, 168])
    assert statement["view"]["size"] == "at most 224 x 224"


def test_show_shows_the_shrunk_image(photos: Path, tmp_path: Path) -> None:
    for options in (("--max-side", 20), ("--fit", "20x10"), ()):
        assert (
            run("show", photos / "large.png", "--out", tmp_path / f"{len(options)}{options[:1]}.png", *options)[0] == 0
        )
    status, _, err = run("show", photos / "small.png", "--out", tmp_path / "no.png", "--fit", "20x10")
    assert status == 2
    assert "small.png: the image has 7 x 9 pixels" in err
    assert run("show", photos / "small.png", "--out", tmp_path / "pad.png", "--fit", "20x10", "--pad")[0] == 0
