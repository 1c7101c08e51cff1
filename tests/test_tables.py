"""The tables in exact arithmetic. Every promise depends on these numbers."""

from __future__ import annotations

import itertools
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldp_slicing import Plan, Slice
from ldp_slicing.tables import COLUMN, COLUMNS, ONE, Tables, alias_columns, hit_weight, ln_up, round_up, submasks
from tests.cases import PLANS, backends


def at_most_exp(ratio: Fraction, epsilon: Fraction) -> bool:
    """Return whether ratio <= e^epsilon, computed with 100 digits."""
    with localcontext(prec=100):
        power = (Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp()
        return Decimal(ratio.numerator) / Decimal(ratio.denominator) <= power * (1 + Decimal(10) ** -90)


def weights_by_enumeration(tables: Tables, group: int) -> dict[int, int]:
    """Count how many of the 2^64 draws give each mask. Reads only ``cells``, ``rest`` and the outcomes."""
    counts: dict[int, int] = {}
    for draw, cell in enumerate(tables.cells[group].tolist()):
        column = draw >> 8
        if cell >> 31:
            below = int(tables.rest[group, column])
            shares = (
                (int(tables.outcome_words[group, 0, column]), below),
                (int(tables.outcome_words[group, 1, column]), (1 << 48) - below),
            )
        else:
            shares = ((cell, 1 << 48),)
        for word, share in shares:
            if share:
                counts[word] = counts.get(word, 0) + share
    return counts


@given(st.integers(1, 24), st.floats(1e-6, 60.0))
def test_hit_probability_is_exact_and_rounded_up(bits: int, epsilon: float) -> None:
    symbols = 1 << bits
    weight = hit_weight(symbols, epsilon)
    with localcontext(prec=100):
        exact = Decimal(symbols) * ONE / (Decimal(epsilon).exp() + symbols - 1)
        assert exact - Decimal(10) ** -60 <= weight <= exact + 1
    assert 1 <= weight <= ONE


@pytest.mark.parametrize("epsilon", [45.0, 999.0, 1e308])
def test_probability_is_never_zero(epsilon: float) -> None:
    assert hit_weight(2, epsilon) >= 1


@given(st.integers(0, 8).flatmap(lambda m: st.lists(st.integers(1, 1 << 60), min_size=1 << m, max_size=1 << m)))
def test_alias_columns_hold_the_exact_weights(parts: list[int]) -> None:
    scale = sum(parts)
    weights = [part * ONE // scale for part in parts]
    weights[0] += ONE - sum(weights)
    threshold, other = alias_columns(weights)
    got = [0] * COLUMNS
    for column in range(COLUMNS):
        assert 0 <= threshold[column] < COLUMN
        got[column] += threshold[column]
        got[other[column]] += COLUMN - threshold[column]
    assert got == weights + [0] * (COLUMNS - len(weights))


@pytest.mark.parametrize("name", PLANS)
def test_realised_epsilon_equals_enumeration_of_all_draws(name: str) -> None:
    """Counts all 2^64 draws of each group from the sampler's arrays."""
    plan, total = PLANS[name], Fraction(0)
    tables = plan.tables
    for group in range(tables.groups):
        counts = weights_by_enumeration(tables, group)
        assert sum(counts.values()) == ONE
        assert counts == tables.weights(group)
        bits = tables.group_bits[group]
        if tables.uniform[group]:
            symbols = 1 << bits.bit_count()
            ratio = Fraction(counts.get(0, 0) * symbols + counts[bits], counts[bits])
        else:
            assert sorted(counts) == submasks(bits)
            ratio = Fraction(max(counts.values()), min(counts.values()))
        assert at_most_exp(
            ratio, sum((Fraction(part.epsilon) for part in plan.slices if part.bits & bits), Fraction(0))
        )
        total += ln_up(ratio)
    assert plan.realised_epsilon == round_up(total)
    assert plan.realised_epsilon <= plan.epsilon
    assert plan.realised_epsilon >= 0.99 * plan.epsilon


BUDGETS = [0.01, 0.1, 1.0, 2.4, 5.2, 12.0, 20.0, 32.0, 58.0, 100.0, 200.0]


@pytest.mark.parametrize("epsilon", BUDGETS)
def test_realised_epsilon_is_just_below_the_request(epsilon: float) -> None:
    plans = [Plan.paper(epsilon, weights) for weights in ((4, 1, 1), (2, 1, 1), (1, 1, 1))]
    plans += [Plan.uniform(epsilon), Plan.grey(epsilon), Plan.grey(epsilon, 12), Plan.grey(epsilon, 16)]
    plans += [Plan([Slice(0xC08080, epsilon)]), Plan([Slice(0xF8E0E0, epsilon)])]
    for plan in plans:
        assert plan.realised_epsilon <= epsilon
        if "requested" not in (plan.remark or ""):
            assert plan.realised_epsilon >= 0.99 * epsilon
        else:
            assert any(part.epsilon > 44 for part in plan.slices), (
                plan
            )  # unless a slice needs a probability below 2^-64


@given(st.floats(1e-18, 300.0), st.lists(st.integers(1, 255), min_size=1, max_size=4))
def test_no_plan_realises_more_than_requested(epsilon: float, shapes: list[int]) -> None:
    slices = [
        Slice(bits << 8 * (i % 2) if i < 2 else 0x10000 << (i - 2), epsilon / (i + 1)) for i, bits in enumerate(shapes)
    ]
    plan = Plan(slices)
    assert 0 <= plan.realised_epsilon <= plan.epsilon
    for part in plan.slices:
        assert at_most_exp(
            plan.tables.slice_ratio(part.bits), Fraction(part.epsilon) * (1 + Fraction(1, 10**6)) + Fraction(1, 10**9)
        )


@pytest.mark.parametrize("channel", [0, 1, 2])
@pytest.mark.parametrize("epsilon", [1.0, 20.0, 58.0])
def test_worst_ratio_over_all_values_of_a_channel(channel: int, epsilon: float) -> None:
    """The worst ratio of P(release | source) over all pairs of sources is at most e^eps, and is attained."""
    plan = Plan.paper(epsilon)
    shift = 16 - 8 * channel
    (group,) = (g for g, bits in enumerate(plan.tables.group_bits) if bits == 0xFF << shift)
    weights = plan.tables.weights(group)
    probability = [[weights[(source ^ release) << shift] for release in range(256)] for source in range(256)]
    assert all(sum(row) == ONE for row in probability)
    worst = max(Fraction(max(column), min(column)) for column in zip(*probability, strict=True))
    allowed = sum((Fraction(part.epsilon) for part in plan.slices if part.bits >> shift & 0xFF), Fraction(0))
    assert at_most_exp(worst, allowed)
    assert worst == plan.tables.group_ratio(group)
    assert float(ln_up(worst)) == pytest.approx(float(allowed), rel=1e-7)


@pytest.mark.parametrize("name", ["paper 20", "thick, across channels", "wide: 11 bits as one", "grey 16"])
def test_sampler_has_the_weights_of_the_tables(name: str) -> None:
    """Passes every 16-bit draw to both backends, with all ties decided one way and then the other."""
    plan = PLANS[name]
    tables = plan.tables
    draws = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 64)
    lanes = np.full(
        (len(draws), tables.lanes, 64), 0xFFFF, np.uint16
    )  # uniform bits all set: a hit shows as the slice's bits
    lane = 0
    for group in range(tables.groups):
        lanes[:, lane] = draws
        lane += 1 + tables.uniform_lanes * int(tables.uniform[group])
    for backend, (more, tie_goes_to) in itertools.product(backends(), ((b"\x00" * 16, 0), (b"\xff" * 16, 1))):
        masks = np.empty((tables.planes, 1 << 16), np.uint8)
        backend.draw(
            lanes.reshape(1, -1, 64),
            tables,
            0,
            [lambda counters, more=more: more * (len(counters) // 16)],
            masks[None],
            0,
        )
        words = sum(plane.astype(np.uint32) << 8 * p for p, plane in enumerate(masks))
        for group, bits in enumerate(tables.group_bits):
            expected = tables.cells[group].copy()
            ties = np.nonzero(expected >> 31)[0]
            column = ties >> 8
            side = np.where(tables.rest[group, column] == 0, 1, tie_goes_to)
            expected[ties] = tables.outcome_words[group, side, column]
            assert np.array_equal(words & bits, expected), backend.name


@pytest.mark.parametrize("first_pixel", [0, 1 << 29, 1 << 40])
def test_every_tie_of_every_pixel_has_a_counter_of_its_own(first_pixel: int) -> None:
    """Also beyond 2^32 draws, which no test could release."""
    tables = PLANS["wide and narrow"].tables
    lanes = np.random.default_rng(0).integers(0, 1 << 16, (1, 20 * tables.lanes, 64), dtype=np.uint16)
    lane, expected = 0, set[int]()
    for group in range(tables.groups):
        draws = lanes.reshape(-1, tables.lanes, 64)[:, lane].ravel()
        lane += 1 + tables.uniform_lanes * int(tables.uniform[group])
        ties = np.nonzero(tables.first[group, draws >> 8] == draws & 255)[0].tolist()
        expected |= {(1 << 64) + (first_pixel + pixel) * tables.groups + group for pixel in ties}
    for backend in backends():
        asked = bytearray()

        def answer(counters: memoryview, asked: bytearray = asked) -> bytes:
            asked.extend(counters)
            return bytes(len(counters))

        masks = np.empty((1, tables.planes, 20 * 64), np.uint8)
        backend.draw(lanes, tables, first_pixel, [answer], masks, 0)
        used = [int.from_bytes(asked[at : at + 16], "big") for at in range(0, len(asked), 16)]
        assert len(used) == len(expected) > 0, backend.name
        assert set(used) == expected, backend.name


def test_epsilon_too_small_for_64_bits_gives_uniform_noise() -> None:
    plan = Plan([Slice(1 << b, 1e-21) for b in range(8)])
    assert set(plan.tables.weights(0).values()) == {ONE // 256}
    assert plan.realised_epsilon == 0


@pytest.mark.parametrize("field", ["first", "rest", "outcome", "uniform"])
def test_tables_are_read_only(field: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        getattr(Plan.paper(20.0).tables, field)[:] = 0


def test_damaged_table_is_detected() -> None:
    tables = Plan.paper(20.0).tables
    damaged = Tables(
        tables.word_bits,
        tables.group_bits,
        tables.first,
        tables.rest,
        np.where(tables.outcome == 0xFF, 0, tables.outcome),
        tables.uniform,
    )
    with pytest.raises(AssertionError, match="lacks the weight of a mask"):
        _ = damaged.realised_epsilon
    wide = Plan([Slice(0xFFF000, 5.0)]).tables
    silent = Tables(wide.word_bits, wide.group_bits, wide.first, wide.rest, np.zeros_like(wide.outcome), wide.uniform)
    with pytest.raises(AssertionError, match="hits and misses"):
        _ = silent.realised_epsilon


@pytest.mark.parametrize("name", PLANS)
def test_change_probabilities_follow_the_definition(name: str) -> None:
    plan = PLANS[name]
    for part in plan.slices:
        symbols = 1 << part.bits.bit_count()
        with localcontext(prec=50):
            expected = (symbols - 1) / (Decimal(part.epsilon).exp() + symbols - 1)
        assert float(plan.tables.change_probability(part.bits)) == pytest.approx(float(expected), rel=1e-9)


@given(st.fractions(min_value=Fraction(1, 10**30), max_value=10**30))
def test_directed_rounding(value: Fraction) -> None:
    assert Fraction(round_up(value)) >= value
    assert Fraction(round_up(value)) <= value * (1 + Fraction(1, 2**50))
    if value >= 1:
        assert at_most_exp(value, ln_up(value))


@pytest.mark.parametrize("power", [1, 7, 40, 45, 60])
def test_logarithms_of_ratios_near_1_are_rounded_up(power: int) -> None:
    """The ratio has no end in decimals, and its rounding is large beside its small logarithm."""
    ratio = 1 + Fraction(1, 3**power)
    with localcontext(prec=150):
        exact = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
        assert exact <= Decimal(ln_up(ratio).numerator) / Decimal(ln_up(ratio).denominator) <= exact + Decimal("1e-55")
