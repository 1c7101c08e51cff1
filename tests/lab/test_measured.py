from __future__ import annotations

import json
from pathlib import Path

import pytest

from ldp_slicing.lab.advise.committed import read_reports
from ldp_slicing.lab.measured import EXPERIMENTS, extend, main, measured, to_json
from ldp_slicing.lab.rows import Measurement, Row, read_rows, rows_to_json
from ldp_slicing.measured import FIRST_TABLE, TABLE, latest, read_table, table_version
from ldp_slicing.plan import Plan

RESULTS = Path(__file__).parents[2] / "results"
PLAN = Plan.paper(20.0)


def faces(rank_1: float, experiment: str = "white-box", **options: float) -> Row:
    got = {"rank_1": {"share": rank_1, "count": 736}, "verification": {"accuracy": 0.9}}
    return Row(
        experiment,
        "lfw",
        plans=(PLAN,),
        prune="haar",
        options=options,
        measurements=(Measurement({"release": {}, "reconstruction": got}, PLAN),),
    )


def test_the_table_is_what_the_command_makes_from_the_results() -> None:
    assert main(["--check", "--results", str(RESULTS)]) == 0, "run python -m ldp_slicing.lab.measured"
    assert to_json(read_table()) == TABLE.read_text()
    rows = (row for name in EXPERIMENTS for row in read_rows(RESULTS / f"{name}.json"))
    made = measured(rows, read_reports(RESULTS))
    now = latest(read_table()["measured"], table_version())
    assert {one["name"] for one in now} == {one.name for one in made}


def test_the_strongest_attack_counts() -> None:
    (one,) = measured([faces(0.5), faces(0.7, "black-box"), faces(0.6)])
    assert (one.numbers["rank_1_identification"], one.attack) == (0.7, "black box")
    assert one.name == "lfw-112-paper-haar-eps20-identity"


def test_the_size_of_a_release_is_part_of_its_setting() -> None:
    small, large = measured([faces(0.2, "sizes", size=28), faces(0.7)])[::-1]
    assert (small.name, small.width, small.height) == ("lfw-28-paper-haar-eps20-identity", 28, 28)
    assert "28 x 28 pixels" in small.sentence
    assert large.width == 112


def test_rows_that_say_nothing_about_a_plan_are_left_out() -> None:
    rows = [Row("white-box", "lfw", "mean-image"), Row("curves", "cifar10", plans=(PLAN,)), Row("chest", "ours")]
    assert measured(rows) == []


@pytest.mark.parametrize(
    ("rank_1", "words"), [(0.5, "as recognisable"), (0.01, "as linkable to other images of the same person")]
)
def test_the_advice_follows_from_the_numbers(rank_1: float, words: str) -> None:
    assert words in measured([faces(rank_1)])[0].advice


def test_entries_are_appended_and_never_changed(tmp_path: Path) -> None:
    results, table = tmp_path / "results", tmp_path / "table.json"
    results.mkdir()

    def run(*rows: Row) -> dict[str, list[dict[str, object]]]:
        (results / "white-box.json").write_text(rows_to_json("white-box", rows))
        assert main(["--results", str(results), "--table", str(table)]) == 0
        return json.loads(table.read_text())

    first = run(faces(0.5))
    assert (first["table"], len(first["measured"])) == (FIRST_TABLE, 1)
    assert run(faces(0.5)) == first
    second = run(faces(0.6), faces(0.1, size=28))
    assert second["table"] == FIRST_TABLE + 1
    assert second["measured"][:1] == first["measured"]
    assert [(one["name"], one["since"]) for one in second["measured"][1:]] == [
        ("lfw-112-paper-haar-eps20-identity", FIRST_TABLE + 1),
        ("lfw-28-paper-haar-eps20-identity", FIRST_TABLE + 1),
    ]
    (results / "white-box.json").write_text(rows_to_json("white-box", [faces(0.9)]))
    assert main(["--check", "--results", str(results), "--table", str(table)]) == 1
    assert json.loads(table.read_text()) == second


def test_results_that_are_gone_leave_their_entries() -> None:
    table = extend({"table": 0, "measured": [], "presets": []}, measured([faces(0.5)]))
    assert extend(table, [])["measured"] == table["measured"]
