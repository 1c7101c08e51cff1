"""Train many tasks on one device, several at once. Each can be stopped and resumed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.learners.checkpoint import load_checkpoint, save_checkpoint
from ldp_slicing.lab.learners.releases import Splits, stored_splits, task_file
from ldp_slicing.lab.learners.run import Epoch, TrainingRun, Weights
from ldp_slicing.lab.learners.task import TrainingTask

RELEASED_AHEAD = 2  # tasks whose images are released while others train
IDLE_SECONDS = 0.0002

Report = Callable[[TrainingRun, Epoch], None]


@dataclass
class Limits:
    """When to stop, and how runs share the device.

    seconds: stop at the end of an epoch after this time.
    side_by_side: runs that train at once.
    save_after: seconds between checkpoints of a run.
    compile: train with fused kernels, see ``Objective.compile``.
    stop_requested: called at the end of each epoch, and of each hundredth part of the training of a reconstructor;
    True stops there.
    reconstructing: called with the steps done and all steps of a reconstructor, if one is trained before the first
    epoch. The time limit does not stop it, because it cannot be continued.
    """

    seconds: float = float("inf")
    side_by_side: int = 4
    save_after: float = 60.0
    compile: bool = False
    stop_requested: Callable[[], bool] = lambda: False
    reconstructing: Callable[[int, int], None] = lambda done, steps: None
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise LdpSlicingError(f"the time limit must be 0 minutes or more; got {self.seconds / 60:g}")

    @property
    def reached(self) -> bool:
        """Whether the time is up or a stop was requested."""
        return self.reached_after(0.0)

    def reached_after(self, seconds: float) -> bool:
        """Whether the time will be up in so many seconds, or a stop was requested."""
        return self.stop_requested() or time.monotonic() - self.started + seconds > self.seconds


def find_device(name: str) -> torch.device:
    """The torch device of that name; "" is the GPU if there is one, otherwise the CPU."""
    gpus = range(torch.cuda.device_count())
    available = ["cpu", *(["cuda"] if gpus else []), *(f"cuda:{i}" for i in gpus)]
    if name and name not in available:
        raise LdpSlicingError(f"no device {name!r} on this machine; available: {', '.join(available)}")
    return torch.device(name or ("cuda" if gpus else "cpu"))


def train(
    tasks: Sequence[TrainingTask],
    device: torch.device,
    folder: Path,
    limits: Limits,
    report: Report = lambda run, epoch: None,
) -> Iterator[TrainingRun]:
    """Train the tasks and yield each run when it ends. Checkpoints and releases are stored in ``folder``.

    When a limit is reached, unfinished runs are saved and yielded too: see ``run.finished``. Tasks that have not begun
    are left out. Networks that others start from, see ``TrainingTask.pretraining``, are trained first. Their runs are
    reported, but not yielded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scheduler = _Scheduler(_pretrained(tasks, device, folder, limits, report), device, folder, limits, report)
    with ThreadPoolExecutor(1) as releaser:  # releases the images of the next tasks while the device trains
        while scheduler.has_work():
            scheduler.release_ahead(releaser)
            started = scheduler.start_next()
            if started is not None and started.finished:
                yield started
            ended, busy = scheduler.advance()
            yield from ended
            if not busy:
                time.sleep(IDLE_SECONDS)


def _pretrained(
    tasks: Sequence[TrainingTask], device: torch.device, folder: Path, limits: Limits, report: Report
) -> Iterator[tuple[TrainingTask, Weights]]:
    """Each task with the weights that it starts from, unless there was no time to train the network that it needs."""
    needed = {checkpoint_path(one, folder): one for task in tasks if (one := task.pretraining)}
    runs = train([*needed.values()], device, folder, limits, report) if needed else ()
    weights = {checkpoint_path(run.task, folder): run.model.state_dict() for run in runs if run.finished}
    for task in tasks:
        if (one := task.pretraining) is None:
            yield task, {}
        elif (path := checkpoint_path(one, folder)) in weights:
            yield task, weights[path]


class _StoppedError(Exception):
    """A stop was requested before the first epoch."""


class _Scheduler:
    """Which tasks wait, which are being released and which train.

    tasks: each with the weights of the network that it starts from; none if it starts from random ones.
    """

    def __init__(
        self,
        tasks: Iterable[tuple[TrainingTask, Weights]],
        device: torch.device,
        folder: Path,
        limits: Limits,
        report: Report,
    ) -> None:
        self.waiting, self.device, self.folder, self.limits, self.report = deque(tasks), device, folder, limits, report
        self.released: deque[tuple[TrainingTask, Weights, Future[Splits]]] = deque()
        self.active: list[TrainingRun] = []
        self.longest_epoch = 0.0
        self.saved: dict[tuple[str, int], float] = {}

    def limit_reached(self) -> bool:
        """Whether another epoch would end too late."""
        return self.limits.reached_after(1.5 * self.longest_epoch)

    def has_work(self) -> bool:
        return bool(self.active) or (bool(self.waiting or self.released) and not self.limit_reached())

    def release_ahead(self, releaser: ThreadPoolExecutor) -> None:
        while self.waiting and len(self.released) < RELEASED_AHEAD and not self.limit_reached():
            task, start = self.waiting.popleft()
            self.released.append((task, start, releaser.submit(stored_splits, task, self.folder)))

    def start_next(self) -> TrainingRun | None:
        """Start the next released task if there is room for it. A run that was finished before is not made active."""
        if not self.released or len(self.active) >= self.limits.side_by_side or self.limit_reached():
            return None
        if self.active and not self.released[0][-1].done():
            return None
        task, start, splits = self.released.popleft()

        def report(done: int, loss: float) -> None:
            self.limits.reconstructing(done, task.recipe.reconstructor_steps)
            if self.limits.stop_requested():
                raise _StoppedError

        try:
            run = TrainingRun(task, self.device, splits.result(), self.folder, start, report)
        except _StoppedError:
            return None
        if self.limits.compile:
            run.objective.compile()
        if (path := checkpoint_path(task, self.folder)).is_file():
            load_checkpoint(run, path)
        if not run.finished:
            run.begin_epoch()
            self.active.append(run)
        return run

    def advance(self) -> tuple[list[TrainingRun], bool]:
        """Advance every active run. Returns the runs that ended, and whether anything was done."""
        ended, busy = [], False
        for run in list(self.active):
            busy |= run.advance()
            if run.epoch_is_over:
                busy = True
                if self._end_epoch(run):
                    self.active.remove(run)
                    ended.append(run)
                else:
                    run.begin_epoch()
        return ended, busy

    def _end_epoch(self, run: TrainingRun) -> bool:
        """Record the epoch, save a checkpoint if it is due, and return whether the run ends here."""
        epoch = run.end_epoch(look=run.task.recipe.looks_at(run.epoch))
        self.longest_epoch = max(self.longest_epoch, epoch.seconds)
        self.report(run, epoch)
        ends = run.finished or self.limit_reached()
        last_saved = self.saved.setdefault(run.task.key, self.limits.started)
        if ends or time.monotonic() - last_saved >= self.limits.save_after:
            save_checkpoint(run, checkpoint_path(run.task, self.folder))
            self.saved[run.task.key] = time.monotonic()
        return ends


def checkpoint_path(task: TrainingTask, folder: Path) -> Path:
    """Where the task's checkpoint is kept. Tasks with another recipe, plan, view or other images have another file."""
    recipe = replace(task.recipe, source="", deviations=())
    return task_file(task, folder, "pt", task.release, task.plans, task.mode, task.start_digest, recipe, task.size)
