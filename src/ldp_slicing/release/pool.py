"""Workers: the run's own process, several processes of this machine, or whatever else can be hired (cluster.py).

Processes rather than threads, because a file that crashes its decoder then takes a worker with it and not the run, and because a
cluster's workers are processes too. That may cost some speed: on a busy machine of two processors, threads were faster in three rounds of
four. The ledger stays with the run, and workers ask it. Each has one batch at a time, so nothing piles up. A worker that dies costs
nothing: its files are made again by another, under the same keys, so with the same bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from ldp_slicing.errors import LedgerError, ReleaseError
from ldp_slicing.formats import KINDS
from ldp_slicing.ledger import Verdict
from ldp_slicing.release.worker import BATCH_SOURCES, Ask, Gate, Outcome, Setting, Task, Worker

BATCH_FILE_BYTES = 8 << 20
ATTEMPTS = 3  # before a file is taken for one that kills whoever reads it
IN_A_ROW = 30  # workers that die before any says a word: then it is not the files
PATIENCE = 1.0  # seconds that workers have to come to an end when the run is stopped

Stop = Callable[[], bool]
Message = tuple[str, Any] | None  # from a worker; None: it died


def batches(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Small files together, so that they share an intent's flush to the disk; shards and large files alone."""
    batch: list[Task] = []
    held = 0
    for task in tasks:
        if KINDS[task.kind].goes_alone:
            yield [task]
            continue
        batch.append(task)
        held += task.size
        if len(batch) >= BATCH_SOURCES or held >= BATCH_FILE_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def run_here(setting: Setting, gate: Gate, tasks: Iterable[Task], stop: Stop) -> Generator[list[Outcome]]:
    """One batch after the other, in this process."""
    worker = Worker(setting, gate, stop)
    for batch in batches(tasks):
        yield list(worker.run(batch))
        if stop():
            return


def run_in_processes(
    setting: Setting, gate: Gate, tasks: Iterable[Task], stop: Stop, workers: int
) -> Generator[list[Outcome]]:
    """The same in ``workers`` processes; where there is only one batch, none is started."""
    waiting = batches(tasks)
    first = list(itertools.islice(waiting, 2))
    if len(first) < 2:
        yield from run_here(setting, gate, itertools.chain.from_iterable(first), stop)
    else:
        yield from run_crew(Processes(setting), workers, gate, itertools.chain(first, waiting), stop)


class Crew(Protocol):
    """Workers that can be hired. ``hear`` gives what some of the ``busy`` ones say, within 0.1 s; where none is busy, it waits as long."""

    def hire(self) -> Any: ...  # noqa: ANN401
    def has_come(self, worker: Any) -> bool: ...  # noqa: ANN401
    def give(self, worker: Any, message: Any) -> None: ...  # noqa: ANN401
    def hear(self, busy: list[Any]) -> list[tuple[Any, Message]]: ...
    def dismiss(self, worker: Any, *, at_once: bool) -> None: ...  # noqa: ANN401
    def ask_to_stop(self) -> None: ...


def run_crew(
    crew: Crew, workers: int, gate: Gate, waiting: Iterator[list[Task]], stop: Stop
) -> Generator[list[Outcome]]:
    """Give batches to idle workers, answer what they ask the gate, and yield what they come to."""
    hands: dict[Any, list[Task]] = {}  # what each worker is at
    again: deque[list[Task]] = deque(itertools.islice(waiting, 1))
    deaths: dict[str, int] = {}
    entered = set[str]()  # files of which something is in the ledger
    silent, spoken = 0, False
    deadline = float("inf")
    try:
        for _ in range(workers):
            hands[_hired(crew)] = []
        while True:
            if deadline == float("inf") and stop():
                crew.ask_to_stop()
                deadline = time.monotonic() + PATIENCE
            for worker in [idle for idle, hand in hands.items() if not hand]:
                if again and deadline == float("inf") and crew.has_come(worker):
                    hands[worker] = again.popleft()
                    crew.give(worker, hands[worker])
                    if not again:
                        again.extend(itertools.islice(waiting, 1))
            busy = [worker for worker, hand in hands.items() if hand]
            if time.monotonic() > deadline or (not busy and (not again or deadline < float("inf"))):
                return
            for worker, message in crew.hear(busy):
                silent, spoken = (silent + 1, spoken) if message is None else (0, True)
                if silent > IN_A_ROW:
                    raise ReleaseError(
                        f"{silent} workers in a row died before they had done anything: look for what kills them (memory?), or use "
                        f"--workers 1; {_GUARD}"
                    )
                if message is None:
                    tasks = hands.pop(worker)
                    crew.dismiss(worker, at_once=True)
                    hands[_hired(crew)] = []
                    if len(tasks) == 1:
                        deaths[tasks[0].path] = deaths.get(tasks[0].path, 0) + 1
                    hopeless = [task for task in tasks if deaths.get(task.path, 0) >= ATTEMPTS]
                    again.extend(
                        [task] for task in tasks if task not in hopeless
                    )  # one by one: one that kills its reader is found
                    if hopeless:
                        problem = _KILLS if spoken else f"{_KILLS}; or {_GUARD}"
                        # What was entered can only be made again under this run's key, so that the run must not end without it.
                        yield [Outcome(task, problem, passing=task.path in entered) for task in hopeless]
                elif message[0] == "outcomes":
                    hands[worker] = []
                    yield message[1]
                else:
                    if message[0] == "approve":
                        entered.update(ask.path for ask in message[1])
                    crew.give(worker, _answer(gate, *message))
    finally:
        for worker, hand in hands.items():
            crew.dismiss(worker, at_once=bool(hand))  # nothing half-made has a name


_GUARD = "a script that starts several workers needs `if __name__ == '__main__':` around what it does"
_KILLS = f"its worker died {ATTEMPTS} times: out of memory, or a file that crashes its decoder"


def _hired(crew: Crew) -> Any:  # noqa: ANN401
    try:
        return crew.hire()
    except OSError as error:  # too many processes or open files
        raise ReleaseError(
            f"no more workers can be started ({error.strerror or error}): use fewer (--workers)"
        ) from None


def _answer(gate: Gate, kind: str, content: Any) -> Any:  # noqa: ANN401
    try:
        return getattr(gate, kind)(content)
    except LedgerError as error:
        return error


class _Flag:
    """A byte that processes share, and whether it is set.

    An Event has a lock, and a worker that is killed while it looks would hold it for ever: the others, and the run, would wait for it.
    """

    def __init__(self, context: Any) -> None:  # noqa: ANN401
        self._byte = context.RawValue("b", 0)

    def __call__(self) -> bool:
        return bool(self._byte.value)

    def set(self) -> None:
        self._byte.value = 1


class Processes:
    """Worker processes of this machine, each at the end of a pipe."""

    def __init__(self, setting: Setting) -> None:
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        self._context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            self._context.set_forkserver_preload(["ldp_slicing.release.pool"])
        self._setting, self._stopped = setting, _Flag(self._context)
        self._processes: dict[Connection, Any] = {}

    def hire(self) -> Connection:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=serve, args=(theirs, self._setting, self._stopped), daemon=True)
        process.start()
        theirs.close()
        self._processes[ours] = process
        connection: Connection = ours
        return connection

    def has_come(self, worker: Connection) -> bool:
        return worker in self._processes

    def give(self, worker: Connection, message: Any) -> None:  # noqa: ANN401
        with contextlib.suppress(OSError):  # it died: ``hear`` notices
            worker.send(message)

    def hear(self, busy: list[Connection]) -> list[tuple[Connection, Message]]:
        heard: list[tuple[Connection, Message]] = []
        for worker in wait(busy, timeout=0.1):
            assert isinstance(worker, Connection)  # noqa: S101
            try:
                heard.append((worker, worker.recv()))
            except (EOFError, OSError):
                heard.append((worker, None))
        return heard

    def dismiss(self, worker: Connection, *, at_once: bool) -> None:
        process = self._processes.pop(worker)
        if at_once:
            process.kill()
        worker.close()
        process.join()

    def ask_to_stop(self) -> None:
        self._stopped.set()


def hush() -> None:
    """What matters of what decoders warn of is a refusal or a notice."""
    for module in ("PIL", "pydicom"):
        warnings.filterwarnings("ignore", module=module)


def serve(connection: Any, setting: Setting, stopped: Stop) -> None:  # noqa: ANN401
    """A worker: batches in, questions and outcomes out, until the run is gone."""
    with contextlib.suppress(ValueError):  # not in a main thread, where nothing interrupts it anyway
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run is asked, and tells its workers
    hush()
    worker = Worker(setting, _FarGate(connection), stopped)
    with contextlib.suppress(EOFError, OSError):
        while True:
            batch = connection.recv()
            connection.send(("outcomes", list(worker.run(batch))))


class _FarGate:
    """The ledger is at the other end."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401
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
