from __future__ import annotations

from pathlib import Path

import pytest

from ldp_slicing import Plan
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.quotes import MARKER, documents, fill, main, quote
from ldp_slicing.lab.rows import Measurement, Row, Training, rows_to_json
from ldp_slicing.measured import entries, table_version

ROOT = Path(__file__).parents[2]
PLANS = (Plan.paper(5.2), Plan.paper(20.0))
LEARNERS = [
    Row(
        "curves",
        "cifar10",
        plans=(plan,),
        mode="decoded",
        seed=seed,
        recipe={"name": "short"},
        training=Training(images=1, epochs=75),
        metrics={"test_accuracy": plan.epsilon / 100 + seed / 100},
    )
    for plan in PLANS
    for seed in (0, 1)
]
ATTACKS = [
    Row(
        "white-box",
        "lfw",
        plans=PLANS,
        prune="haar",
        measurements=tuple(Measurement({"rank_1": {"share": plan.epsilon / 50}}, plan) for plan in PLANS),
    )
]
OTHER_ATTACKS = [
    Row(
        "black-box",
        "lfw",
        plans=PLANS,
        prune="haar",
        measurements=tuple(Measurement({"rank_1": {"share": plan.epsilon / 30 - 1 / 6}}, plan) for plan in PLANS),
    )
]


def rows_of(name: str) -> list[Row]:
    return {"curves": LEARNERS, "white-box": ATTACKS, "black-box": OTHER_ATTACKS}.get(name, [])


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        ("curves epsilon=20 metric=test_accuracy", "20.5"),
        ("curves epsilon=20 seed=0 metric=test_accuracy", "20.0"),
        ("curves epsilon=5.2,20 metric=test_accuracy", "5.7 | 20.5"),
        ("curves epsilon=20 metric=test_accuracy as=.3f", "0.205"),
        ("curves epsilon=20 metric=training.epochs as=.0f", "75"),
        ("white-box prune=haar epsilon=5.2,20 metric=rank_1.share as=.0%", "10 | 40"),
        ("white-box prune=haar epsilon=5.2,20 metric=rank_1.share as=.0% missing=-", "10 | 40"),
        ("white-box prune=haar epsilon=5.2,58 metric=rank_1.share missing=-", "10.4 | -"),
        ("not-measured-yet metric=test_accuracy missing=...", "..."),
        ("curves dataset=cifar10 pick=largest metric=test_accuracy", "20.5"),
        ("white-box,black-box prune=haar epsilon=5.2,20 pick=largest metric=rank_1.share", "10.4 | 50.0"),
    ],
)
def test_a_marker_selects_one_number(marker: str, text: str) -> None:
    assert quote(marker, rows_of) == text


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("curves epsilon=20", "names no metric"),
        ("nothing epsilon=20 metric=test_accuracy", "experiment without rows"),
        ("curves epsilon=12 metric=test_accuracy", "matches no row"),
        ("curves epsilon=20 metric=accuracy", "matches no row"),
        ("curves dataset=cifar10 metric=test_accuracy", "add one of epsilon=20, 5.2"),
        ("curves 20 metric=test_accuracy", "a selector is a list"),
        ("white-box,black-box epsilon=20 metric=rank_1.share", "add one of experiment=black-box, white-box"),
        ("white-box,nothing epsilon=20 pick=largest metric=rank_1.share", "experiment without rows, 'nothing'"),
        ("white-box epsilon=20 pick=best metric=rank_1.share", "has pick=best: write pick=largest"),
    ],
)
def test_an_unknown_or_ambiguous_marker_is_refused(marker: str, message: str) -> None:
    with pytest.raises(LdpSlicingError, match=message):
        quote(marker, rows_of)


def test_markers_that_are_not_closed_are_refused() -> None:
    for text in ("<!-- quote curves epsilon=20 metric=test_accuracy -->", "1<!-- /quote -->"):
        with pytest.raises(LdpSlicingError, match="not closed"):
            fill(text, rows_of)
    assert fill("Text between `<!-- quote ... -->` markers", rows_of) == "Text between `<!-- quote ... -->` markers"


def test_the_command_fills_in_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "curves.json").write_text(rows_to_json("curves", LEARNERS))
    document = tmp_path / "README.md"
    marker = "<!-- quote curves epsilon=20 metric=test_accuracy -->"
    document.write_text(f"Accuracy: {marker}17<!-- /quote --> %\n")
    assert main(["--root", str(tmp_path), "--check"]) == 1
    assert "17" in document.read_text()
    assert main(["--root", str(tmp_path)]) == 0
    assert document.read_text() == f"Accuracy: {marker}20.5<!-- /quote --> %\n"
    assert main(["--root", str(tmp_path), "--check"]) == 0
    document.write_text(f"{marker.replace('20', '21')}<!-- /quote -->")
    assert main(["--root", str(tmp_path), "--check"]) == 2
    assert "README.md: the marker" in capsys.readouterr().err


def test_numbers_in_the_documents_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert ROOT / "README.md" in documents(ROOT)
    assert main(["--root", str(ROOT), "--check"]) == 0, f"{capsys.readouterr()}: run python -m ldp_slicing.lab.quotes"


def test_the_readme_states_the_attacks_that_cards_state() -> None:
    (line,) = (
        line
        for line in (ROOT / "README.md").read_text().splitlines()
        if "rank-1 identification by an adversary" in line
    )
    known = {one.name: one.numbers for one in entries(table_version())}
    stated = [known[f"lfw-112-paper-haar-eps{eps}-identity"] for eps in ("1", "2.4", "5.2", "12", "20")]
    shares = [f"{one['rank_1_identification']:.1%}".removesuffix("%") for one in stated]
    assert MARKER.findall(line)[0][1] == " | ".join(shares)
