"""--dry-run says what the run would do, and touches nothing."""

from __future__ import annotations

import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.cli.exit_status import ExitStatus
from ldp_slicing.ledger import default_ledger
from tests.formats.shards import shard
from tests.markers import encoded, gradient
from tests.release.helpers import PNG, outputs, plant, release, small_images, spent

OPTIONS = ("--epsilon", "5", "--workers", "1")  # in one order: which of two near copies comes first is noticed
OTHER = encoded(gradient(5, 5), "PNG")


def privatize(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    result = CliRunner().invoke(app, ["privatize", *map(str, arguments), *OPTIONS])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def as_json(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(privatize(*arguments, "--json")[1])
    return found


def everything(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file and folder with its times and content, but for temporary ones. None of those may be ours."""
    assert list((folder / "temporary").glob("ldp-slicing-*")) == []
    return {
        str(path): (about.st_mtime_ns, about.st_ino, path.read_bytes() if path.is_file() else b"")
        for path in (folder, *folder.rglob("*"))
        if "temporary" not in path.relative_to(folder).parts and (about := path.stat())
    }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with everything in it, temporary files included."""
    for name in ("data", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def comparable(report: dict[str, Any]) -> dict[str, Any]:
    varying = ("seconds", "dry_run", "free_bytes", "run")
    return {name: value for name, value in report.items() if name not in varying}


def test_a_dry_run_says_what_the_run_then_does(home: Path) -> None:
    shards = {"s.tar": shard({"a.png": PNG, "a.cls": b"1"})}
    source = plant(home / "in", {**small_images(3), **shards, "cut.png": PNG[:50], "README.md": b"#"})
    before = everything(home)
    dry = as_json(source, home / "out", "--dry-run")
    assert everything(home) == before
    done = as_json(source, home / "out")
    assert comparable(dry) == comparable(done)
    assert dry["bytes"] == sum(map(len, outputs(home / "out").values()))
    assert (dry["dry_run"], done["dry_run"], dry["released"], dry["failed"]) == (True, False, 4, 1)


def test_the_printed_dry_run(home: Path) -> None:
    source = plant(home / "in", {**small_images(3), "cut.png": PNG[:50], "README.md": b"#"})
    status, out, err = privatize(source, home / "out", "--dry-run")
    assert status == ExitStatus.FAILED
    assert out.startswith("dry run: 3 of 4 files would be released\nthey would take 0.1 MB; ")
    assert re.search(r"; [0-9,.]+ [MG]B are free on the target's disk", out)
    assert "the card would state:" in out
    assert re.search(r"released pixel +epsilon 5", out)
    assert out.endswith("Nothing was written or spent.\n")
    assert "not released: cut.png: " in err
    assert "skipped: 1 file of other formats: README.md" in err
    assert sorted(path.name for path in home.iterdir()) == ["data", "in", "temporary"]
    assert list((home / "data").iterdir()) == []


def test_a_dry_run_knows_the_ledger_and_the_state(home: Path) -> None:
    images = small_images(140)
    source = plant(home / "in", images)
    assert not release(source, home / "out", after=1).complete
    assert release(plant(home / "one", {"x.png": OTHER}), home / "other").complete
    plant(source, {"x.png": OTHER})
    before = everything(home)
    dry = as_json(source, home / "out", "--dry-run")
    assert everything(home) == before
    assert 0 < dry["kept"] < 140
    assert [(one["source"], one["reason"]) for one in dry["problems"]] == [("x.png", "released before")]
    assert as_json(source, home / "out", "--dry-run", "--spend")["problems"] == []
    done = as_json(source, home / "out")
    assert comparable(dry) == comparable(done)
    assert privatize(source, home / "out", "--dry-run")[1].startswith("dry run: 0 of 141 files would be released (140")


def test_a_dry_run_that_is_killed_leaves_no_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = plant(home / "in", small_images(140))
    assert release(source, home / "out", after=1).stopped
    monkeypatch.setattr("ldp_slicing.release.opening.take_inventory", lambda *args, **options: os._exit(9))
    with warnings.catch_warnings(action="ignore"):  # about threads
        child = os.fork()
    if not child:
        privatize(source, home / "out", "--dry-run")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = [path for path in (home / "temporary").rglob("*") if path.is_file() and not path.is_symlink()]
    assert {path.name for path in left} >= {"ledger.sqlite", "state.sqlite"}
    assert not [path for path in left if "key" in path.name]


def test_a_dry_run_copies_a_ledger_that_a_link_leads_to(home: Path) -> None:
    """The key lies beside the ledger, not beside the link."""
    source = plant(home / "in", small_images(3))
    release(source, home / "out")
    (home / "link").symlink_to(default_ledger())
    plant(source, {"new.png": OTHER})
    before = everything(home)
    dry = as_json(source, home / "other", "--dry-run", "--ledger", home / "link")
    assert (dry["released"], dry["failed"]) == (1, 3)
    assert everything(home) == before
    assert spent().releases == 3


def test_a_dry_run_refuses_a_ledger_that_the_run_would_refuse(home: Path) -> None:
    source = plant(home / "in", small_images(1))
    release(source, home / "out")
    default_ledger().unlink()
    (home / "link").symlink_to("unmounted")
    unmounted = "a symbolic link to unmounted, which does not exist"
    for options, why in ((), "is missing, but its key is there"), (("--ledger", home / "link"), unmounted):
        for dry in ([], ["--dry-run"]):
            status, _, err = privatize(source, home / "other", *options, *dry)
            assert (status, why in " ".join(err.split())) == (ExitStatus.REFUSED, True)


@pytest.mark.parametrize(
    ("target", "options", "why"),
    [
        ("in/out", [], "overlap"),
        ("full", [], "not an empty folder"),
        ("out", ["--prune", "none"], "begun with other parameters"),
        ("out", ["--ledger", "missing"], "name that one with --ledger"),
    ],
)
def test_a_dry_run_refuses_what_the_run_refuses(target: str, options: list[str], why: str, home: Path) -> None:
    source = plant(home / "in", small_images(2))
    plant(home / "full", {"x": b""})
    release(source, home / "out")
    before = everything(home)
    status, _, err = privatize(source, home / target, *options, "--dry-run")
    assert (status, why in " ".join(err.split())) == (ExitStatus.REFUSED, True)
    assert everything(home) == before


def test_a_disk_that_is_too_small(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = os.statvfs_result((4096, 4096, 10, 0, 0, 0, 0, 0, 0, 255))
    source = plant(home / "in", small_images(2))
    monkeypatch.setattr("os.statvfs", lambda path: about)
    status, _, err = privatize(source, home / "out", "--dry-run")
    assert (status, "not enough space" in err) == (ExitStatus.INCOMPLETE, True)


def test_a_single_file(home: Path) -> None:
    source = plant(home / "in", {"a.png": PNG}) / "a.png"
    assert privatize(source, home / "out.png", "--dry-run")[0] == 0
    assert sorted(path.name for path in home.iterdir()) == ["data", "in", "temporary"]
