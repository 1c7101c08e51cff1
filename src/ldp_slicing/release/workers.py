"""Workers on this machine: the run's own process, or several. Decoding many small files is Python's work, so threads would not do.

The ledger stays with the run: a worker process asks it through its pipe. Each worker has one batch at a time, so nothing piles up. A worker
that dies costs nothing: its files are made again by another, under the same keys, so with the same bytes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from ldp_slicing.errors import LedgerError
from ldp_slicing.ledger import Verdict
from ldp_slicing.release.formats import KINDS
from ldp_slicing.release.work import BATCH_SOURCES, Ask, Gate, Outcome, Setting, Task, Worker

BATCH_FILE_BYTES = 8 << 20
ATTEMPTS = 3  # before a file is taken for one that kills whoever reads it
PATIENCE = 1.0  # seconds that workers have to come to an end when the run is stopped


def batches(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Small files together, so that they share an intent's flush to the disk; shards and large files alone."""
    batch: list[Task] = []
    held = 0
    for task in tasks:
        if KINDS[task.kind].is_container:
            yield [task]
            continue
        batch.append(task)
        held += task.size
        if len(batch) >= BATCH_SOURCES or held >= BATCH_FILE_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def run_here(setting: Setting, gate: Gate, tasks: Iterable[Task], stop: Callable[[], bool]) -> Generator[list[Outcome]]:
    """One batch after the other, in this process."""
    worker = Worker(setting, gate, stop)
    for batch in batches(tasks):
        yield list(worker.run(batch))
        if stop():
            return


def run_in_processes(
    setting: Setting, gate: Gate, tasks: Iterable[Task], stop: Callable[[], bool], workers: int
) -> Generator[list[Outcome]]:
    """The same in ``workers`` processes; where there is only one batch, none is started."""
    waiting = batches(tasks)
    first = list(_take(waiting, 2))
    if len(first) < 2:
        yield from run_here(setting, gate, (task for batch in first for task in batch), stop)
        return
    pool = _Pool(setting, gate, workers)
    try:
        yield from pool.run(_chain(first, waiting), stop)
    finally:
        pool.end()


def _take(batches: Iterator[list[Task]], count: int) -> Iterator[list[Task]]:
    for _, batch in zip(range(count), batches, strict=False):
        yield batch


def _chain(first: list[list[Task]], rest: Iterator[list[Task]]) -> Iterator[list[Task]]:
    yield from first
    yield from rest


class _Pool:
    def __init__(self, setting: Setting, gate: Gate, workers: int) -> None:
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        self._context = multiprocessing.get_context(method)
        if method == "forkserver":
            self._context.set_forkserver_preload(["ldp_slicing.release.workers"])
        self._setting, self._gate, self._stopped = setting, gate, self._context.Event()
        self._hands: dict[Connection, list[Task]] = {}  # what each worker is at
        self._processes: dict[Connection, Any] = {}
        for _ in range(workers):
            self._start()

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._setting, self._stopped), daemon=True)  # type: ignore[attr-defined]
        process.start()
        theirs.close()
        self._processes[ours], self._hands[ours] = process, []

    def run(self, waiting: Iterator[list[Task]], stop: Callable[[], bool]) -> Generator[list[Outcome]]:
        again: deque[list[Task]] = deque()
        deaths: dict[str, int] = {}
        deadline = float("inf")
        while True:
            if stop() and not self._stopped.is_set():
                self._stopped.set()
                deadline = time.monotonic() + PATIENCE
            for connection in [idle for idle, hand in self._hands.items() if not hand]:
                batch = [] if self._stopped.is_set() else again.popleft() if again else next(waiting, [])
                if batch:
                    self._hands[connection] = batch
                    with contextlib.suppress(OSError):  # it died: noticed below
                        connection.send(batch)
            busy = [connection for connection, hand in self._hands.items() if hand]
            if not busy or time.monotonic() > deadline:
                return
            for ready in wait(busy, timeout=0.1):
                connection = next(one for one in busy if one is ready)
                try:
                    outcomes = self._answer(connection, *connection.recv())
                except (EOFError, OSError):
                    again.extend(self._lost(connection, deaths))
                    outcomes = [_fatal(task) for (task,) in _pop_hopeless(again, deaths)]
                if outcomes:
                    yield outcomes

    def _answer(self, connection: Connection, kind: str, content: Any) -> list[Outcome]:  # noqa: ANN401
        """A worker's message: the outcomes it came to, or a question for the gate, which is answered."""
        if kind == "outcomes":
            self._hands[connection] = []
            outcomes: list[Outcome] = content
            return outcomes
        try:
            connection.send(getattr(self._gate, kind)(content))
        except LedgerError as error:
            connection.send(error)
        return []

    def _lost(self, connection: Connection, deaths: dict[str, int]) -> list[list[Task]]:
        """A worker died. What it was at is tried again, file by file, so that one that kills its reader is found."""
        tasks = self._hands.pop(connection)
        self._processes.pop(connection).join()
        connection.close()
        self._start()
        if len(tasks) == 1:
            deaths[tasks[0].path] = deaths.get(tasks[0].path, 0) + 1
        return [[task] for task in tasks]

    def end(self) -> None:
        for connection, process in self._processes.items():
            if self._hands[connection]:
                process.kill()  # nothing half-made has a name
            connection.close()
        for process in self._processes.values():
            process.join()


def _pop_hopeless(again: deque[list[Task]], deaths: dict[str, int]) -> list[list[Task]]:
    hopeless = [batch for batch in again if len(batch) == 1 and deaths.get(batch[0].path, 0) >= ATTEMPTS]
    for batch in hopeless:
        again.remove(batch)
    return hopeless


def _fatal(task: Task) -> Outcome:
    return Outcome(task, f"its worker died {ATTEMPTS} times: out of memory, or a file that crashes its decoder")


def _serve(connection: Connection, setting: Setting, stopped: Any) -> None:  # noqa: ANN401
    """A worker process: batches in, outcomes out, until the run is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run is asked, and tells its workers
    worker = Worker(setting, _PipeGate(connection), stopped.is_set)
    with contextlib.suppress(EOFError, OSError):
        while True:
            batch = connection.recv()
            connection.send(("outcomes", list(worker.run(batch))))


class _PipeGate:
    """The ledger is at the other end of the pipe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _ask(self, kind: str, content: Any) -> Any:  # noqa: ANN401
        try:
            self._connection.send((kind, content))
            answer = self._connection.recv()
        except (EOFError, OSError):
            raise SystemExit(1) from None  # the run is gone: nothing more may be released
        if isinstance(answer, LedgerError):
            raise answer
        return answer

    def approve(self, asked: Sequence[Ask]) -> list[Verdict]:
        verdicts: list[Verdict] = self._ask("approve", asked)
        return verdicts

    def finish(self, entries: Sequence[int]) -> None:
        self._ask("finish", entries)

    def withdraw(self, entries: Sequence[int]) -> None:
        self._ask("withdraw", entries)

    def times(self, entry: int) -> int:
        return int(self._ask("times", entry))
