"""Many tasks on one device, some side by side; each can be stopped and goes on where it was."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.files import atomic_path
from ldp_slicing.lab.data.sets import Split
from ldp_slicing.lab.learners.run import Epoch, TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask, read_kept

Splits = tuple[Split, Split, Split]


@dataclass
class Limits:
    """When to stop, how many runs share the device, after how many seconds a run's checkpoint is written again.

    ``asked``: whether somebody has asked to stop; it is done when an epoch ends.
    ``compile``: train with kernels made for the network, see ``Run.compile``.
    """

    seconds: float = float("inf")
    side_by_side: int = 4
    save_after: float = 60.0
    compile: bool = False
    asked: Callable[[], bool] = lambda: False
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise LdpSlicingError(
                f"the time to stop after cannot be less than nothing; got {self.seconds / 60:g} minutes"
            )

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.would_be_over(0.0)

    def would_be_over(self, seconds: float) -> bool:
        """Whether it would be so many seconds from now."""
        return self.asked() or time.monotonic() - self.started + seconds > self.seconds


def device_of(name: str) -> torch.device:
    """The device of that name; "" is a GPU where there is one."""
    gpus = range(torch.cuda.device_count())
    there = ["cpu", *["cuda"][: len(gpus)], *(f"cuda:{i}" for i in gpus)]
    if name and name not in there:
        raise LdpSlicingError(f"there is no device {name!r} here, but {', '.join(there)}")
    return torch.device(name or ("cuda" if gpus else "cpu"))


def train(
    tasks: Sequence[TrainingTask],
    device: torch.device,
    folder: Path,
    limits: Limits,
    report: Callable[[TrainingRun, Epoch], None] = lambda run, epoch: None,
    make: Callable[[TrainingTask, torch.device, Splits], TrainingRun] = TrainingRun,
) -> Iterator[TrainingRun]:
    """Yields each run as it ends; when the time is up, those that have not ended too (``run.finished`` tells), saved to go on later.

    ``make`` makes a run of a task where it is of a kind of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    waiting, active = deque(tasks), list[TrainingRun]()
    longest, saved = 0.0, dict[tuple[str, int], float]()

    def over() -> bool:
        return limits.would_be_over(1.5 * longest)

    with ThreadPoolExecutor(1) as ahead:  # the next task's images are released while the device trains
        coming: deque[tuple[TrainingTask, Future[Splits]]] = deque()
        while waiting or coming or active:
            if over() and not active:
                break
            while waiting and not over() and len(coming) < 2:
                task = waiting.popleft()
                coming.append((task, ahead.submit(releases_of, task, folder)))
            if coming and not over() and len(active) < limits.side_by_side and (not active or coming[0][1].done()):
                task, splits = coming.popleft()
                run = _start(make(task, device, splits.result()), folder, compiled=limits.compile)
                if run.finished:
                    yield run
                else:
                    active.append(run)
            busy = False
            for run in list(active):
                busy |= run.advance()
                if not run.epoch_is_over:
                    continue
                busy, epoch = True, run.end_epoch(look=run.task.recipe.looks_at(run.epoch))
                longest = max(longest, epoch.seconds)
                report(run, epoch)
                ends = run.finished or over()
                if ends or time.monotonic() - saved.setdefault(run.task.key, limits.started) >= limits.save_after:
                    run.save(checkpoint_of(run.task, folder))
                    saved[run.task.key] = time.monotonic()
                if ends:
                    active.remove(run)
                    yield run
                else:
                    run.begin_epoch()
            if not busy:
                time.sleep(0.0002)


def _start(run: TrainingRun, folder: Path, *, compiled: bool) -> TrainingRun:
    if compiled:
        run.compile()
    if (path := checkpoint_of(run.task, folder)).is_file():
        run.resume(path)
    if not run.finished:
        run.begin_epoch()
    return run


def checkpoint_of(task: TrainingTask, folder: Path) -> Path:
    """Where a run of the task is kept. One by another recipe, plan or view, or of other images, is kept elsewhere, and not taken up."""
    return _named(
        task,
        folder,
        "pt",
        task.release,
        task.plans,
        task.decode,
        task.start_digest,
        replace(task.recipe, source="", deviations=()),
    )


def _named(task: TrainingTask, folder: Path, kind: str, *what: object) -> Path:
    digest = hashlib.sha256(
        repr((task.plan, task.prune, task.validation, task.data.digest, *what)).encode()
    ).hexdigest()
    return folder / f"{task.name}-{task.seed}-{digest[:12]}.{kind}"


def releases_of(task: TrainingTask, folder: Path) -> Splits:
    """The task's images. Where each is released once, the releases are kept: going on must not release them again."""
    if task.release != "once":
        return task.released()
    path = _named(task, folder, "releases.npz")
    with FileLock(path.with_suffix(".lock"), mode=0o666):  # whoever comes second takes what the first has made
        if not path.is_file():
            made = task.released()
            columns = {
                f"{kind}{i}": getattr(split, kind) for i, split in enumerate(made) for kind in ("images", "labels")
            }
            with atomic_path(path) as temporary:
                np.savez(temporary, **columns)
            return made
    kept = read_kept(path, *(f"{kind}{i}" for i in range(3) for kind in ("images", "labels")))
    train, validation, test = (Split(kept[f"images{i}"], kept[f"labels{i}"]) for i in range(3))
    return train, validation, test
