"""What README and threat model quote is what the runs have shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def rank_1(attack: str, run: str) -> dict[str, float]:
    """eps to the share of people who are found at first rank, in %; "the originals" too."""
    rows: list[dict[str, Any]] = json.loads((ROOT / "results" / f"{attack}.json").read_text())["rows"]
    row = next(row for row in rows if row["run"] == run and row["finished"])
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
    lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in (ROOT / "docs/threat-model.md").read_text().split("\n")
    ]
    head = next(cells for cells in lines if cells[0] == "eps of a released pixel")
    line = next(cells for cells in lines if cells[0] == words)
    found = rank_1(attack, run)
    assert line[1:] == [f"{found[eps]:.1f}" for eps in head[1:]]


def test_the_threat_model_compares_pruning_and_networks() -> None:
    text, alone = (ROOT / "docs/threat-model.md").read_text(), rank_1("white-box", "lfw-pruned-only20")
    pruned, whole = (rank_1("white-box", f"lfw-{view}")["5.2"] for view in ("pruned", "whole"))
    assert f"A white box for eps 20 alone, pruned, finds {alone['20']:.1f}." in text
    assert f"({pruned:.1f} against {whole:.1f} at eps 5.2" in text


def test_the_readme_quotes_the_white_box() -> None:
    found, alone = (rank_1("white-box", f"lfw-pruned{which}") for which in ("", "-only20"))
    text = (ROOT / "README.md").read_text()
    assert f"finds {alone['20']:.0f} % of 736 people of LFW among all of them ({found['the originals']:.0f} % from the originals)" in text
    few = ", ".join(f"at {words} {found[eps]:.0f} %" for words, eps in (("eps 12", "12"), ("5.2", "5.2"), ("2.4", "2.4")))
    assert f"One network for all budgets gets {found['20']:.0f} %; {few}, at eps 1 {found['1']:.1f} %" in text
