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


def test_the_readme_quotes_the_white_box() -> None:
    found, text = rank_1("white-box", "lfw-pruned"), (ROOT / "README.md").read_text()
    assert f"finds {found['20']:.0f} % of 736 people of LFW among all of them ({found['the originals']:.0f} % from the originals)" in text
    assert f"at eps 12 {found['12']:.0f} %, at 5.2 {found['5.2']:.0f} %, at 2.4 {found['2.4']:.0f} %, at eps 1 {found['1']:.1f} %" in text
