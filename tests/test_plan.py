from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldp_slicing import Plan, Slice
from ldp_slicing.errors import PlanError
from ldp_slicing.plan import plan_for
from tests.cases import PLANS

EPSILONS = st.floats(0.01, 200.0)


def exact_sum(plan: Plan) -> Fraction:
    return sum((Fraction(part.epsilon) for part in plan.slices), Fraction(0))


@given(EPSILONS, st.tuples(*[st.floats(0.01, 100.0)] * 3))
def test_paper_allocation_follows_the_closed_form_and_never_overspends(
    epsilon: float, weights: tuple[float, float, float]
) -> None:
    plan = Plan.paper(epsilon, weights)
    roots = {1 << (16 - 8 * c + b): math.sqrt(w * 2**b) for c, w in enumerate(weights) for b in range(8)}
    assert {part.bits for part in plan.slices} == set(roots)
    for part in plan.slices:
        assert part.epsilon == pytest.approx(epsilon * roots[part.bits] / sum(roots.values()), rel=1e-12)
    assert epsilon * (1 - 1e-14) <= exact_sum(plan) <= epsilon


@given(EPSILONS, st.integers(8, 16))
def test_grey_and_uniform_never_overspend(epsilon: float, bits: int) -> None:
    for plan in (Plan.grey(epsilon, bits), Plan.uniform(epsilon, bits), Plan.uniform(epsilon)):
        assert exact_sum(plan) <= epsilon == plan.epsilon
    assert len(Plan.grey(epsilon, bits).slices) == bits
    assert len({part.epsilon for part in Plan.uniform(epsilon).slices}) == 1


def test_paper_plan_at_epsilon_20() -> None:
    plan = Plan.paper(20.0)
    root = math.sqrt(2)
    per_unit = 20.0 / (4 * sum(root**b for b in range(8)))  # Y counts twice (sqrt 4), Cb and Cr once each
    assert (plan.slices[0].bits, plan.slices[0].epsilon) == (0x800000, pytest.approx(2 * per_unit * root**7))
    assert (plan.slices[-1].bits, plan.slices[-1].epsilon) == (0x000001, pytest.approx(per_unit))
    assert plan.slice_name(plan.slices[0]) == "Y7"
    assert plan.slice_name(plan.slices[-1]) == "Cr0"


def test_order_of_slices_does_not_matter() -> None:
    slices = [Slice(0x80, 1.0), Slice(0x800000, 2.0), Slice(0x8000, 0.5)]
    plan, turned = Plan(slices), Plan(reversed(slices))
    assert plan == turned
    assert hash(plan) == hash(turned)
    assert plan.tables.outcome.tobytes() == turned.tables.outcome.tobytes()


def test_channel_of_weight_zero_is_dropped() -> None:
    plan = Plan.paper(5.0, (4, 0, 1))
    assert plan.kept_bits == 0xFF00FF
    assert plan.dropped_value == 0x008000


@pytest.mark.parametrize(
    ("kept", "word_bits", "released_as"),
    [
        (0xFFFFFF, 24, 0),
        (0xC08080, 24, 0x204040),  # the highest dropped bit of each channel is 1
        (0x7FFFFF, 24, 0x800000),
        (0xF0, 8, 0x08),
        (0xFFF, 12, 0),
        (0x800, 12, 0x400),
        (0x001, 16, 0x8000),
    ],
)
def test_dropped_bits_are_released_as_the_middle(kept: int, word_bits: int, released_as: int) -> None:
    assert Plan([Slice(kept, 1.0)], word_bits).dropped_value == released_as


def test_epsilon_of_given_slices_is_their_sum_rounded_up() -> None:
    plan = Plan([Slice(1 << b, 0.1) for b in range(10)])
    assert Fraction(plan.epsilon) >= exact_sum(plan) > Fraction(math.nextafter(plan.epsilon, 0))
    assert plan.realised_epsilon <= plan.epsilon


@pytest.mark.parametrize(
    ("text", "bits", "slices"),
    [
        ("Y7+Y4+Cb7+Cr7", 24, [Slice(0x908080, 5.0)]),
        ("cr0", 24, [Slice(1, 5.0)]),
        (" Y7 + Y6 = 3 , Cb7=1,Cr7 = 1.0", 24, [Slice(0xC00000, 3.0), Slice(0x8000, 1.0), Slice(0x80, 1.0)]),
        ("Y7,Cb7+Cr7", 24, [Slice(0x800000, 2.5), Slice(0x8080, 2.5)]),
        ("11+10", 12, [Slice(0xC00, 5.0)]),
        ("bit 7+bit 4", 8, [Slice(0x90, 5.0)]),
    ],
)
def test_slices_are_named_by_their_bits(text: str, bits: int, slices: list[Slice]) -> None:
    plan = Plan.sliced(5.0, text, bits)
    assert plan == Plan(slices, bits) == plan_for(bits, 5.0, slices=text)
    assert plan.epsilon == 5.0
    names = ",".join(f"{plan.slice_name(part)}={part.epsilon}" for part in plan.slices)
    assert Plan.sliced(5.0, names, bits) == plan  # printed names can be parsed again


@given(EPSILONS, st.lists(st.decimals("0.001", 999, places=3), min_size=1, max_size=8))
def test_shares_never_overspend(epsilon: float, shares: list[Decimal]) -> None:
    plan = Plan.sliced(epsilon, ",".join(f"Y{bit}={share}" for bit, share in enumerate(shares)))
    assert epsilon * (1 - 1e-14) <= exact_sum(plan) <= epsilon == plan.epsilon


def test_plan_without_named_slices_is_the_papers() -> None:
    assert plan_for(24, 5.0, (1, 1, 1)) == Plan.paper(5.0, (1, 1, 1))
    assert plan_for(12, 5.0) == Plan.grey(5.0, 12)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, "20", None, True])
def test_epsilon_that_is_not_a_positive_number_is_refused(epsilon: float) -> None:
    for make in (
        Plan.paper,
        Plan.uniform,
        Plan.grey,
        lambda value: Plan.sliced(value, "Y7"),
        lambda value: Slice(1, value),
    ):
        with pytest.raises(PlanError, match=repr(epsilon)):
            make(epsilon)


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: Plan([Slice(0xC0, 1.0), Slice(0x40, 1.0)]), "0x000040"),
        (lambda: Plan([Slice(1 << 24, 1.0)]), "0x1000000"),
        (lambda: Plan([Slice(0x100, 1.0)], 8), "0x100"),
        (lambda: Plan([]), "none"),
        (lambda: Plan([Slice(1, 1.0)], 17), "17"),
        (lambda: Plan([Slice(1, 1.0)], 0), "0"),
        (lambda: Slice(0, 1.0), "bits=0"),
        (lambda: Slice(-4, 1.0), "-4"),
        (lambda: Slice(1.5, 1.0), "1.5"),
        (lambda: Plan.grey(1.0, 0), "bits=0"),
        (lambda: Plan.grey(1.0, 24), "24"),
        (lambda: Plan.uniform(1.0, 17), "17"),
        (lambda: Plan.paper(1.0, (4, 1)), r"\(4, 1\)"),
        (lambda: Plan.paper(1.0, (0, 0, 0)), r"\(0, 0, 0\)"),
        (lambda: Plan.paper(1.0, (4, -1, 1)), "-1"),
        (lambda: Plan.paper(1.0, (4, math.nan, 1)), "nan"),
        (lambda: Plan.paper(5e-324), "5e-324"),
        (lambda: Plan([Slice(1, 3.0)], requested=2.0), "2.0"),
        (lambda: Plan.sliced(1.0, ""), "no bits are named"),
        (lambda: Plan.sliced(1.0, "Y8"), "'Y8': .* Y7 to Y0"),
        (lambda: Plan.sliced(1.0, "7"), "'7': .* Y7 to Y0"),
        (lambda: Plan.sliced(1.0, "Y7", 8), "'Y7': a grey pixel of 8 bits has the bits 7 to 0"),
        (lambda: Plan.sliced(1.0, "7", 7), "7"),
        (lambda: Plan.sliced(1.0, "Y7+Y7"), "Y7 twice"),
        (lambda: Plan.sliced(1.0, "Y7+Y6,Y7"), "0x800000"),
        (lambda: Plan.sliced(1.0, "Y7="), "above 0.*''"),
        (lambda: Plan.sliced(1.0, "Y7=0,Y6=1"), "above 0.*'0'"),
        (lambda: Plan.sliced(1.0, "Y7=-1,Y6=2"), "'-1'"),
        (lambda: Plan.sliced(1.0, "Y7=1/0"), "'1/0'"),
        (lambda: Plan.sliced(1.0, "Y7=1e999999999"), "'1e999999999'"),
        (lambda: Plan.sliced(1.0, "Y7=\u0663"), "'\u0663'"),
        (lambda: Plan.sliced(1.0, "Y7=" + "9" * 10), "'9999999999'"),
        (lambda: Plan.sliced(1.0, "Y\u0667"), "'Y\u0667'"),
        (lambda: Plan.sliced(1.0, "Y7=0.000000000,Y6"), "'0.000000000'"),
        (lambda: Plan.sliced(1.0, "Y7=nan"), "'nan'"),
        (lambda: plan_for(24, 1.0, (1, 1, 1), "Y7"), "weights apply only to the paper's plan"),
    ],
)
def test_invalid_plan_is_refused_with_its_value(make: object, shown: str) -> None:
    with pytest.raises(PlanError, match=shown):
        make()


def test_remarks_on_unexpected_properties_of_a_plan() -> None:
    assert Plan.paper(20.0).remark is None
    assert "181" in (Plan.grey(200.0).remark or "")  # one bit would need a probability below 2^-64
    assert Plan.paper(1e-16).remark is not None
    seldom = Plan.sliced(20.0, "Y7+Y6+Y5").remark or ""
    assert seldom == "almost never changes Y7+Y6+Y5 (1 in 69,309,315 pixels): most releases show the source's value"
    assert "Y7 and 1 more" in (Plan.sliced(40.0, "Y7,Y6").remark or "")
    assert "; it almost never changes bit 7" in (Plan.grey(200.0).remark or "")
    assert Plan.sliced(2.0, "11+10", bits=12).remark is None
    assert "drops the highest 4 of 16 bits: bits of grey pixels are numbered from 0, the lowest" in (
        Plan.sliced(2.0, "11+10", bits=16).remark or ""
    )
    assert Plan.paper(1e-16).realised_epsilon == 0


def test_repr_of_slice_shows_bits_as_a_mask() -> None:
    assert repr(Slice(0x800000, 3.0)) == "Slice(bits=0x800000, epsilon=3.0)"
    assert Plan.grey(1.0, 12).bit_name(11) == "bit 11"


@pytest.mark.parametrize("name", PLANS)
def test_plan_survives_json(name: str) -> None:
    plan = PLANS[name]
    again = Plan.from_dict(json.loads(json.dumps(plan.to_dict(), allow_nan=False)))
    assert (again, again.epsilon, again.to_dict()) == (plan, plan.epsilon, plan.to_dict())


@pytest.mark.parametrize(
    "changed",
    [
        {"slices": None},
        {"slices": [{"bits": "0x80"}]},
        {"slices": [{"bits": "eighty", "epsilon": 1.0}]},
        {"slices": [{"bits": 128, "epsilon": 1.0}]},
        {"slices": [{"bits": "0x80", "epsilon": "1.0"}]},
        {"slices": []},
        {"word_bits": "24"},
        {"epsilon_requested": 0.1},
        {"epsilon_requested": None},
    ],
)
def test_malformed_json_is_refused_as_a_plan(changed: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        Plan.from_dict(Plan.paper(20.0).to_dict() | changed)


def test_dtype_follows_the_word() -> None:
    assert {name: plan.dtype for name, plan in PLANS.items() if plan.dtype != "uint8"}.keys() == {
        name for name, plan in PLANS.items() if 8 < plan.word_bits <= 16
    }


def test_a_request_is_compared_exactly_with_the_sum_of_the_slices() -> None:
    """As a float, this sum is 1."""
    slices = [Slice(2, 1.0), Slice(1, 2.0**-54)]
    assert Plan(slices).epsilon == math.nextafter(1.0, 2.0)
    with pytest.raises(PlanError, match="more than the requested"):
        Plan(slices, requested=1.0)


def test_a_plan_whose_tables_realise_more_than_the_request_is_refused() -> None:
    plan = Plan.paper(20.0)
    plan.__dict__["tables"] = Plan.paper(20.001).tables
    with pytest.raises(PlanError, match="more than the requested"):
        _ = plan.realised_epsilon
