from __future__ import annotations

import json
import math
import os
import re
import time
from dataclasses import replace
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldp_slicing import Card, Plan, Slice, Slicer
from ldp_slicing.card import CARD_BYTES, Level, Statement
from ldp_slicing.card.card import MOST_KEPT, MOST_NAME, MOST_STATEMENTS
from ldp_slicing.card.levels import advantage_bound
from ldp_slicing.card.prose import CARD_VERSION, SIZE
from ldp_slicing.errors import CardError
from ldp_slicing.tables import round_up
from ldp_slicing.view import BLOCK, Padded, Prune, Size, sizing
from ldp_slicing.wording import counted, number
from tests.card_attacks import ATTACKS
from tests.cases import PLANS


def levels(plan: Plan, prune: Prune, width: int, height: int) -> dict[str, Level]:
    return {level.unit: level for level in Statement.of(plan, prune, "rgb", ((width, height),)).levels}


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
    assert "no limit" in str(Slicer(Plan.paper(1.0)).card(100, 100))
    assert got["image"].means == "This promise does not stop anybody from telling two values apart."
    assert got["released pixel"].limit == "at most 73.11 %"  # e / (e + 1)
    assert levels(Plan.paper(20.0), None, 2, 2)["released pixel"].is_vacuous


@given(st.floats(0, 12) | st.floats(0, 1e-15), st.integers(3, 60), st.sampled_from([ROUND_FLOOR, ROUND_HALF_EVEN]))
def test_the_limit_in_percent_is_rounded_up_whatever_the_program_does_with_decimals(
    epsilon: float, prec: int, rounding: str
) -> None:
    level = Level("released pixel", epsilon, "")
    with localcontext(prec=prec, rounding=rounding):
        limit = level.limit
    exact = Fraction(1, 2) + Fraction(level.advantage_bound)
    if level.is_vacuous:
        assert limit == "no limit"
    else:
        said = Fraction(limit.removeprefix("at most ").removesuffix(" %"))
        assert 100 * exact <= said < 100 * exact + Fraction(1, 100)
        assert re.fullmatch(r"at most \d\d\.\d\d %", limit)


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
    assert content["card"] == CARD_VERSION
    assert statement["releases"] == 1
    assert (statement["width"], statement["height"]) == ([640, 640], [480, 480])
    assert statement["view"] == {"colour": "YCbCr (JFIF)", "prune": "haar", "size": "that of the source"}
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
    statement = Statement.of(Plan.paper(2.0), "haar", "rgb", ((10, 1), (4, 4), (1, 1)))
    got = {level.unit: level.epsilon for level in statement.levels}
    assert got["source pixel"] == pytest.approx(8.0)
    assert got["image"] == pytest.approx(32.0)
    assert "3 releases" in str(statement)
    assert "up to 16 pixels" in str(statement)


def test_card_lists_every_plan() -> None:
    card = Card(
        tuple(Statement.of(plan, None, "rgb", ((3, 3),)) for plan in (Plan.paper(1.0), Plan([Slice(0xF0, 1.0)], 8)))
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
    released = round_up(3 * exact)
    image = round_up(Fraction(released) * math.prod(size))
    for spent in (None, (released, round_up(3 * most * exact), image)):  # both mean: all by this plan
        statement = Statement.of(plan, "haar", "rgb", (size,), times=3, spent=spent)
        got = {level.unit: level for level in statement.levels}
        assert Fraction(got["source pixel, 3 releases"].epsilon) == pytest.approx(3 * most * exact)
        assert Fraction(got["image, 3 releases"].epsilon) == pytest.approx(3 * math.prod(size) * exact)
        assert "another plan" not in got["image, 3 releases"].why
        assert statement == Statement.of(plan, "haar", "rgb", (size,), times=3)


def test_spending_less_than_one_release_is_refused() -> None:
    with pytest.raises(CardError, match="less than one release"):
        Statement.of(Plan.paper(5.2), "haar", "rgb", ((8, 8),), times=2, spent=(1.0, 4.0, 64.0))


def test_columns_are_aligned() -> None:
    text = str(Slicer(Plan.paper(30.0)).card(width=6000, height=6000))
    lines = [line for line in text.split("\n") if "  epsilon " in line]
    assert "1,080,000,000" in text
    limits = {len(re.split("at most|no limit", line)[0]) for line in lines}
    assert len(limits) == len({line.index("epsilon") for line in lines}) == 1


def test_an_earlier_release_of_full_size_counts_with_its_pixels() -> None:
    """A source of 1,000 x 2 pixels is released, and then shrunk to 224 x 1, where fewer pixels depend on each."""
    plan = Plan.paper(5.0)
    e = Fraction(plan.realised_epsilon)
    spent = (round_up(2 * e), round_up(8 * e), round_up(2224 * e))
    statement = Statement.of(plan, "haar", "rgb", ((224, 1),), times=2, spent=spent, size=224)
    levels = {level.unit: level.epsilon for level in statement.levels}
    assert levels["source pixel, 2 releases"] == round_up(8 * e)
    assert levels["image, 2 releases"] == round_up(2224 * e)
    with pytest.raises(CardError, match="that of all its pixels"):
        replace(statement, spent=(*spent[:2], round_up(447 * e)))
    with pytest.raises(CardError, match="if that of released pixels is"):
        replace(statement, spent=(spent[0], round_up(449 * e), spent[2]))
    assert Card.from_json(Card((statement,)).to_json()) == Card((statement,))


def test_spending_through_another_view_counts() -> None:
    plan = Plan.paper(5.0)
    e = Fraction(plan.realised_epsilon)
    spent = (round_up(2 * e), round_up(68 * e), round_up(2 * 64 * 64 * e))
    statement = Statement.of(plan, "haar", "rgb", ((64, 64),), times=2, spent=spent)
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
    assert "epsilon 5.2 realised of 5.2 requested" in str(Statement.of(Plan.grey(5.2), "haar", "rgb", ((64, 64),)))


def test_bounds_are_printed_rounded_up() -> None:
    small = Statement.of(Plan.paper(0.001), None, "rgb", ((2, 2),))
    assert all(level.advantage_bound > 0 for level in small.levels)
    assert "<= 0.0000" not in str(small)
    limits = [Fraction(level.limit.split()[2]) / 100 for level in small.levels if not level.is_vacuous]
    bounds = [Fraction(level.advantage_bound) + Fraction(1, 2) for level in small.levels if not level.is_vacuous]
    assert limits
    assert all(limit >= bound for limit, bound in zip(limits, bounds, strict=True))


def test_counts_agree_with_their_noun() -> None:
    assert [counted(count, "file") for count in (0, 1, 2, 1000)] == ["0 files", "1 file", "2 files", "1,000 files"]
    assert [counted(count, "copy", "copies") for count in (1, 2)] == ["1 copy", "2 copies"]
    assert "1 pixel, each at" in str(Slicer(Plan.paper(20.0)).card(width=1, height=1))


def test_sizes_are_compared() -> None:
    (statement,) = Slicer(Plan.paper(20.0)).card(width=640, height=480).statements
    assert statement.differences([(640, 480)]) == []
    assert statement.differences([]) == [("releases", 1, 0)]
    assert ("width[0]", 640, 320) in statement.differences([(320, 480)])
    assert ("releases", 1, 2) in statement.differences([(640, 480)], count=2)
    assert ("output", "ycbcr", "rgb") in replace(statement, output="ycbcr").differences([(640, 480)])


ODD_PLANS = {
    "a remark": Plan.grey(200.0),
    "an eps that is realised as 0": Plan([Slice(0x800000, 1e-20)]),
    "a huge eps": Plan([Slice(1, 1e308)], 1),
    "integers": Plan([Slice(0xF0, 3)], 8, requested=4),
}


@pytest.mark.parametrize("name", PLANS | ODD_PLANS)
@pytest.mark.parametrize("prune", BLOCK)
def test_every_card_is_read_back(name: str, prune: Prune) -> None:
    plan = (PLANS | ODD_PLANS)[name]
    epsilon = plan.realised_epsilon
    for sizes, times, spent in (
        ([(640, 480)], 1, None),
        ([(1, 1)], 3, None),
        ([(100, 1), (5, 5)], 1, None),
        ([(3, 2000), (2000, 3), (100, 100)], 7, (2 * epsilon + 1, 70 * epsilon + 3, 1e4 * (2 * epsilon + 2))),
        ([(1, 9)] * 3, 2, (1e300, 1e301, 1e302)),
    ):
        statement = Statement.of(plan, prune, "ycbcr" if plan.is_colour else "rgb", sizes, times=times, spent=spent)
        card = Card((statement,), random_names=times == 1, owners_key=times == 3, kept=("b", "a", "\u00fc\ud800"))
        again = Card.from_json(card.to_json())
        assert again == card
        assert again.to_json() == card.to_json()
        assert not [one for one in again.statements[0].differences(sizes) if one[0] != "output"]


FIT = (64, 48)


@pytest.mark.parametrize(
    ("size", "sizes", "is_visible"),
    [
        (None, [(64, 48)], True),
        (64, [(64, 48), (64, 64), (3, 2)], True),
        (FIT, [(64, 48)] * 2, False),
        (Padded(*FIT), [(64, 48)], True),
    ],
)
def test_a_card_tells_how_sources_were_shrunk_and_whether_sizes_are_visible(
    size: Size, sizes: list[tuple[int, int]], is_visible: bool
) -> None:
    statement = Statement.of(Plan.paper(20.0), "haar", "rgb", sizes, size=size)
    card = Card((statement,))
    assert card.to_dict()["statements"][0]["view"]["size"] == sizing(size)
    assert any("width and height" in line for line in card.not_protected) is is_visible
    assert ("the padding shows them" in str(card)) is isinstance(size, Padded)
    assert ("shrunk to" in str(card)) is (size is not None)
    assert Card.from_json(card.to_json()) == card
    assert statement.differences(sizes) == []
    assert statement.differences([(65, 49)])
    grey = Statement.of(Plan.grey(20.0), "haar", "rgb", [(5, 5)])
    assert SIZE in Card((statement, grey)).not_protected or isinstance(size, Padded)


def test_a_changed_size_cannot_hide_that_sizes_are_visible() -> None:
    content = Slicer(Plan.paper(20.0)).card(width=640, height=480).to_dict()
    content["statements"][0]["view"]["size"] = "640 x 480"
    with pytest.raises(CardError, match=r"not_protected is \['width and height'"):
        Card.from_json(json.dumps(content, indent=2) + "\n")


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(63, [(64, 48)]), (63, [(3, 64)]), (FIT, [(64, 48), (63, 48)]), (FIT, [(48, 64)]), (Padded(*FIT), [(64, 47)])],
)
def test_a_card_cannot_state_a_size_that_releases_do_not_have(size: Size, sizes: list[tuple[int, int]]) -> None:
    with pytest.raises(CardError, match="cannot have the widths"):
        Statement.of(Plan.paper(20.0), "haar", "rgb", sizes, size=size)


def test_cards_of_other_software_versions_are_read() -> None:
    card = Card((Statement.of(Plan.paper(20.0), None, "rgb", ((8, 8),)),), software="ldp-slicing 12.3rc1")
    assert Card.from_json(card.to_json().encode()) == card


def test_a_card_cannot_be_written_as_an_earlier_version_that_states_less() -> None:
    content = Slicer(Plan.paper(20.0)).card(width=640, height=480).to_dict()
    for version in range(CARD_VERSION):
        with pytest.raises(CardError, match=f"it has version {version}, and this software reads version"):
            Card.from_json(json.dumps(content | {"card": version}, indent=2) + "\n")


def test_statements_are_sorted_by_word() -> None:
    grey, colour = (Statement.of(plan, None, "rgb", ((3, 3),)) for plan in (Plan.grey(1.0), Plan.paper(1.0)))
    assert Card((grey, colour)) == Card((colour, grey))
    with pytest.raises(CardError, match="two statements about 8-bit words"):
        Card((grey, colour, grey))


def test_largest_card_is_short_enough() -> None:
    """One statement for every word, and the most names of the longest kind."""
    plans = [Plan.uniform(20.0, bits) if bits >= 8 else Plan([Slice(1, 1.0)], bits) for bits in (24, *range(16, 0, -1))]
    statements = tuple(Statement.of(plan, "dct", "rgb", ((10**6, 10**6), (1, 1)), times=10**9) for plan in plans)
    assert len(statements) == MOST_STATEMENTS
    kept = tuple(chr(0x10000 + i) * MOST_NAME for i in range(MOST_KEPT))
    text = Card(statements, owners_key=True, kept=kept).to_json()
    assert len(text) <= CARD_BYTES
    begun = time.monotonic()
    assert Card.from_json(text).to_json() == text
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_changed_card_is_refused(attack: str) -> None:
    text = Slicer(Plan.paper(20.0)).card(width=640, height=480).to_json()
    change, problem = ATTACKS[attack]
    with pytest.raises(CardError, match=re.escape(problem)):
        Card.from_json(change(text))


def test_cards_are_read_from_regular_files_only(tmp_path: Path) -> None:
    card = Slicer(Plan.paper(20.0)).card(width=640, height=480)
    (tmp_path / "card.json").write_text(card.to_json())
    assert Card.read(tmp_path / "card.json") == Card.read(str(tmp_path / "card.json")) == card
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(bytes(CARD_BYTES + 1))
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name, why in (
        ("pipe", "not a regular file"),
        ("zero", "not a regular file"),
        (".", "regular file|directory"),
        ("nowhere", "No such file"),
        ("long", "more than 1,048,576 bytes"),
    ):
        with pytest.raises(CardError, match=f"{name} is not a valid card: .*({why})"):
            Card.read(tmp_path / name)


def test_text_names_what_is_kept_beside_the_images() -> None:
    statement = Statement.of(Plan.paper(20.0), None, "rgb", ((8, 8),))
    assert "without protection: cls, json." in str(Card((statement,), kept=("json", "cls")))
    assert "without protection" not in str(Card((statement,)))


def test_a_source_pixel_cannot_have_spent_less_than_one_release() -> None:
    statement = Slicer(Plan.paper(20.0)).card(width=16, height=16).statements[0]
    epsilon = statement.plan.realised_epsilon
    with pytest.raises(CardError, match="spent on a source pixel"):
        replace(statement, times=2, spent=(2 * epsilon, epsilon, 512 * epsilon))
