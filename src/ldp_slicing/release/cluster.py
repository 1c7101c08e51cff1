"""Workers on a Ray cluster: actors that do the same work in the same way, wherever Ray places them.

The run stays here, with its ledger and its state. An actor gets a batch, asks the run what it may release, and reports.
All nodes must see the source and the target under the same path or address. A lost node costs nothing: other actors
release its files, with the same bytes. The secret is sent to the actors, so the owner must trust the cluster.

Ray ends the actors of a run that was killed, and the next run waits for that. A node that is cut off from the cluster
but not from the target is the exception: Ray ends its actors only when the node notices.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import sys
import threading
import time
from collections.abc import Generator
from importlib import import_module
from typing import Any

from ldp_slicing.errors import ReleaseError
from ldp_slicing.release.ledger_client import LedgerClient
from ldp_slicing.release.pool import Message, Stop, batch_bytes, batches, run_pool, serve
from ldp_slicing.release.report import FileReport
from ldp_slicing.release.run import Engine
from ldp_slicing.release.state import RunState
from ldp_slicing.release.state_file import ACTORS
from ldp_slicing.release.worker import WorkerContext


def on_ray(address: str | None = None, workers: int | None = None) -> Engine:
    """Return an engine on the cluster at ``address``, by default a new one on this machine.

    ``workers`` defaults to the number of processors of the cluster.
    """
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError as error:
        raise ReleaseError(f"--engine ray needs {error.name}: pip install 'ldp-slicing[ray]'") from None
    if address is not None and address not in ("auto", "local"):
        _ping(address)

    def engine(
        context: WorkerContext, ledger: LedgerClient, state: RunState, stop: Stop
    ) -> Generator[list[FileReport]]:
        with contextlib.redirect_stdout(sys.stderr):  # Ray prints messages about lost nodes
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ReleaseError(f"the Ray cluster {address} cannot be used: {error}") from None
            try:
                count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
                state.set_durably(ACTORS, True)
                waiting = batches(state.tasks(), batch_bytes(state.waiting_bytes(), count))
                yield from run_pool(ActorPool(ray, context), count, ledger, waiting, stop)
                if not stop():  # otherwise actors may have been killed, and Ray takes a while to do it
                    state.set_durably(ACTORS, False)
            finally:
                ray.shutdown()

    return engine


def _ping(address: str) -> None:
    """Refuse an address that does not answer, before anything is written. Ray itself would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise ReleaseError(f"the Ray cluster {address} cannot be reached: {error}") from None


class WorkerActor:
    """The actor: a worker in a thread of its own, with which it exchanges one message at a time."""

    def __init__(self, context: WorkerContext) -> None:
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopped = threading.Event()
        threading.Thread(target=serve, args=(self, context, self._stopped.is_set), daemon=True).start()

    def step(self, message: Any) -> Any:  # noqa: ANN401
        """Hand a batch or an answer to the worker, and return its next message."""
        self._inbox.put(message)
        return self._outbox.get()

    def handshake(self) -> None:
        """Return once the actor runs."""

    def stop(self) -> None:
        self._stopped.set()

    def recv(self) -> Any:  # noqa: ANN401
        return self._inbox.get()

    def send(self, message: Any) -> None:  # noqa: ANN401
        self._outbox.put(message)


class ActorPool:
    """Workers as Ray actors."""

    def __init__(self, ray: Any, context: WorkerContext) -> None:  # noqa: ANN401
        self._ray, self._context = ray, ray.put(context)
        self._actor = ray.remote(WorkerActor).options(num_cpus=1, max_concurrency=2)
        self._replies: dict[Any, Any] = {}  # the reference to each worker's next message

    def start(self) -> Any:  # noqa: ANN401
        worker = self._actor.remote(self._context)
        self._replies[worker] = worker.handshake.remote()
        return worker

    def ready(self, worker: Any) -> bool:  # noqa: ANN401
        """Return whether Ray has placed the actor. After the loss of a node that may take long, or never happen."""
        ready, _ = self._ray.wait([self._replies[worker]], timeout=0)
        return bool(ready)

    def send(self, worker: Any, message: Any) -> None:  # noqa: ANN401
        self._replies[worker] = worker.step.remote(message)

    def poll(self, busy: list[Any]) -> list[tuple[Any, Message]]:
        waiting = {self._replies[worker]: worker for worker in busy}
        if not waiting:
            time.sleep(0.1)
            return []
        ready, _ = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=0.1, fetch_local=False)
        messages: list[tuple[Any, Message]] = []
        for reply in ready:
            try:
                messages.append((waiting[reply], self._ray.get(reply)))
            except self._ray.exceptions.RayError:
                messages.append((waiting[reply], None))
        return messages

    def stop(self, worker: Any, *, at_once: bool) -> None:  # noqa: ANN401
        self._replies.pop(worker, None)
        self._ray.kill(worker)

    def request_stop(self) -> None:
        for worker in self._replies:
            worker.stop.remote()
