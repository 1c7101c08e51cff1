from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ldp_slicing import Plan
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab import rows
from ldp_slicing.lab.rows import Measurement, Provenance, Row, Training, parse_selector, row_matches, select, with_row

PLAN, THICK = Plan.paper(20.0), Plan.sliced(5.2, "Y7+Y4")
LEARNER = Row(
    "curves",
    "cifar10",
    plans=(PLAN,),
    prune="haar",
    release="once",
    mode="decoded",
    seed=1,
    recipe={"name": "cifar-decoded", "epochs": 75},
    epsilon_spent=20.0,
    training=Training(images=45000, epochs=75, held_out=5000, history={"validation_accuracy": [None, 0.5, 0.4]}),
    metrics={"test_accuracy": 0.75},
    seconds=1.5,
    provenance=Provenance("ldp-slicing", "0" * 40, "2.0", "CPU", "2026-01-01T00:00:00+00:00"),
)
ATTACK = Row(
    "white-box",
    "lfw",
    plans=(PLAN, THICK),
    prune="haar",
    measurements=(Measurement({"ssim": 0.5}, PLAN), Measurement({"ssim": 0.6}, THICK, releases=4)),
    files=("sheet.png",),
)


@pytest.mark.parametrize("row", [LEARNER, ATTACK, Row("overhead", options={"calls": "batch"}, folds=(0, 1))])
def test_rows_survive_json(row: Row, tmp_path: Path) -> None:
    assert Row.from_dict(json.loads(json.dumps(row.to_dict()))) == row
    path = tmp_path / "x.json"
    path.write_text(rows.rows_to_json("x", [row]))
    assert rows.read_rows(path) == [row]
    assert rows.read_rows(tmp_path / "none.json") == []


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(LdpSlicingError, match="no field run"):
        Row.from_dict({"experiment": "curves", "run": "cifar10-eps20"})


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "cifar100"},
        {"method": "other"},
        {"plans": (THICK,)},
        {"prune": None},
        {"release": "every-epoch"},
        {"mode": "raw"},
        {"folds": (0,)},
        {"options": {"a": 1}},
        {"seed": 2},
        {"recipe": {"name": "cifar-once"}},
    ],
)
def test_each_identifying_field_is_in_the_key(change: dict[str, object]) -> None:
    assert replace(LEARNER, **change).key != LEARNER.key  # type: ignore[arg-type]
    assert replace(LEARNER, metrics={}, training=None, finished=False).key == LEARNER.key


def test_an_unfinished_row_does_not_replace_a_finished_one() -> None:
    unfinished = replace(LEARNER, finished=False)
    assert with_row([LEARNER], unfinished) == [LEARNER]
    better = replace(LEARNER, metrics={"test_accuracy": 0.8})
    assert with_row([unfinished], better) == with_row([LEARNER], better) == [better]
    assert len(with_row([LEARNER], replace(unfinished, seed=2))) == 2


def test_selectors_name_fields_plans_and_options() -> None:
    assert row_matches(LEARNER, parse_selector("dataset=cifar10 epsilon=20 plan=paper mode=decoded prune=haar seed=1"))
    assert row_matches(LEARNER, parse_selector("method=none"))
    assert not row_matches(LEARNER, parse_selector("epsilon=5.2"))
    assert row_matches(ATTACK, parse_selector("epsilon=5.2 plan=Y7+Y4"))
    assert not row_matches(ATTACK, parse_selector("epsilon=20 plan=Y7+Y4"))
    assert row_matches(Row("tuning", options={"learning_rate": 0.1}), parse_selector("learning_rate=0.1"))
    for wrong in ("cifar10", "seed=1 seed=2"):
        with pytest.raises(LdpSlicingError, match="a selector is a list"):
            parse_selector(wrong)


def test_select_takes_finished_rows_by_seed() -> None:
    others = [replace(LEARNER, seed=2), replace(LEARNER, seed=0), replace(LEARNER, seed=3, finished=False)]
    assert [row.seed for row in select([LEARNER, *others], plan=PLAN, mode="decoded")] == [0, 1, 2]
    assert select([LEARNER], plan=THICK) == []


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (PLAN, "paper"),
        (Plan.grey(5.2, 8), "paper"),
        (Plan.paper(20.0, (2, 1, 1)), "paper-2:1:1"),
        (Plan.uniform(20.0), "uniform"),
        (THICK, "Y7+Y4"),
        (Plan.sliced(5.2, "Y7,Y4"), "Y7,Y4"),
    ],
)
def test_plans_are_named_by_how_they_divide_eps(plan: Plan, name: str) -> None:
    assert rows.plan_name(plan) == name


def test_the_best_validation_accuracy_skips_epochs_without_evaluation() -> None:
    assert LEARNER.training is not None
    assert LEARNER.training.best_validation_accuracy == 0.5
