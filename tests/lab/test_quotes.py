"""What README and threat model quote is what the runs have shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.lab import plans, results
from ldp_slicing.lab.experiments import EXPERIMENTS, chest, curves, fidelity, identity, tuning
from ldp_slicing.lab.experiments.frame import BUDGETS, accuracies
from ldp_slicing.lab.recipes import recipe
from ldp_slicing.plan import Plan

ROOT = Path(__file__).parents[2]


def rows_of(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / "results" / f"{name}.json").read_text())["rows"]
    return [row for row in rows if row["finished"]]


def readme() -> str:
    return (ROOT / "README.md").read_text()


def table_after(path: str, head: str) -> list[list[str]]:
    """The cells of the table whose first cell is ``head``, line by line, head and rule first."""
    lines = [line.strip() for line in (ROOT / path).read_text().split("\n")]
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {head} |"))
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]


def rank_1(attack: str, run: str) -> dict[str, float]:
    """eps to the share of people who are found at first rank, in %; "the originals" too."""
    row = next(row for row in rows_of(attack) if row["run"] == run)
    found = {f"{one['epsilon_requested']:g}": one["reconstruction"]["rank_1"]["share"] for one in row["found"]}
    return {eps: 100 * share for eps, share in (found | {"the originals": row["originals"]["rank_1"]["share"]}).items()}


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
    text, alone = (ROOT / "docs/threat-model.md").read_text(), rank_1("white-box", "lfw-pruned-only20")
    pruned, whole = (rank_1("white-box", f"lfw-{view}")["5.2"] for view in ("pruned", "whole"))
    assert f"A white box for eps 20 alone, pruned, finds {alone['20']:.1f}." in text
    assert f"At eps 5.2 faces were even recognised more often with pruning than without ({pruned:.1f} against {whole:.1f}" in text


def test_the_readme_quotes_the_white_box() -> None:
    found, alone = (rank_1("white-box", f"lfw-pruned{which}") for which in ("", "-only20"))
    text = (ROOT / "README.md").read_text()
    assert f"finds {alone['20']:.0f} % of 736 people of LFW among all of them ({found['the originals']:.0f} % from the originals)" in text
    few = ", ".join(f"at {words} {found[eps]:.0f} %" for words, eps in (("eps 12", "12"), ("5.2", "5.2"), ("2.4", "2.4")))
    assert f"One network for all budgets gets {found['20']:.0f} %; {few}, at eps 1 {found['1']:.1f} %" in text
    told = next(row for row in rows_of("white-box") if row["run"] == "lfw-pruned")["found"]
    linked = next(one for one in told if one["epsilon_requested"] == 20)["reconstruction"]["verification"]["accuracy"]
    assert f"told rightly in {100 * linked:.1f} % of the pairs" in text
    assert f"the paper reports {50 + identity.PAPER['lfw']} %" in text


def right(run: str) -> str:
    """How many of 100 pairs an adversary tells rightly."""
    mine = [row for row in rows_of("identity") if row["run"].removesuffix("-first").removesuffix("-second") == run]
    return f"{100 * sum(row['right'] for row in mine) / sum(row['pairs'] for row in mine):.1f}"


def test_the_threat_model_quotes_who_links() -> None:
    head, _, rebuilt, tuned, untuned = table_after("docs/threat-model.md", "eps of a released pixel, linking")
    row = next(row for row in rows_of("white-box") if row["run"] == "lfw-pruned")
    verified = {f"{one['epsilon_requested']:g}": one["reconstruction"]["verification"]["accuracy"] for one in row["found"]}
    verified |= {"the originals": row["originals"]["verification"]["accuracy"]}
    assert rebuilt[1:] == [f"{100 * verified[eps]:.1f}" for eps in head[1:]]
    for line, way in ((tuned, "linker"), (untuned, "untuned")):
        assert line[1:] == [*(right(f"lfw-{way}-eps{eps}") for eps in head[1:-1]), ""]
    text = (ROOT / "docs/threat-model.md").read_text()
    assert f"by the paper and in {right('lfw-wrn-eps20')} here ({right('lfw-wrn-easy')} at eps 200 without pruning)" in text
    assert f"the class of a pair in {right('cifar10-wrn-eps20')} and {right('cifar100-wrn-eps20')} (the paper: 50.25 and 50.1)" in text
    assert f"that is told the photo's class in {right('cifar10-classifier-eps20')} and {right('cifar100-classifier-eps20')}" in text


def test_the_readme_quotes_plans_that_beat_the_papers() -> None:
    found = {(one.slices, one.plan.epsilon, one.prune): one for one in plans.points(rows_of("tradeoff"))}
    beaten: list[plans.Point] = []
    for words, epsilon, accuracy, leakage in table_after("README.md", "plan")[2:]:
        plan, _, pruning = words.rpartition(", ")
        slices = "" if plan == "the paper's" else plan.strip("`").removeprefix(f"--epsilon {epsilon} --slices ")
        point = found[slices, float(epsilon), "haar" if pruning == "pruned" else None]
        assert (accuracy, leakage) == (f"{100 * point.accuracy:.1f}", f"{point.leakage:.3f}")
        if slices:
            before = beaten.pop()
            assert point.plan.epsilon < before.plan.epsilon / 5
            assert point.accuracy > before.accuracy
            assert point.held_out > before.held_out
            assert point.leakage < before.leakage
        else:
            beaten.append(point)
    assert f"for {len(found)} plans]" in readme()
    assert not beaten


def test_the_readme_says_where_the_papers_plan_was_not_beaten() -> None:
    found = plans.points(rows_of("tradeoff"))
    views = [one for one in found if one.prune in ("haar", None)]  # those that the paper has
    paper, few = ([one for one in views if one.name.startswith(family)] for family in ("paper", "thick"))
    for number in ("accuracy", "held_out"):
        beaten = {one: any(getattr(other, number) > getattr(one, number) and other.leakage < one.leakage for other in few) for one in paper}
        lost, kept = ({one.plan.epsilon for one in paper if beaten[one] == is_lost} for is_lost in (True, False))
        assert lost - kept == {12.0, 20.0, 32.0}
    assert "So it went for the paper's plan from eps 12 to 32; below and at 58 some of its points were not beaten." in readme()
    flipped = [float(plan.tables.change_probability(0x800000)) for plan in (Plan.paper(20.0), Plan.sliced(3.5, "Y7+Y4"))]
    assert "({:.1f} % by the paper's plan at eps 20, {:.1f} % by `Y7+Y4` at 3.5)".format(*(100 * share for share in flipped)) in readme()


def test_the_readme_says_what_can_be_learnt() -> None:
    rows, theirs = rows_of("curves"), next(row for row in rows_of("fidelity") if row["run"] == "cifar10-eps20-every-epoch")
    found = {run: accuracies(rows, f"cifar10-{run}") for run in ("eps20-decoded", "eps12-decoded", "eps5.2-decoded", "clean")}
    assert [len(some) for some in found.values()] == [3, 3, 3, 1]
    said = [100 * sum(some) / len(some) for some in found.values()]
    assert (
        "for {:.1f} % of the test set at eps 20, for {:.1f} % at 12 and for {:.1f} % at 5.2; without privacy for {:.1f} %".format(*said)
        in readme()
    )
    assert f"gets {said[0]:.1f} % from the paper's plan at eps 20" in readme()
    paper = dict(zip(BUDGETS, curves.PAPER["cifar10"], strict=True))
    assert f"The paper has {paper[20.0]} % at eps 20 and, read off its figure, {paper[12.0]} and {paper[5.2]} %" in readme()
    longer = {way: next(row for row in rows if row["run"] == f"cifar10-eps20-longer{way}") for way in curves.WAYS}
    shares = {way: f"{100 * row['accuracy']:.1f} % in {row['epochs_done']}" for way, row in longer.items()}
    assert f"As they come, releases at eps 20 taught it {shares['']} epochs; decoded, {shares['-decoded']}." in readme()
    assert f"that is {theirs['epochs_done']} releases of each image" in readme()
    best = f"{100 * theirs['best_test_epoch']['accuracy']:.1f} %"
    assert f"Done so, and reported by the best test epoch as in the paper, {best} came out here at eps 20" in readme()


def test_the_readme_says_what_can_be_learnt_from_other_pictures() -> None:
    rows, paper = rows_of("curves"), dict(zip(BUDGETS, curves.PAPER["cifar100"], strict=True))
    found = [accuracies(rows, f"cifar100-{run}") for run in ("eps20-decoded", "eps12-decoded", "eps5.2-decoded", "clean")]
    assert [len(some) for some in found] == [3, 3, 3, 1]
    said = [100 * sum(some) / len(some) for some in found]
    text = "On CIFAR-100 it is right for {:.1f}, {:.1f} and {:.1f} % (the paper: {}, {} and {} %), without privacy for {:.1f} %"
    assert text.format(*said[:3], *(paper[eps] for eps in (20.0, 12.0, 5.2)), said[3]) in readme()
    x_rays = {row["run"]: row for row in rows_of("chest")}
    runs = [x_rays[f"chest-{run}"] for run in ("eps5.2-decoded", "clean")]
    text = "for {:.1f} % at eps 5.2, decoded, and for {:.1f} % without privacy"
    assert text.format(*(100 * plans.held_out(row) for row in runs)) in readme()
    assert "for {:.1f} and {:.1f} % of the official test set".format(*(100 * row["accuracy"] for row in runs)) in readme()
    assert f"(and decoding does not help: {100 * x_rays['chest-eps5.2']['accuracy']:.1f} % without)" in readme()


def test_the_readme_says_what_decoding_leaves_of_it() -> None:
    found = {row["run"]: 100 * row["accuracy_decoded"] for row in rows_of("decoding") if "accuracy_decoded" in row}
    paper, few, more = (found[run] for run in ("paper-eps20", "thick-eps3.5", "thick-eps5.2"))
    assert few < paper < more
    assert f"gets {paper:.1f} % from it at eps 20, {few:.1f} % from `Y7+Y4` at 3.5 and {more:.1f} % from `Y7+Y4+Cb7+Cr7` at 5.2" in readme()
    leaks = {(one.slices, one.plan.epsilon): one.leakage for one in plans.points(rows_of("tradeoff")) if one.prune == "haar"}
    assert f"leaks a little more ({leaks['Y7+Y4+Cb7+Cr7', 5.2]:.3f} against {leaks['', 20.0]:.3f})" in readme()


def test_what_falls_short_of_the_paper_falls_short_by_the_decay_of_the_learning_rate() -> None:
    found = {row["run"]: row for row in rows_of("fidelity")}
    code, said = (found[f"cifar100-clean{kind}"] for kind in ("", "-as-the-paper-says"))
    best = [100 * row["best_test_epoch"]["accuracy"] for row in (code, said)]
    assert best[0] < fidelity.PAPER["cifar100-clean"] - 1 < best[1]
    about = ("name", "source", "deviations")
    assert {key for key, value in code["recipe"].items() if said["recipe"][key] != value and key not in about} == {"factor"}
    assert [(row["recipe"]["factor"], len(row["recipe"]["milestones"])) for row in (code, said)] == [(0.5, 3), (0.1, 3)]


def test_the_page_says_what_is_lacking_on_x_rays() -> None:
    rows = {row["run"]: row for row in rows_of("chest")}
    ill, healthy = 390, 234

    def found(row: dict[str, Any]) -> tuple[float, float]:
        """The share of the ill and of the healthy that are told right, from the mean of both and the mean of all."""
        both = 2 * row["balanced_accuracy"]
        share = ((ill + healthy) * row["accuracy"] - healthy * both) / (ill - healthy)
        return share, both - share

    clean = found(rows["chest-clean"])
    assert (
        f"it finds {100 * clean[0]:.1f} % of the ill there, but takes {100 * (1 - clean[1]):.1f} % of the healthy" in chest.EXPERIMENT.about
    )
    loss = 100 * (rows["chest-eps20"]["accuracy"] - rows["chest-eps20-decoded"]["accuracy"])
    assert f"({loss:.1f} points less at eps 20)" in chest.EXPERIMENT.about
    assert len([share for share in rows["chest-clean"]["history"]["validation_accuracy"] if share is not None]) == 7
    assert all(found(row)[1] < clean[1] for run, row in rows.items() if run != "chest-clean")
    assert rows["chest-clean"]["accuracy"] < chest.PAPER[1] / 100
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


def test_the_plans_that_are_carried_along_are_those_that_were_measured() -> None:
    rows = rows_of("tradeoff")
    again = "ldp-slicing lab results --plans src/ldp_slicing/lab/plans.json"
    assert plans.MEASURED.read_text() == plans.to_json(rows), again
    assert plans.measured(plans.TASK) == plans.points(rows) == plans.measured(plans.TASK, ROOT / "results")


def test_the_guide_shows_what_choose_says() -> None:
    ran = CliRunner().invoke(app, ["lab", "choose", "--max-leakage", "0.78"])
    assert f"$ ldp-slicing lab choose --max-leakage 0.78\n{ran.output}```" in (ROOT / "docs/guide.md").read_text()


def test_the_guide_names_every_experiment() -> None:
    text = (ROOT / "docs/guide.md").read_text()
    assert [name for name in EXPERIMENTS if f"`{name}`" not in text and f"{name} |" not in text and f"| {name}" not in text] == []
