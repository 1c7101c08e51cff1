"""What README and threat model quote is what the runs have shown."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.lab import plans, results
from ldp_slicing.lab.experiment import BUDGETS, accuracies
from ldp_slicing.lab.experiments import EXPERIMENTS, chest, curves, faces, fidelity, identity, tradeoff, tuning
from ldp_slicing.lab.learners.recipes import recipe
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


def words_of(document: str) -> str:
    """The text of a document without its line breaks."""
    return " ".join((ROOT / document).read_text().split())


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


def test_the_readme_quotes_the_white_box() -> None:
    found, alone = (rank_1("white-box", f"lfw-pruned{which}") for which in ("", "-only20"))
    text = (ROOT / "README.md").read_text()
    assert (
        f"finds {alone['20']:.0f} % of 736 people of LFW among all of them ({found['the originals']:.0f} % from the originals)"
        in text
    )
    few = ", ".join(
        f"at {words} {found[eps]:.0f} %" for words, eps in (("eps 12", "12"), ("5.2", "5.2"), ("2.4", "2.4"))
    )
    assert f"One network for all budgets gets {found['20']:.0f} %; {few}, at eps 1 {found['1']:.1f} %" in text
    told = next(row for row in rows_of("white-box") if row["run"] == "lfw-pruned")["found"]
    linked = {one["epsilon_requested"]: 100 * one["reconstruction"]["verification"]["accuracy"] for one in told}
    strongest = next(row for row in rows_of("white-box") if row["run"] == "lfw-pruned-only20")["found"][0][
        "reconstruction"
    ]["verification"]
    assert f"tells it rightly for {100 * strongest['accuracy']:.1f} % of the pairs at eps 20" in text
    assert strongest["accuracy"] > linked[20.0] / 100
    assert f"for {linked[2.4]:.1f} % at 2.4 and for {linked[1.0]:.1f} % at eps 1, where guessing" in text
    assert f"the paper reports {50 + identity.PAPER['lfw']} %" in text


def right(run: str) -> str:
    """How many of 100 pairs an adversary tells rightly."""
    mine = [row for row in rows_of("identity") if row["run"].removesuffix("-first").removesuffix("-second") == run]
    return f"{100 * sum(row['right'] for row in mine) / sum(row['pairs'] for row in mine):.1f}"


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


def test_the_readme_quotes_plans_that_need_a_fraction_of_the_budget() -> None:
    found = {(one.slices, one.plan.epsilon, one.prune): one for one in plans.points(rows_of("tradeoff"))}
    papers: list[plans.Point] = []
    for words, epsilon, accuracy, leakage, alone in table_after("README.md", "plan")[2:]:
        plan, _, pruning = words.rpartition(", ")
        slices = "" if plan == "the paper's" else plan.strip("`").removeprefix(f"--epsilon {epsilon} --slices ")
        point = found[slices, float(epsilon), "haar" if pruning == "pruned" else None]
        assert (accuracy, leakage) == (f"{100 * point.accuracy:.1f}", f"{point.leakage:.3f}")
        assert alone == ("-" if point.alone is None else f"{point.alone:.3f}")
        if slices:
            paper = papers.pop()
            assert point.plan.epsilon < paper.plan.epsilon / 3.8
            assert point.accuracy > paper.accuracy - 0.002
            assert point.leakage < paper.leakage + 0.01
            assert point.worst < paper.worst + 0.01
        else:
            papers.append(point)
    assert f"for {len(found)} plans]" in readme()
    assert not papers


def test_the_readme_compares_plans_where_they_leak_as_much() -> None:
    found = plans.points(rows_of("tradeoff"))
    few = [one for one in found if one.slices]
    there = {one: found_there for one in few if (found_there := plans.of_the_paper(one, found))}
    assert f"Of {len(few)} such plans, {len(there)} lie among the paper's points." in readme()
    times = [epsilon / one.plan.epsilon for one, (epsilon, _) in there.items()]
    more = [100 * (accuracy - one.accuracy) for one, (_, accuracy) in there.items()]
    assert f"it needs {min(times):.0f} to {max(times):.0f} times the eps" in readme()
    assert (
        f"differs by {max(more):+.0f} to {min(more):+.0f} points, by {statistics.fmean(more):+.1f} on average"
        in readme()
    )
    aside = [one.alone - one.leakage for one in found if one.alone is not None]
    assert f"adversaries of one plan differ by {min(aside):.3f} to {max(aside):.3f}" in tradeoff.EXPERIMENT.about
    worse = [replace(one, leakage=one.leakage + max(aside) * bool(one.slices)) for one in found]
    gains = [one.accuracy - at[1] for one in worse if one.slices and (at := plans.of_the_paper(one, worse))]
    assert statistics.fmean(gains) < 0  # "no more than adversaries differ"
    flipped = [
        float(plan.tables.change_probability(0x800000))
        for plan in (Plan.paper(20.0), Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7"))
    ]
    words = "({:.1f} % by the paper's plan at eps 20, {:.1f} % by `Y7+Y4+Cb7+Cr7` at 5.2)"
    assert words.format(*(100 * share for share in flipped)) in readme()


def test_the_readme_says_what_decoding_and_a_larger_learner_change() -> None:
    rows = {row["run"]: 100 * row["accuracy"] for row in rows_of("tradeoff") if "accuracy" in row}
    assert plans.decoded(rows_of("tradeoff"))
    paper, few = "cifar10-paper-pruned-eps20-learner", "cifar10-thick-pruned-eps5.2-y74c7-learner"
    assert rows[f"{paper}-decoded"] - rows[paper] > rows[f"{few}-decoded"] - rows[few]
    assert (
        f"its releases at eps 20 teach the small one {rows[paper]:.1f} %, those by `Y7+Y4+Cb7+Cr7` {rows[few]:.1f} %"
        in readme()
    )
    large = [mean_of("curves", f"cifar10-{run}-decoded") for run in ("thick5.2", "eps20")]
    words = "gets {:.1f} % from one release by `Y7+Y4+Cb7+Cr7` at 5.2 (the right star in the figure of the section before), and {:.1f} %"
    assert words.format(*large) in readme()
    for eps in BUDGETS:  # as the page says
        larger = accuracies(rows_of("curves"), f"cifar10-eps{eps:g}-decoded")
        assert 100 * sum(larger) / len(larger) > rows[f"cifar10-paper-pruned-eps{eps:g}-learner-decoded"]


def test_the_guide_says_what_raised_detail_is_worth() -> None:
    rows, text = rows_of("tradeoff"), (ROOT / "docs/guide.md").read_text()
    alone = plans.leakages(rows, "-alone")
    names = ("paper-raised-eps20", "paper-pruned-eps20", "paper-pruned-eps32")
    raised, pruned, more = ((100 * plans.learners_of(name, rows)[0]["accuracy"], alone[name]) for name in names)
    assert f"at eps 20 taught {raised[0]:.1f} % instead of {pruned[0]:.1f} %" in text
    assert (
        f"an SSIM of {raised[1]:.3f} instead of {pruned[1]:.3f} ({more[0]:.1f} % and {more[1]:.3f} at eps 32 without it"
        in text
    )


def mean_of(name: str, run: str) -> float:
    return 100 * statistics.fmean(accuracies(rows_of(name), run))


def test_the_readme_says_what_can_be_learnt() -> None:
    head, _, *lines = table_after("README.md", "eps of a released pixel, learning")
    assert head[1:] == ["5.2", "12", "20", "no privacy"]
    budgets = [float(eps) for eps in head[1:-1]]
    x_rays = {row["run"]: row for row in rows_of("chest")}
    areas = [
        x_rays[f"chest-{run}"]["area_under_curve"] for run in (*(f"eps{eps:g}-decoded" for eps in budgets), "clean")
    ]
    rebuilt = [f"lfw-{run}" for run in (*(f"rebuilt-eps{eps:g}" for eps in budgets), "untuned-clean")]

    def line(name: str, *prefixes: str) -> list[list[str]]:
        runs = [[*(f"{prefix}-eps{eps:g}-decoded" for eps in budgets), f"{prefix}-clean"] for prefix in prefixes]
        return [[f"{mean_of(name, run):.1f}" for run in some] for some in runs]

    def paper(numbers: Sequence[float], clean: str) -> list[str]:
        return [*(str(dict(zip(BUDGETS, numbers, strict=True))[eps]) for eps in budgets), clean]

    ten, hundred = line("curves", "cifar10", "cifar100")
    assert [cells[1:] for cells in lines] == [
        ten,
        paper(curves.PAPER["cifar10"], str(curves.PAPER_CLEAN["cifar10"])),
        hundred,
        paper(curves.PAPER["cifar100"], str(curves.PAPER_CLEAN["cifar100"])),
        *line("chest", "chest"),
        [f"{100 * area:.1f}" for area in areas],
        paper(chest.PAPER, "-"),
        [f"{100 * statistics.fmean(faces.over_folds(rows_of('faces'), run)):.1f}" for run in rebuilt],
        [f"{float(number):.2f}" for number in paper(faces.PAPER, "99.77")],
    ]
    for name in curves.SETS:
        assert [len(accuracies(rows_of("curves"), f"{name}-eps{eps:g}-decoded")) for eps in budgets] == [3, 3, 3]


def test_the_readme_says_what_was_learnt_otherwise() -> None:
    theirs = next(row for row in rows_of("fidelity") if row["run"] == "cifar10-eps20-every-epoch")
    longer = {
        way: next(row for row in rows_of("curves") if row["run"] == f"cifar10-eps20-longer{way}") for way in curves.WAYS
    }
    shares = {way: f"{100 * row['accuracy']:.1f} % in {row['epochs_done']}" for way, row in longer.items()}
    assert f"Releases as they come taught {shares['']} epochs; decoded, {shares['-decoded']}." in readme()
    assert (
        f"which is {theirs['epochs_done']} releases of each image and costs {theirs['epochs_done']} x eps" in readme()
    )
    best, last = (100 * share for share in (theirs["best_test_epoch"]["accuracy"], theirs["accuracy"]))
    assert f"done so, {best:.1f} % came out here on CIFAR-10 at eps 20, {last:.1f} % by the last epoch" in readme()
    x_rays = {row["run"]: row for row in rows_of("chest")}
    held = [100 * plans.held_out(x_rays[f"chest-{run}"]) for run in ("eps5.2-decoded", "clean")]
    assert "it is right for {:.1f} % at eps 5.2 and {:.1f} % without privacy".format(*held) in readme()
    labels = 100 * statistics.fmean(faces.over_folds(rows_of("faces"), "lfw-labels-eps20"))
    assert f"and sees nothing else of them, gets {labels:.1f} % at eps 20" in readme()
    assert max(row["training_images"] for row in rows_of("faces") if row["run"].startswith("lfw-labels-eps20")) == 7860
    assert "a single release of each of 7,860 photos" in readme()


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


def test_the_guide_shows_what_choose_says() -> None:
    ran = CliRunner().invoke(app, ["lab", "choose", "--max-leakage", "0.8"])
    assert f"$ ldp-slicing lab choose --max-leakage 0.8\n{ran.output}```" in (ROOT / "docs/guide.md").read_text()


def test_the_guide_names_every_experiment() -> None:
    text = (ROOT / "docs/guide.md").read_text()
    assert [
        name for name in EXPERIMENTS if f"`{name}`" not in text and f"{name} |" not in text and f"| {name}" not in text
    ] == []


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
