"""Statements of docs/proofs.md that no other test checks, and the references in that document."""

from __future__ import annotations

import ast
import itertools
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from ldp_slicing import Plan, Slicer

ROOT = Path(__file__).parent.parent
PROOFS = (ROOT / "docs" / "proofs.md").read_text()

Floats = NDArray[np.float64]


def test_every_file_and_test_that_the_proofs_name_exists() -> None:
    references = re.findall(r"`(tests/[\w/]+\.py)?(?:::(\w+))?`", PROOFS)
    current, functions = "", set[str]()
    checked = 0
    for path, name in references:
        if path and path != current:
            current = path
            assert (ROOT / path).is_file(), f"docs/proofs.md names {path}, which does not exist"
            nodes = ast.walk(ast.parse((ROOT / path).read_text()))
            functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        if name:
            assert name in functions, f"docs/proofs.md names {current}::{name}, which does not exist"
        checked += bool(path or name)
    assert checked > 40
    modules = {path for path in re.findall(r"`([\w/]+\.py)`", PROOFS) if not path.startswith("tests/")}
    assert modules
    assert [path for path in sorted(modules) if not (ROOT / "src" / "ldp_slicing" / path).is_file()] == []


def test_every_section_with_a_statement_names_its_test() -> None:
    sections = re.split(r"^## ", PROOFS, flags=re.MULTILINE)[1:]
    assert [int(section.split(".")[0]) for section in sections] == list(range(1, len(sections) + 1))
    stated = [section for section in sections if "**Statement" in section]
    assert len(stated) >= 14
    assert [section.splitlines()[0] for section in stated if "*Checked by*" not in section] == []


# Section 10: from ideal bits to a cipher. Toy ciphers on 16 draws, in exact rationals.


def distance(one: list[Fraction], other: list[Fraction]) -> Fraction:
    """The total variation distance."""
    return sum((abs(a - b) for a, b in zip(one, other, strict=True)), Fraction(0)) / 2


def released(draws: list[Fraction], bit: int) -> list[Fraction]:
    """The law of a bit that is flipped by the draws 0 to 2 of 16, each with its probability."""
    flipped = sum(draws[:3], Fraction(0))
    return [1 - flipped, flipped] if bit == 0 else [flipped, 1 - flipped]


def test_a_keystream_adds_no_more_than_its_advantage() -> None:
    ideal = [Fraction(1, 16)] * 16
    bound = distance(released(ideal, 0), released(ideal, 1)) / 2
    epsilon = math.log(13 / 3)
    assert float(bound) == pytest.approx(math.tanh(epsilon / 2) / 2)
    rng = np.random.default_rng(10)
    for keys in rng.integers(0, 16, (300, 6)).tolist():  # the draw that each of 6 equally likely keys gives
        real = [Fraction(keys.count(draw), 6) for draw in range(16)]
        assert distance(released(real, 0), released(real, 1)) / 2 <= bound + distance(real, ideal)


def test_a_few_keys_make_some_likelihood_ratio_infinite() -> None:
    """Four flips drawn from 6 keys: of 16 outputs at most 6 are possible for each source, and not the same ones."""
    masks = np.random.default_rng(0).integers(0, 16, 6)
    possible = [{int(mask) ^ source for mask in masks} for source in range(16)]
    assert {len(outputs) for outputs in possible} == {len(set(masks.tolist()))}
    assert any(one - other for one, other in itertools.product(possible, repeat=2))


def test_the_likelihood_form_of_the_computational_promise_would_be_vacuous() -> None:
    plan = Plan.paper(20.0)
    pixels, tables = 112 * 112, plan.tables  # of one face; the number of ties is binomial
    draws, ties = pixels * 2 * tables.lanes / 16, pixels * tables.groups / 256
    blocks = draws + ties
    switching = (blocks * (blocks - 1) + ties * 255 / 256) / 2**129
    assert blocks == 4851
    assert 2**-105 < switching < 2**-104
    assert (2**24) ** 2 / 2**129 < 2**-80
    assert (1 + math.exp(80)) * switching > 1000  # at the eps of a source pixel with Haar pruning
    highest = max(part.epsilon for part in plan.slices)
    assert math.tanh(highest / 2) / 2 + switching < 0.46  # the advantage of one slice, which keeps its meaning


def test_the_card_states_the_computational_promise_for_advantages() -> None:
    card = str(Slicer(Plan.paper(20.0)).card(width=112, height=112))
    assert "at most its advantage in telling AES-256 from random bits, added to each advantage above" in card


# Section 15: the paper's budget.


def importance(weights: tuple[int, int, int]) -> Floats:
    return np.array([w * 2.0**b for w in weights for b in range(7, -1, -1) if w])


def allocation(plan: Plan) -> Floats:
    return np.array([part.epsilon for part in plan.slices])  # highest bits first: Y7 ... Y0, Cb7 ... Cr0


def minimised(weights: Floats, epsilon: float) -> Floats:
    """The minimiser of sum(weights / eps) with sum(eps) = epsilon, starting uniform.

    With eps = epsilon softmax(x), the logarithm of the sum is, up to a constant, convex in x and has no constraint.
    """

    def objective(x: Floats) -> tuple[float, Floats]:
        costs = np.log(weights) - x
        return logsumexp(costs) + logsumexp(x), softmax(x) - softmax(costs)

    found = minimize(objective, np.zeros(len(weights)), jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-10})
    assert np.abs(objective(found.x)[1]).max() < 1e-7
    split: Floats = epsilon * softmax(found.x)
    return split


@pytest.mark.parametrize("epsilon", [1.0, 5.2, 20.0, 58.0])
@pytest.mark.parametrize("weights", [(4, 1, 1), (2, 1, 1), (1, 1, 1), (4, 0, 0)])
def test_the_papers_plan_is_what_a_numerical_optimiser_finds(epsilon: float, weights: tuple[int, int, int]) -> None:
    plan = allocation(Plan.paper(epsilon, weights))
    assert plan == pytest.approx(minimised(importance(weights), epsilon), rel=1e-4)
    least = np.sqrt(importance(weights)).sum() ** 2 / epsilon
    assert (importance(weights) / plan).sum() == pytest.approx(least, rel=1e-12)


def test_the_grey_plan_is_what_a_numerical_optimiser_finds() -> None:
    assert allocation(Plan.grey(20.0, 8)) == pytest.approx(minimised(2.0 ** np.arange(7, -1, -1), 20.0), rel=1e-4)


def flip(epsilon: Floats) -> Floats:
    return 1 / (np.exp(epsilon) + 1)


def test_what_the_objective_bounds() -> None:
    """The mean absolute error of a channel is at most the sum of 2^b P(flip of b), and black and white reach it."""
    plan = Plan.grey(5.0, 8)
    flips = np.array([float(plan.tables.change_probability(part.bits)) for part in plan.slices])
    bits = np.array([[mask >> b & 1 for b in range(7, -1, -1)] for mask in range(256)])
    law = np.where(bits, flips, 1 - flips).prod(axis=1)
    values = np.arange(256)
    errors = np.array([(law * np.abs((values ^ value) - value)).sum() for value in values])
    bound = (2.0 ** np.arange(7, -1, -1) * flips).sum()
    assert errors.max() <= bound * (1 + 1e-12)
    assert errors[[0, 255]] == pytest.approx(bound)
    grid = np.linspace(1e-3, 60, 400_000)
    assert (grid * flip(grid)).max() == pytest.approx(0.27846, abs=1e-5)
    assert grid[np.argmax(grid * flip(grid))] == pytest.approx(1.27846, abs=1e-3)


def least_flips(weights: Floats, epsilon: float) -> Floats:
    """The minimiser of sum(weights * P(flip)): P (1 - P) is the multiplier over the weight, or eps is 0."""

    def split(multiplier: float) -> Floats:
        share = np.minimum(multiplier / weights, 0.25)
        flips = 2 * share / (1 + np.sqrt(1 - 4 * share))  # the smaller root of P (1 - P) = share, without cancellation
        result: Floats = np.log(1 / flips - 1)
        return result

    low, high = 1e-60, float(weights.max()) / 4
    for _ in range(400):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if split(middle).sum() > epsilon else (low, middle)
    return split(low)


@pytest.mark.parametrize(
    ("epsilon", "paper", "least", "uniform", "used"),
    [
        (1.0, 726.4, 646.7, 749.1, 1),
        (5.2, 571.0, 427.2, 682.4, 5),
        (20.0, 226.5, 169.2, 463.5, 8),
        (58.0, 41.0, 31.4, 125.3, 17),
        (200.0, 2.32, 0.104, 0.368, 24),
    ],
)
def test_the_objective_is_not_the_error_itself(
    epsilon: float, paper: float, least: float, uniform: float, used: int
) -> None:
    """The table of section 15.3: weighted sums of flip probabilities, and how many bits the least one spends on."""
    weights = importance((4, 1, 1))
    best = least_flips(weights, epsilon)
    assert best.sum() == pytest.approx(epsilon)
    assert np.count_nonzero(best > 1e-9) == used
    found = [(weights * flip(split)).sum() for split in (allocation(Plan.paper(epsilon)), best)]
    assert found == pytest.approx([paper, least], rel=5e-3)
    assert (weights * flip(np.full(24, epsilon / 24))).sum() == pytest.approx(uniform, rel=5e-3)
    assert found[1] < found[0]


def test_above_epsilon_129_a_uniform_split_has_fewer_weighted_flips() -> None:
    weights = importance((4, 1, 1))
    for epsilon, paper_is_better in ((128.0, True), (129.0, False)):
        paper, uniform = allocation(Plan.paper(epsilon)), np.full(24, epsilon / 24)
        assert ((weights * flip(paper)).sum() < (weights * flip(uniform)).sum()) == paper_is_better


# Section 16: DCTDP.

SIDE, BLOCK, MAPS, MEAN = 112, 8, 189, Fraction(1, 2)


def blocks_reached(side: int) -> list[int]:
    """For each source row: how many blocks of 8 rows have a row to which bilinear x8 interpolation gives some of it.

    Corners are aligned: row j lies at j (side - 1) / (8 side - 1) of the source.
    """
    last = BLOCK * side - 1
    rows = range(BLOCK * side)
    return [len({j // BLOCK for j in rows if abs(j * (side - 1) - i * last) < last}) for i in range(side)]


def dct_of_interpolation() -> Floats:
    """[8 side, side]: what a source row gives to the DCT coefficients of each block of rows."""
    last = BLOCK * SIDE - 1
    places = np.arange(BLOCK * SIDE) * (SIDE - 1) / last
    interpolation = np.maximum(0.0, 1 - np.abs(places[:, None] - np.arange(SIDE)))
    u, x = np.mgrid[:BLOCK, :BLOCK]
    dct = np.sqrt(np.where(u == 0, 1, 2) / BLOCK) * np.cos((2 * x + 1) * u * np.pi / (2 * BLOCK))
    result: Floats = np.kron(np.eye(SIDE), dct) @ interpolation
    return result


def test_the_conversion_of_the_block_budget_of_dctdp() -> None:
    per_block = MAPS * MEAN
    assert per_block == Fraction("94.5")
    reached = blocks_reached(SIDE)
    assert (max(reached), min(reached), sum(reached)) == (3, 2, 3 * SIDE - 2)  # 2.98 on average
    assert [i for i, count in enumerate(reached) if count == 2] == [0, SIDE - 1]
    assert max(reached) ** 2 * MAPS * MEAN == Fraction("850.5")
    assert MAPS * MEAN * SIDE**2 == 1_185_408
    assert 20 * SIDE**2 == 250_880
    assert float(MAPS * MEAN / 20) == pytest.approx(4.7, abs=0.03)  # the paper's comparison
    assert float(9 * MAPS * MEAN / (4 * 20)) == pytest.approx(10.6, abs=0.05)  # source pixels on both sides, pruned
    assert float(9 * MAPS * MEAN / 20) == pytest.approx(42.5, abs=0.05)  # not pruned


@pytest.mark.parametrize("side", range(15, 60))
def test_a_source_pixel_reaches_at_most_nine_blocks(side: int) -> None:
    assert max(blocks_reached(side)) == 3


def test_all_coefficients_of_nine_blocks_move() -> None:
    moved = np.abs(dct_of_interpolation()) > 1e-12
    every, constant = moved.sum(axis=0), moved[::BLOCK].sum(axis=0)
    per_colour = np.outer(every, every) - np.outer(constant, constant)
    assert per_colour.max() == 9 * 63


def test_with_sensitivity_1_the_exact_loss_of_one_pixel_is_in_the_thousands() -> None:
    """Independent Laplace noise of scale 2: the loss is the sum of the coefficients' changes over the scale."""
    change = np.abs(dct_of_interpolation())
    every, constant = change.sum(axis=0), change[::BLOCK].sum(axis=0)
    losses = (np.outer(every, every) - np.outer(constant, constant)) * 255 * float(MEAN)  # black to white: only Y
    assert losses.max() == pytest.approx(2345.7, abs=0.1)
    assert losses.min() == pytest.approx(491.6, abs=0.1)
