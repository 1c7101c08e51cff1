"""Workers that die, ledgers that fail and videos that are refused midway, in this process."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from ldp_slicing.errors import ImageError, LedgerError, ReleaseError
from ldp_slicing.formats import image
from ldp_slicing.keys import Secret
from ldp_slicing.ledger import Approval, Ledger, RunPolicy
from ldp_slicing.release import pool as workers_module
from ldp_slicing.release.cluster import WorkerActor, on_ray
from ldp_slicing.release.ledger_client import LocalLedgerClient, ReleaseRequest
from ldp_slicing.release.opening import prepare
from ldp_slicing.release.pool import BATCH_FILE_BYTES, CRASHED, Message, batch_bytes, batches, run_pool
from ldp_slicing.release.report import FileReport, FileState, FileTask
from ldp_slicing.release.run import on_this_machine
from ldp_slicing.release.worker import Worker, WorkerContext
from ldp_slicing.storage import LocalStorage, TemporaryFile, write_file
from tests.formats.videos import FRAMES, video
from tests.markers import encoded, gradient
from tests.release.helpers import SETTINGS, outputs, plant, release, small_images, spent, verified
from tests.release.processes import children


class LocalActors:
    """The actors of a Ray cluster, started in this process. One whose batch holds ``killer`` never answers."""

    def __init__(self, context: WorkerContext, killer: str = "") -> None:
        self._setting, self._killer = context, killer
        self._dead: set[WorkerActor] = set()
        self.started: list[WorkerActor] = []

    def start(self) -> WorkerActor:
        self.started.append(WorkerActor(self._setting))
        self.started[-1].handshake()
        return self.started[-1]

    def ready(self, worker: WorkerActor) -> bool:
        return worker in self.started

    def send(self, worker: WorkerActor, message: Any) -> None:
        if isinstance(message, list) and any(
            isinstance(task, FileTask) and task.path == self._killer for task in message
        ):
            self._dead.add(worker)
        else:
            worker._inbox.put(message)

    def poll(self, busy: list[WorkerActor]) -> list[tuple[WorkerActor, Message]]:
        messages: list[tuple[WorkerActor, Message]] = []
        for worker in busy:
            if worker in self._dead:
                messages.append((worker, None))
            else:
                with contextlib.suppress(queue.Empty):
                    messages.append((worker, worker._outbox.get(timeout=0.02)))
        return messages

    def stop(self, worker: WorkerActor, *, at_once: bool) -> None:
        self.started.remove(worker)

    def request_stop(self) -> None:
        for worker in self.started:
            worker.stop()


@pytest.fixture
def context(tmp_path: Path) -> WorkerContext:
    plant(tmp_path / "in", small_images(150))
    (tmp_path / "out").mkdir()
    return WorkerContext(
        LocalStorage(tmp_path / "in"),
        LocalStorage(tmp_path / "out", tmp_path / "temporary"),
        SETTINGS,
        Secret(bytes(32), is_owners=False),
    )


@pytest.fixture
def client(tmp_path: Path) -> LocalLedgerClient:
    return LocalLedgerClient(Ledger(tmp_path / "ledger.sqlite"), RunPolicy(b"run", is_owners=False), SETTINGS)


def tasks(names: Sequence[str]) -> list[FileTask]:
    return [FileTask(name, "image", name, 100) for name in names]


def test_a_file_that_kills_workers_is_found_and_the_others_are_released(
    context: WorkerContext, client: LocalLedgerClient, tmp_path: Path
) -> None:
    killer = "00070.png"
    pool = LocalActors(context, killer)
    results = [
        report
        for some in run_pool(pool, 3, client, batches(tasks(list(small_images(150)))), lambda: False)
        for report in some
    ]
    assert {report.task.path for report in results} == set(small_images(150))
    assert {report.task.path: report.problem for report in results if report.problem} == {killer: CRASHED}
    assert len(outputs(tmp_path / "out")) == 149
    assert (client.ledger.total().releases, client.ledger.total().unfinished) == (149, 0)
    assert pool.started == []


def test_workers_that_cannot_be_started_are_reported(context: WorkerContext, client: LocalLedgerClient) -> None:
    class Full(LocalActors):
        def start(self) -> WorkerActor:
            if len(self.started) == 2:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().start()

    pool = Full(context)
    with pytest.raises(ReleaseError, match=r"no more workers can be started .Too many open files.: use fewer"):
        list(run_pool(pool, 3, client, iter([]), lambda: False))
    assert pool.started == []


class Stillborn(LocalActors):
    """Every worker is dead from the start."""

    def send(self, worker: WorkerActor, message: Any) -> None:
        self._dead.add(worker)


def test_a_run_whose_workers_all_die_is_aborted(
    context: WorkerContext, client: LocalLedgerClient, tmp_path: Path
) -> None:
    with pytest.raises(ReleaseError, match="31 workers in a row"):
        list(run_pool(Stillborn(context), 2, client, batches(tasks(list(small_images(150)))), lambda: False))
    assert outputs(tmp_path / "out") == {}
    assert client.ledger.total().releases == 0


SCRIPT = """
import sys
from pathlib import Path
from ldp_slicing.release.opening import prepare
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.run import on_this_machine
run = prepare(sys.argv[1], sys.argv[2], ReleaseSettings(20.0))
list(run.run(on_this_machine(2)))
"""


def test_a_script_without_a_main_guard_gets_advice(tmp_path: Path) -> None:
    plant(tmp_path, {"script.py": SCRIPT.encode()})
    arguments = [
        sys.executable,
        str(tmp_path / "script.py"),
        str(plant(tmp_path / "in", small_images(150))),
        str(tmp_path / "out"),
    ]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "31 workers in a row died" in ran.stderr
    assert spent().releases == 0


def test_workers_in_one_process_do_not_mix_up_their_keys(
    context: WorkerContext, client: LocalLedgerClient, tmp_path: Path
) -> None:
    """Many workers at once release the same bytes as one alone: a mask used for two images would reveal both."""
    todo = [FileTask(name, "image", name, BATCH_FILE_BYTES // 3) for name in small_images(150)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in run_pool(LocalActors(context), 8, client, batches(todo), lambda: False):
            pass
    finally:
        sys.setswitchinterval(interval)
    alone = replace(context, target=LocalStorage(tmp_path / "alone", tmp_path / "temporary"))
    other = LocalLedgerClient(Ledger(tmp_path / "other.sqlite"), client.policy, SETTINGS)
    assert all(report.problem is None for report in Worker(alone, other).run(todo))
    assert outputs(tmp_path / "alone") == outputs(tmp_path / "out")


def test_workers_stop_between_two_files(context: WorkerContext, client: LocalLedgerClient, tmp_path: Path) -> None:
    seen: list[FileReport] = []

    def stop() -> bool:
        return bool(seen)

    for some in run_pool(LocalActors(context), 2, client, batches(tasks(list(small_images(150)))), stop):
        seen.extend(some)
    assert 0 < len(outputs(tmp_path / "out")) <= 150
    assert len([report for report in seen if report.problem is None]) == len(outputs(tmp_path / "out"))


def test_a_worker_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(700))
    run, killed = prepare(source, tmp_path / "out", SETTINGS), 0
    for number, _ in enumerate(run.run(on_this_machine(2))):
        if number in (0, 200):
            for server in children(os.getpid()):
                for worker in children(server)[:1]:
                    os.kill(worker, signal.SIGKILL)
                    killed += 1
    assert killed
    assert run.result.complete
    run.close()
    assert len(outputs(tmp_path / "out")) == spent().releases == 700
    assert verified(tmp_path / "out") == []


class Failing(LocalLedgerClient):
    """A ledger that fails at one kind of question."""

    at = ""

    def approve(self, requests: Sequence[ReleaseRequest]) -> list[Approval]:
        return self._or_fail("approve", requests)

    def finish(self, entries: Sequence[int]) -> None:
        self._or_fail("finish", entries)

    def _or_fail(self, kind: str, content: Any) -> Any:
        if kind == self.at:
            raise LedgerError("the ledger cannot be written: disk I/O error")
        return getattr(LocalLedgerClient, kind)(self, content)


@pytest.mark.parametrize("far", [False, True], ids=["here", "far"])
@pytest.mark.parametrize("at", ["approve", "finish"])
def test_files_are_retried_after_the_ledger_fails(
    at: str, far: bool, context: WorkerContext, client: LocalLedgerClient, tmp_path: Path
) -> None:
    failing = Failing(client.ledger, client.policy, SETTINGS)
    failing.at = at
    todo = tasks(list(small_images(5)))
    if far:
        results = [
            report
            for some in run_pool(LocalActors(context), 1, failing, batches(todo), lambda: False)
            for report in some
        ]
    else:
        results = list(Worker(context, failing).run(todo))
    assert all(report.state is FileState.RETRY and "disk I/O" in (report.problem or "") for report in results)
    assert len(outputs(tmp_path / "out")) == (5 if at == "finish" else 0)  # named files count as intents
    assert client.ledger.total().unfinished == len(outputs(tmp_path / "out"))
    before = outputs(tmp_path / "out")
    assert [report.problem for report in Worker(context, client).run(todo)] == [None] * 5
    assert outputs(tmp_path / "out") | before == outputs(tmp_path / "out")
    assert client.ledger.total().unfinished == 0


def test_a_stop_after_the_intents_withdraws_them(
    context: WorkerContext, client: LocalLedgerClient, tmp_path: Path
) -> None:
    asked = iter([False] * 11 + [True] * 100)  # five files are read, then the first is written
    results = list(Worker(context, client, lambda: next(asked)).run(tasks(list(small_images(5)))))
    assert {report.state for report in results} == {FileState.RELEASED, FileState.WAITING}
    assert (
        client.ledger.total().releases
        == len(outputs(tmp_path / "out"))
        == sum(1 for report in results if report.state is FileState.RELEASED)
    )


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_worker_stops_at_the_first_full_disk(
    number: int, context: WorkerContext, client: LocalLedgerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, left = LocalStorage.create, iter([True, True])

    def full(self: LocalStorage, path: str) -> TemporaryFile:
        if next(left, False):
            return create(self, path)
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", full)
        worker = Worker(context, client)
        reports = [*worker.run(tasks(list(small_images(5)))), *worker.run(tasks(["00006.png"]))]
    assert [report.state for report in reports] == [
        *[FileState.RELEASED] * 2,
        FileState.RETRY,
        *[FileState.WAITING] * 3,
    ]
    assert [report.disk_full for report in reports] == [False, False, True, False, False, False]
    assert reports[2].problem == f"could not be released: {os.strerror(number)}"
    assert client.ledger.total().releases == len(outputs(tmp_path / "out")) == 2


def test_a_writer_that_refuses_and_a_name_that_cannot_be_given(
    context: WorkerContext, client: LocalLedgerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ImageError("not this one")

    (tmp_path / "out" / "00001.png").mkdir()
    (report,) = Worker(context, client).run(tasks(["00001.png"]))
    assert (report.state, report.problem) == (
        FileState.RETRY,
        f"could not be released: another file has its name, {tmp_path / 'out' / '00001.png'}: nothing is overwritten",
    )
    monkeypatch.setattr(image.Writer, "add", refuse)
    (report,) = Worker(context, client).run(tasks(["00002.png"]))
    assert (report.state, report.problem) == (FileState.FAILED, "not this one")
    assert not list((tmp_path / "temporary").iterdir())


def test_a_video_with_one_refused_frame_is_refused_whole(tmp_path: Path) -> None:
    """A later frame was released before, as an image: the output is removed, and so are its intents."""
    frames = [np.roll(gradient(24, 32), i, axis=0) for i in range(24)] + [
        np.roll(gradient(24, 32), i, axis=1) for i in range(1, 32)
    ]
    frames += [np.roll(gradient(24, 32), (3, i), axis=(0, 1)) for i in range(1, 32)]
    release(plant(tmp_path / "still", {"a.png": encoded(frames[-1], "PNG")}), tmp_path / "one")
    ran = release(plant(tmp_path / "in", {"a.mkv": video(frames, sound=False)}), tmp_path / "two")
    assert "86 was released before" in ran.problems["a.mkv"]
    assert outputs(tmp_path / "two") == {}
    assert (spent().releases, spent().unfinished) == (1, 0)


def look(flag: workers_module._Flag) -> None:
    while True:
        flag()


def test_a_worker_killed_while_reading_the_stop_flag_blocks_nobody() -> None:
    context = multiprocessing.get_context("fork")
    flag = workers_module._Flag(context)
    for _ in range(5):
        process = context.Process(target=look, args=(flag,), daemon=True)
        process.start()
        time.sleep(0.1)
        process.kill()
        process.join()
    done = threading.Thread(target=flag.set, daemon=True)
    done.start()
    done.join(20)
    assert not done.is_alive()
    assert flag()


def test_a_video_without_a_video_stream_and_a_torn_one(tmp_path: Path) -> None:
    sound = io.BytesIO()
    with av.open(sound, mode="w", format="avi") as container:
        voice = container.add_stream("pcm_s16le", rate=8000)
        noise = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        noise.sample_rate = 8000
        container.mux(voice.encode(noise))
        container.mux(voice.encode(None))
    mp4 = io.BytesIO()
    with av.open(mp4, mode="w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        for frame in FRAMES:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    data = mp4.getvalue()
    ran = release(plant(tmp_path / "in", {"a.avi": sound.getvalue(), "b.mp4": data}), tmp_path / "out")
    assert ran.problems == {"a.avi": "has no video stream"}
    assert len(outputs(tmp_path / "out")) == 1
    start = data.index(b"mdat")
    torn = data[: start + 4] + bytes(200) + data[start + 204 :]
    ran = release(plant(tmp_path / "in2", {"b.mp4": torn}), tmp_path / "out2")
    assert "cut off or damaged" in ran.problems["b.mp4"]


def test_a_file_that_cannot_be_written_leaves_no_trace(tmp_path: Path) -> None:
    def torn() -> Any:
        yield b"half"
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        write_file(LocalStorage(tmp_path), "a", torn())
    assert [path.name for path in tmp_path.rglob("*")] == [".ldp-slicing-partial"]


def test_an_address_without_a_port_is_refused() -> None:
    pytest.importorskip("ray")
    started = time.monotonic()
    with pytest.raises(ReleaseError, match="nowhere cannot be reached"):
        on_ray("ray://nowhere")
    assert time.monotonic() - started < 60


def test_a_run_can_be_resumed_after_a_worker_died_with_an_intent(tmp_path: Path) -> None:
    """What is in the ledger can only be made again under this run's key."""
    source = plant(tmp_path / "in", {**small_images(70), "00070 heavy.png": encoded(gradient(31, 31), "PNG")})
    plant(tmp_path / "site", {"sitecustomize.py": HEAVY.encode()})
    environment = os.environ | {"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [
        sys.executable,
        "-m",
        "ldp_slicing",
        "privatize",
        str(source),
        str(tmp_path / "out"),
        "--epsilon",
        "5",
        "--workers",
        "2",
    ]
    ran = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 5, ran.stderr
    told = json.loads(ran.stdout)
    assert "died 3 times" in told["problems"][0]["problem"]
    assert not told["complete"]
    again = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)  # now with enough memory
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["complete"]
    assert (spent().releases, spent().unfinished) == (71, 0)


HEAVY = """
import os
import ldp_slicing.release.worker as work
write = work.Worker._write
def heavy(self, output, entry, request, approval):
    if entry.pixels.shape[:2] == (31, 31):
        os.kill(os.getpid(), 9)
    write(self, output, entry, request, approval)
work.Worker._write = heavy
"""


@pytest.mark.parametrize(
    ("files", "size", "workers", "most"),
    [(60, 200_000, 2, 8), (60, 200_000, 1, 15), (5, 1000, 8, 5), (3, 20 << 20, 4, 1), (64, 1 << 20, 2, 8)],
)
def test_every_worker_has_some_batches_unless_they_would_be_too_small(
    files: int, size: int, workers: int, most: int
) -> None:
    todo = [FileTask(f"{i}.png", "image", f"{i}.png", size) for i in range(files)]
    made = list(batches(todo, batch_bytes(files * size, workers)))
    assert [task for batch in made for task in batch] == todo
    assert max(map(len, made)) == most
