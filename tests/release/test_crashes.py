"""Runs that are killed at many points or interrupted, and sources that change during a run.

After each: no partial output, no image missing at the end, no item with two different releases, and a ledger whose
sums are right.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ldp_slicing.keys import new_key_file
from ldp_slicing.release.worker import BATCH_SOURCES
from tests.formats.shards import shard
from tests.markers import encoded, gradient
from tests.release.helpers import outputs, plant, release, small_images, spent, verified
from tests.release.processes import Run, Watch, children, command, wait_for

COUNT = 200


# The run itself, killed before or after the n-th call of what it does to disk, ledger and state

KILLER = """
import importlib, os, signal, sys
from ldp_slicing.cli import app

def patched(point, after, at):
    owner, _, rest = point.partition(":")
    place = importlib.import_module(owner)
    *classes, name = rest.split(".")
    place = getattr(place, classes[0]) if classes else place
    original, calls = getattr(place, name), [0]
    def deadly(*args, **kwargs):
        calls[0] += 1
        if calls[0] == at and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if calls[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(place, name, deadly)

for line in sys.stdin:                          # one child each, since starting Python takes longest
    point, when, at = line.split()
    child = os.fork()
    if not child:
        sys.stdin.close()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        patched(point, when == "after", int(at))
        app()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
POINTS = [
    ("ldp_slicing.release.state:RunState.set_durably", 1),
    ("ldp_slicing.release.state:RunState.listing", 1),
    ("ldp_slicing.release.state:RunState.enter", 100),
    ("ldp_slicing.release.state:RunState.secret", 1),
    ("ldp_slicing.release.state:RunState.choose_names", 1),
    ("ldp_slicing.ledger:Ledger.approve", 1),
    ("ldp_slicing.storage.local:LocalTemporaryFile.commit", 1),
    ("ldp_slicing.storage.local:LocalTemporaryFile.commit", 30),
    ("ldp_slicing.storage.base:TemporaryFile.write", 100),
    ("ldp_slicing.ledger:Ledger.finish", 1),
    ("ldp_slicing.release.state:RunState.record", 1),
    ("ldp_slicing.ledger:Ledger.approve", 2),
    ("ldp_slicing.release.state:RunState.record", 2),
    ("ldp_slicing.release.closing:write_manifest", 1),
    ("ldp_slicing.release.closing:write_file", 1),
    ("ldp_slicing.release.state:RunState.mark_flushed", 1),
    ("ldp_slicing.release.state_file:destroy_key_file", 1),
]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 small images and two shards of 30."""
    folder = tmp_path_factory.mktemp("many")
    files = {f"{i // 50}/{name}": data for i, (name, data) in enumerate(small_images(COUNT - 50, 12, 9).items())}
    shards = {
        f"shard{s}.tar": shard({f"{i}.png": encoded(gradient(5 + i, 6 + s), "PNG") for i in range(30)})
        for s in range(2)
    }
    return plant(folder / "in", files | shards)


def test_a_run_killed_at_every_point_is_resumed(many: Path, tmp_path: Path) -> None:
    """One run, killed before and after every point in turn, and resumed each time."""
    target, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    watch, kills = Watch(target, ledger), 0
    arguments = [sys.executable, "-c", KILLER, *command(many, target, ledger, "--workers", "1")[3:]]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for point, at in POINTS:
            for when in ("before", "after"):
                print(point, when, at, file=server.stdin, flush=True)
                status = int(server.stdout.readline())
                assert status in (0, -signal.SIGKILL)
                kills += status != 0
                watch.look()
        server.stdin.close()
    assert kills >= 24
    assert subprocess.run(command(many, target, ledger), check=False, capture_output=True).returncode == 0
    watch.at_the_end(COUNT - 50 + 2, COUNT - 50 + 60)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_run_killed_at_any_moment_is_resumed(workers: str, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(500, 60, 50))
    target, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    watch, done = Watch(target, ledger), 0
    for step in (1, 60, 131, 170):
        with Run(*command(source, target, ledger, "--workers", workers)) as run:
            wait_for(done + step, target, run)
            run.kill()
        time.sleep(0.3)  # let its workers notice and exit
        done = watch.look()
    with Run(*command(source, target, ledger, "--workers", workers)) as run:
        out, err = run.output()
    assert (run.returncode, err) == (0, "")
    assert (
        json.loads(out)["kept"] >= done - int(workers) * BATCH_SOURCES
    )  # each worker may have had a batch that it could not report
    watch.at_the_end(500)


def test_workers_that_are_killed_repeatedly_are_replaced(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(1800, 60, 50))  # enough that some are left on a fast machine
    target, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    watch, killed = Watch(target, ledger), 0
    with Run(*command(source, target, ledger, "--workers", "2")) as run:
        for done in range(20, 1700, 100):
            wait_for(done, target, run)
            workers = [worker for server in children(run.pid) for worker in children(server)]
            if workers:
                os.kill(workers[killed % len(workers)], signal.SIGKILL)
                killed += 1
        out, err = run.output()
    assert (run.returncode, err) == (0, "")
    assert killed >= 5
    assert json.loads(out)["released"] == 1800
    watch.at_the_end(1800)


def test_a_stalled_worker_of_a_killed_run_writes_nothing_beside_a_finished_card(tmp_path: Path) -> None:
    """While any worker lives, no other run begins; when it goes on, it finds its run gone and ends."""
    source = plant(tmp_path / "in", small_images(600, 60, 50))
    target, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    watch = Watch(target, ledger)
    with Run(*command(source, target, ledger, "--workers", "2")) as run:
        wait_for(20, target, run)
        (worker, *_) = [worker for server in children(run.pid) for worker in children(server)]
        os.kill(worker, signal.SIGSTOP)
        run.kill()
    watch.look()
    refused = subprocess.run(command(source, target, ledger), capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "workers of an earlier run, which was killed, still hold" in refused.stderr
    before = watch.look()
    os.kill(worker, signal.SIGCONT)
    finished = subprocess.run(command(source, target, ledger), capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert before < 600
    watch.at_the_end(600)


MURDEROUS = """
import os
import random
import shutil
import ldp_slicing.formats.image as image
read = image.read
def deadly(file, options):
    for entry in read(file, options):
        if entry.pixels.shape[:2] == (31, 31):
            os.kill(os.getpid(), 9)
        yield entry
image.read = deadly
"""


def test_a_file_that_kills_its_worker_is_found_and_reported(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {**small_images(150), "00070 killer.png": encoded(gradient(31, 31), "PNG")})
    plant(tmp_path / "site", {"sitecustomize.py": MURDEROUS.encode()})
    target, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    environment = os.environ | {"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    ran = subprocess.run(
        command(source, target, ledger, "--workers", "2"), env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stderr
    (problem,) = json.loads(ran.stdout)["problems"]
    assert problem["source"] == "00070 killer.png"
    assert "died 3 times" in problem["problem"]
    Watch(target, ledger).at_the_end(150)


# Sources that change during the run


def test_files_replaced_during_the_run(tmp_path: Path) -> None:
    """Under an owner's key the release of each version is known: nothing else may come out."""
    new_key_file(tmp_path / "key")
    versions = [encoded(gradient(40 + i, 50), "PNG") for i in range(3)]
    allowed = set()
    for i, data in enumerate(versions):
        release(
            plant(tmp_path / f"v{i}", {"x.png": data}),
            tmp_path / f"o{i}",
            key=tmp_path / "key",
            ledger=tmp_path / f"l{i}.sqlite",
        )
        allowed.add((tmp_path / f"o{i}" / "x.png").read_bytes())
    source = plant(tmp_path / "in", {f"{i:03}.png": versions[0] for i in range(300)})
    done = threading.Event()

    def replace() -> None:
        turn = 0
        while not done.is_set():
            for i in range(0, 300, 7):
                turn += 1
                path, data = source / f"{(i + turn) % 300:03}.png", versions[turn % 3]
                if turn % 2:
                    (tmp_path / "new").write_bytes(data)
                    (tmp_path / "new").rename(path)
                else:
                    path.write_bytes(data)  # for a moment it is empty or truncated

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        ran = release(source, tmp_path / "out", key=tmp_path / "key", ledger=tmp_path / "ledger.sqlite")
    finally:
        done.set()
        thread.join()
    made = outputs(tmp_path / "out")
    assert set(made.values()) <= allowed
    assert len(made) + len(ran.problems) == 300
    assert len(made) > 200
    assert spent(tmp_path / "ledger.sqlite").releases == len(set(made.values()))
    for i in range(300):
        (source / f"{i:03}.png").write_bytes(versions[0])
    ran = release(source, tmp_path / "out", key=tmp_path / "key", ledger=tmp_path / "ledger.sqlite")
    assert len(outputs(tmp_path / "out")) == 300
    assert all("has changed" in problem for problem in ran.problems.values())


# Interrupted by its user


def test_an_interrupted_run_stops_soon_and_can_be_resumed(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(250, 400, 400))
    target, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    watch = Watch(target, ledger)
    with Run(*command(source, target, ledger, "--workers", "2")) as run:
        wait_for(10, target, run)
        run.send_signal(signal.SIGINT)
        done = len(list(target.rglob("*.png")))
        out, _ = run.output()
    assert run.returncode == 130
    assert json.loads(out)["stopped"]
    assert 10 <= watch.look() <= done + 2 * BATCH_SOURCES  # each worker may finish its batch, not begin another
    assert verified(target) == []
    for path in sorted(source.iterdir())[80:]:
        path.unlink()  # fewer are enough
    ran = subprocess.run(
        command(source, target, ledger, "--workers", "2"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    watch.look()
    assert verified(target) == []
    assert spent(ledger).unfinished == 0
    assert spent(ledger).releases == len(outputs(target)) >= 80


KILLS = int(os.environ.get("FUZZ_KILLS", "6"))  # `make fuzz` kills more often


def test_runs_with_two_workers_killed_at_random_moments(tmp_path: Path) -> None:
    """The run or one of its workers, whichever comes, anywhere between the start of the run and its last file.

    FUZZ_KILLS says how often, FUZZ_SEED where to begin. Each time: whole files, no second version, all in the ledger.
    """
    rng = random.Random(f"kills {os.environ.get('FUZZ_SEED', '1')}")
    kills = number = 0
    while kills < KILLS:
        number += 1
        folder = tmp_path / str(number)
        source = plant(folder / "in", {**small_images(400, 60, 50), "a.tar": shard(small_images(90))})
        target, ledger = folder / "out", folder / "ledger.sqlite"
        watch = Watch(target, ledger)
        for _ in range(min(KILLS, 10)):
            with Run(*command(source, target, ledger, "--workers", "2")) as run:
                if rng.random() < 0.3:  # while it starts, lists and checks
                    time.sleep(rng.uniform(0.1, 1.2))
                else:
                    wait_for(len(watch.seen) + rng.randrange(1, 60), target, run)
                workers = [worker for server in children(run.pid) for worker in children(server)]
                kills += run.poll() is None
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice([run.pid, *workers]), signal.SIGKILL)
                run.kill()
            if ledger.exists():
                watch.look()
        finished = subprocess.run(
            command(source, target, ledger, "--workers", "2"), capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stderr
        watch.at_the_end(401, 490)
        shutil.rmtree(folder)
