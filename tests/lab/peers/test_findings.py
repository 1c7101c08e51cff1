"""Sentences about the peers follow from the numbers, and from those alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ldp_slicing.lab.experiments.peer_findings import Standing, findings, published, standings
from ldp_slicing.lab.rows import Row, read_rows

ROOT = Path(__file__).parents[3]


def _row(peer: str, accuracy: float, student: float, reconstructed: float, ssim: float = 0.5) -> Row:
    metrics = {
        "utility": {"accuracy": accuracy, "standard_error": 0.005, "pairs": 3000},
        "linkage": {"rank_1": {"share": student, "count": 736}},
        "decoded": None,
        "release": {"rank_1": {"share": 0.0, "count": 736}, "ssim": 0.0},
        "reconstruction": {"rank_1": {"share": reconstructed, "count": 736}, "ssim": ssim},
    }
    return Row("peers", "lfw", method="peer", options={"peer": peer}, metrics=metrics)


def test_linkage_is_that_of_the_strongest_attack() -> None:
    assert standings([_row("none", 0.9, 0.2, 0.7)])["none"].linked == 0.7
    assert standings([_row("none", 0.9, 0.8, 0.7)])["none"].linked == 0.8


def test_a_system_that_does_better_than_ours_is_named_and_one_that_does_worse() -> None:
    rows = [
        _row("none", 0.98, 0.9, 0.9),
        _row("ldp-slicing:eps20", 0.8, 0.5, 0.6),
        _row("cloak:10", 0.85, 0.4, 0.4),
        _row("duetface", 0.79, 0.89, 0.6, ssim=0.9),
        _row("partialface", 0.97, 0.7, 0.7, ssim=0.58),
        _row("peep:k64", 0.505, 0.0, 0.0),
    ]
    text = "\n".join(findings(rows))
    assert "two standard errors, in releases of duetface (89.0 %)." in text
    ours = (
        "than ldp-slicing:eps20 (accuracy 80.0 %, linked 60.0 %) in accuracy or linkage, by two standard errors or more"
    )
    assert f"Better {ours}, and not measurably worse in the other: cloak:10 (accuracy 85.0 %, linked 40.0 %)." in text
    assert f"Worse {ours}, and not measurably better in the other: duetface (accuracy 79.0 %, linked 89.0 %)." in text
    assert "partialface (" not in text
    assert "peep:k64 (" not in text


def test_accuracy_is_that_of_the_best_recogniser_that_all_were_measured_with() -> None:
    first, second = _row("none", 0.6, 0.2, 0.7), _row("duetface", 0.6, 0.2, 0.7)
    dlib = {"decoded": {"accuracy": 0.8, "standard_error": 0.01, "pairs": 3000}}
    first.metrics["dlib"] = dlib | {"reconstructed": {"accuracy": 0.9, "standard_error": 0.02, "pairs": 3000}}  # type: ignore[index]
    second.metrics["dlib"] = dlib  # type: ignore[index]
    assert standings([first])["none"].accuracy == 0.9
    assert standings([first, second])["none"].accuracy == 0.8


def test_folds_that_agree_by_chance_do_not_make_an_accuracy_certain() -> None:
    row = _row("none", 0.97, 0.2, 0.7)
    row.metrics["utility"]["standard_error"] = 0.0001  # type: ignore[index, call-overload]
    assert standings([row])["none"].accuracy_error > 0.003


def test_nearly_as_many_linked_people_count_as_many() -> None:
    rows = [_row("none", 0.98, 0.9, 0.9), _row("ldp-slicing:eps20", 0.8, 0.5, 0.79), _row("minusface", 0.8, 0.5, 0.7)]
    assert "in releases of ldp-slicing:eps20 (79.0 %)." in "\n".join(findings(rows))


def test_a_difference_without_any_error_counts() -> None:
    better, worse = Standing(0.9, 0.0, 0.1, 0.0), Standing(0.8, 0.0, 0.1, 0.0)
    assert better.beats(worse)
    assert not worse.beats(better)
    assert not better.beats(better)


def test_without_a_row_for_no_protection_nothing_is_said() -> None:
    assert findings([_row("duetface", 0.9, 0.9, 0.9)]) == []


def test_published_numbers_belong_to_a_system_or_to_one_setting() -> None:
    assert published("instahide:k4") is None
    assert published("cloak:10") is None
    assert published("cloak:100") == 98.91
    assert published("dctdp:code-learned-eps0.5") == 99.48
    assert published("dctdp:code-eps0.5") is None
    assert published("dctdp:range-eps1") is None


def test_the_first_table_of_the_page_has_the_best_recogniser_and_the_strongest_attack() -> None:
    page = re.sub(r"<!--.*?-->", "", (ROOT / "docs/peers.md").read_text())
    first = page.partition("## At a glance")[2].partition("\n## ")[0]
    shown = {
        cells[0]: cells[2:]
        for cells in re.findall(r"^\| [*]*`(.*?)`.*?\|(.*)\|(.*)\|(.*)\|(.*)\|$", first, re.MULTILINE)
    }
    found = standings(read_rows(ROOT / "results/peers.json"))
    assert {"none", "random"} < {*shown}
    assert {name for name in found if name.startswith("ldp-slicing")} < {*shown}
    assert {name.partition(":")[0] for name in found} == {name.partition(":")[0] for name in shown}
    for name, (paper, accuracy, linked) in shown.items():
        known = published(name)
        assert paper.strip() == ("" if known is None else f"{known:.2f}")
        assert float(accuracy) == pytest.approx(100 * found[name].accuracy, abs=0.051)
        assert float(linked) == pytest.approx(100 * found[name].linked, abs=0.051)
    assert [float(row[2]) for row in shown.values()] == sorted((float(row[2]) for row in shown.values()), reverse=True)
