"""Any document is read and written back identically, or refused with the one error; nothing else happens."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ldp_slicing import Card, Plan
from ldp_slicing.card import Statement
from ldp_slicing.errors import CardError, LdpSlicingError
from ldp_slicing.strict_json import contrasted, fields, parse, shown
from ldp_slicing.view import BLOCK

NUMBERS = st.integers() | st.floats() | st.integers(0, 30)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | NUMBERS
    | st.text(max_size=20)
    | st.sampled_from(["0x80", "rgb", "haar", "none", "1,000"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KEYS = ("card", "software", "keystream_layout", "statements", "not_protected", "kept_beside", "read_this")
PLANS = [Plan.grey(20.0), Plan.sliced(5.2, "Y7+Y4,Cb7+Cr7"), Plan.grey(200.0, 12)]
CARDS = [
    Card((Statement.of(plan, prune, "rgb", ((9, 4), (2, 7)), times=times),), owners_key=times == 2, kept=("cls",))
    for plan, prune, times in zip(PLANS, BLOCK, (1, 2, 3), strict=False)
]
SIDES = st.integers(1, 5000)


def accepts(text: str | bytes) -> bool:
    """Return whether a text is a card. It must then be the text of that card."""
    try:
        card = Card.from_json(text)
    except CardError:
        return False
    assert card.to_json().encode() == (text.encode() if isinstance(text, str) else text)
    return True


def places(value: object, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value inside a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([where] if where else []), *(one for key, part in inner for one in places(part, (*where, key)))]


@given(
    VALUES | st.fixed_dictionaries(dict.fromkeys(KEYS, VALUES) | {"card": st.just(2), "keystream_layout": st.just(1)})
)
def test_any_document(value: object) -> None:
    assert not accepts(json.dumps(value, indent=2) + "\n")


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_text(text: str | bytes) -> None:
    assert not accepts(text)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(CARDS), st.data())
def test_a_card_with_a_changed_value(card: Card, data: st.DataObject) -> None:
    content = card.to_dict()
    *way, last = data.draw(st.sampled_from(places(content)))
    inner: Any = content
    for key in way:
        inner = inner[key]
    inner[last] = data.draw(VALUES)
    accepts(json.dumps(content, indent=2) + "\n")


@settings(deadline=None)
@given(st.sampled_from(CARDS), st.data())
def test_a_card_with_changed_bytes(card: Card, data: st.DataObject) -> None:
    text = card.to_json().encode()
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 30)))
    accepts(text[:begin] + data.draw(st.binary(max_size=8) | st.sampled_from([b"1", b"e9", b",", b'"'])) + text[end:])


@settings(deadline=None)
@given(
    st.sampled_from(PLANS),
    st.sampled_from([*BLOCK]),
    st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=5),
    st.integers(1, 1000),
    st.lists(st.text(max_size=20), max_size=4),
)
def test_every_true_card_is_accepted(
    plan: Plan, prune: Any, sizes: list[tuple[int, int]], times: int, kept: list[str]
) -> None:
    statement = Statement.of(plan, prune, "rgb", sizes, times=times)
    assert accepts(Card((statement,), kept=tuple(kept)).to_json())
    assert statement.differences(sizes) == []


@given(VALUES)
def test_strict_json_reads_what_standard_json_writes_or_refuses(value: object) -> None:
    text = json.dumps(value)
    try:
        read = parse(text.encode(), most_bytes=10_000)
    except LdpSlicingError:
        assert re.search("NaN|Infinity|[0-9]{18}", text)
    else:
        assert json.dumps(read) == text


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({}, "lacks the key 'a'"),
        ({"a": 1, "c": 2}, "unknown key 'c' in here"),
        ({"a": True}, "here.a must be an integer; got True"),
        ({"a": 1, "b": 1}, "here.b must be a text; got 1"),
        ([], "here must be an object"),
    ],
)
def test_fields(content: object, why: str) -> None:
    assert fields({"b": "x", "a": 1}, {"a": int}, {"b": str}) == {"a": 1, "b": "x"}
    with pytest.raises(LdpSlicingError, match=why):
        fields(content, {"a": int}, {"b": str}, where="here")


def test_messages_show_where_long_values_differ() -> None:
    text = "It's a sentence of many words, and some of these words may have been changed."
    assert shown(text) == '"It\'s a sentence of many words, and some of these words ..."'
    said, right = (
        "'...some of these words may have been changed.'",
        "'...some of these words cannot have been changed.'",
    )
    assert contrasted(text, text.replace("may", "cannot")) == f"is {said}; it should be {right}"
    assert (
        contrasted([1, text], [1, text, 2]) == 'is ... have been changed."]; it should be ... have been changed.", 2]'
    )
    assert contrasted(0.1, 0.2) == "is 0.1; it should be 0.2"
