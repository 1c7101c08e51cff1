"""One network on one data set, as the user asks for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.data.chest import load_chest
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.folders import load_folder
from ldp_slicing.lab.data.sets import ImageSet, draw_held_out
from ldp_slicing.lab.describe import describe, row_of
from ldp_slicing.lab.learners.logs import LogFormat, check_log, write_log
from ldp_slicing.lab.learners.models import build, build_embedder, load_weights
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.learners.run import Epoch, TrainingRun
from ldp_slicing.lab.learners.task import ReleaseMode, TrainingTask
from ldp_slicing.lab.learners.training import Limits, device_of, train
from ldp_slicing.lab.provenance import provenance, stamped
from ldp_slicing.lab.rows import Row
from ldp_slicing.plan import COLOUR_BITS, PAPER_WEIGHTS, Plan, plan_for
from ldp_slicing.view import Prune


def open_set(name: str, data: Path) -> ImageSet:
    """ "cifar10", "cifar100" or "chest"; any other name is a folder below ``data`` with train/ and test/, or train.txt and test.txt.

    A folder with a card holds releases.
    """
    if name in ("cifar10", "cifar100"):
        return load_cifar(name, data)
    return load_chest(data) if name == "chest" else load_folder(data / name)


def default_recipe(images: ImageSet, *, decoded: bool) -> str:
    if images.is_grey:
        return "chest"
    return "cifar-decoded" if decoded else "cifar-once"


def plan_of(images: ImageSet, epsilon: float, weights: tuple[float, float, float], slices: str | None = None) -> Plan:
    """The plan that fits the set's channels."""
    return plan_for(8 if images.is_grey else COLOUR_BITS, epsilon, weights, slices)


def make_task(
    images: ImageSet,
    *,
    epsilon: float,
    weights: tuple[float, float, float] = PAPER_WEIGHTS,
    slices: str | None = None,
    prune: Prune = "haar",
    release: ReleaseMode = "once",
    decode: bool = True,
    recipe_name: str = "",
    model: str = "",
    epochs: int | None = None,
    validation: float = 0.1,
    seed: int = 0,
) -> TrainingTask:
    """A task from what was asked for; ``validation`` is the share of the training images to hold out.

    ``decode``: what was released once is decoded before it is learnt from. Of a set that holds releases its card tells plan and view.
    """
    if not 0 < validation < 1:
        raise LdpSlicingError(
            f"the share to hold out for validation must be between 0 and 1, such as 0.1; got {validation:g}"
        )
    plan: Plan | None = None
    if images.release_info is not None:
        release, plan, prune = "existing", images.release_info.plan, images.release_info.prune
    elif release in ("once", "every-epoch"):
        plan = plan_of(images, epsilon, weights, slices)
    decode &= release in ("once", "existing")
    how: Recipe = recipe(recipe_name or default_recipe(images, decoded=decode))
    if how.loss != "classes":
        raise LdpSlicingError(f"the recipe {how.name!r} is for faces: `ldp-slicing lab train-faces`")
    held = max(1, round(validation * len(images.train.labels)))
    how = replace(changed(how, model=model, epochs=epochs), look_every=1)  # its log has every epoch
    return TrainingTask("run", images, how, plan, prune, release, seed, held, decode=decode)


def changed(how: Recipe, **asked: str | int | None) -> Recipe:
    """The recipe with what was asked for, which is named among its deviations."""
    told: dict[str, Any] = {key: value for key, value in asked.items() if value}
    if not told:
        return how
    said = ", ".join(f"{key} {value}" for key, value in told.items())
    how = how.lasting(told.pop("epochs", how.epochs))
    return replace(how, deviations=(*how.deviations, f"asked for: {said}"), **told)


def judge_classes(run: TrainingRun, row: Row) -> Row:
    return replace(row, metrics={"test_accuracy": run.accuracy(*run.test)})


def study(
    task: TrainingTask,
    folder: Path,
    limits: Limits,
    *,
    device: str = "",
    log: LogFormat = "csv",
    judge: Callable[[TrainingRun, Row], Row] = judge_classes,
    report: Callable[[TrainingRun, Epoch], None] = lambda run, epoch: None,
) -> Row | None:
    """Train, or go on training, in ``folder``: checkpoint, log, at the end ``result.json``. None when the time was up before an epoch."""
    where = device_of(device)
    check_network(task)  # whatever is refused is refused before anything is released or written
    check_log(log)
    if task.validation:
        draw_held_out(task.data.train, task.validation, task.seed)
    belongs(folder, _parameters(task))
    with alone_in(folder):
        return _study(task, folder, limits, where, log, judge, report)


def _study(
    task: TrainingTask,
    folder: Path,
    limits: Limits,
    where: torch.device,
    log: LogFormat,
    judge: Callable[[TrainingRun, Row], Row],
    report: Callable[[TrainingRun, Epoch], None],
) -> Row | None:
    def note(run: TrainingRun, epoch: Epoch) -> None:
        write_log(run.history, folder, log)
        report(run, epoch)

    made_by, began = provenance(where), time.monotonic()
    for run in train([task], where, folder, limits, note):
        row = stamped(describe(run, row_of(task, "train")), made_by, time.monotonic() - began)
        if run.finished:
            run.choose()
            row = judge(run, row)
            torch.save(run.model.state_dict(), folder / "model.pt")
            write_result(row, folder)
        return row
    return None


def write_result(row: Row, folder: Path) -> None:
    """Write ``folder/result.json`` without the digest of the images, by which guesses of the sources could be checked."""
    anonymous = replace(row, training=replace(row.training, data_digest=None) if row.training else None)
    (folder / "result.json").write_text(json.dumps(anonymous.to_dict(), indent=1) + "\n")


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Two at once would release every image twice, and write over each other's checkpoints."""
    try:
        lock = FileLock(folder / ".lock", timeout=0, mode=0o666).acquire()  # the next one to come may be somebody else
    except Timeout:
        raise LdpSlicingError(f"another process is at work in {folder}: wait for it, or name another folder") from None
    except OSError as error:
        raise LdpSlicingError(
            f"{folder} cannot be held for this run alone ({error.strerror or error}): name one on another disk"
        ) from None
    with lock:
        yield


def check_network(task: TrainingTask) -> None:
    """Refuse a network that there is not, or that does not take the task's images or the weights it is to start from."""
    how, (height, width, channels) = task.recipe, task.data.train.images.shape[1:]
    fed = torch.zeros(
        2, channels if task.decode else max(channels, len(how.mean)), height, width
    )  # as ``Run.normalise`` has them
    try:
        model = build(how.model, task.data.classes) if how.loss == "classes" else build_embedder(how.model)[0]
        if task.weights:
            load_weights(model, task.weights)
        with torch.no_grad():
            model.eval()(fed)
    except RuntimeError as error:
        kind = (
            "grey images, for which there is resnet50-grey"
            if task.data.is_grey
            else f"images in colour of {width} x {height}"
        )
        raise LdpSlicingError(f"the model {how.model!r} does not take {kind}: {str(error).splitlines()[0]}") from None


def belongs(folder: Path, wanted: dict[str, Any]) -> None:
    """A folder belongs to what it was begun for: its parameters are kept in ``task.json``, and others are refused."""
    path = folder / "task.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        path.write_text(json.dumps(wanted, indent=1) + "\n")
        return
    began = json.loads(path.read_text())
    for key, value in wanted.items():
        if began.get(key) != value:
            raise LdpSlicingError(
                f"{folder} was begun with {key} {began.get(key)!r}, not {value!r}: name another folder"
            )


def _parameters(task: TrainingTask) -> dict[str, Any]:
    plan = task.plan
    return {
        "data": task.data.name,
        "images": task.data.digest,
        "start": task.start_digest,
        "release": task.release,
        "decoded": task.decode,
        "model": task.recipe.model,
        "recipe": task.recipe.name,
        "epochs": task.recipe.epochs,
        "prune": task.prune,
        "epsilon": plan.epsilon if plan else None,
        "slices": [[part.bits, part.epsilon] for part in plan.slices] if plan else None,
        "seed": task.seed,
        "validation": task.validation,
    }
