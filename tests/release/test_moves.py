"""Sources and targets that moved are recognised, and the advice of a refusal does not lead to another refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.errors import ReleaseError
from tests.release.helpers import outputs, plant, release, small_images, spent, verified

IMAGES = small_images(3)


def run(*arguments: object) -> tuple[int, str]:
    """Run a command as a user would; return its status and all that it printed."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, result.output


def test_sources_that_are_mounted_elsewhere_are_the_same_sources(tmp_path: Path) -> None:
    source, target = plant(tmp_path / "disk", IMAGES), tmp_path / "out"
    release(source, target)
    before = outputs(target)
    source = source.rename(tmp_path / "mounted elsewhere")
    plant(source, {"new.png": small_images(4)["00003.png"]})
    ran = release(source, target)
    assert (ran.complete, ran.problems, ran.kept, [*ran.reports]) == (True, {}, 3, ["new.png"])
    assert outputs(target).items() >= before.items()
    assert spent().releases == 4
    assert release(source, target).problems == {}  # the new place was recorded


def test_an_interrupted_run_goes_on_from_sources_that_moved(tmp_path: Path) -> None:
    source, target = plant(tmp_path / "disk", small_images(150)), tmp_path / "out"
    assert release(source, target, after=1).stopped
    ran = release(source.rename(tmp_path / "elsewhere"), target)
    assert (ran.complete, ran.problems, spent().releases, verified(target)) == (True, {}, 150, [])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda folder: (folder / "00001.png").unlink(), "00001.png is missing, or cannot be read"),
        (lambda folder: (folder / "00001.png").write_bytes(b"other"), "00001.png differs from what was released"),
    ],
)
def test_other_sources_in_another_place_are_refused(change: object, problem: str, tmp_path: Path) -> None:
    source, target = plant(tmp_path / "disk", IMAGES), tmp_path / "out"
    release(source, target)
    moved = source.rename(tmp_path / "elsewhere")
    assert callable(change)
    change(moved)
    with pytest.raises(ReleaseError, match=problem):
        release(moved, target)
    status, said = run("privatize", moved, target, "-e", 5)
    assert status == 2
    assert "or another target" in said
    status, said = run("privatize", moved, tmp_path / "another", "-e", 5, "--spend")
    assert (status, "not released" in said) == (1 if "differs" in problem else 0, "differs" in problem)


def test_a_copy_of_the_sources_is_the_same_source(tmp_path: Path) -> None:
    source, other = (plant(tmp_path / name, {"a.png": IMAGES["00000.png"]}) for name in ("disk", "elsewhere"))
    release(source, tmp_path / "out")
    assert release(other, tmp_path / "out").problems == {}
    assert spent().releases == 1


def test_a_target_that_moved_with_its_state_or_without_it(tmp_path: Path) -> None:
    source, target = plant(tmp_path / "in", IMAGES), tmp_path / "out"
    release(source, target)
    (tmp_path / "shelf").mkdir()
    target = target.rename(tmp_path / "shelf" / "out")
    status, said = run("privatize", source, target, "-e", 5)
    assert status == 2
    assert "--state" in said
    assert run("privatize", source, target, "-e", 5, "--state", tmp_path / "out.owner")[0] == 0  # the advice works
    state = (tmp_path / "out.owner").rename(tmp_path / "shelf" / "out.owner")
    assert state.is_dir()
    assert run("privatize", source, target, "-e", 5)[0] == 0
    assert (verified(target), spent().releases) == ([], 3)


def test_a_foreign_file_under_the_name_of_a_release(tmp_path: Path) -> None:
    source, target = plant(tmp_path / "in", IMAGES), tmp_path / "out"
    release(source, target)
    plant(target, {"00001.png": IMAGES["00002.png"]})
    status, said = run("privatize", source, target, "-e", 5)
    assert status == 1
    assert "move that file away" in said
    assert "--spend" in said
    (target / "00001.png").rename(tmp_path / "away.png")
    assert run("privatize", source, target, "-e", 5, "--spend")[0] == 0


def test_a_state_folder_that_is_taken(tmp_path: Path) -> None:
    source, target = plant(tmp_path / "in", IMAGES), tmp_path / "out"
    plant(tmp_path / "out.owner", {"notes.txt": b"mine"})
    status, said = run("privatize", source, target, "-e", 5)
    assert status == 2
    assert "--state" in said
    assert run("privatize", source, target, "-e", 5, "--state", tmp_path / "state")[0] == 0


def test_the_advice_for_other_parameters_says_that_another_target_needs_spend(tmp_path: Path) -> None:
    source, target = plant(tmp_path / "in", IMAGES), tmp_path / "out"
    release(source, target)
    status, said = run("privatize", source, target, "-e", 6)
    assert status == 2
    advice = "choose another target. With another target, sources that were released by this run need --spend"
    assert advice in " ".join(said.split())
    assert run("privatize", source, tmp_path / "out2", "-e", 6, "--spend")[0] == 0
