"""A range of values: exact arithmetic, one spelling, and a table that follows the definition."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.value_range import MODALITIES, RangeMap, ValueRange


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("CT", "-1024:3071:12"),
        ("-1024:3071", "-1024:3071:12"),
        ("0:1", "0:1:1"),
        ("0:256", "0:256:9"),
        ("0:255.0", "0:255:8"),
        ("-0.50:20:12", "-0.5:20:12"),
        ("0:100000", "0:100000:16"),
        ("0:0.25:3", "0:0.25:3"),
    ],
)
def test_a_range_has_one_spelling(text: str, written: str) -> None:
    assert str(ValueRange.parse(text)) == written
    assert str(ValueRange.parse(written)) == written


@pytest.mark.parametrize("text", ["", "5", "1:1", "3:2", "a:b", "1:2:0", "1:2:17", "1e3:2e3", "nan:1", "1:2:3:4", "ct"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(LdpSlicingError, match="range"):
        ValueRange.parse(text)


def test_ct_values_are_kept_exactly() -> None:
    ct = ValueRange.parse("CT")
    assert [ct.word(Fraction(value)) for value in (-5000, -1024, -1023, 0, 3071, 3072)] == [0, 0, 1, 1024, 4095, 4095]
    assert set(MODALITIES) == {"CT"}


def test_ties_round_half_up_and_the_rest_is_clamped() -> None:
    two = ValueRange.parse("0:6:2")  # words 0, 1, 2, 3 stand for 0, 2, 4, 6
    values = [Fraction(one, 100) for one in (-100, 99, 100, 299, 300, 499, 500, 700)]
    assert [two.word(value) for value in values] == [0, 0, 1, 1, 2, 2, 3, 3]


NUMBERS = st.fractions(-5000, 5000, max_denominator=1000)
RANGES = st.builds(
    lambda low, size, bits: ValueRange(low, low + size, bits),
    st.integers(-4000, 4000).map(lambda n: Fraction(n, 8)),
    st.integers(1, 9000).map(lambda n: Fraction(n, 4)),
    st.integers(1, 16),
)
MAPS = st.builds(RangeMap, RANGES, NUMBERS.filter(bool), NUMBERS, st.booleans())


@settings(max_examples=25)  # a range of 16 bits has 65,535 exact thresholds
@given(MAPS, st.lists(st.integers(0, 65535), min_size=1, max_size=20))
def test_every_way_equals_the_definition(by: RangeMap, words: list[int]) -> None:
    right = [by.word(Fraction(word)) for word in words]
    for kind in (np.uint16, np.uint32, np.float32, np.float64):
        mapped = by.apply(np.array(words, kind))
        assert mapped.tolist() == right
        assert mapped.dtype == (np.uint8 if by.range.bits <= 8 else np.uint16)


@settings(max_examples=25)  # a range of 16 bits has 65,535 exact thresholds
@given(MAPS, st.lists(st.floats(-1e9, 1e9, width=32), min_size=1, max_size=20))
def test_floats_are_compared_exactly(by: RangeMap, values: list[float]) -> None:
    assert by.apply(np.array(values, np.float32)).tolist() == [by.word(Fraction(value)) for value in values]


@given(MAPS)
def test_the_rescale_of_a_release_gives_values_back(by: RangeMap) -> None:
    slope, intercept = by.rescale
    ends = {slope * word + intercept for word in (0, by.range.highest)}
    assert ends == {by.range.low, by.range.high}
    for word in (0, by.range.highest // 3, by.range.highest):
        value = slope * word + intercept
        back = by.range.word(value)
        assert (by.range.highest - back if by.inverted else back) == word


def test_infinite_values_are_clamped() -> None:
    by = RangeMap(ValueRange.parse("0:10"), Fraction(1), Fraction(0))
    assert by.apply(np.array([np.inf, -np.inf])).tolist() == [15, 0]


def test_two_maps_that_differ_in_anything_have_different_texts() -> None:
    one, two = ValueRange.parse("0:10"), ValueRange.parse("0:10:5")
    maps = [
        RangeMap(one, Fraction(1), Fraction(0)),
        RangeMap(two, Fraction(1), Fraction(0)),
        RangeMap(one, Fraction(2), Fraction(0)),
        RangeMap(one, Fraction(1), Fraction(1)),
        RangeMap(one, Fraction(1), Fraction(0), inverted=True),
    ]
    assert len({str(by) for by in maps}) == len(maps)


def test_a_slope_of_zero_is_refused() -> None:
    with pytest.raises(LdpSlicingError, match="slope of 0"):
        RangeMap(ValueRange.parse("0:10"), Fraction(0), Fraction(1))


@pytest.mark.parametrize("slope", [3, 7, 9, 11, 13, -3, -7])
def test_floats_next_to_a_threshold_that_is_no_float(slope: int) -> None:
    by = RangeMap(ValueRange.parse("0:1:1"), Fraction(slope), Fraction(0))
    near = float(Fraction(1, 2 * slope))  # the value 1/2 is where words change
    floats = np.array([math.nextafter(near, -math.inf), near, math.nextafter(near, math.inf)])
    assert by.apply(floats).tolist() == [by.word(Fraction(one)) for one in floats.tolist()]
