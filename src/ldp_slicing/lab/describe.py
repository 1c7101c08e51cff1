"""Rows of networks: what a task will measure, and how a run of it was trained."""

from __future__ import annotations

from dataclasses import asdict, replace

from ldp_slicing.lab.learners.accounting import epsilon_per_source
from ldp_slicing.lab.learners.recipes import Recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.rows import Mode, Row, Training


def row_of(task: TrainingTask, experiment: str, *, method: str = "") -> Row:
    """The unfinished row of a task that has not been trained yet: all the fields that identify it."""
    plans = task.plans or ((task.plan,) if task.plan else ())
    learnt_from = task.release in ("once", "every-epoch", "existing")
    mode: Mode = task.mode if learnt_from else ""
    return Row(
        experiment,
        task.data.name,
        method,
        plans=plans,
        prune=task.prune if plans or task.release == "view" else None,
        release=task.release,
        mode=mode,
        seed=task.seed,
        finished=False,
        recipe=recipe_to_dict(task.recipe),
        epsilon_spent=epsilon_per_source(task),
    )


def recipe_to_dict(recipe: Recipe) -> dict[str, object]:
    """A recipe as JSON has it."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(recipe).items()}


def describe(run: TrainingRun, row: Row) -> Row:
    """``row`` with how its network was trained so far."""
    task, tested = run.task, [epoch for epoch in run.history if epoch.test_accuracy is not None]
    best = max(tested, key=lambda epoch: epoch.test_accuracy or 0.0, default=None)
    columns = ("learning_rate", "loss", "train_accuracy", "validation_accuracy", "test_accuracy")
    training = Training(
        images=len(run.order),
        epochs=run.epoch,
        held_out=len(run.inputs.validation[1]),
        held_out_by=task.held_out_by,
        chosen_epoch=run.chosen.epoch if run.chosen else None,
        chosen_by="validation" if task.validation else "last",
        best_test_epoch=best.epoch if best else None,
        best_test_accuracy=best.test_accuracy if best else None,
        steps=run.epoch * run.steps,
        parameters=sum(parameter.numel() for parameter in run.parameters),
        data_digest=task.data.digest,
        started_from=task.start_digest,
        history={name: [_short(getattr(epoch, name)) for epoch in run.history] for name in columns},
    )
    seconds = sum(epoch.seconds for epoch in run.history)
    return replace(row, finished=run.finished, training=training, seconds=seconds)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
