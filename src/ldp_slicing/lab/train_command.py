"""`lab train`: one classifier on one data set."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ldp_slicing.errors import DivergedError, LdpSlicingError
from ldp_slicing.lab.data.chest import load_chest
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.folders import load_folder
from ldp_slicing.lab.data.sets import ImageSet, draw_held_out, shrunk
from ldp_slicing.lab.describe import describe, row_of
from ldp_slicing.lab.learners.checkpoint import save_state
from ldp_slicing.lab.learners.logs import LogFormat, check_log, write_log
from ldp_slicing.lab.learners.models import build, build_embedder, load_weights, widen
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.learners.run import Epoch, TrainingRun
from ldp_slicing.lab.learners.task import InputMode, ReleaseMode, TrainingTask
from ldp_slicing.lab.learners.training import Limits, Report, find_device, train
from ldp_slicing.lab.provenance import provenance, stamped
from ldp_slicing.lab.rows import Row
from ldp_slicing.lab.run_folder import bind_folder, lock_folder, unbind_folder, write_result
from ldp_slicing.plan import COLOUR_BITS, PAPER_WEIGHTS, Plan, plan_for
from ldp_slicing.view import Prune

COLOUR_RECIPES: dict[InputMode, str] = {  # for sets of more images than those of SMALL_SETS
    "raw": "cifar-once",
    "decoded": "cifar-decoded",
    "reconstructed": "cifar-reconstructed",
    "reconstructed-public": "cifar-reconstructed",
}
SMALL_SETS = {5_000: "small-set", 25_000: "medium-set"}  # recipes by the largest number of training images
Measure = Callable[[TrainingRun, Row], Row]  # adds metrics to the row of a finished run


def open_set(name: str, data: Path) -> ImageSet:
    """Load "cifar10", "cifar100", "chest", or the folder of that name in ``data``, see ``load_folder``."""
    if name in ("cifar10", "cifar100"):
        return load_cifar(name, data)
    return load_chest(data) if name == "chest" else load_folder(data / name)


def default_recipe(images: ImageSet, mode: InputMode) -> str:
    """The recipe for the set's channels, number of training images and mode."""
    if images.is_grey:
        return "chest-small"
    count = len(images.train.labels)
    return next((name for most, name in SMALL_SETS.items() if count <= most), COLOUR_RECIPES[mode])


def plan_for_set(
    images: ImageSet, epsilon: float, weights: tuple[float, float, float], slices: str | None = None
) -> Plan:
    """The plan for the set's channels."""
    return plan_for(8 if images.is_grey else COLOUR_BITS, epsilon, weights, slices)


def make_task(
    images: ImageSet,
    *,
    epsilon: float,
    weights: tuple[float, float, float] = PAPER_WEIGHTS,
    slices: str | None = None,
    prune: Prune = "haar",
    release: ReleaseMode = "once",
    mode: InputMode = "decoded",
    public: ImageSet | None = None,
    recipe_name: str = "",
    model: str = "",
    epochs: int | None = None,
    learning_rate: float | None = None,
    validation: float = 0.1,
    seed: int = 0,
) -> TrainingTask:
    """The task that the options describe. A set of releases has its own plan and view.

    validation: the share of the training images to hold out. mode, public: as in ``TrainingTask``; the mode is
    "raw" unless each source has one release.
    """
    if not 0 < validation < 1:
        raise LdpSlicingError(f"--validation must be between 0 and 1, such as 0.1; got {validation:g}")
    plan: Plan | None = None
    if images.release_info is not None:
        release, plan, prune = "existing", images.release_info.plan, images.release_info.prune
    elif release in ("once", "every-epoch"):
        plan = plan_for_set(images, epsilon, weights, slices)
    mode = mode if release in ("once", "existing") else "raw"
    chosen = recipe(recipe_name or default_recipe(images, mode))
    if chosen.loss != "classes":
        raise LdpSlicingError(f"the recipe {chosen.name!r} does not train a classifier; see `lab train-faces`")
    held_out = max(1, round(validation * len(images.train.labels)))
    chosen = with_overrides(chosen, model=model, epochs=epochs, learning_rate=learning_rate)
    chosen = replace(chosen, look_every=1)  # the log has every epoch
    images = shrunk(images, chosen.size) if chosen.size else images
    return TrainingTask("run", images, chosen, plan, prune, release, seed, held_out, mode=mode, public=public)


def with_overrides(chosen: Recipe, **options: str | float | None) -> Recipe:
    """The recipe with the options that are given, which are added to its deviations."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value}
    if not given:
        return chosen
    deviation = "chosen by the user: " + ", ".join(f"{name} {value}" for name, value in given.items())
    chosen = chosen.lasting(given.pop("epochs", chosen.epochs))
    return replace(chosen, deviations=(*chosen.deviations, deviation), **given)


def measure_test_accuracy(run: TrainingRun, row: Row) -> Row:
    return replace(row, metrics={"test_accuracy": run.test_accuracy()})


def train_in_folder(
    task: TrainingTask,
    folder: Path,
    limits: Limits,
    *,
    device: str = "",
    log: LogFormat = "csv",
    measure: Measure = measure_test_accuracy,
    report: Report = lambda run, epoch: None,
) -> Row | None:
    """Train, or resume training, in ``folder``: checkpoint, log, and at the end ``model.pt`` and ``result.json``.

    Returns None if the time was up before the first epoch.
    """
    place = find_device(device)
    check_network(task)  # refuse everything that can be refused before anything is released or written
    check_log(log)
    if task.validation:
        draw_held_out(task.data.train, task.validation, task.seed)

    def write_and_report(run: TrainingRun, epoch: Epoch) -> None:
        if run.task is task:  # and not the network that it starts from
            write_log(run.history, folder, log)
        report(run, epoch)

    bind_folder(folder, _parameters(task))
    with lock_folder(folder):
        made_by, began = provenance(place), time.monotonic()
        try:
            ended = [*train([task], place, folder, limits, write_and_report)]
        except DivergedError as error:
            unbind_folder(folder)
            kept = "; its releases are used again" if task.release == "once" else ""
            advice = f"run the same command with another --lr, in the same folder {folder}{kept}"
            raise LdpSlicingError(f"{error} ({advice})") from None
        for run in ended:
            row = stamped(describe(run, row_of(task, "train")), made_by, time.monotonic() - began)
            if run.finished:
                run.choose()
                row = measure(run, row)
                save_state(run.model.state_dict(), folder / "model.pt")
                write_result(row, folder)
            return row
    return None


def check_network(task: TrainingTask) -> None:
    """Refuse a network that does not exist, or that does not fit the task's images or initial weights."""
    chosen, (height, width, channels) = task.recipe, task.data.train.images.shape[1:]
    channels = channels if task.mode != "raw" else max(channels, len(chosen.mean))  # as ``Inputs.normalise`` broadcasts
    channels *= 1 + task.beside_decoded
    try:
        model = build(chosen.model, task.data.classes) if chosen.loss == "classes" else build_embedder(chosen.model)[0]
        model = widen(model, 2) if task.beside_decoded else model
        if task.weights:
            load_weights(model, task.weights)
        with torch.no_grad():
            model.eval()(torch.zeros(2, channels, height, width))
    except RuntimeError as error:
        kind = "grey images (resnet50-grey does)" if task.data.is_grey else f"colour images of {width} x {height}"
        reason = str(error).splitlines()[0]
        raise LdpSlicingError(f"the model {chosen.model!r} does not take {kind}: {reason}") from None


def _parameters(task: TrainingTask) -> dict[str, Any]:
    return {
        "data": task.data.name,
        "images": task.data.digest,
        "start": task.start_digest,
        "release": task.release,
        "mode": task.mode,
        "recipe": task.recipe.name,
        "model": task.recipe.model,
        "epochs": task.recipe.epochs,
        "learning_rate": task.recipe.learning_rate,
        "prune": task.prune,
        "epsilon": task.plan.epsilon if task.plan else None,
        "plan": task.plan.to_dict() if task.plan else None,
        "seed": task.seed,
        "validation": task.validation,
    }
