"""Sources that are renamed, moved or packed anew between two tries of a run are released once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ldp_slicing.errors import ReleaseError
from ldp_slicing.release.opening import prepare
from ldp_slicing.release.run import on_this_machine
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.state import RunState
from tests.formats.shards import shard
from tests.markers import encoded, gradient
from tests.release.helpers import SETTINGS, outputs, plant, release, small_images, spent, verified

GONE = "was released before by this run, under a name that is gone, once"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return plant(tmp_path / "in", small_images(150))


def move(source: Path, names: list[str]) -> None:
    (source / "moved").mkdir()
    for name in names:
        (source / name).rename(source / "moved" / name)


@pytest.mark.parametrize("workers", [1, 2])
def test_images_moved_while_a_run_is_stopped_are_refused(workers: int, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert release(source, target, after=1, workers=workers).stopped
    before = outputs(target)
    move(source, [f"{i:05}.png" for i in range(150)])
    ran = release(source, target, workers=workers)
    assert set(ran.problems) == {f"moved/{name}" for name in before}
    assert all(GONE in problem and "--spend allows it" in problem for problem in ran.problems.values())
    after = outputs(target)
    assert len(after) == spent().releases == 150
    assert {name: after[name] for name in before} == before
    assert (ran.complete, verified(target)) == (True, [])


def test_a_moved_image_can_be_moved_back_or_spent_on(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    release(source, target, after=1)
    move(source, ["00000.png", "00001.png"])
    (source / "moved" / "00000.png").rename(source / "00000.png")
    ran = release(source, target, after=0, spend=False)
    assert ran.problems == {}
    ran = release(source, target, spend=True)
    assert (ran.problems, spent().releases, len(outputs(target))) == ({}, 151, 151)
    assert verified(target) == []


def test_copies_of_what_is_still_there_are_released_after_an_interruption(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    plant(source, {f"z/{name}": data for name, data in small_images(150).items()})
    assert release(source, target, after=1).stopped
    ran = release(source, target)
    assert (ran.problems, ran.complete, spent().releases) == ({}, True, 300)
    assert len(set(outputs(target).values())) == 300


def release_without_recording(source: Path, target: Path, settings: ReleaseSettings = SETTINGS) -> None:
    """Name the first outputs, and end as if killed before the state recorded them."""

    def fail(*_: Any) -> None:
        raise ReleaseError("killed here")

    with pytest.MonkeyPatch.context() as patch, closing(prepare(source, target, settings)) as run:
        patch.setattr(RunState, "record", fail)
        with pytest.raises(ReleaseError, match="killed here"):
            list(run.run(on_this_machine(1)))


@pytest.mark.parametrize("once", [False, True])
def test_what_was_released_but_not_recorded_is_refused_under_another_name(
    once: bool, source: Path, tmp_path: Path
) -> None:
    target, settings = tmp_path / "out", ReleaseSettings(5.0, duplicates="once" if once else "spend")
    release_without_recording(source, target, settings)
    before = outputs(target)
    first, second, third = sorted(before)[:3]
    (source / first).rename(source / "renamed.png")
    data = (source / second).read_bytes()
    (source / second).write_bytes(encoded(gradient(20, 20), "PNG"))  # its output is there, and is not overwritten
    plant(source, {"again.png": data, "copy.png": (source / third).read_bytes()})
    ran = release(source, target, settings)
    assert set(ran.problems) - {second} == {"again.png", "renamed.png"}
    assert ran.copies == (["copy.png"] if once else [])
    after = outputs(target)
    assert {name: after[name] for name in before} == before


def test_images_packed_into_other_shards_are_refused(tmp_path: Path) -> None:
    images = {f"{i}.png": encoded(gradient(12 + i, 7), "PNG") for i in range(6)}
    later = {f"b/{name}": data for name, data in small_images(100).items()}
    source, target = plant(tmp_path / "in", {"a.tar": shard(images), **later}), tmp_path / "out"
    assert set(release(source, target, after=1).reports) == {"a.tar"}
    (source / "a.tar").unlink()
    plant(source, {"c.tar": shard({"x.png": images["3.png"]}), "d.png": images["4.png"]})
    ran = release(source, target)
    assert set(ran.problems) == {"c.tar", "d.png"}
    assert all(GONE in problem for problem in ran.problems.values())
    assert spent().releases == 106


@pytest.mark.parametrize("how", ["replaced", "gone"])
def test_a_shard_packed_anew_under_its_name_vouches_for_nothing(how: str, tmp_path: Path) -> None:
    images = {f"{i}.png": encoded(gradient(9 + i, 7), "PNG") for i in range(6)}
    source = plant(tmp_path / "in", {"a.tar": shard(images), "b.png": b"waits for ever"})
    target = tmp_path / "out"
    release_without_recording(source, target)
    (source / "a.tar").unlink()
    if how == "replaced":
        plant(source, {"a.tar": shard({"other.png": encoded(gradient(30, 30), "PNG")})})
    plant(source, {"c.tar": shard({"3.png": images["3.png"]})})
    ran = release(source, target, SETTINGS)
    assert GONE in ran.problems["c.tar"].replace(" (1 unconfirmed: that run was interrupted)", "")
