"""Rows: what was measured, how, by which software and on which machine. No torch is needed to read or select them.

>>> from ldp_slicing.plan import Plan
>>> row = Row("curves", "cifar10", plans=(Plan.paper(20.0),), prune="haar", release="once", mode="decoded", seed=1)
>>> row.label
'cifar10, paper, eps 20, prune haar, once, decoded, seed 1'
>>> select([row], dataset="cifar10", plan=Plan.paper(20.0)) == [row]
True

``results/NAME.json`` holds the rows of one experiment, one field per line.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

Mode = Literal["", "raw", "decoded", "reconstructed", "reconstructed-public"]
Metrics = Mapping[str, Any]  # numbers by name, as JSON has them; shares are 0 to 1


@dataclass(frozen=True)
class Measurement:
    """What was measured for one plan, or for one number of releases, by a run that covers several."""

    metrics: Metrics
    plan: Plan | None = None
    releases: int = 1


@dataclass(frozen=True)
class Training:
    """How a network was trained. Epochs count from 0.

    data_digest and started_from identify the images and the initial weights; None means that they were not recorded.
    best_test_epoch and best_test_accuracy: the best epoch on the test set, which the authors report and we do not.
    """

    images: int
    epochs: int  # done so far
    held_out: int = 0  # training images held out to choose the epoch
    held_out_by: Literal["group", "image"] | None = None
    chosen_epoch: int | None = None
    chosen_by: Literal["validation", "last"] = "last"
    best_test_epoch: int | None = None
    best_test_accuracy: float | None = None
    steps: int | None = None
    parameters: int | None = None
    data_digest: str | None = None
    started_from: str | None = None
    history: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @property
    def best_validation_accuracy(self) -> float:
        """Validation accuracy of the chosen epoch, which is the best one."""
        return max(value for value in self.history["validation_accuracy"] if value is not None)


@dataclass(frozen=True)
class Provenance:
    """Which software made a row, on which machine, and when (UTC). None means not recorded."""

    software: str
    commit: str
    torch: str
    hardware: str
    time: str | None = None


@dataclass(frozen=True)
class Row:
    """One run and what it measured.

    dataset: "cifar10", "cifar100", "chest", "lfw", the name of a user's set, or "" for synthetic images.
    method: the learner, the attack or the quantity, where an experiment has several.
    plans: of the releases; none where the sources themselves or their view were used, several for an attack on several.
    release: "none", "view", "once", "every-epoch" or "existing", see ``TrainingTask``.
    mode: what the learner made of the releases first, see ``TrainingTask``; "" where nothing was learnt from releases.
    folds: which folds of LFW were tested, from 0.
    options: whatever else distinguishes this row from others of its experiment.
    epsilon_spent: the largest eps per released pixel that any source has spent.
    files: images in the results folder that belong to the row.
    seconds: how long training or measuring took; None means not recorded.
    """

    experiment: str
    dataset: str = ""
    method: str = ""
    plans: tuple[Plan, ...] = ()
    prune: Prune = None
    release: str = "none"
    mode: Mode = ""
    folds: tuple[int, ...] = ()
    options: Mapping[str, str | float] = field(default_factory=dict)
    seed: int = 0
    finished: bool = True
    recipe: Mapping[str, Any] = field(default_factory=dict)
    epsilon_spent: float | None = None
    training: Training | None = None
    metrics: Metrics = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
    files: tuple[str, ...] = ()
    seconds: float | None = None
    provenance: Provenance | None = None

    @property
    def plan(self) -> Plan | None:
        """The plan of a row that has exactly one."""
        return self.plans[0] if len(self.plans) == 1 else None

    @property
    def epsilon(self) -> float | str | None:
        """The requested eps: of the plan, or the option of that name (DP-SGD)."""
        return self.plan.epsilon if self.plan else self.options.get("epsilon")

    @property
    def key(self) -> tuple[object, ...]:
        """What distinguishes a row from the others; a new row replaces an older one with the same key."""
        identity = (self.experiment, self.dataset, self.method, self.plans, self.prune, self.release, self.mode)
        return (*identity, self.folds, tuple(sorted(self.options.items())), self.recipe.get("name"), self.seed)

    @property
    def label(self) -> str:
        """The row in words, for progress messages. Nothing parses it."""
        described = describe_fields(self)
        for name in ("experiment", "recipe", "releases", *([] if self.seed else ["seed"])):
            described.pop(name, None)
        if self.release == "none":
            described["release"] = "" if self.plans else "without privacy"
        named = {*self.options, "prune", "folds", "seed"}
        words = {"epsilon": "eps "} | {name: f"{name} " for name in named}
        return ", ".join(f"{words.get(name, '')}{text}" for name, text in described.items() if text)

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON has it. Fields that have their default value are left out."""
        content = {one.name: getattr(self, one.name) for one in fields(self)}
        content["plans"] = [plan.to_dict() for plan in self.plans]
        content["training"] = asdict(self.training) if self.training else None
        content["provenance"] = asdict(self.provenance) if self.provenance else None
        content["measurements"] = [
            {"plan": self.plans.index(one.plan) if one.plan else None, "releases": one.releases, "metrics": one.metrics}
            for one in self.measurements
        ]
        empty: tuple[Any, ...] = (None, "", [], (), {})
        kept = {"experiment", "seed", "finished", "prune", "release"}
        return {name: value for name, value in content.items() if name in kept or value not in empty}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Row:
        """The inverse of ``to_dict``. Unknown fields are refused."""
        values = dict(content)
        if unknown := sorted({*values} - {one.name for one in fields(cls)}):
            raise LdpSlicingError(f"a row has no field {', '.join(unknown)}")
        plans = tuple(Plan.from_dict(plan) for plan in values.get("plans", ()))
        values["plans"] = plans
        for name in ("folds", "files"):
            values[name] = tuple(values.get(name, ()))
        for name, kind in (("training", Training), ("provenance", Provenance)):
            values[name] = kind(**values[name]) if name in values else None
        values["measurements"] = tuple(
            Measurement(one["metrics"], None if one["plan"] is None else plans[one["plan"]], one["releases"])
            for one in values.get("measurements", ())
        )
        return cls(**values)


def plan_name(plan: Plan) -> str:
    """How the plan divides its eps: "paper", "paper-2:1:1", "uniform", or its slices, such as "Y7+Y4" or "Y7,Y4"."""
    if not plan.is_colour and plan.word_bits >= 8 and plan == Plan.grey(plan.epsilon, plan.word_bits):
        return "paper"
    if plan.is_colour:
        known = {"paper": (4, 1, 1), "paper-2:1:1": (2, 1, 1), "paper-1:1:1": (1, 1, 1)}
        for name, weights in known.items():
            if plan == Plan.paper(plan.epsilon, weights):
                return name
        if plan == Plan.uniform(plan.epsilon):
            return "uniform"
    return ",".join(plan.slice_name(part) for part in plan.slices)


def describe_fields(row: Row, measurement: Measurement | None = None) -> dict[str, str]:
    """The fields that identify a row, or one of its measurements, as text. Selectors such as "epsilon=20" name them."""
    plan = measurement.plan if measurement and measurement.plan else row.plan
    several = len(row.plans) > 1 and plan is None
    found: dict[str, object] = {
        "experiment": row.experiment,
        "dataset": row.dataset,
        "method": row.method,
        "plan": f"{len(row.plans)} plans" if several else plan and plan_name(plan),
        "epsilon": plan and plan.epsilon,
        "prune": (row.prune or "none") if row.plans or row.release == "view" else "",
        "release": row.release,
        "mode": row.mode,
        "folds": f"{row.folds[0] + 1}-{row.folds[-1] + 1}" if row.folds else "",
        "recipe": row.recipe.get("name"),
        "releases": measurement and measurement.releases,
        **row.options,
        "seed": row.seed,
    }
    return {name: as_text(value) for name, value in found.items() if value not in ("", None)}


def as_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def parse_selector(text: str) -> dict[str, str]:
    """'dataset=cifar10 epsilon=20' as {"dataset": "cifar10", "epsilon": "20"}; quote a value that contains spaces.

    Alternatives are separated by "|", as in "peer=duetface|partialface".
    """
    selector: dict[str, str] = {}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if not equals or name in selector:
            raise LdpSlicingError(f"a selector is a list such as dataset=cifar10 epsilon=20; got {text!r}")
        selector[name] = value
    return selector


def matches(fields_of_row: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether every field of the selector has its value, or one of several. A field that the row lacks is "none"."""
    return all(fields_of_row.get(name, "none") in value.split("|") for name, value in selector.items())


def row_matches(row: Row, selector: Mapping[str, str]) -> bool:
    """Whether the row is selected for any of its plans."""
    each = [Measurement({}, plan) for plan in row.plans] if len(row.plans) > 1 else [None]
    return any(matches(describe_fields(row, one), selector) for one in each)


def select(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The finished rows whose fields have these values, by seed and folds; an option is selected by its name."""

    def value(row: Row, name: str) -> object:
        return getattr(row, name) if hasattr(row, name) else row.options.get(name)

    found = [row for row in rows if row.finished and all(value(row, name) == wanted[name] for name in wanted)]
    return sorted(found, key=lambda row: (row.seed, row.folds))


def measurements(rows: Iterable[Row], **wanted: object) -> list[tuple[Row, Measurement]]:
    """The measurements of the selected rows, by eps and number of releases."""
    found = [(row, one) for row in select(rows, **wanted) for one in row.measurements]
    return sorted(found, key=lambda pair: (pair[1].plan.epsilon if pair[1].plan else 0.0, pair[1].releases))


def read_rows(path: Path) -> list[Row]:
    """The rows in a results file; none if the file does not exist."""
    if not path.is_file():
        return []
    return [Row.from_dict(row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def rows_to_json(experiment: str, rows: Sequence[Row]) -> str:
    """A results file: the rows in the order of their labels, one field per line."""

    def one(row: Row) -> str:
        return ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in row.to_dict().items())

    ordered = sorted(rows, key=lambda row: (row.dataset, row.method, row.label, row.recipe.get("name", "")))
    content = ",\n".join(f" {{\n{one(row)}\n }}" for row in ordered)
    return f'{{\n"experiment": {json.dumps(experiment)},\n"rows": [\n{content}\n]\n}}\n'


def with_row(rows: Sequence[Row], row: Row) -> list[Row]:
    """``rows`` with ``row`` in place of one with the same key. An unfinished row does not replace a finished one."""
    if not row.finished and any(old.finished and old.key == row.key for old in rows):
        return list(rows)
    return [*(old for old in rows if old.key != row.key), row]
