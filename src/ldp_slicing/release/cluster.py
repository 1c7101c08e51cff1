"""Workers on a Ray cluster: actors that do the same work in the same way, wherever Ray puts them.

The run stays here, with its ledger and journal; an actor gets a batch, asks the run what it may release, and says what came of it. All
nodes must see the source and the target under the same path or address. A node that is lost costs nothing: what its actors were at is
done again by others, with the same bytes. The secret travels to the actors: a cluster is part of what the owner trusts.
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
from ldp_slicing.release.pool import Message, Stop, batches, run_crew, serve
from ldp_slicing.release.run import Engine
from ldp_slicing.release.state import Journal
from ldp_slicing.release.worker import Gate, Outcome, Setting


def on_ray(address: str | None = None, workers: int | None = None) -> Engine:
    """An engine on the cluster at ``address`` (by default one of this machine); as many workers as it has processors, unless named."""
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError as error:
        raise ReleaseError(f"--engine ray needs {error.name}: pip install 'ldp-slicing[ray]'") from None
    if address is not None and address not in ("auto", "local"):
        _knock(address)

    def engine(setting: Setting, gate: Gate, journal: Journal, stop: Stop) -> Generator[list[Outcome]]:
        with contextlib.redirect_stdout(sys.stderr):  # Ray tells of lost nodes wherever it likes
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ReleaseError(f"the Ray cluster {address} cannot be used: {error}") from None
            try:
                count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
                yield from run_crew(Actors(ray, setting), count, gate, batches(journal.waiting()), stop)
            finally:
                ray.shutdown()

    return engine


def _knock(address: str) -> None:
    """Refuse an address where nobody answers, before anything is written: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise ReleaseError(f"the Ray cluster {address} cannot be reached: {error}") from None


class Station:
    """Runs inside an actor: the worker in a thread of its own, spoken to in turns."""

    def __init__(self, setting: Setting) -> None:
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopped = threading.Event()
        threading.Thread(target=serve, args=(self, setting, self._stopped.is_set), daemon=True).start()

    def step(self, message: Any) -> Any:  # noqa: ANN401
        """Give the worker a batch or an answer; what it says next."""
        self._inbox.put(message)
        return self._outbox.get()

    def greet(self) -> None:
        """It has come."""

    def stop(self) -> None:
        self._stopped.set()

    def recv(self) -> Any:  # noqa: ANN401
        return self._inbox.get()

    def send(self, message: Any) -> None:  # noqa: ANN401
        self._outbox.put(message)


class Actors:
    def __init__(self, ray: Any, setting: Setting) -> None:  # noqa: ANN401
        self._ray, self._setting = ray, ray.put(setting)
        self._kind = ray.remote(Station).options(num_cpus=1, max_concurrency=2)
        self._said: dict[Any, Any] = {}  # what each was last given, as Ray's promise of an answer

    def hire(self) -> Any:  # noqa: ANN401
        worker = self._kind.remote(self._setting)
        self._said[worker] = worker.greet.remote()
        return worker

    def has_come(self, worker: Any) -> bool:  # noqa: ANN401
        """Whether Ray has found a place for it, which after the loss of a node may take long, or for ever."""
        ready, _ = self._ray.wait([self._said[worker]], timeout=0)
        return bool(ready)

    def give(self, worker: Any, message: Any) -> None:  # noqa: ANN401
        self._said[worker] = worker.step.remote(message)

    def hear(self, busy: list[Any]) -> list[tuple[Any, Message]]:
        waiting = {self._said[worker]: worker for worker in busy}
        if not waiting:
            time.sleep(0.1)
            return []
        ready, _ = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=0.1, fetch_local=False)
        heard: list[tuple[Any, Message]] = []
        for promise in ready:
            try:
                heard.append((waiting[promise], self._ray.get(promise)))
            except self._ray.exceptions.RayError:
                heard.append((waiting[promise], None))
        return heard

    def dismiss(self, worker: Any, *, at_once: bool) -> None:  # noqa: ANN401
        self._said.pop(worker, None)
        self._ray.kill(worker)

    def ask_to_stop(self) -> None:
        for worker in self._said:
            worker.stop.remote()
