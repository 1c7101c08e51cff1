"""What an experiment is: it measures rows, and makes a page and a figure from rows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

from ldp_slicing.lab.data.sets import ImageSet
from ldp_slicing.lab.describe import describe, recipe_to_dict
from ldp_slicing.lab.learners.accounting import epsilon_per_source
from ldp_slicing.lab.learners.recipes import Recipe
from ldp_slicing.lab.learners.run import Epoch, TrainingRun
from ldp_slicing.lab.learners.task import ReleaseMode, TrainingTask
from ldp_slicing.lab.learners.training import Limits, train
from ldp_slicing.lab.rows import Row, row_matches
from ldp_slicing.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RowsByExperiment = Mapping[str, Sequence[Row]]
SomeRecipe = TypeVar("SomeRecipe", bound=Recipe)


@dataclass(frozen=True)
class Experiment:
    """``measure`` yields each row as soon as it is measured. ``about`` is the introduction of the page.

    A figure may also show rows of other experiments.
    """

    name: str
    about: str
    measure: Callable[[ExperimentContext], Iterator[Row]]
    table: Callable[[Sequence[Row]], str]
    figure: Callable[[RowsByExperiment], Figure] | None = None


@dataclass(frozen=True)
class ExperimentContext:
    """Where and how an experiment runs.

    done: rows of earlier runs, which are not measured again. epochs: a smaller number, to try an experiment out.
    only: fields that selected rows have, see ``rows.parse_selector``. results: the folder of contact sheets.
    """

    data: Path
    work: Path
    device: torch.device
    limits: Limits
    done: tuple[Row, ...] = ()
    epochs: int | None = None
    only: Mapping[str, str] = field(default_factory=dict)
    log: Callable[[str], None] = print
    results: Path = Path("results")
    considered: list[Row] = field(default_factory=list)
    postponed: list[Row] = field(default_factory=list)  # not started because the time was up

    def wants(self, row: Row) -> bool:
        """Whether ``only`` selects the row."""
        self.considered.append(row)
        return row_matches(row, self.only)

    def wants_any(self, rows: Iterable[Row]) -> bool:
        return {self.wants(row) for row in rows} >= {True}  # all of them are considered

    def is_done(self, row: Row, task: TrainingTask | None = None) -> bool:
        return self.find_done(row, task) is not None

    def find_done(self, row: Row, task: TrainingTask | None = None) -> Row | None:
        """The finished row with the same key and recipe and, as far as recorded, the same training images, if any."""
        for old in self.done:
            same = old.finished and old.key == row.key and _settings(old) == _settings(row)
            if same and (task is None or _trained_like(old, task)):
                return old
        return None

    def pending(self, row: Row) -> bool:
        """Whether the row is wanted and not done, and there is time for it."""
        if not self.wants(row) or self.is_done(row):
            return False
        if self.limits.reached:
            self.postponed.append(row)
            return False
        return True

    def shortened(self, recipe: SomeRecipe) -> SomeRecipe:
        return recipe if self.epochs is None else recipe.lasting(self.epochs)

    def trial(
        self,
        row: Row,
        images: ImageSet,
        recipe: Recipe,
        *,
        shared_with: Row | None = None,
        **options: Any,  # noqa: ANN401 - of TrainingTask
    ) -> Trial:
        """The network that measures ``row``.

        shared_with: a row of another experiment that trains the same network. It is trained once: whichever experiment
        comes second finds the checkpoint of the first.
        """
        how = self.shortened(recipe)
        attacks = how.loss == "source"
        task = TrainingTask(
            f"{(shared_with or row).label}, {how.name}".replace(", ", "-").replace(" ", ""),
            images,
            how,
            None if attacks else row.plan,
            row.prune,
            cast("ReleaseMode", row.release),
            row.seed,
            plans=row.plans if attacks else (),
            mode=row.mode or "raw",
            **options,
        )
        return Trial(with_recipe(row, how), task)


@dataclass(frozen=True, eq=False)
class Trial:
    """A row to be measured, and the network to train for it."""

    row: Row
    task: TrainingTask


def with_recipe(row: Row, recipe: Recipe) -> Row:
    return replace(row, recipe=recipe_to_dict(recipe))


def _settings(row: Row) -> dict[str, Any]:
    """What a recipe does to the network: not its prose, nor how often accuracy is measured."""
    known = {one.name: one.default for one in fields(Recipe) if one.default not in (MISSING, ())}
    settings = known | dict(row.recipe)  # older rows lack newer settings
    return {key: value for key, value in settings.items() if key not in ("source", "deviations", "look_every")}


def _trained_like(row: Row, task: TrainingTask) -> bool:
    training = row.training
    return (
        training is not None
        and training.data_digest in (None, task.data.digest)
        and training.started_from in (None, task.start_digest)
        and training.held_out_by == task.held_out_by
    )


def test_accuracy(run: TrainingRun, row: Row) -> Row:
    """The row with the test accuracy of its network."""
    return replace(row, metrics={"test_accuracy": run.test_accuracy()})


def train_all(
    trials: Iterable[Trial],
    context: ExperimentContext,
    finish: Callable[[TrainingRun, Row], Row] = test_accuracy,
) -> Iterator[Row]:
    """Train the networks whose rows are wanted and not done, several at once. ``finish`` adds metrics to a row."""
    wanted = [one for one in trials if context.wants(one.row) and not context.is_done(one.row, one.task)]
    pending = {one.task.key: one for one in wanted}
    labels = {one.task.key: one.row.label for one in wanted}
    if labels:  # the first epoch may take long
        context.log(f"training {counted(len(labels), 'network')}: {'; '.join(labels.values())}")

    def report(run: TrainingRun, epoch: Epoch) -> None:
        looks = (("validation", epoch.validation_accuracy), ("test", epoch.test_accuracy))
        seen = "".join(f", {kind} accuracy {100 * value:.2f} %" for kind, value in looks if value is not None)
        name = labels.get(run.task.key, run.task.name)  # pretraining has no row
        done = f"epoch {epoch.epoch + 1} of {run.task.recipe.epochs}"
        context.log(f"{name}: {done}, loss {epoch.loss:.4f}{seen}, {epoch.seconds:.1f} s")

    for run in train([one.task for one in wanted], context.device, context.work, context.limits, report):
        started = pending.pop(run.task.key).row
        row = describe(run, replace(started, epsilon_spent=epsilon_per_source(run.task)))
        if run.finished:
            run.choose()
            row = finish(run, row)
        yield row
    context.postponed.extend(one.row for one in pending.values())


def train_needed(
    trials: Sequence[Trial], context: ExperimentContext, finish: Callable[[TrainingRun, Row], Row]
) -> Iterator[Row]:
    """``train_all`` for networks that others need: they are trained even if their rows are done or not wanted.

    Rows that are done or not wanted are not yielded.
    """
    pending = {one.row.key for one in trials if context.wants(one.row) and not context.is_done(one.row, one.task)}
    for row in train_all(trials, replace(context, done=(), only={}), finish):
        if row.key in pending or not row.finished:
            yield row
