from __future__ import annotations

import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldp_slicing import Card, Plan, Slice, Slicer
from ldp_slicing.card import Level, Statement, advantage_bound, counted, number, read_card, read_statement
from ldp_slicing.errors import CardError, LdpSlicingError
from ldp_slicing.tables import round_up
from ldp_slicing.view import Prune


def levels(plan: Plan, prune: Prune, width: int, height: int) -> dict[str, Level]:
    return {level.unit: level for level in Statement(plan, prune, "rgb", ((width, height),)).levels}


@pytest.mark.parametrize(
    ("prune", "size", "dependents"),
    [
        (None, (112, 112), 1),
        ("haar", (112, 112), 4),
        ("dct", (112, 112), 64),
        ("haar", (1, 1), 1),
        ("haar", (1, 9), 2),
        ("dct", (5, 100), 40),
    ],
)
def test_level_is_the_plan_times_its_dependent_pixels(prune: Prune, size: tuple[int, int], dependents: int) -> None:
    plan = Plan.paper(20.0)
    got, exact = levels(plan, prune, *size), Fraction(plan.realised_epsilon)
    assert got["released pixel"].epsilon == plan.realised_epsilon
    assert exact * dependents <= Fraction(got["source pixel"].epsilon) <= exact * dependents * (1 + Fraction(1, 2**50))
    assert (
        exact * math.prod(size) <= Fraction(got["image"].epsilon) <= exact * math.prod(size) * (1 + Fraction(1, 2**50))
    )
    assert str(dependents) in got["source pixel"].why or dependents == 1


def test_slice_level_is_that_of_the_least_private_slice() -> None:
    level = levels(Plan.paper(20.0), "haar", 8, 8)["slice"]
    assert level.epsilon == pytest.approx(Plan.paper(20.0).slices[0].epsilon, rel=1e-9)
    assert "Y7" in level.why
    assert not level.is_vacuous


def test_vacuous_bounds_are_marked() -> None:
    got = levels(Plan.paper(1.0), None, 100, 100)
    assert not got["released pixel"].is_vacuous
    assert got["image"].is_vacuous
    assert "vacuous" in str(Slicer(Plan.paper(1.0)).card(100, 100))
    assert levels(Plan.paper(20.0), None, 2, 2)["released pixel"].is_vacuous


@given(st.floats(1e-20, 1e6) | st.just(0.0))
def test_advantage_bound_is_half_tanh_rounded_up(epsilon: float) -> None:
    with localcontext(prec=60):
        shrink = (-Decimal(epsilon)).exp()
        exact = (1 - shrink) / (1 + shrink) / 2
        assert exact <= Decimal(advantage_bound(epsilon)) <= exact * (1 + Decimal(10) ** -13) + Decimal(10) ** -40
    assert advantage_bound(epsilon) <= 0.5


def test_json_content() -> None:
    card = Slicer(Plan.paper(20.0), prune="haar").card(width=640, height=480)
    content = json.loads(card.to_json())
    (statement,) = content["statements"]
    assert content["card"] == 2
    assert statement["releases"] == 1
    assert (statement["width"], statement["height"]) == ([640, 640], [480, 480])
    assert statement["view"] == {"colour": "YCbCr (JFIF)", "prune": "haar"}
    assert len(statement["plan"]["slices"]) == 24
    assert statement["plan"]["epsilon_realised"] <= statement["plan"]["epsilon_requested"] == 20.0
    assert [level["unit"] for level in statement["levels"]] == ["slice", "released pixel", "source pixel", "image"]
    assert any("names" in line for line in content["not_protected"])
    assert any("t times" in line for line in content["read_this"])


def test_text_content() -> None:
    text = str(Slicer(Plan.grey(5.2, 12), prune=None).card(30, 20))
    for words in ("12-bit grey", "30 x 20", "released pixel", "source pixel", "image", "not protected", "t times"):
        assert words in text
    assert "remark" in str(Slicer(Plan.grey(200.0)).card(1, 1))


def test_statement_about_several_sizes_states_the_worst() -> None:
    statement = Statement(Plan.paper(2.0), "haar", "rgb", ((10, 1), (4, 4), (1, 1)))
    got = {level.unit: level.epsilon for level in statement.levels}
    assert got["source pixel"] == pytest.approx(8.0)
    assert got["image"] == pytest.approx(32.0)
    assert "3 releases" in str(statement)
    assert "up to 16 pixels" in str(statement)


def test_card_lists_every_plan() -> None:
    card = Card(
        tuple(Statement(plan, None, "rgb", ((3, 3),)) for plan in (Plan.paper(1.0), Plan([Slice(0xF0, 1.0)], 8)))
    )
    dropped = [statement["plan"]["dropped_bits"] for statement in card.to_dict()["statements"]]
    assert dropped == ["0x0", "0xf"]


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5)])
def test_empty_image_gets_no_card(size: tuple[int, int]) -> None:
    with pytest.raises(CardError, match=str(size[0])):
        Slicer(Plan.paper(1.0)).card(*size)


@pytest.mark.parametrize(("size", "most"), [((112, 112), 4), ((1, 9), 2), ((1, 1), 1)])
def test_releases_of_one_source_are_summed(size: tuple[int, int], most: int) -> None:
    plan = Plan.paper(5.2)
    exact = Fraction(plan.realised_epsilon)
    for spent in (None, (round_up(3 * exact), round_up(12 * exact))):  # both mean: all by this plan
        statement = Statement(plan, "haar", "rgb", (size,), times=3, spent=spent)
        got = {level.unit: level for level in statement.levels}
        assert Fraction(got["source pixel, 3 releases"].epsilon) == pytest.approx(3 * most * exact)
        assert Fraction(got["image, 3 releases"].epsilon) == pytest.approx(3 * math.prod(size) * exact)
        assert "another plan" not in got["image, 3 releases"].why
        assert statement == Statement(plan, "haar", "rgb", (size,), times=3)


def test_spending_less_than_one_release_is_refused() -> None:
    with pytest.raises(CardError, match="less than one release"):
        Statement(Plan.paper(5.2), "haar", "rgb", ((8, 8),), times=2, spent=(1.0, 4.0))


def test_columns_are_aligned() -> None:
    text = str(Slicer(Plan.paper(30.0)).card(width=6000, height=6000))
    lines = [line for line in text.split("\n") if "advantage <=" in line]
    assert "1,080,000,000" in text
    assert len({line.index("advantage <=") for line in lines}) == len({line.index("epsilon") for line in lines}) == 1


def test_spending_through_another_view_counts() -> None:
    plan = Plan.paper(5.0)
    e = Fraction(plan.realised_epsilon)
    statement = Statement(plan, "haar", "rgb", ((64, 64),), times=2, spent=(round_up(2 * e), round_up(68 * e)))
    assert next(one for one in statement.levels if one.unit == "source pixel, 2 releases").epsilon == round_up(68 * e)


@given(st.floats(1e-9, 1e12))
def test_printed_numbers_are_rounded_up(value: float) -> None:
    printed = float(number(value).replace(",", ""))
    assert Fraction(value) <= Fraction(printed) <= Fraction(value) * (1 + Fraction(1, 9_000))


def test_numbers_of_few_digits_are_printed_exactly() -> None:
    assert [number(value) for value in (20.0, 5.2, 0.1, 7.7, 12.3, 1e-9, 20.8)] == [
        "20",
        "5.2",
        "0.1",
        "7.7",
        "12.3",
        "1e-09",
        "20.8",
    ]
    assert "epsilon 5.2 realised of 5.2 requested" in str(Statement(Plan.grey(5.2), "haar", "rgb", ((64, 64),)))


def test_bounds_are_printed_rounded_up() -> None:
    small = Statement(Plan.paper(0.001), None, "rgb", ((2, 2),))
    assert all(level.advantage_bound > 0 for level in small.levels)
    assert "<= 0.0000" not in str(small)
    assert all(Fraction(level.printed_bound) >= Fraction(level.advantage_bound) for level in small.levels)


def test_counts_agree_with_their_noun() -> None:
    assert [counted(count, "file") for count in (0, 1, 2, 1000)] == ["0 files", "1 file", "2 files", "1,000 files"]
    assert [counted(count, "copy", "copies") for count in (1, 2)] == ["1 copy", "2 copies"]
    assert "1 pixel, each at" in str(Slicer(Plan.paper(20.0)).card(width=1, height=1))


def test_card_is_read_back_and_recomputed() -> None:
    card = Slicer(Plan.paper(20.0)).card(width=640, height=480)
    written = read_card(card.to_json().encode())
    assert (written.owners_key, written.kept) == (False, set())
    statement = read_statement(written.statements[0])
    assert (statement.plan, statement.prune, statement.releases, statement.times) == (Plan.paper(20.0), "haar", 1, 1)
    assert statement.wrong_numbers([(640, 480)]) == []
    assert statement.wrong_numbers([]) == [("releases", 1, 0)]
    assert ("width[0]", 640, 320) in statement.wrong_numbers([(320, 480)])
    assert ("releases", 1, 2) in statement.wrong_numbers([(640, 480)], count=2)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a card"),
        ("[]", "not a card"),
        ('{"card": 2}', "not a card"),
        ('{"card": 2, "statements": 7, "not_protected": [], "kept_beside": []}', "not a card"),
        ('{"card": 3}', "version 3"),
        ("[" * 100_000, "not a card"),
    ],
)
def test_malformed_card_is_refused(text: str, problem: str) -> None:
    with pytest.raises(CardError, match=problem):
        read_card(text.encode())


@pytest.mark.parametrize(
    "missing", ["view", "plan", "releases", "most_releases_of_one_source", "most_spent_on_one_source"]
)
def test_malformed_statement_is_refused(missing: str) -> None:
    content = Statement(Plan.paper(20.0), "haar", "rgb", ((8, 8),)).to_dict()
    for wrong in (content | {missing: None}, {key: value for key, value in content.items() if key != missing}):
        with pytest.raises(LdpSlicingError, match=r"malformed|not a plan"):
            read_statement(wrong)
