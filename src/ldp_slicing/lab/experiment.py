"""What an experiment is: rows that come out of runs, a table and a figure made of them and of nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ldp_slicing.lab.learners.recipes import Recipe, read_recipe
from ldp_slicing.lab.learners.run import Epoch, TrainingRun
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.learners.training import Limits, Splits, train
from ldp_slicing.plan import BUDGETS as BUDGETS
from ldp_slicing.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[
    str, Any
]  # one measurement with all that is needed to make it again; "run", "seed" and "finished" are always there
Findings = Mapping[str, Sequence[Row]]  # the rows of each experiment that was run, by its name
SomeRecipe = TypeVar("SomeRecipe", bound=Recipe)


@dataclass(frozen=True)
class Setting:
    """Where an experiment runs. ``done``: rows of earlier runs, which are not made again. ``epochs``: fewer, to try it out."""

    data: Path
    work: Path
    device: torch.device
    limits: Limits
    done: tuple[Row, ...] = ()
    epochs: int | None = None
    only: str = ""  # runs that have this in their names
    say: Callable[[str], None] = print
    pictures: Path = Path("results")  # where contact sheets go, beside the page that shows them
    left: list[str] = field(default_factory=list)  # runs that the time did not allow to begin
    named: set[str] = field(default_factory=set)  # all runs that were asked about

    def wants(self, run: str) -> bool:
        """Whether it was asked for."""
        return self.wants_any([run])

    def wants_any(self, runs: Iterable[str]) -> bool:
        """Whether any of them was asked for."""
        runs = set(runs)
        self.named.update(runs)
        return any(self.only in run for run in runs)

    def has(self, run: str) -> bool:
        """Whether a finished row of that name is there, of an experiment that trains nothing."""
        return any(row["finished"] and row["run"] == run for row in self.done)

    def shortened(self, recipe: SomeRecipe) -> SomeRecipe:
        return recipe if self.epochs is None else recipe.lasting(self.epochs)

    def is_done(self, run: str, seed: int, recipe: Recipe, made_as: Row | None = None) -> bool:
        """Whether a finished row of that name, seed and recipe is there; what a recipe says about itself may have changed.

        ``made_as``: what else must be as it is there; rows of earlier times do not have all of it.
        """
        asked = made_as or {}

        def agrees(row: Row, key: str) -> bool:
            silent = (
                None if asked[key] == "group" else asked[key]
            )  # in rows that do not say it, none was held out by group
            return bool(row.get(key, silent) == asked[key])

        mine = [row for row in self.done if row["finished"] and (row["run"], row["seed"]) == (run, seed)]
        done = [row["recipe"] for row in mine if all(agrees(row, key) for key in asked)]
        return any(
            replace(read_recipe(kept, type(recipe)), source=recipe.source, deviations=recipe.deviations) == recipe
            for kept in done
        )


@dataclass(frozen=True)
class Experiment:
    """``measure`` yields rows as they are done; ``table`` makes of them what is shown, ``figure`` of them and their neighbours."""

    about: str
    measure: Callable[[Setting], Iterator[Row]]
    table: Callable[[Sequence[Row]], str]
    figure: Callable[[Findings], Figure] | None = None


def plain(recipe: Recipe) -> dict[str, Any]:
    """A recipe as JSON has it."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(recipe).items()}


def train_all(
    tasks: Sequence[TrainingTask],
    setting: Setting,
    finish: Callable[[TrainingRun], Row] | None = None,
    make: Callable[[TrainingTask, torch.device, Splits], TrainingRun] = TrainingRun,
) -> Iterator[Row]:
    """Rows of all tasks that are not done yet, trained side by side; ``finish`` adds what is special to an experiment."""

    def report(run: TrainingRun, epoch: Epoch) -> None:
        looked = [
            f", {kind} {100 * value:.2f} %"
            for kind, value in (("validation", epoch.validation_accuracy), ("test", epoch.test_accuracy))
            if value is not None
        ]
        total = run.task.recipe.epochs
        setting.say(
            f"{run.task.name} seed {run.task.seed} {epoch.epoch + 1}/{total}: loss {epoch.loss:.4f}{''.join(looked)}, {epoch.seconds:.1f} s"
        )

    short = [replace(task, recipe=setting.shortened(task.recipe)) for task in tasks]
    wanted = [task for task in short if setting.wants(task.name)]
    pending = [task for task in wanted if not setting.is_done(task.name, task.seed, task.recipe, made_as(task))]
    begun = set[tuple[str, int]]()
    for run in train(pending, setting.device, setting.work, setting.limits, report, make):
        begun.add((run.task.name, run.task.seed))
        row = describe(run)
        if run.finished:
            run.choose()
            row |= finish(run) if finish else {"accuracy": run.accuracy(*run.test)}
        yield row
    setting.left.extend(task.name for task in pending if (task.name, task.seed) not in begun)


def made_as(task: TrainingTask) -> Row:
    """What of a task its row must have, besides its name, seed and recipe, to be the row of that task."""
    return {
        "data": task.data.name,
        "data_digest": task.data.digest,
        "held_out_by": task.held_out_by,
        "release": task.release,
        "decoded": task.decode,
        "prune": None if task.release == "none" else task.prune,
        "epsilon_requested": task.plan.epsilon if task.plan else None,
        "plan": listed([task.plan])[0] if task.plan else None,
        "plans": listed(task.plans),
        "started_from": task.start_digest,
    }


def listed(plans: Sequence[Plan]) -> list[list[list[float]]]:
    """Plans as JSON has them: the bits and the eps of every slice."""
    return [[[part.bits, part.epsilon] for part in plan.slices] for plan in plans]


def describe(run: TrainingRun) -> Row:
    """One run: what was done and how it went."""
    task, tested = run.task, [epoch for epoch in run.history if epoch.test_accuracy is not None]
    best = max(tested, key=lambda epoch: epoch.test_accuracy or 0.0, default=None)
    columns = ("learning_rate", "loss", "train_accuracy", "validation_accuracy", "test_accuracy")
    return {
        "run": task.name,
        "seed": task.seed,
        "finished": run.finished,
        **made_as(task),
        "training_images": len(run.order),
        "held_out_for_validation": len(run.validation[1]),
        "epsilon_realised_per_release": task.plan.realised_epsilon if task.plan else None,
        "epsilon_spent_per_released_pixel": task.epsilon_per_source(),
        "epochs_done": run.epoch,
        "chosen_epoch": run.chosen.epoch if run.chosen else None,
        "chosen_by": "accuracy on the images held out" if task.validation else "being the last",
        "best_test_epoch": {
            "accuracy": best.test_accuracy,
            "epoch": best.epoch,
            "note": "chosen on the test set, as the authors do",
        }
        if best
        else None,
        "seconds": sum(epoch.seconds for epoch in run.history),
        "recipe": plain(task.recipe),
        "history": {name: [_short(getattr(epoch, name)) for epoch in run.history] for name in columns},
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def spread(values: Sequence[float]) -> str:
    """Shares as a mean in %, with the smallest and largest where there are several."""
    if not values:
        return "-"
    mean = f"{100 * sum(values) / len(values):.2f}"
    return (
        mean
        if len(values) == 1
        else f"{mean} ({100 * min(values):.2f} to {100 * max(values):.2f}, {len(values)} seeds)"
    )


def epochs_of(rows: Sequence[Row], runs: Collection[str]) -> str:
    """How long the finished ones of these runs were trained: "75 epochs", or "50 or 75 epochs"; nothing where there are none."""
    found = sorted({row["epochs_done"] for row in rows if row["finished"] and row["run"] in runs})
    return f"{' or '.join(map(str, found))} epochs" if found else ""


def accuracies(rows: Sequence[Row], run: str) -> list[float]:
    """Of all finished rows of that run, by seed."""
    found = sorted((row for row in rows if row["run"] == run and row["finished"]), key=lambda row: row["seed"])
    return [row["accuracy"] for row in found]
