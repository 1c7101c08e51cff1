from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from importlib.resources import files

import pytest

from ldp_slicing import Card, Plan, Slicer
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.measured import (
    FIRST_TABLE,
    KINDS,
    NOTHING,
    TABLE,
    Kind,
    Measured,
    entries,
    latest,
    nearest,
    read_table,
    risk,
    table_version,
)
from ldp_slicing.plan import PAPER_WEIGHTS
from ldp_slicing.studio.page import read_page
from ldp_slicing.view import Prune

FACES, OBJECTS = 112 * 112, 32 * 32


def entry(name: str, kind: Kind = "identity", *, side: int = 112, epsilon: float = 20.0, **other: object) -> Measured:
    first = Measured(
        name=name,
        since=1,
        kind=kind,
        data="faces",
        width=side,
        height=side,
        word_bits=24,
        weights=PAPER_WEIGHTS,
        slices=None,
        epsilon=epsilon,
        prune="haar",
        attack="white box",
        numbers={},
        sentence="At some setting, a network got something",
        advice="take care",
    )
    return dataclasses.replace(first, **other)


def chosen(*known: Measured, plan: Plan | None = None, prune: Prune = "haar", pixels: int | None = FACES) -> str | None:
    found = nearest(known, plan or Plan.paper(20.0), prune, pixels)
    return found and found.name


def test_another_plan_or_view_is_not_near() -> None:
    known = entry("paper"), entry("thick", slices="Y7+Y4")
    assert chosen(*known) == "paper"
    assert chosen(*known, plan=Plan.sliced(3.5, "Y7+Y4")) == "thick"
    assert chosen(*known, plan=Plan.sliced(3.5, "Y7,Y4")) is None
    assert chosen(*known, plan=Plan.paper(20.0, (2, 1, 1))) is None
    assert chosen(*known, plan=Plan.uniform(20.0)) is None
    assert chosen(*known, plan=Plan.grey(20.0)) is None
    assert chosen(*known, prune=None) is None


def test_the_most_harmful_attack_counts_first() -> None:
    known = entry("objects", "reconstruction", side=32), entry("faces", "identity", epsilon=5.2)
    assert chosen(*known, pixels=OBJECTS) == "faces"
    assert chosen(entry("x", "content"), known[0]) == "objects"


@pytest.mark.parametrize(
    ("pixels", "name"), [(1, "14"), (14**2, "14"), (200, "56"), (56**2 + 1, "112"), (10**6, "112"), (None, "112")]
)
def test_the_size_is_at_least_as_large_where_possible(pixels: int | None, name: str) -> None:
    assert chosen(*(entry(str(side), side=side) for side in (56, 14, 112)), pixels=pixels) == name


@pytest.mark.parametrize(("epsilon", "name"), [(0.1, "1"), (1, "1"), (1.01, "5.2"), (6, "20"), (20, "20"), (99, "20")])
def test_the_budget_is_at_least_as_large_where_possible(epsilon: float, name: str) -> None:
    known = [entry(f"{one:g}", epsilon=one) for one in (5.2, 1.0, 20.0)]
    assert chosen(*known, plan=Plan.paper(epsilon)) == name


def test_a_small_budget_does_not_speak_for_a_large_one() -> None:
    known = entry("small", side=28, epsilon=5.2), entry("large", side=112, epsilon=20.0)
    for epsilon, name in ((5.2, "small"), (8.0, "large"), (99.0, "large")):
        assert chosen(*known, plan=Plan.paper(epsilon), pixels=28 * 28) == name


@pytest.mark.parametrize(
    ("epsilon", "pixels", "releases", "words"),
    [
        (20.0, FACES, 1, "(faces, LFW): treat"),
        (20.0, 2 * FACES, 1, "; these releases have more pixels, so expect more: treat"),
        (15.0, 10, 1, "; these releases have a smaller budget and fewer pixels, so expect less: treat"),
        (300.0, 10, 1, "; these releases have a larger budget, but fewer pixels: treat"),
        (20.0, FACES, 7, "; one source has up to 7 of these releases, so expect more: treat"),
        (20.0, 10, 7, "; these releases have fewer pixels, but one source has up to 7 of them: treat"),
        (
            300.0,
            FACES,
            1234,
            "; these releases have a larger budget, and one source has up to 1,234 of them, so expect",
        ),
        (
            300.0,
            10,
            2,
            "; these releases have a larger budget, but fewer pixels, and one source has up to 2 of them: t",
        ),
        (20.0, None, 1, "(faces, LFW): treat"),
    ],
)
def test_the_sentence_says_how_releases_differ_from_the_measured_ones(
    epsilon: float, pixels: int | None, releases: int, words: str
) -> None:
    got = risk(Plan.paper(epsilon), "haar", pixels, releases=releases)
    assert words in got.sentence
    assert got.sentence.endswith("recognisable.")
    assert got.entry in {one.name for one in entries(got.table)}


def test_no_verdict_is_passed_on_to_releases_that_reveal_more() -> None:
    """The average of a large release shows people clearly at budgets at which a small one hides them."""
    measured = risk(Plan.paper(1.0), None, FACES).sentence
    assert "linkable" in measured
    for more in (risk(Plan.paper(1.0), None, 4000 * 3000), risk(Plan.paper(1.0), None, FACES, releases=2)):
        assert more.sentence.endswith("treat these releases as recognisable.")


def test_nothing_measured_is_said() -> None:
    got = risk(Plan.sliced(5.0, "Y7+Cr0"), "haar", FACES)
    assert (got.entry, got.sentence) == (None, NOTHING)


def test_plans_that_were_read_from_cards_keep_their_family() -> None:
    for one in entries(table_version()):
        plan = one_plan(one)
        again = Plan.from_dict(plan.to_dict())
        assert one.is_family_of(plan)
        assert one.is_family_of(again)
        assert nearest([one], again, one.prune, one.pixels) == one


def one_plan(one: Measured) -> Plan:
    if one.slices is not None:
        return Plan.sliced(7.3, one.slices, one.word_bits)
    return Plan.paper(7.3, one.weights) if one.word_bits == 24 else Plan.grey(7.3, one.word_bits)


def test_entries_are_never_called_safe_and_state_their_setting() -> None:
    text = TABLE.read_text().lower()
    assert not any(word in text for word in ("safe", "anonym", "secure"))
    for one in entries(table_version()):
        assert f"At eps {one.epsilon:g} and {one.width} x {one.height} pixels" in one.sentence
        assert one.data in one.sentence
        assert one.kind in KINDS
        assert Measured.from_dict(json.loads(json.dumps(one.to_dict()))) == one


def test_a_newer_entry_replaces_an_older_one_from_its_version_on() -> None:
    content = [
        {"name": "a", "since": 1},
        {"name": "b", "since": 1},
        {"name": "a", "since": 3},
        {"name": "c", "since": 2},
    ]
    assert latest(content, 2) == [{"name": "a", "since": 1}, {"name": "b", "since": 1}, {"name": "c", "since": 2}]
    assert {"name": "a", "since": 3} in latest(content, 3)
    assert {"name": "a", "since": 1} not in latest(content, 3)


def test_old_cards_stay_valid_when_the_table_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Slicer(Plan.paper(20.0)).card(112, 112).to_json()
    now = read_table()
    version = now["table"]
    stronger = next(one for one in now["measured"] if one["name"] == "lfw-112-paper-haar-eps20-identity")
    stronger = stronger | {"since": version + 1, "sentence": "At eps 20 and 112 x 112 pixels, a network got them all"}
    grown = now | {"table": version + 1, "measured": [*now["measured"], stronger]}
    entries.cache_clear()
    monkeypatch.setattr("ldp_slicing.measured.read_table", lambda: grown)
    try:
        assert Card.from_json(text).to_json() == text
        assert "got them all" in Slicer(Plan.paper(20.0)).card(112, 112).to_json()
    finally:
        entries.cache_clear()


@pytest.mark.parametrize("version", [FIRST_TABLE - 1, 99])
def test_an_unknown_version_of_the_table_is_refused(version: int) -> None:
    with pytest.raises(LdpSlicingError, match=f"version {version} of the table of measured settings is unknown"):
        entries(version)


def test_a_larger_budget_of_one_family_reveals_at_least_as_much() -> None:
    """A slice of a smaller eps is one of a larger eps with more noise, which the rule for budgets rests on."""
    large, small = Fraction(1, 10), Fraction(3, 10)  # the probabilities that a bit is flipped
    added = (small - large) / (1 - 2 * large)
    assert 0 <= added <= Fraction(1, 2)
    assert large * (1 - added) + (1 - large) * added == small


@pytest.mark.parametrize("collects", [False, True])
def test_the_page_has_the_sentences_of_the_table(collects: bool) -> None:
    page = read_page(collects=collects)
    table = json.loads(files("ldp_slicing").joinpath("measured.json").read_text(encoding="utf-8"))
    latest = {one["name"]: one for one in table["measured"]}  # a stronger attack replaces an entry of the same name
    missing = [name for name, one in latest.items() if one["sentence"] not in page]
    missing += [one["name"] for one in table["presets"] if one["about"] not in page]
    assert not missing, "run make page"
