"""Committed reports: they are listed, taken into the table of settings, and chosen from. The numbers are invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.lab.advise.committed import NONE, PACKAGED, list_page, packaged, read_reports
from ldp_slicing.lab.measured import main

RESULTS = Path(__file__).parents[3] / "results"


def about(value: float, count: int = 400) -> dict[str, Any]:
    return {"value": value, "low": value - 0.02, "high": value + 0.02, "count": count}


def entry(prune: str, ssim: float, rank_1: float, **changes: Any) -> dict[str, Any]:
    return {
        "plan": "thick",
        "epsilon": 0.5,
        "prune": prune,
        "width": 8,
        "height": 8,
        "shrinks": True,
        "utility": {},
        "risks_lower_bounds": {"ssim": about(ssim), "rank_1": about(rank_1, 90), "verification": about(0.55)},
        "reconstruction": {"ssim_at_least_0.7": about(0.1)},
        "growth_with_training": {"ssim": 0.0, "rank_1": 0.0},
        "rounds": 1,
        "confirmations": 0,
    } | changes


def write_report(results: Path, name: str, *settings: dict[str, Any], **changes: Any) -> None:
    report = {
        "report": 1,
        "finished": True,
        "answer": {"kind": "none", "sentence": "No setting that was tried meets the limit."},
        "limits": [{"option": "max_linkage", "metric": "rank_1", "bound": 0.05}],
        "sources": {"images": 1200, "grey": False},
        "tried": len(settings),
        "grid": 9,
        "stages": {"round 1": {"attacking": 10}, "confirmation": {"attacking": 20}},
        "minutes": 12.4,
        "unprotected": {"attacks": {"ssim": about(0.9), "rank_1": about(0.8)}},
        "settings": list(settings),
    } | changes
    folder = results / "advise" / name
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(report))


def choose(results: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["lab", "choose", "--results", str(results), *options])
    return done.exit_code, done.output


def test_lab_choose_answers_by_the_report_of_a_data_set(tmp_path: Path) -> None:
    write_report(tmp_path, "lfw", entry("none", 0.4, 0.3), entry("haar", 0.3, 0.1))
    status, said = choose(tmp_path, "--task", "lfw", "--max-leakage", "0.5")
    assert status == 0
    assert "8 x 8, not pruned, one thick slice, eps 0.5 has met, so far and without confirmation, the limit" in said
    assert "--slices Y7+Y6+Cb7+Cr7 --prune none --fit 8x8" in said
    assert (
        "SSIM of reconstructions 0.400 (95 % interval 0.380 to 0.420), a lower bound; limit: met so far, not confirmed"
        in said
    )
    status, said = choose(tmp_path, "--task", "lfw", "--max-leakage", "0.5", "--max-linkage", "0.2")
    assert "8 x 8, pruned" in said.splitlines()[0]
    status, said = choose(tmp_path, "--task", "lfw", "--max-leakage", "0.1")
    assert said.startswith("No setting that was measured meets the limit.")
    for options, problem in (
        (("--task", "chest"), "nothing was measured for 'chest', only for cifar10, lfw"),
        (("--task", "lfw", "--max-epsilon", "0.1"), "no measured setting has eps 0.1 or less"),
        (("--max-linkage", "0.1"), "linkage was not measured for cifar10"),
    ):
        status, said = choose(tmp_path, "--max-leakage", "0.5", *options)
        assert status
        assert problem in " ".join(said.split())


def test_one_command_takes_reports_into_the_table_the_package_and_the_list(tmp_path: Path) -> None:
    write_report(tmp_path, "chest", entry("none", 0.4, 0.3), sources={"images": 1200, "grey": True})
    table, advice = tmp_path / "table.json", tmp_path / "advice.json"
    arguments = ["--results", str(tmp_path), "--table", str(table), "--advice", str(advice)]
    assert main([*arguments, "--check"]) == 1
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 0
    linked, reconstructed = json.loads(table.read_text())["measured"]
    assert linked["name"] == "chest-8-7+6-whole-eps0.5-identity"
    assert "re-identified 30.0 % of 90 patients" in linked["sentence"]
    assert reconstructed["numbers"] == {"ssim": 0.4, "share_of_ssim_at_least_0.7": 0.1}
    assert (reconstructed["word_bits"], reconstructed["width"], reconstructed["attack"]) == (8, 8, "advise, short")
    assert json.loads(advice.read_text()) == read_reports(tmp_path)
    page = (tmp_path / "advise" / "README.md").read_text()
    assert (
        "| [chest X-rays](chest/report.html) | 1,200 | 1 of 9 | 12 | `--max-linkage 0.05` | No setting that was tried"
        in page
    )


def names_of_the_table(results: Path, *settings: dict[str, Any]) -> list[str]:
    write_report(results, "chest", *settings, sources={"images": 1200, "grey": True})
    table = results / "table.json"
    assert main(["--results", str(results), "--table", str(table), "--advice", str(results / "advice.json")]) == 0
    return [one["name"].removeprefix("chest-") for one in json.loads(table.read_text())["measured"]]


def test_short_attacks_count_if_they_succeed_and_there_is_no_other(tmp_path: Path) -> None:
    failed = {"reconstruction": {"ssim_at_least_0.7": about(0.0)}}
    tried, confirmed = entry("none", 0.4, 0.01, **failed), entry("none", 0.4, 0.01, **failed, confirmations=2)
    assert names_of_the_table(tmp_path / "a", tried) == []
    assert names_of_the_table(tmp_path / "b", confirmed) == [
        "8-7+6-whole-eps0.5-identity",
        "8-7+6-whole-eps0.5-reconstruction",
    ]
    larger = entry("none", 0.4, 0.2, width=16, height=16, **failed)
    assert names_of_the_table(tmp_path / "c", larger) == ["16-7+6-whole-eps0.5-identity"]
    smaller = entry("none", 0.4, 0.3, **failed)
    assert names_of_the_table(tmp_path / "d", larger, smaller) == ["8-7+6-whole-eps0.5-identity"]
    assert names_of_the_table(tmp_path / "e", larger, confirmed) == [
        "8-7+6-whole-eps0.5-identity",
        "8-7+6-whole-eps0.5-reconstruction",
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"finished": False}, "is not a finished report of version 1"),
        (
            {"stages": {"round 1": {"attacking": 10}, "confirmation": {"attacking": 19}}},
            "the confirmation was not 2 times as long as every round",
        ),
    ],
)
def test_a_report_that_does_not_confirm_is_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    write_report(tmp_path, "lfw", entry("none", 0.4, 0.3), **changes)
    status, said = choose(tmp_path, "--task", "lfw", "--max-leakage", "0.5")
    assert status
    assert problem in " ".join(said.split())


def test_the_package_has_the_reports_of_the_repository_and_the_list_says_if_there_are_none() -> None:
    assert PACKAGED.is_file()
    assert packaged() == read_reports(RESULTS)
    assert NONE in list_page({}, {})
