"""Where workers run: in the run's own process, in several processes of this machine, or in any other ``WorkerPool``.

Workers are processes rather than threads: a file that crashes its decoder then takes down a worker and not the run,
and the workers of a cluster are processes too. This can cost some speed: on a busy machine with two processors,
threads were faster in three rounds of four. The ledger stays with the run, and workers ask it. Each worker has one
batch at a time. A worker that dies costs nothing: another one releases its files under the same keys, so with the
same bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import DupFd
from typing import Any, Protocol

from ldp_slicing.errors import LedgerError, Reason, ReleaseError
from ldp_slicing.formats import KINDS
from ldp_slicing.images import silence_decoders
from ldp_slicing.ledger import Approval
from ldp_slicing.release.ledger_client import LedgerClient, ReleaseRequest
from ldp_slicing.release.report import FileReport, FileState, FileTask
from ldp_slicing.release.worker import BATCH_SOURCES, Worker, WorkerContext

BATCH_FILE_BYTES, SMALLEST_BATCH_BYTES = 8 << 20, 1 << 20  # a batch ends after so many bytes of files
BATCHES_EACH = 4  # at least, for each worker, unless they would be too small
ATTEMPTS = 3  # deaths of its worker after which a file is given up
DEATHS_IN_A_ROW = 30  # deaths before any worker answers; more, and the files are not to blame
STOP_SECONDS = 1.0  # how long workers may take to stop

Stop = Callable[[], bool]
Message = tuple[str, Any] | None  # from a worker; None if it died

_GUARD = "a script that starts several workers must run under `if __name__ == '__main__':`"
CRASHED = f"its worker died {ATTEMPTS} times: out of memory, or a file that crashes its decoder"


def batch_bytes(waiting: int, workers: int) -> int:
    """Return after how many bytes of files a batch ends, so that every worker has some, and progress shows soon."""
    return max(SMALLEST_BATCH_BYTES, min(BATCH_FILE_BYTES, waiting // (BATCHES_EACH * workers)))


def batches(tasks: Iterable[FileTask], most: int = BATCH_FILE_BYTES) -> Iterator[list[FileTask]]:
    """Group small files, so that they share the flush of an intent; files of many images are batches of their own.

    most: the bytes of files after which a batch ends.
    """
    batch: list[FileTask] = []
    held = 0
    for task in tasks:
        if KINDS[task.kind].goes_alone:
            yield [task]
            continue
        batch.append(task)
        held += task.size
        if len(batch) >= BATCH_SOURCES or held >= most:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def run_here(
    context: WorkerContext, ledger: LedgerClient, waiting: Iterable[list[FileTask]], stop: Stop
) -> Generator[list[FileReport]]:
    """Release one batch after the other in this process."""
    worker = Worker(context, ledger, stop)
    for batch in waiting:
        yield list(worker.run(batch))
        if stop():
            return


def run_in_processes(
    context: WorkerContext,
    ledger: LedgerClient,
    waiting: Iterator[list[FileTask]],
    stop: Stop,
    workers: int,
    *,
    lock: int | None = None,
) -> Generator[list[FileReport]]:
    """Release in ``workers`` processes, or in this one if there is only one batch.

    The processes inherit the descriptor ``lock``, and with it the lock of the run.
    """
    first = list(itertools.islice(waiting, 2))
    if len(first) < 2:
        yield from run_here(context, ledger, first, stop)
    else:
        yield from run_pool(ProcessPool(context, lock), workers, ledger, itertools.chain(first, waiting), stop)


class WorkerPool(Protocol):
    """Something that runs workers. A worker is whatever ``start`` returns.

    ``poll`` returns messages of some of the ``busy`` workers within 0.1 s. ``at_once`` kills a worker that is busy.
    """

    def start(self) -> Any: ...  # noqa: ANN401
    def ready(self, worker: Any) -> bool: ...  # noqa: ANN401
    def send(self, worker: Any, message: Any) -> None: ...  # noqa: ANN401
    def poll(self, busy: list[Any]) -> list[tuple[Any, Message]]: ...
    def stop(self, worker: Any, *, at_once: bool) -> None: ...  # noqa: ANN401
    def request_stop(self) -> None: ...


def run_pool(
    pool: WorkerPool, workers: int, ledger: LedgerClient, waiting: Iterator[list[FileTask]], stop: Stop
) -> Generator[list[FileReport]]:
    """Send batches to idle workers, answer their questions to the ledger, and yield their reports."""
    dispatcher = _Dispatcher(pool, ledger, waiting)
    deadline: float | None = None
    try:
        for _ in range(workers):
            dispatcher.start_worker()
        while True:
            if deadline is None and stop():
                pool.request_stop()
                deadline = time.monotonic() + STOP_SECONDS
            if deadline is None:
                dispatcher.send_batches()
            elif time.monotonic() > deadline:
                return
            if not dispatcher.busy and (deadline is not None or not dispatcher.queue):
                return
            for worker, message in pool.poll(dispatcher.busy):
                if reports := dispatcher.handle(worker, message):
                    yield reports
    finally:
        dispatcher.stop_workers()


class _Dispatcher:
    """Which worker has which batch, and what is left to send."""

    def __init__(self, pool: WorkerPool, ledger: LedgerClient, waiting: Iterator[list[FileTask]]) -> None:
        self._pool, self._ledger, self._waiting = pool, ledger, waiting
        self._assigned: dict[Any, list[FileTask]] = {}
        self.queue: deque[list[FileTask]] = deque(itertools.islice(waiting, 1))
        self._deaths = Counter[str]()  # of workers, by the file they had alone
        self._deaths_in_a_row = 0
        self._has_answered = False
        self._in_ledger = set[str]()  # files of which something was sent to the ledger

    @property
    def busy(self) -> list[Any]:
        return [worker for worker, batch in self._assigned.items() if batch]

    def start_worker(self) -> None:
        try:
            self._assigned[self._pool.start()] = []
        except OSError as error:  # too many processes or open files
            raise ReleaseError(
                f"no more workers can be started ({error.strerror or error}): use fewer (--workers)",
                Reason.WORKERS,
            ) from None

    def stop_workers(self) -> None:
        for worker, batch in self._assigned.items():
            self._pool.stop(worker, at_once=bool(batch))  # an unfinished file has no name

    def send_batches(self) -> None:
        """Send a batch to every worker that is ready and idle."""
        for worker in [idle for idle, batch in self._assigned.items() if not batch]:
            if self.queue and self._pool.ready(worker):
                self._assigned[worker] = self.queue.popleft()
                self._pool.send(worker, self._assigned[worker])
                if not self.queue:
                    self.queue.extend(itertools.islice(self._waiting, 1))

    def handle(self, worker: Any, message: Message) -> list[FileReport]:  # noqa: ANN401
        """Act on a message of a worker, and return the reports that follow from it."""
        if message is None:
            return self._replace(worker)
        self._deaths_in_a_row, self._has_answered = 0, True
        kind, content = message
        if kind == "reports":
            self._assigned[worker] = []
            reports: list[FileReport] = content
            return reports
        if kind == "approve":
            self._in_ledger.update(request.path for request in content)
        self._pool.send(worker, self._answer(kind, content))
        return []

    def _answer(self, kind: str, content: Any) -> Any:  # noqa: ANN401
        try:
            return getattr(self._ledger, kind)(content)
        except LedgerError as error:
            return error

    def _replace(self, worker: Any) -> list[FileReport]:  # noqa: ANN401
        """Start another worker for one that died, and send its files again one by one, to find the one that kills."""
        self._deaths_in_a_row += 1
        if self._deaths_in_a_row > DEATHS_IN_A_ROW:
            raise ReleaseError(
                f"{self._deaths_in_a_row} workers in a row died before they had done anything: "
                f"find out what kills them (memory?), or use --workers 1; {_GUARD}",
                Reason.WORKERS,
            )
        tasks = self._assigned.pop(worker)
        self._pool.stop(worker, at_once=True)
        self.start_worker()
        if len(tasks) == 1:
            self._deaths[tasks[0].path] += 1
        given_up = [task for task in tasks if self._deaths[task.path] >= ATTEMPTS]
        self.queue.extend([task] for task in tasks if task not in given_up)
        problem = CRASHED if self._has_answered else f"{CRASHED}; or {_GUARD}"
        return [FileReport(task, self._state_given_up(task), problem, Reason.CRASH) for task in given_up]

    def _state_given_up(self, task: FileTask) -> FileState:
        """What is in the ledger can only be made again under this run's key, so the run must not end without it."""
        return FileState.RETRY if task.path in self._in_ledger else FileState.FAILED


class _Flag:
    """A byte that processes share.

    An Event has a lock, and a worker that is killed while it looks would hold that lock for ever.
    """

    def __init__(self, context: Any) -> None:  # noqa: ANN401
        self._byte = context.RawValue("b", 0)

    def __call__(self) -> bool:
        return bool(self._byte.value)

    def set(self) -> None:
        self._byte.value = 1


class _Inherited:
    """A descriptor that a new process inherits, and holds as long as it lives."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __getstate__(self) -> Any:  # noqa: ANN401
        return DupFd(self._descriptor)

    def __setstate__(self, copied: Any) -> None:  # noqa: ANN401
        self._descriptor = copied.detach()


class ProcessPool:
    """Worker processes of this machine, each at the end of a pipe."""

    def __init__(self, context: WorkerContext, lock: int | None = None) -> None:
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        self._processes: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            self._processes.set_forkserver_preload(["ldp_slicing.release.pool"])
        self._context, self._stopped = context, _Flag(self._processes)
        self._lock = None if lock is None else _Inherited(lock)
        self._workers: dict[Connection, Any] = {}

    def start(self) -> Connection:
        ours, theirs = self._processes.Pipe()
        arguments = (theirs, self._context, self._stopped, self._lock)
        process = self._processes.Process(target=_serve_process, args=arguments, daemon=True)
        process.start()
        theirs.close()
        self._workers[ours] = process
        connection: Connection = ours
        return connection

    def ready(self, worker: Connection) -> bool:
        return worker in self._workers

    def send(self, worker: Connection, message: Any) -> None:  # noqa: ANN401
        with contextlib.suppress(OSError):  # it died: ``poll`` notices
            worker.send(message)

    def poll(self, busy: list[Connection]) -> list[tuple[Connection, Message]]:
        messages: list[tuple[Connection, Message]] = []
        for worker in wait(busy, timeout=0.1):
            assert isinstance(worker, Connection)  # noqa: S101
            try:
                messages.append((worker, worker.recv()))
            except (EOFError, OSError):
                messages.append((worker, None))
        return messages

    def stop(self, worker: Connection, *, at_once: bool) -> None:
        process = self._workers.pop(worker)
        if at_once:
            process.kill()
        worker.close()
        process.join()

    def request_stop(self) -> None:
        self._stopped.set()


def _serve_process(connection: Connection, context: WorkerContext, stopped: Stop, lock: _Inherited | None) -> None:
    """Run a worker process. It holds the lock of its run until it ends, and stops when the run is gone."""

    def must_stop() -> bool:
        # While a worker works, nothing is sent to it: what can be read is the end of the pipe.
        return stopped() or connection.poll()

    serve(connection, context, must_stop)
    del lock


def serve(connection: Any, context: WorkerContext, stopped: Stop) -> None:  # noqa: ANN401
    """Run a worker: receive batches, send questions and reports, until the run is gone."""
    with contextlib.suppress(ValueError):  # outside the main thread, signals cannot be set and do not arrive
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run handles interrupts and tells its workers
    silence_decoders()
    worker = Worker(context, _PipeLedgerClient(connection), stopped)
    with contextlib.suppress(EOFError, OSError):
        while True:
            batch = connection.recv()
            connection.send(("reports", list(worker.run(batch))))


class _PipeLedgerClient:
    """The ledger at the other end of a pipe."""

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

    def approve(self, requests: Sequence[ReleaseRequest]) -> list[Approval]:
        approvals: list[Approval] = self._ask("approve", requests)
        return approvals

    def finish(self, entries: Sequence[int]) -> None:
        self._ask("finish", entries)

    def withdraw(self, entries: Sequence[int]) -> None:
        self._ask("withdraw", entries)
