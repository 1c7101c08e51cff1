"""The grid, its settings, and how time is spent on it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pytest

from ldp_slicing import Plan, Slicer
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.advise.budget import (
    FEWEST,
    Costs,
    Shares,
    kinds_of,
    most_settings,
    rounds_of,
    seconds_needed,
    stage_steps,
)
from ldp_slicing.lab.advise.grid import BUDGETS, Setting, default_sides, make_grid, tried_sides
from ldp_slicing.presets import Preset

PARTS = ("size", "prune", "family", "epsilon")
SIZES = [(32, 32), (16, 16)]
GRID = make_grid(SIZES, (None, "haar"), ("paper", "thick", "grey"), BUDGETS, source=(32, 32), word_bits=24)


def test_the_grid_has_every_combination_once_and_begins_with_the_middle() -> None:
    assert len({one.name for one in GRID}) == len(GRID) == 2 * 2 * sum(map(len, BUDGETS.values()))
    assert GRID[0].name == "32x32 none paper 5.2"
    again = make_grid(SIZES * 2, (None, None, "haar"), ("paper", "thick", "grey"), BUDGETS, source=None, word_bits=24)
    assert [one.name for one in again] == [one.name for one in GRID]  # what is named twice is measured once
    grey = make_grid(SIZES, (None,), ("paper", "grey"), BUDGETS, source=None, word_bits=8)
    assert {one.family for one in grey} == {"paper"}
    with pytest.raises(LdpSlicingError, match="the plan `grey` is for colour images"):
        make_grid(SIZES, (None,), ("grey",), BUDGETS, source=None, word_bits=8)
    assert default_sides(32) == (32, 16, 8)
    assert default_sides(12) == (12,)


def _values(settings: Sequence[Setting], part: str) -> set[object]:
    return {getattr(one, part) for one in settings}


@pytest.mark.parametrize("word_bits", [24, 8])
def test_the_first_settings_cover_sizes_views_plans_and_budgets(word_bits: int) -> None:
    sizes, families = [(32, 32), (16, 16), (8, 8)], list(BUDGETS)[: 3 if word_bits == 24 else 2]
    grid = make_grid(sizes, (None, "haar"), families, BUDGETS, source=(32, 32), word_bits=word_bits)
    first = grid[:2]
    assert all(len(values) == 2 for values in (_values(first, part) for part in PARTS))
    for part in PARTS[:3]:
        assert _values(grid[:6], part) == _values(grid, part)
    assert len(_values(grid[:6], "epsilon")) >= 4
    assert {one.view for one in grid[:8]} == {one.view for one in grid}


@pytest.mark.parametrize("setting", [*GRID[:12], Setting("thick", 2.4, "haar", (28, 28), True, 8)])
def test_command_code_and_preset_mean_the_setting(setting: Setting) -> None:
    slicer = eval(setting.code, {"Slicer": Slicer, "Plan": Plan})
    assert (slicer.plan, slicer.prune) == (setting.plan, setting.prune)
    preset = Preset.from_dict(setting.preset("advice", "", ["a sentence"]).to_dict())
    assert (preset.plan(setting.word_bits), preset.prune) == (setting.plan, setting.prune)
    assert preset.size == (setting.size if setting.shrinks else None)
    words = shlex.split(setting.command)
    assert words[:4] == ["ldp-slicing", "privatize", "SRC", "DST"]
    assert ("--fit" in words) == setting.shrinks == (setting.size != (32, 32))


def costs(step: float) -> Costs:
    found = Costs()
    for kinds in kinds_of(GRID, learns=True):
        for kind in kinds:
            found.note(kind, 1.0 + 10 * step, 10 * step, 10)
    return found


def test_what_cannot_be_afforded_is_left_out() -> None:
    fast, slow = costs(0.001), costs(0.1)
    assert most_settings(fast, GRID, 6000.0, learns=True, judge=False) == len(GRID)
    few = most_settings(slow, GRID, 1500.0, learns=True, judge=True)
    assert 2 < few < len(GRID)
    needed, more = (seconds_needed(slow, GRID[:count], learns=True, judge=True) for count in (few, few + 1))
    assert needed <= 1500 < more
    assert most_settings(slow, GRID, 0.0, learns=True, judge=False) == 0


def test_costs_of_sizes_that_were_not_timed_follow_from_those_that_were() -> None:
    found = Costs({"attack 16x16": (0.0, 0.5), "learn 16x16 thick": (2.0, 0.1), "attack 116x16": (9.0, 9.0)})
    assert found.of_size((16, 16), (32, 32)) == {"attack 32x32": (0.0, 0.5), "learn 32x32 thick": (2.0, 0.4)}
    larger = Costs({"attack 16x16": (0.0, 0.5), "score 16x16": (3.0, 0.0)}).scaled(attack=2.0, score=4.0)
    assert larger.known == {"attack 16x16": (0.0, 1.0), "score 16x16": (12.0, 0.0)}


def test_sides_that_are_tried_begin_with_the_smallest() -> None:
    assert tried_sides(64, ()) == (32, 64)
    assert tried_sides(112, ()) == (28, 56, 112)
    assert tried_sides(32, ()) == (32,)
    assert tried_sides(112, (112, 56, 28, 224)) == (28, 56, 112)


def test_a_stage_takes_the_time_that_it_has() -> None:
    some, prices = GRID[:6], costs(0.01)
    learning, attacking = stage_steps(prices, some, 300.0, learns=True, seeds=2)
    learners, attacks = kinds_of(some, learns=True)
    taken = 2 * (prices.seconds(learners, learning) + prices.seconds(attacks, attacking))
    assert 0.9 * 300 < taken <= 300
    both = prices.seconds(learners, FEWEST) + prices.seconds(attacks, FEWEST)
    assert min(stage_steps(prices, some, both + 1e-6, learns=True)) == FEWEST
    none, more = stage_steps(prices, some, 300.0, learns=False)
    assert none == 0
    assert more > attacking


def test_rounds_halve_and_shares_add_up() -> None:
    assert rounds_of(40) == [40, 14, 5]
    assert rounds_of(9) == [9, 3]
    assert rounds_of(5) == [5]
    assert rounds_of(3) == [3]
    for judge in (False, True):
        shares = Shares.of(3, judge=judge)
        assert 3 * shares.round + shares.confirmation + 3 * shares.judge == pytest.approx(1.0)


def test_the_learner_of_unprotected_images_is_planned_at_full_size() -> None:
    small = [Setting("thick", 1.0, None, (8, 8), True)]
    costs = Costs({"learn 8x8 thick": (0.0, 0.01), "learn 32x32 thick": (0.0, 0.1), "attack 8x8": (0.0, 0.01)})
    costs.known["score 8x8"] = (0.0, 0.0)
    learning, attacking = stage_steps(costs, small, 100.0, learns=True, seeds=2, unprotected=True)
    assert 2 * (0.11 * learning + 0.01 * attacking) <= 100.5
