"""A lost ledger is made again: from copies under its old key, from the sources, or not at all."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.errors import LedgerError
from ldp_slicing.ledger import Ledger, Spent, default_ledger
from ldp_slicing.release.rebuild import rebuild
from tests.formats.videos import video
from tests.markers import gradient
from tests.release.helpers import plant, release, small_images, spent, verified


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def lose(*, with_key: bool) -> None:
    for path in default_ledger().parent.iterdir():
        if with_key or not path.name.endswith(".key"):
            path.unlink()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    frames = [gradient(16, 16) + np.uint8(number) for number in range(3)]
    return plant(tmp_path / "in", {**small_images(3), "clip.mkv": video(frames)})


@pytest.mark.parametrize("with_key", [True, False], ids=["the key is lost too", "the key is there"])
def test_a_ledger_is_made_again_and_runs_go_on(with_key: bool, source: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "out")
    (tmp_path / "out" / "00000.png").unlink()
    release(source, tmp_path / "out", spend=True)  # the lost release counts on
    before = spent()
    assert before.releases == 7
    lose(with_key=with_key)
    kept = source if with_key else source.rename(tmp_path / "not here")
    status, said = run("ledger", "rebuild", tmp_path / "out.owner")
    assert (status, "7 releases of 1 state folder" in said) == (0, True)
    assert ("4 source files read again" in said) is with_key
    now = spent()
    assert (now.releases, now.epsilon, now.unfinished) == (before.releases, before.epsilon, 0)
    if not with_key:
        kept.rename(source)
    ran = release(source, tmp_path / "out")
    assert (ran.complete, ran.problems, ran.kept, verified(tmp_path / "out")) == (True, {}, 4, [])
    assert release(source, tmp_path / "again").problems.keys() == {"00000.png", "00001.png", "00002.png", "clip.mkv"}
    lose(with_key=False)
    rebuild(default_ledger(), [tmp_path / "out.owner"], None)  # from the copies that there are now
    assert spent().releases == 7


def test_a_run_that_was_killed_is_made_again_and_goes_on(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(150))
    assert release(source, tmp_path / "out", after=1).stopped
    lose(with_key=True)
    rebuild(default_ledger(), [tmp_path / "out.owner"], None)
    ran = release(source, tmp_path / "out")
    assert (ran.complete, ran.problems, verified(tmp_path / "out")) == (True, {}, [])
    assert (spent().releases, spent().unfinished) == (150, 0)


@pytest.mark.parametrize("names", [["cats and dogs"], ["cats and dogs", "cats", "dogs"]], ids=["one", "several"])
def test_names_of_sources_that_contain_the_word_and(names: list[str], tmp_path: Path) -> None:
    images = small_images(3)
    folders = [plant(tmp_path / name, {"a.png": images[f"{i:05}.png"]}) for i, name in enumerate(names)]
    assert release(folders, tmp_path / "out").complete
    lose(with_key=True)
    made = rebuild(default_ledger(), [tmp_path / "out.owner"], None)
    assert (made.releases, made.sources_read) == (len(names), len(names))
    assert release(folders[::-1], tmp_path / "out").kept == len(names)


def test_several_runs_and_a_key_elsewhere(source: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "one")
    release(source, tmp_path / "two", spend=True)
    before, beside = spent(), Path(f"{default_ledger()}.key")
    key = Path(shutil.copy(beside, tmp_path / "old.key"))
    lose(with_key=True)
    folders = [tmp_path / "one.owner", tmp_path / "two.owner"]
    made = rebuild(default_ledger(), folders, key)
    assert (made.releases, made.sources_read) == (before.releases, 0)

    def asked() -> Spent:
        with closing(Ledger(default_ledger())) as ledger:
            return ledger.most_spent(1)[0][1]

    assert asked().releases == 6  # three frames, twice
    assert beside.read_bytes() == key.read_bytes()
    assert release(source, tmp_path / "two").problems == {}


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_without_key_and_sources_nothing_is_made(change: str, source: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "out")
    lose(with_key=True)
    if change == "gone":
        (source / "00001.png").unlink()
    else:
        (source / "00001.png").write_bytes(small_images(9)["00008.png"])
    status, said = run("ledger", "rebuild", tmp_path / "out.owner")
    assert status == 2
    assert "00001.png in" in said
    assert "cannot be counted: its source is gone, or has changed since, and the old key" in said
    assert not default_ledger().exists()
    assert [path.name for path in default_ledger().parent.iterdir()] == []


def test_what_is_not_rebuilt(source: Path, key: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "out")
    with pytest.raises(LedgerError, match="must be moved away"):
        rebuild(default_ledger(), [tmp_path / "out.owner"], None)
    lose(with_key=True)
    with pytest.raises(LedgerError, match="is not the key of the ledger"):
        rebuild(default_ledger(), [tmp_path / "out.owner"], key)
    with pytest.raises(LedgerError, match="is not a state folder"):
        rebuild(default_ledger(), [tmp_path / "out"], None)
    status, said = run("privatize", source, tmp_path / "out", "-e", 5)
    assert (status, "ldp-slicing ledger rebuild" in said) == (2, True)


def test_a_rebuilt_ledger_says_so_also_when_it_is_merged(source: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "out")
    assert "was rebuilt" not in run("ledger")[1]
    lose(with_key=False)
    run("ledger", "rebuild", tmp_path / "out.owner")
    for question in ((), (source / "00000.png",)):
        assert "This ledger was rebuilt on 20" in run("ledger", *question)[1]
        assert re.search('"rebuilt": [0-9]{10}', run("ledger", *question, "--json")[1])
    other = tmp_path / "other.sqlite"
    Ledger(other).close()
    run("ledger", "merge", default_ledger(), "--ledger", other)
    assert "This ledger was rebuilt on 20" in run("ledger", "--ledger", other)[1]


def test_the_log_of_the_lost_ledger_does_not_get_into_the_new_one(source: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "out")
    lose(with_key=True)
    log = Path(f"{default_ledger()}-wal")
    log.write_bytes(b"as a killed run leaves it")
    status, said = run("ledger", "rebuild", tmp_path / "out.owner")
    assert (status, f"{log.name} in {log.parent} must be moved away" in said) == (2, True)
    log.rename(tmp_path / "log")
    assert run("ledger", "rebuild", tmp_path / "out.owner")[0] == 0
    assert spent().releases == 6
