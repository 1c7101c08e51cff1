from __future__ import annotations

import errno
import io
import json
import os
import pickle
import re
import secrets
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
import zlib
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from rich.progress import Progress
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.cli.exit_status import ExitStatus
from ldp_slicing.cli.privatize_report import ProgressLines, Rate, Remaining
from ldp_slicing.errors import ReleaseError
from ldp_slicing.images import read_image
from ldp_slicing.ledger import Ledger, default_ledger
from ldp_slicing.release.ledger_client import LedgerClient
from ldp_slicing.release.run import Stop, on_this_machine
from ldp_slicing.release.state import RunState
from ldp_slicing.release.worker import FileReport, WorkerContext
from tests.markers import PAST, PLANTS, encoded, gradient, png_chunks
from tests.release.helpers import tree
from tests.release.processes import Run, wait_for

PNG = encoded(gradient(9, 7), "PNG")


def privatize(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output, standard error. The budget is 20 unless one is given."""
    budget = [] if {"--epsilon", "-e", "--preset"} & {*map(str, arguments)} else ["--epsilon", "20"]
    result = CliRunner().invoke(app, ["privatize", *map(str, arguments), *budget])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def plant(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def everything(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


# Nothing but protected pixels leaves


class Planted(NamedTuple):
    marker: bytes
    sources: Path
    releases: Path
    said: str


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A file for each place where something can be planted, released in one run."""
    folder, marker = tmp_path_factory.mktemp("planted"), secrets.token_urlsafe(24)[:24].encode()
    sources = plant(folder / "in", {name: make(marker) for name, make in PLANTS.items()})
    for path in sources.iterdir():
        os.utime(path, (PAST, PAST))
        path.chmod(0o640)
    status, out, err = privatize(sources, folder / "out", "--json", "--ledger", folder / "ledger.sqlite")
    assert status == 0, out + err
    return Planted(marker, sources, folder / "out", out + err)


def forms(marker: bytes) -> list[bytes]:
    """As it was planted, as UTF-16, and as hexadecimal digits; the first seven bytes are enough to tell."""
    start = marker[:7]
    return [start, start.decode().encode("utf-16-le"), start.hex().encode()]


@pytest.mark.parametrize("name", PLANTS)
def test_nothing_planted_gets_through(name: str, planted: Planted) -> None:
    source, release = planted.sources / name, planted.releases / f"{name}.png"
    assert planted.marker[:7] in source.read_bytes(), "the source does not carry what it should"
    chunks = png_chunks(release.read_bytes())
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    for form in forms(planted.marker):
        assert form not in release.read_bytes()
        assert form not in zlib.decompress(chunks[1][1])
    before, after = read_image(source).pixels, read_image(release).pixels
    assert before.shape == after.shape
    assert np.mean(before != after) > 0.5
    assert release.stat().st_mtime > PAST + 1


def test_nothing_planted_is_printed_or_on_the_card(planted: Planted) -> None:
    files = everything(planted.releases)
    assert {path.name for path in files} == {f"{name}.png" for name in PLANTS} | {"card.json", "manifest.jsonl"}
    said = planted.said.encode() + b"".join(
        (planted.releases / name).read_bytes() for name in ("card.json", "manifest.jsonl")
    )
    assert not any(form in said for form in forms(planted.marker))


def test_no_bit_plane_of_a_release_equals_that_of_its_source(tmp_path: Path) -> None:
    """Even at a budget so high that few bits are flipped, and without pruning."""
    source = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    (tmp_path / "a.png").write_bytes(encoded(source, "PNG"))
    assert privatize(tmp_path / "a.png", tmp_path / "b.png", "--epsilon", 20, "--prune", "none")[0] == 0
    release = read_image(tmp_path / "b.png").pixels
    assert 0.9 < np.mean(np.any(release != source, axis=-1)) <= 1
    assert not any(np.array_equal(release[..., c], source[..., c]) for c in range(3))


# What it says


def test_the_printed_report(tmp_path: Path) -> None:
    alpha = encoded(Image.fromarray(gradient()).convert("RGBA"), "PNG")
    source = plant(
        tmp_path / "in",
        {
            "good.png": PNG,
            "bad.jpg": b"text",
            "a.png": alpha,
            "b.png": alpha,
            "grey.png": encoded(gradient()[..., 0], "PNG"),
        },
    )
    status, out, err = privatize(source, tmp_path / "out")
    assert status == 1
    assert "not released: bad.jpg: not an image" in err
    assert "notice: 2 of 4 images (a.png, ...): transparency is dropped" in err
    assert "4 of 5 files released" in out
    assert ", 1 not released\n" in out
    assert "3 releases of up to 851 pixels, colour" in out
    assert "1 release of 37 x 23, 8-bit grey" in out
    assert re.search(f"written to {tmp_path / 'out'} by run [0-9a-f]{{12}}; card.json states the promise", out)


def test_the_json_report(tmp_path: Path) -> None:
    alpha = encoded(Image.fromarray(gradient()).convert("RGBA"), "PNG")
    source = plant(tmp_path / "in", {"good.png": PNG, "bad.jpg": b"text", "alpha.png": alpha})
    status, out, err = privatize(source, tmp_path / "out", "--json", "--workers", 4)
    result = json.loads(out)
    assert (status, err) == (1, "")
    assert {key: result[key] for key in ("released", "failed", "total", "stopped", "card_problem")} == {
        "released": 2,
        "failed": 1,
        "total": 3,
        "stopped": False,
        "card_problem": None,
    }
    assert result["card"] == "card.json"
    assert result["complete"]
    assert [problem["source"] for problem in result["problems"]] == ["bad.jpg"]
    assert [notice["sources"] for notice in result["notices"]] == [["alpha.png"]]


LITTER = {
    ".DS_Store": b"\0\0\0\1Bud1",
    "x/Thumbs.db": b"\xd0\xcf\x11\xe0",
    "x/Desktop.ini": b"[.ShellClassInfo]",
    "x/._a.png": b"\0\5\x16\7\0\2",
}


def test_files_of_the_operating_system_are_ignored_with_one_notice(tmp_path: Path) -> None:
    source, target = (
        plant(tmp_path / "in", {"a.png": PNG, "._mine.png": encoded(gradient(4, 4), "PNG"), **LITTER}),
        tmp_path / "out",
    )
    status, out, err = privatize(source, target)
    assert (status, out.startswith("2 of 2")) == (0, True)  # an image is a source whatever its name
    new_ledger, ignored = err.splitlines()
    assert new_ledger.startswith("notice: new ledger: ")
    assert ignored.startswith("notice: ignored 4 files that are not sources (.DS_Store, Thumbs.db, desktop.ini")
    for name in LITTER:
        (source / name).unlink()
    plant(source, {".DS_Store": b""})
    assert "notice: ignored 1 file that is not a source" in privatize(source, target)[2]
    (source / ".DS_Store").unlink()
    assert privatize(source, target)[::2] == (0, "")
    status, _, err = privatize(plant(tmp_path / "only", LITTER), tmp_path / "out2")
    assert (status, "holds no file that can be released: `ldp-slicing privatize --help` lists" in err) == (2, True)
    status, _, err = privatize(plant(tmp_path / "one", LITTER) / ".DS_Store", tmp_path / "out.png")
    assert (status, "not released: .DS_Store: not an image" in err) == (1, True)  # it was named, so it is meant


def test_a_file_of_unknown_kind_is_refused_with_the_known_kinds(tmp_path: Path) -> None:
    _, _, err = privatize(plant(tmp_path / "in", {"notes.txt": b"text"}) / "notes.txt", f"{tmp_path}/out/")
    for kind in ("JPEG", "PNG", "WebP", "TIFF", "BMP", "GIF", ".tar", ".parquet", ".dcm", ".mp4", "CIFAR"):
        assert kind in err


def test_a_run_that_releases_nothing_is_reported(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"bad.jpg": b"text"})
    status, out, _ = privatize(source, tmp_path / "out", "--json")
    assert (status, json.loads(out)["card"]) == (1, None)
    status, out, _ = privatize(source, tmp_path / "out2")
    assert (status, out.startswith("0 of 1 file released")) == (1, True)


NAMES = [
    b"two words.png",
    b"[red]x[/red].png",
    b"[/] unbalanced.png",
    b"\\[bold] back\\.png",
    b":smile: emoji.png",
    b"new\nline.png",
    b"\x1b[31mescape.png",
    b"-e 3.png",
    "größe, 日本, \u202e.png".encode(),
    b"\xff\xfe not UTF-8.png",
]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("good", [True, False], ids=["good", "bad"])
def test_names_of_all_kinds(encoding: str, good: bool, tmp_path: Path) -> None:
    names = {os.fsdecode(name) for name in NAMES}
    source = plant(
        tmp_path / "in",
        dict.fromkeys(names, encoded(Image.fromarray(gradient()).convert("RGBA"), "PNG") if good else b"bad"),
    )
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    for options in ([], ["--json"]):
        target = tmp_path / f"größer{len(options)}"
        options = [*options, "--ledger", str(tmp_path / f"{len(options)}.sqlite")]
        command = [sys.executable, "-m", "ldp_slicing", "privatize", "-e", "20", *options, str(source), str(target)]
        run = subprocess.run(command, capture_output=True, env=environment, check=False)
        assert run.returncode == (0 if good else 1), run.stderr
        assert {str(path.relative_to(target)) for path in everything(target)} == (
            names | {"card.json", "manifest.jsonl"} if good else set()
        )
    result = json.loads(run.stdout)
    noticed = {name for notice in result["notices"] for name in notice["sources"]}
    assert (noticed if good else {item["source"] for item in result["problems"]}) == names


def test_odd_names_are_printed_harmlessly(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {os.fsdecode(name): b"bad" for name in NAMES})
    _, _, err = privatize(source, tmp_path / "out")
    printed = set(re.findall(r"not released: (.*): not an image", err))
    assert printed >= {
        "[red]x[/red].png",
        "[/] unbalanced.png",
        "\\[bold] back\\.png",
        ":smile: emoji.png",
        "new\\nline.png",
        "-e 3.png",
    }
    assert {"\\x1b[31mescape.png", "größe, 日本, \\u202e.png", "\\udcff\\udcfe not UTF-8.png"} <= printed
    assert len(printed) == len(NAMES)


@pytest.mark.parametrize(
    "arguments",
    [
        ("nowhere", "out"),
        ("in", "in"),
        ("in", "in/out"),
        ("in", "full"),
        ("in", "full/b.png/out"),
        ("in", "out", "--state", "full/b.png/state"),
        ("in/a.png", "out.jpg"),
        ("in/a.png", "full/b.png"),
        ("in", "out", "--epsilon", "0"),
        ("in", "out", "--epsilon", "nan"),
        ("in", "out", "--weights", "4:1"),
        ("in", "out", "--weights", "0:0:0"),
        ("in", "out", "--epsilon", "2", "--weights", "1:1:1", "--slices", "Y7"),
        ("in", "out", "--epsilon", "2", "--slices", "Y7+Y8"),
        ("in", "out", "--epsilon", "2", "--slices", "17"),
        ("in", "out", "--slices", "Y7"),
        ("in", "out", "--workers", "0"),
        ("in", "out", "--compress", "1"),
        ("in", "out", "--prune", "all"),
        ("in", "out", "--seed", "1"),
        ("in",),
    ],
    ids=" ".join,
)
def test_refusals_exit_with_2_and_write_nothing(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, {"in/a.png": PNG, "full/b.png": PNG})
    monkeypatch.chdir(tmp_path)
    status, out, err = privatize(*arguments)
    assert (status, out) == (2, "")
    assert err
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {"in", "in/a.png", "full", "full/b.png"}
    assert not default_ledger().exists()


@pytest.mark.parametrize(("given", "meant"), [(["privatise"], "privatize"), (["lab", "atack"], "attack")])
def test_a_misspelt_command_is_answered_with_the_nearest_one(given: list[str], meant: str) -> None:
    result = CliRunner().invoke(app, given)
    assert (result.exit_code, f"Did you mean '{meant}'?" in result.stderr) == (2, True)
    result = CliRunner().invoke(app, ["zzz"])
    assert (result.exit_code, "Did you mean" in result.stderr) == (2, False)


def test_the_argument_that_is_missing_is_named() -> None:
    assert "Missing argument 'DST'" in privatize("images")[2]
    assert "Missing argument 'SRC'" in privatize()[2]


@pytest.mark.skipif(os.name != "posix", reason="modes and /proc")
def test_a_target_that_cannot_be_written_to_is_refused_before_a_ledger_is_created(tmp_path: Path) -> None:
    source, closed = plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "closed"
    closed.mkdir(mode=0o555)
    if os.access(closed, os.W_OK):  # root may write everywhere, but not in /proc
        targets = {Path("/proc/out"): "/proc/out cannot be created in /proc: "}
    else:
        targets = {closed: "closed cannot be written to: ", closed / "out": "out cannot be created in "}
    for target, said in targets.items():
        status, out, err = privatize(source, target)
        assert (status, out, said in err.replace("\n", " ")) == (2, "", True)
        assert not default_ledger().exists()
        assert {path.name for path in tmp_path.iterdir()} == {"in", "closed"}


def test_a_pipe_as_the_source_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    command = [sys.executable, "-m", "ldp_slicing", "privatize", str(tmp_path / "pipe.png"), str(tmp_path / "out.png")]
    run = subprocess.run([*command, "--epsilon", "20"], capture_output=True, text=True, timeout=20, check=False)
    assert (run.returncode, "not released: pipe.png: is not a regular file" in run.stderr) == (1, True)
    assert everything(tmp_path) == [tmp_path / "pipe.png"]
    assert not (tmp_path / "out.png.owner").exists()


def test_without_a_card_the_exit_status_is_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("ldp_slicing.release.closing.write_manifest", full)
    status, out, err = privatize(source, tmp_path / "out")
    assert status == 1
    assert "no card: the card could not be written: No space left on device" in err
    assert "1 of 1 file released" in out
    status, out, _ = privatize(source, tmp_path / "out", "--json")
    assert (status, json.loads(out)["card"]) == (1, None)


# Stopping


@pytest.mark.parametrize(
    "signals", [[signal.SIGINT], [signal.SIGINT] * 3, [signal.SIGTERM]], ids=["once", "impatiently", "terminated"]
)
def test_an_interrupted_run_leaves_whole_files_and_a_true_card(signals: list[signal.Signals], tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    data = encoded(gradient(1000, 1000), "PNG")
    plant(source, dict.fromkeys((f"{number:04}.png" for number in range(400)), data))
    command = [
        sys.executable,
        "-m",
        "ldp_slicing",
        "privatize",
        str(source),
        str(target),
        "--epsilon",
        "20",
        "--json",
        "--workers",
        "2",
    ]
    with Run(*command) as run:
        wait_for(2, target, run)
        for number in signals:
            run.send_signal(number)
            time.sleep(0.02)
        out, err = run.output()
    assert (run.returncode, err) == (128 + signals[0], "")
    result, card = json.loads(out), json.loads((target / "card.json").read_text())
    releases = [path for path in everything(target) if path.suffix == ".png"]
    assert 2 <= len(releases) < 400
    assert result["stopped"]
    assert result["released"] == len(releases) == card["statements"][0]["releases"]
    sizes = Counter(Image.open(io.BytesIO(path.read_bytes())).convert("RGB").size for path in releases)
    assert sizes == {(1000, 1000): len(releases)}


# One source, one release


def test_resuming_after_an_interruption_and_after_completion(tmp_path: Path) -> None:
    source, target = plant(tmp_path / "in", {"a.png": PNG, "bad.png": b"text"}), tmp_path / "out"
    assert privatize(source, target)[0] == 1
    (source / "bad.png").write_bytes(encoded(gradient(4, 4), "PNG"))
    status, out, err = privatize(source, target)
    assert (status, err) == (0, "")
    assert "2 of 2 files released" in out
    assert "1 of them earlier" in out
    status, _, err = privatize(source, target, "--epsilon", 3)
    assert status == 2
    assert "epsilon: 20.0 then, 3.0 now" in err
    status, _, err = privatize(source, tmp_path / "out2")
    assert status == 1
    assert "not released: a.png: was released before, once" in err
    assert "another release would add up to epsilon 40" in err
    assert privatize(source, tmp_path / "out2", "--spend")[0] == 0
    result = CliRunner().invoke(app, ["verify", str(target)])
    assert (result.exit_code, result.stdout) == (0, "2 releases, 2 files: OK\n")


def tar(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for name, data in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            made.addfile(about, io.BytesIO(data))
    return file.getvalue()


def test_file_counts_add_up_and_members_are_counted_separately(tmp_path: Path) -> None:
    sources = {f"{i}.png": encoded(gradient(9, 5 + i), "PNG") for i in range(6)}
    source, target = plant(tmp_path / "in", sources | {"bad.png": b"text", "also bad.png": b"text"}), tmp_path / "out"
    assert ", 2 not released\n" in privatize(source, target)[1]
    (target / "0.png").unlink()
    (target / "1.png").write_bytes(b"torn")
    plant(source, {"0.png": encoded(gradient(3, 3), "PNG"), "2.png": encoded(gradient(4, 4), "PNG")})
    status, out, err = privatize(source, target)
    assert status == 1
    assert out.startswith("4 of 8 files released in ")
    assert (
        ", 4 of them earlier, 2 lost or damaged, 2 not released; of the released files: 1 changed since then\n" in out
    )
    assert (
        err.count("lost: 0.png: its release 0.png is lost")
        == err.count("--spend allows it; has changed since")
        == err.count("\nchanged: 2.png: has changed since it was released, and its release is of the earlier content")
        == 1
    )
    result = json.loads(privatize(source, target, "--json")[1])
    counts = {
        "released": 4,
        "kept": 4,
        "lost": 2,
        "failed": 2,
        "waiting": 0,
        "total": 8,
        "changed": 1,
        "members_failed": 0,
    }
    assert result.items() >= counts.items()
    assert result["card_problem"].startswith("1.png is not the file that was released under that name")
    assert (result["card"], result["promise"]) == (None, None)
    (target / "1.png").unlink()
    result = json.loads(privatize(source, target, "--json")[1])
    assert (result["card_problem"], result["promise"][0]["releases"]) == (None, 6)
    status = {
        line["output"]: line["status"] for line in map(json.loads, (target / "manifest.jsonl").read_text().splitlines())
    }
    assert (status["0.png"], status["1.png"], status["2.png"]) == ("lost", "lost", "released")

    good = encoded(gradient(7, 7), "PNG")
    shard = plant(
        tmp_path / "shards", {"a.tar": tar({"x.png": good, "y.png": good, "z.png": good, "bad.png": b"text"})}
    )
    status, out, _ = privatize(shard, tmp_path / "out2", "--duplicates", "once")
    assert (status, out.startswith("1 of 1 file released in ")) == (1, True)
    assert (
        " s; of the released files: without 1 member that cannot be released, without 2 members that are copies\n"
        in out
    )


def test_many_sources_that_were_released_before_are_one_line(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {f"{i}.png": encoded(gradient(4, 4 + i), "PNG") for i in range(25)})
    assert privatize(source, tmp_path / "out")[0] == 0
    status, _, err = privatize(plant(source, {"bad.png": b"text"}), tmp_path / "out2")
    problems = [line for line in err.splitlines() if line.startswith("not released")]
    assert (status, len(problems)) == (1, 2)
    assert problems[0].startswith("not released: 0.png and 24 more: was released before, once, on 20")
    assert problems[1].startswith("not released: bad.png: ")


def test_many_files_that_a_plan_does_not_suit_are_one_line(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {f"{i}.png": encoded(gradient(4, 4 + i)[..., 0], "PNG") for i in range(25)})
    status, _, err = privatize(source, tmp_path / "out", "--epsilon", "58")
    (problem,) = [line for line in err.splitlines() if line.startswith("not released")]
    assert status == 1
    assert problem.startswith("not released: 0.png and 24 more: epsilon 58 makes the noise pointless")


def test_a_ledger_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file meets the same problem, which says nothing about the file."""
    source = plant(tmp_path / "in", {f"{i}.png": encoded(gradient(4, 4 + i), "PNG") for i in range(12)})
    plant(source, {"bad0.png": b"text", "bad1.png": b"text"})

    def approve(ledger: Ledger, *_: object) -> None:
        with ledger._transaction():
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Ledger, "approve", approve)
    status, _, err = privatize(source, tmp_path / "out", "--workers", "1")
    first, *others = [line for line in err.splitlines() if line.startswith("not released")]
    assert status == 5
    assert first.startswith("not released: 0.png and 11 more: the ledger ")
    assert first.endswith("ledger.sqlite cannot be written: database or disk is full")
    assert [line.split(":")[1] for line in others] == [" bad0.png", " bad1.png"]
    assert "not complete: run the same command to retry what failed" in err


def test_copies_keys_and_many_problems(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG, "b.png": PNG, **{f"bad{i}.png": b"text" for i in range(30)}})
    status, out, err = privatize(source, tmp_path / "out", "--duplicates", "once", "--names", "random")
    assert status == 1
    assert "copy: b.png equals" in err
    assert "10 more; --json lists them all" in err
    assert "1 of 32 files released" in out
    assert ", 30 not released, 1 copy left out\n" in out
    CliRunner().invoke(app, ["key", "new", str(tmp_path / "key")])
    ledger = ("--ledger", tmp_path / "other.sqlite")
    assert (
        json.loads(privatize(source, tmp_path / "out2", "--key", tmp_path / "key", "--json", *ledger)[1])["released"]
        == 2
    )
    status, _, err = privatize(source, tmp_path / "out3", "--key", tmp_path / "nokey")
    assert status == 2
    assert "ldp-slicing key new" in err


def test_a_full_disk_is_reported_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    source = plant(tmp_path / "in", {"a.png": PNG})
    with monkeypatch.context() as patch:
        patch.setattr("ldp_slicing.storage.LocalStorage.create", full)
        status, _, err = privatize(source, tmp_path / "out")
    assert status == ExitStatus.INCOMPLETE
    assert "not released: a.png: could not be released: No space left on device" in err
    assert "no space left on the target's disk: free some, then run the same command" in err
    assert privatize(source, tmp_path / "out")[0] == 0


@pytest.mark.parametrize(
    "command",
    [
        ("show", "in/a.png", "--out", "out/sheet.png"),
        ("key", "new", "out/owner.key"),
        ("privatize", "in", "other", "--epsilon", "5", "--ledger", "out/deeper/l.sqlite"),
        ("privatize", "in", "other", "--epsilon", "5", "--state", "out/state"),
        ("privatize", "in", "other", "--epsilon", "5", "--report", "out/report.json"),
        ("ledger", "rebuild", "out.owner", "--ledger", "out/l.sqlite"),
    ],
    ids=["a sheet", "a key", "a ledger", "a state folder", "a report", "a ledger made again"],
)
def test_what_is_for_the_owner_only_is_not_written_among_releases(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert privatize(plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "out")[0] == 0
    before = tree(tmp_path)
    ran = CliRunner().invoke(app, command)
    assert (ran.exit_code, "which holds releases and is handed on" in " ".join(ran.output.split())) == (2, True)
    assert tree(tmp_path) == before


def test_nothing_for_the_owner_is_written_where_a_run_was_stopped(tmp_path: Path) -> None:
    """There is neither a card nor a manifest yet, but there will be."""
    assert privatize(plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "out")[0] == 0
    for name in ("card.json", "manifest.jsonl"):
        (tmp_path / "out" / name).unlink()
    ran = CliRunner().invoke(app, ["key", "new", str(tmp_path / "out" / "owner.key")])
    assert (ran.exit_code, "which holds releases and is handed on" in " ".join(ran.output.split())) == (2, True)


def test_a_lost_release_is_not_called_not_released(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG, "b.png": encoded(gradient(8, 7), "PNG")})
    assert privatize(source, tmp_path / "out")[0] == 0
    (tmp_path / "out" / "b.png").unlink()
    status, _, err = privatize(source, tmp_path / "out")
    assert (status, "lost: b.png" in err, "not released:" in err) == (1, True, False)


def test_voiding_is_not_proposed_for_releases_under_an_owners_key(tmp_path: Path, key: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG})
    assert privatize(source, tmp_path / "out", "--key", key)[0] == 0
    status, _, err = privatize(source, tmp_path / "out2")
    assert (status, "under the owner's key" in " ".join(err.split()), "ledger void" in err) == (1, True, False)


def test_equal_files_that_were_released_separately_are_reported(tmp_path: Path) -> None:
    plant(tmp_path / "in", {"a.png": PNG, "b/a copy.png": PNG, "c.png": PNG})
    ran = CliRunner().invoke(app, ["privatize", str(tmp_path / "in"), str(tmp_path / "out"), "-e", "20"])
    assert ran.exit_code == 0
    assert "b/a copy.png equals a.png" in ran.output
    assert "c.png equals a.png" in ran.output
    assert "2 files with the same content as another: each has its own noise" in ran.output
    ran = CliRunner().invoke(
        app, ["privatize", str(tmp_path / "in"), str(tmp_path / "once"), "--duplicates", "once", "--spend", "-e", "20"]
    )
    assert "with its own noise" not in ran.output


def test_an_address_without_engine_ray_is_refused(tmp_path: Path) -> None:
    code, _, errors = privatize(plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "out", "--address", "head:6379")
    assert code == 2
    assert "--engine ray" in errors


def test_an_aborted_run_is_not_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files may have their names without being recorded: there is no card until the run is resumed."""

    def break_off(
        context: WorkerContext, client: LedgerClient, state: RunState, stop: Stop
    ) -> Generator[list[FileReport]]:
        yield from on_this_machine(1)(context, client, state, stop)
        raise ReleaseError("the cluster is gone")

    monkeypatch.setattr(sys.modules["ldp_slicing.cli.privatize"], "on_this_machine", lambda _: break_off)
    code, _, errors = privatize(plant(tmp_path / "in", {"a.png": PNG, "b.txt": b"?"}), tmp_path / "out")
    assert code == 1
    assert "aborted: the cluster is gone" in errors
    assert "no card: the cluster is gone" in errors
    assert not (tmp_path / "out" / "card.json").exists()


def test_the_json_report_has_the_promise_and_the_remarks(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG})
    told = json.loads(privatize(source, tmp_path / "out", "--epsilon", "1e9", "--force", "--json")[1])
    assert told["promise"] == json.loads((tmp_path / "out" / "card.json").read_text())["statements"]
    assert "most releases show the source's value" in told["remarks"][0]


def test_files_with_class_names_are_not_sources(tmp_path: Path) -> None:
    batch = pickle.dumps({"data": np.arange(3072).astype(np.uint8).reshape(1, 3072), "fine_labels": [0]}, 2)
    source = plant(tmp_path / "in", {"train": batch, "meta": pickle.dumps({"fine_label_names": ["apple"]}, 2)})
    status, out, err = privatize(source, tmp_path / "out")
    assert (status, out.startswith("1 of 1 file released")) == (0, True)
    assert "ignored 1 file that is not a source" in err


def test_speed_is_averaged_over_the_whole_run() -> None:
    clock = iter([0.0, *[10.0] * 9])
    with Progress(disable=True, get_time=lambda: next(clock, 10.0)) as progress:
        bar = progress.add_task("", total=20)
        assert Rate().render(progress.tasks[0]).plain == "- files/s"
        for _ in range(5):
            progress.advance(bar)
        assert Rate().render(progress.tasks[0]).plain == "0.5 files/s"
        assert Remaining().render(progress.tasks[0]).plain == "0:00:30"


def test_a_line_of_progress_every_thirty_seconds() -> None:
    said, times = list[str](), iter([0.0, 10.0, 29.9, 30.0, 59.0, 61.0])
    lines = ProgressLines(10, said.append, lambda: next(times))
    for _ in range(5):
        lines.advance()
    assert said == ["releasing: 3 of 10 files, about 0:01:10 left", "releasing: 5 of 10 files, about 0:01:01 left"]


@pytest.mark.parametrize("name", ["a.png", "a.mp4"])
def test_keep_that_applies_to_nothing_is_refused(name: str, tmp_path: Path) -> None:
    status, _, err = privatize(plant(tmp_path / "in", {name: PNG}), tmp_path / "out", "--keep", "label")
    assert (status, "--keep label: there is no such data" in err) == (2, True)
    assert not (tmp_path / "out").exists()
