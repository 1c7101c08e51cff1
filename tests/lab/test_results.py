"""What the pages in results/ say holds for the rows beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from ldp_slicing import Plan
from ldp_slicing.lab import plans, results
from ldp_slicing.lab.experiments import MODULES, ablation, chest, curves, faces, fidelity, load_experiment, tuning
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.rows import Row, Training, read_rows, select
from ldp_slicing.plan import BUDGETS

FOLDER = Path(__file__).parents[2] / "results"

MEASURED = [name for name in MODULES if (FOLDER / f"{name}.json").is_file()]


def rows_of(name: str) -> list[Row]:
    return read_rows(FOLDER / f"{name}.json")


@pytest.mark.parametrize("name", MEASURED)
def test_pages_are_up_to_date(name: str) -> None:
    page = results.page(load_experiment(name), rows_of(name))
    assert page == (FOLDER / f"{name}.md").read_text(encoding="utf-8"), "run ldp-slicing lab results"


def test_pages_count_evaluations_on_the_test_set() -> None:
    tested, plain = Row("curves", recipe={"name": "a"}, metrics={"test_accuracy": 0.5}), Row("curves", method="plain")
    watched = replace(
        tested, recipe={"name": "b"}, training=Training(9, 3, history={"test_accuracy": [0.1, None, 0.2]})
    )
    rows = [tested, replace(tested, seed=1), watched, plain, replace(plain, metrics={"test_accuracy": 0.4})]
    note = results.test_set_note(rows)
    assert note.endswith("`a`: 2 networks, once each; `b`: 1 network, 3 times; plain: 1 network, once.\n")
    assert results.test_set_note([plain, replace(tested, finished=False)]) == ""


@pytest.mark.parametrize("name", MEASURED)
def test_rows_belong_to_their_file_and_have_different_keys(name: str) -> None:
    rows = rows_of(name)
    assert {row.experiment for row in rows} == {name}
    assert len({row.key for row in rows}) == len(rows)


@pytest.mark.parametrize("name", ["ablation", "chest", "curves", "faces", "fidelity", "identity", "tradeoff", "tuning"])
def test_rows_record_the_eps_spent(name: str) -> None:
    """Equal images are one source: CIFAR-100 has some twice, the X-rays some three times."""
    rows = [row for row in rows_of(name) if row.epsilon_spent is not None]
    assert rows
    for row in rows:
        epochs = row.recipe["epochs"] if row.release == "every-epoch" else 1
        times = {"cifar10": 1, "cifar100": 2, "chest": 3, "lfw": 1}[row.dataset]
        assert row.epsilon_spent == pytest.approx(epochs * times * row.plans[0].realised_epsilon)


def test_dc_pruning_is_above_haar_pruning_and_a_uniform_budget_far_below() -> None:
    uniform, dc, haar = (
        next(one for one in ablation.VARIANTS if (one.plan, one.prune) == kind)
        for kind in ((Plan.uniform(20.0), "haar"), (Plan.paper(20.0), "dct"), (Plan.paper(20.0), "haar"))
    )
    cifar = [fmean(ablation.accuracies(rows_of("ablation"), one, "cifar10")) for one in (uniform, haar, dc)]
    lfw = [
        fmean(faces.fold_accuracies(rows_of("faces"), "public", plan=one.plan, prune=one.prune))
        for one in (uniform, haar, dc)
    ]
    for found in (cifar, lfw):
        assert found == sorted(found)
        assert found[0] < found[1] - 0.1
    assert lfw[0] < uniform.paper_lfw / 100 - 0.1


def test_on_cifar100_the_decay_of_the_learning_rate_explains_the_gap_to_the_paper() -> None:
    clean = {row.recipe["name"]: row for row in select(rows_of("fidelity"), dataset="cifar100", release="none")}
    code, paper = clean["cifar-authors"], clean["cifar-paper"]
    assert code.training is not None
    assert paper.training is not None
    best = [100 * (row.best_test_accuracy or 0) for row in (code.training, paper.training)]
    assert best[0] < (fidelity.paper_accuracy(code) or 0) - 1 < best[1]
    assert {key for key, value in code.recipe.items() if paper.recipe[key] != value} == {"name", "factor"}
    assert [(row.recipe["factor"], len(row.recipe["milestones"])) for row in (code, paper)] == [(0.5, 3), (0.1, 3)]


def test_networks_over_predict_pneumonia() -> None:
    rows = [row for row in rows_of("chest") if row.recipe.get("name") == chest.LARGE]
    (clean,) = select(rows, release="none")
    assert clean.metrics["sensitivity"] > 0.99
    assert clean.metrics["false_positive_rate"] > 0.4
    assert all(
        row.metrics["false_positive_rate"] > clean.metrics["false_positive_rate"] for row in rows if row is not clean
    )
    assert clean.metrics["test_accuracy"] < chest.PAPER[1] / 100
    assert clean.training is not None
    assert len([value for value in clean.training.history["validation_accuracy"] if value is not None]) == 7
    assert {row.training.held_out_by for row in rows if row.training} == {"group"}


def test_the_recipe_for_decoded_releases_is_the_one_that_tuning_chose() -> None:
    how, top = recipe("cifar-decoded"), tuning.best(rows_of("tuning"))
    assert top is not None
    chosen = {key: top.recipe[key] for key in ("epochs", "learning_rate", "weight_decay")}
    assert chosen == {key: getattr(how, key) for key in chosen}


@pytest.mark.parametrize("name", curves.SETS)
def test_the_schedule_for_decoded_releases_costs_less_than_a_point(name: str) -> None:
    short, long = (
        curves.find(rows_of("curves"), name, Plan.paper(20.0), "decoded", long=long) for long in (False, True)
    )
    assert len(short) == 3
    assert {row.training.epochs for row in long if row.training} == {150}
    assert {row.training.epochs for row in short if row.training} == {75}
    means = [fmean(row.metrics["test_accuracy"] for row in some) for some in (short, long)]
    assert means[1] - means[0] < 0.01


def test_the_larger_network_learns_more_than_the_one_of_the_tradeoff() -> None:
    for eps in BUDGETS:
        large = curves.find(rows_of("curves"), "cifar10", Plan.paper(eps), "decoded")
        small = plans.learners_of(plans.paper("haar", eps), rows_of("tradeoff"))
        assert fmean(row.metrics["test_accuracy"] for row in large) > small[0].metrics["test_accuracy"]


def test_the_plans_in_the_package_are_those_that_were_measured() -> None:
    rows = rows_of("tradeoff")
    command = "ldp-slicing lab results --plans src/ldp_slicing/lab/plans.json"
    assert plans.MEASURED.read_text() == plans.to_json(rows), f"run {command}"
    assert plans.measured(plans.TASK) == plans.points(rows) == plans.measured(plans.TASK, FOLDER)


def test_the_page_of_curves_names_what_an_earlier_reconstructor_measured() -> None:
    row = Row("curves", "cifar10", plans=(Plan.paper(12.0),), mode=curves.PUBLIC, metrics={"test_accuracy": 0.5})
    earlier = [
        replace(row, seed=seed, recipe={"name": "a", "reconstructor_steps": curves.EARLIER_STEPS}) for seed in (0, 1)
    ]
    now = recipe("cifar-reconstructed")
    assert now.reconstructor_steps != curves.EARLIER_STEPS
    later = replace(row, recipe={"name": now.name, "reconstructor_steps": now.reconstructor_steps})
    assert "earlier reconstructor: reconstructed-public, CIFAR-10 at eps 12.\n" in curves.table([*earlier, later])
    assert "earlier" not in curves.table([later])
