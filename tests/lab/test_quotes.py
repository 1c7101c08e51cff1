"""What the threat model quotes is what the runs have shown."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from ldp_slicing.lab import plans, results
from ldp_slicing.lab.experiment import BUDGETS, accuracies
from ldp_slicing.lab.experiments import chest, curves, fidelity, tuning
from ldp_slicing.lab.learners.recipes import recipe

ROOT = Path(__file__).parents[2]


def rows_of(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / "results" / f"{name}.json").read_text())["rows"]
    return [row for row in rows if row["finished"]]


def without_markers(document: str) -> str:
    return re.sub(r"<!-- /?quote.*?-->", "", (ROOT / document).read_text())


def table_after(path: str, head: str) -> list[list[str]]:
    """The cells of the table whose first cell is ``head``, line by line, head and rule first."""
    lines = [line.strip() for line in without_markers(path).split("\n")]
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {head} |"))
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]


def rank_1(attack: str, run: str) -> dict[str, float]:
    """eps to the share of people who are found at first rank, in %; "the originals" too."""
    row = next(row for row in rows_of(attack) if row["run"] == run)
    found = {f"{one['epsilon_requested']:g}": one["reconstruction"]["rank_1"]["share"] for one in row["found"]}
    return {eps: 100 * share for eps, share in (found | {"the originals": row["originals"]["rank_1"]["share"]}).items()}


def words_of(document: str) -> str:
    """The text of a document without its line breaks."""
    return " ".join(without_markers(document).split())


@pytest.mark.parametrize(
    ("words", "attack", "run"),
    [
        ("pruned, white box", "white-box", "lfw-pruned"),
        ("pruned, black box", "black-box", "lfw-pruned"),
        ("not pruned, white box", "white-box", "lfw-whole"),
    ],
)
def test_the_threat_model_quotes_the_attacks(words: str, attack: str, run: str) -> None:
    head, _, *lines = table_after("docs/threat-model.md", "eps of a released pixel")
    line = next(cells for cells in lines if cells[0] == words)
    found = rank_1(attack, run)
    assert line[1:] == [f"{found[eps]:.1f}" for eps in head[1:]]


def test_the_threat_model_compares_pruning_and_networks() -> None:
    text, alone = words_of("docs/threat-model.md"), rank_1("white-box", "lfw-pruned-only20")
    pruned, whole = (rank_1("white-box", f"lfw-{view}")["5.2"] for view in ("pruned", "whole"))
    assert f"A white-box network for eps 20 alone, pruned, reaches {alone['20']:.1f} %." in text
    assert f"identification was even higher with pruning than without ({pruned:.1f} % against {whole:.1f} %" in text


def right(run: str) -> str:
    """How many of 100 pairs an adversary tells rightly."""
    mine = [row for row in rows_of("identity") if row["run"].removesuffix("-first").removesuffix("-second") == run]
    return f"{statistics.fmean(row['right'] / row['pairs'] for row in mine):.1%}".removesuffix("%")


def test_the_threat_model_quotes_who_links() -> None:
    head, _, rebuilt, tuned, untuned = table_after("docs/threat-model.md", "eps of a released pixel, linking")
    row = next(row for row in rows_of("white-box") if row["run"] == "lfw-pruned")
    verified = {
        f"{one['epsilon_requested']:g}": one["reconstruction"]["verification"]["accuracy"] for one in row["found"]
    }
    verified |= {"the originals": row["originals"]["verification"]["accuracy"]}
    assert rebuilt[1:] == [f"{100 * verified[eps]:.1f}" for eps in head[1:]]
    for line, way in ((tuned, "linker"), (untuned, "untuned")):
        assert line[1:] == [*(right(f"lfw-{way}-eps{eps}") for eps in head[1:-1]), ""]
    text = words_of("docs/threat-model.md")
    assert (
        f"in the paper and {right('lfw-wrn-eps20')} % here ({right('lfw-wrn-easy')} % at eps 200 without pruning)"
        in text
    )
    assert (
        f"with {right('cifar10-wrn-eps20')} % and {right('cifar100-wrn-eps20')} % accuracy (the paper: 50.25 and 50.1)"
        in text
    )
    assert f"class reaches {right('cifar10-posterior-eps20')} % and {right('cifar100-posterior-eps20')} %" in text


def mean_of(name: str, run: str) -> float:
    return 100 * statistics.fmean(accuracies(rows_of(name), run))


def test_what_falls_short_of_the_paper_falls_short_by_the_decay_of_the_learning_rate() -> None:
    found = {row["run"]: row for row in rows_of("fidelity")}
    code, said = (found[f"cifar100-clean{kind}"] for kind in ("", "-as-the-paper-says"))
    best = [100 * row["best_test_epoch"]["accuracy"] for row in (code, said)]
    assert best[0] < fidelity.PAPER["cifar100-clean"] - 1 < best[1]
    about = ("name", "source", "deviations")
    assert {key for key, value in code["recipe"].items() if said["recipe"][key] != value and key not in about} == {
        "factor"
    }
    assert [(row["recipe"]["factor"], len(row["recipe"]["milestones"])) for row in (code, said)] == [(0.5, 3), (0.1, 3)]


def test_the_page_says_what_is_lacking_on_x_rays() -> None:
    rows, about = {row["run"]: row for row in rows_of("chest")}, chest.EXPERIMENT.about
    healthy, ill = rows["chest-clean"]["accuracy_of_classes"]
    assert f"it finds {100 * ill:.1f} % of the ill there, but takes {100 * (1 - healthy):.1f} % of the healthy" in about
    assert all(row["accuracy_of_classes"][0] < healthy for run, row in rows.items() if run != "chest-clean")
    loss = 100 * (rows["chest-eps20"]["accuracy"] - rows["chest-eps20-decoded"]["accuracy"])
    assert f"({loss:.1f} points less at eps 20)" in about
    assert rows["chest-clean"]["accuracy"] < chest.PAPER[1] / 100
    areas = {run: f"{100 * row['area_under_curve']:.1f}" for run, row in rows.items()}
    assert f"get {areas['chest-eps2.4-decoded']} % at eps 2.4 and {areas['chest-eps5.2-decoded']} % at 5.2" in about
    assert (
        f"as they come {areas['chest-eps2.4']} and {areas['chest-eps5.2']} %, and {areas['chest-clean']} % is reached without"
        in about
    )
    assert len([share for share in rows["chest-clean"]["history"]["validation_accuracy"] if share is not None]) == 7
    decoded = [plans.held_out(rows[f"chest-eps{eps:g}-decoded"]) for eps in BUDGETS if eps >= 5.2]
    assert max(abs(share - plans.held_out(rows["chest-clean"])) for share in decoded) < 0.01
    assert {row["held_out_by"] for row in rows.values()} == {"group"}


def test_the_recipe_for_decoded_releases_is_the_one_that_tuning_chose() -> None:
    how, top = recipe("cifar-decoded"), tuning.best(results.read("tuning", ROOT / "results"))
    assert ("not tuned" in how.source) == (top is None)
    if top:
        chosen = {key: top["recipe"][key] for key in ("epochs", "learning_rate", "weight_decay")}
        assert chosen == {key: getattr(how, key) for key in chosen}


@pytest.mark.parametrize("name", curves.SETS)
def test_the_schedule_for_decoded_releases_costs_less_than_a_point(name: str) -> None:
    rows = rows_of("curves")
    short, longer = ([row for row in rows if row["run"] == f"{name}-eps20{kind}-decoded"] for kind in ("", "-longer"))
    assert {row["epochs_done"] for row in longer} == {2 * row["epochs_done"] for row in short}
    assert len(short) == 3
    assert max(row["accuracy"] for row in longer) - sum(row["accuracy"] for row in short) / 3 < 0.01


def test_the_page_says_what_the_schedule_costs_as_they_come() -> None:
    costs = [mean_of("curves", f"{name}-eps20-longer") - mean_of("curves", f"{name}-eps20") for name in curves.SETS]
    assert "it costs {:.1f} points on CIFAR-10 ({:.1f} on CIFAR-100)".format(*costs) in curves.EXPERIMENT.about


def test_the_plans_that_are_carried_along_are_those_that_were_measured() -> None:
    rows = rows_of("tradeoff")
    again = "ldp-slicing lab results --plans src/ldp_slicing/lab/plans.json"
    assert plans.MEASURED.read_text() == plans.to_json(rows), again
    assert plans.measured(plans.TASK) == plans.points(rows) == plans.measured(plans.TASK, ROOT / "results")


@pytest.mark.parametrize("name", ["ablation", "chest", "curves", "faces", "fidelity", "identity", "tradeoff", "tuning"])
def test_rows_say_what_was_spent(name: str) -> None:
    """Equal pictures are one source: CIFAR-100 has some twice, the X-rays some three times."""
    rows = [row for row in rows_of(name) if row.get("epsilon_spent_per_released_pixel") is not None]
    assert rows
    for row in rows:
        epochs = row["recipe"]["epochs"] if row["release"] == "every-epoch" else 1
        times = {"cifar10": 1, "cifar100": 2, "chest": 3, "lfw": 1}[row["data"]]
        assert row["epsilon_spent_per_released_pixel"] == pytest.approx(
            epochs * times * row["epsilon_realised_per_release"]
        )
