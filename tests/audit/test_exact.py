from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from ldp_slicing import Plan, Slice
from ldp_slicing.audit.exact import (
    Group,
    check_tables,
    epsilon_of,
    is_within,
    measure_bits,
    read_groups,
    rounding_factor,
    worst_ratio,
)
from ldp_slicing.audit.faults import less_noise
from ldp_slicing.audit.report import Check
from ldp_slicing.tables import ONE, build_tables, slice_weights, submasks
from tests.cases import PLANS


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_holds_and_the_numbers_are_those_of_the_card(name: str) -> None:
    plan = PLANS[name]
    checks = by_name(check_tables(plan, "haar", plan.tables))
    assert all(check.passed and not check.failures and check.error_rate == 0 for check in checks.values())
    assert checks["released pixel"].value == plan.realised_epsilon
    assert set(checks) - {"channels"} == {"draws", "slices", "released pixel"}
    assert ("channels" in checks) == plan.is_colour


@pytest.mark.parametrize("name", PLANS)
def test_the_weights_are_counted_again_from_the_arrays(name: str) -> None:
    tables = PLANS[name].tables
    assert [group.weights for group in read_groups(tables)] == [tables.weights(g) for g in range(tables.groups)]


@pytest.mark.parametrize(
    "name", ["paper 20", "wide and narrow", "grey 20", "grey, top 4 as one", "grey 16, top 12 as one"]
)
def test_each_slice_has_the_ratio_that_the_card_counts(name: str) -> None:
    plan = PLANS[name]
    groups = read_groups(plan.tables)
    for part in plan.slices:
        assert worst_ratio(groups, part.bits) == plan.tables.slice_ratio(part.bits)


def test_the_ratio_over_all_pairs_of_words_and_all_outputs_by_brute_force() -> None:
    plan = Plan([Slice(0b100, 1.1), Slice(0b011, 0.7)], 3)
    groups = read_groups(plan.tables)
    law = [math.prod((group.masks[mask & group.bits] for group in groups), start=Fraction(1)) for mask in range(8)]
    for bits in range(1, 8):
        pairs = [(x, y) for x, y in itertools.product(range(8), repeat=2) if (x ^ y) & ~bits == 0]
        assert worst_ratio(groups, bits) == max(law[z ^ x] / law[z ^ y] for x, y in pairs for z in range(8))
    for group in groups:
        for difference in submasks(group.bits):
            assert group.ratio_for(difference) == max(
                p / group.masks[mask ^ difference] for mask, p in group.masks.items()
            )


def test_all_changes_of_a_wide_slice_are_equally_likely() -> None:
    plan = PLANS["wide: 11 bits as one"]
    (group,) = read_groups(plan.tables)
    zero, other = group.masks.values()
    assert zero + other * (2**11 - 1) == 1
    assert group.ratio_for(1 << 23) == group.worst_ratio(0xFFFFFF) == zero / other
    assert group.ratio_for(1) == group.worst_ratio(1) == 1


@pytest.mark.parametrize("name", ["grey, top 4 as one", "paper 20", "wide: 11 bits as one"])
@pytest.mark.parametrize("masks", [2, 4])
def test_the_probability_that_masks_cancel(name: str, masks: int) -> None:
    group = read_groups(PLANS[name].tables)[0]
    k = 1 << group.bits.bit_count()
    zero, *others = (float(p) for p in group.masks.values())
    law = np.array([zero, *(others * (k - 1) if group.uniform else others)])
    index = np.arange(k)
    total = law
    for _ in range(masks - 1):
        total = sum(law[m] * total[index ^ m] for m in range(k))
    assert group.zero_xor_probability(masks) == pytest.approx(total[0], rel=1e-9)
    assert total.max() == total[0]


def test_e_to_the_epsilon_is_compared_from_below() -> None:
    with localcontext(prec=150):
        e = Fraction(Decimal(1).exp())
    assert is_within(e - Fraction(1, 10**97), Fraction(1))
    assert not is_within(e, Fraction(1))
    assert is_within(Fraction(1), Fraction(0))
    assert not is_within(1 + Fraction(1, 10**90), Fraction(0))
    assert not is_within(None, Fraction(1000))
    assert epsilon_of(None) == math.inf


def test_thresholds_off_by_a_little_are_found_in_every_plan() -> None:
    for name in (
        "paper 20",
        "paper 1, 1:1:1",
        "grey 16",
        "thick, across channels",
        "wide: the whole word",
        "grey, 1 bit",
    ):
        plan = PLANS[name]
        wrong = less_noise(plan.tables)
        assert not np.array_equal(wrong.rest, plan.tables.rest), name
        checks = by_name(check_tables(plan, "haar", wrong))
        assert checks["draws"].passed, name
        assert not checks["released pixel"].passed, name
        assert not checks["slices"].passed, name
        assert "epsilon" in checks["slices"].failures[0], name


def test_a_bit_that_is_never_drawn_is_found() -> None:
    plan = PLANS["paper 20"]
    outcome = plan.tables.outcome & np.array([255, 255, 127], np.uint8)[:, None]
    checks = by_name(check_tables(plan, None, dataclasses.replace(plan.tables, outcome=outcome)))
    assert "0x800000 of the plan are never changed" in checks["draws"].failures[0]
    assert checks["released pixel"].value == math.inf
    assert not checks["slices"].passed
    assert checks["released pixel"].to_dict()["value"] == "inf"


def test_a_mask_of_probability_0_makes_the_ratio_unbounded() -> None:
    group = Group({0b00: 1 << 63, 0b01: 1 << 62, 0b10: 1 << 62}, uniform=False)
    assert group.worst_ratio(0b01) is None
    assert group.ratio_for(0b10) is None
    assert group.ratio_for(0b100) == 1
    assert group.worst_ratio(0b100) == 1


def test_malformed_tables_are_found() -> None:
    plan, narrow = PLANS["wide and narrow"], PLANS["thick, across channels"]
    lowest_too = plan.tables.outcome | np.array([0, 1, 0], np.uint8)[:, None]
    found = by_name(check_tables(plan, None, dataclasses.replace(plan.tables, outcome=lowest_too)))["draws"]
    assert any("drawn by two groups" in line for line in found.failures)
    foreign = narrow.tables.outcome | np.array([1, 0, 0], np.uint8)[:, None]
    found = by_name(check_tables(narrow, None, dataclasses.replace(narrow.tables, outcome=foreign)))["draws"]
    assert any("0x1 are changed and belong to no slice" in line for line in found.failures)
    wide = PLANS["wide: 11 bits as one"]
    odd = wide.tables.outcome.copy()
    odd[0, :, :, 7] = [0x20, 0, 0]
    found = by_name(check_tables(wide, None, dataclasses.replace(wide.tables, outcome=odd)))["draws"]
    assert any("other than hit and miss" in line for line in found.failures)


def test_a_card_that_understates_epsilon_is_found() -> None:
    plan = PLANS["paper 20"]
    checks = by_name(check_tables(Plan.paper(19.9), "haar", plan.tables))
    assert not checks["released pixel"].passed
    assert "THE CARD SAYS 19." in checks["released pixel"].tested
    assert any("the card says" in line for line in checks["slices"].failures)


def test_the_rounding_factor() -> None:
    plan = PLANS["paper 20"]
    groups = read_groups(plan.tables)
    smallest = min(groups[0].weights.values())
    factor = (1 + Fraction(1, smallest - 1)) * (1 + Fraction(255, 2**56 - 255))
    assert measure_bits(plan, groups, "Y7", 0x800000).allowance == factor
    assert measure_bits(plan, groups, "pixel", 0xFFFFFF, allow_rounding=False).allowance == 1
    alone = PLANS["thick, across channels"]
    assert measure_bits(alone, read_groups(alone.tables), "all", 0xC08080).allowance == 1
    assert rounding_factor(Group({0: ONE - 1, 1: 1}, uniform=False)) == 1


@pytest.mark.parametrize("epsilon", [1e-60, 1e-101, 5e-324])
def test_a_correct_plan_that_is_all_noise_is_accepted(epsilon: float) -> None:
    """e^eps is 1 to 100 digits, and so is the ratio."""
    for slices, bits in (((0x80,), 8), ((0xF0, 0x0F), 8), ((0x1FF,), 9)):
        plan = Plan([Slice(part, epsilon) for part in slices], bits)
        assert plan.realised_epsilon == 0
        assert all(check.passed for check in check_tables(plan, None, plan.tables))
        assert not is_within(1 + Fraction(1, 10**50), Fraction(epsilon))


def test_a_correct_plan_with_tiny_slices_is_accepted() -> None:
    """The zero mask takes the remainder of rounding, up to 255 units, which matters for slices of 1e-18."""
    plan = Plan([Slice(0x80, 1.0), *(Slice(1 << b, 1e-18) for b in range(7))], 8)
    (group,) = read_groups(plan.tables)
    tiny = measure_bits(plan, (group,), "bit 0", 1)
    assert tiny.ratio is not None
    without_the_zero_mask = 1 + Fraction(1, min(group.weights.values()) - 1)
    assert not is_within(tiny.ratio / without_the_zero_mask, tiny.requested)
    assert tiny.holds
    assert all(check.passed for check in check_tables(plan, None, plan.tables))
    assert not all(check.passed for check in check_tables(plan, None, less_noise(plan.tables)))


def packed_groups(count: int) -> Iterator[list[tuple[int, float]]]:
    """Narrow slices of 1 to 3 bits in one group, with eps from 1e-20 to 4."""
    rng = np.random.default_rng(14)
    for _ in range(count):
        bits, group = [1 << int(b) for b in rng.permutation(int(rng.integers(2, 8)))], list[tuple[int, float]]()
        while bits:
            width = min(int(rng.integers(1, 4)), len(bits))
            group.append((sum(bits.pop() for _ in range(width)), float(10 ** rng.uniform(-20, 0.6))))
        yield group


def test_no_part_of_a_packed_group_passes_its_share_by_more_than_rounding_allows() -> None:
    need_the_zero_mask = 0
    for slices in packed_groups(150):
        (group,) = read_groups(build_tables(sorted(slices, reverse=True), 8))
        smallest = min(group.weights.values())
        assert smallest > 900
        shares = [(bits, Fraction(*slice_weights(1 << bits.bit_count(), epsilon))) for bits, epsilon in slices]
        for size in range(1, len(shares) + 1):
            for chosen in itertools.combinations(shares, size):
                ratio = group.worst_ratio(sum(bits for bits, _ in chosen))
                assert ratio is not None
                excess = ratio / math.prod((share for _, share in chosen), start=Fraction(1))
                assert excess <= rounding_factor(group)
                need_the_zero_mask += excess > 1 + Fraction(1, smallest - 1)
    assert need_the_zero_mask > 0  # the term for the zero mask is needed


def test_an_epsilon_above_the_card_is_found_even_if_below_the_request() -> None:
    plan = Plan.paper(5000.0)  # realises a fifth of it, as its card says
    pixel = by_name(check_tables(plan, "haar", less_noise(plan.tables)))["released pixel"]
    assert pixel.value is not None
    assert plan.realised_epsilon < pixel.value < 5000
    assert not pixel.passed
