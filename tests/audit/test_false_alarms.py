"""Honest releases are never refuted: every kind of source, plan and pruning, with masks that differ in each run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp_slicing import Plan, Slicer
from ldp_slicing.audit.files import AuditedStatement, summarise
from ldp_slicing.audit.releases import PIXEL_CHECKS, check_values
from ldp_slicing.audit.report import ERROR_RATE
from ldp_slicing.view import Prune
from tests.cases import PLANS, photographs

EXTRA = {
    **{f"paper {epsilon}": Plan.paper(epsilon) for epsilon in (1.0, 5.2, 58.0)},
    **{f"thick {epsilon}": Plan.sliced(epsilon, "Y7+Y4+Cb7+Cr7") for epsilon in (1.0, 5.2, 12.0)},
    **{f"grey {epsilon}, 16 bits": Plan.grey(epsilon, 16) for epsilon in (5.2, 58.0)},
    "grey 58": Plan.grey(58.0),
    "uniform 58": Plan.uniform(58.0),
    "thick 30, no test": Plan.sliced(30.0, "Y7+Y4+Cb7+Cr7"),
}
COLOURS = ([255, 0, 0], [0, 0, 255], [255, 0, 255], [0, 255, 255], [255, 255, 0])


def sources(plan: Plan) -> Iterator[NDArray[Any]]:
    """Flat, tiny, natural and noisy sources."""
    rng = np.random.default_rng()
    top = 255 if plan.is_colour else (1 << plan.word_bits) - 1
    for shape in ((1, 1), (3, 5), (9, 1), (64, 64)):
        whole = (*shape, 3) if plan.is_colour else shape
        for level in (0, top, top // 2):
            yield np.full(whole, level, plan.dtype)
        yield rng.integers(0, top + 1, whole).astype(plan.dtype)
        if plan.is_colour:
            for colour in COLOURS:
                yield np.broadcast_to(np.array(colour, np.uint8), whole).copy()
    photograph = photographs()["astronaut"][:200, 100:300]
    if plan.is_colour:
        yield photograph
    elif plan.word_bits >= 8:
        yield photograph[..., 1].astype(plan.dtype) << (plan.word_bits - 8)


@pytest.mark.parametrize("prune", [None, "haar", "haar2", "haar4", "haar8", "dct"])
@pytest.mark.parametrize("name", [*PLANS, *EXTRA])
def test_honest_releases_are_not_refuted(name: str, prune: Prune) -> None:
    plan = (PLANS | EXTRA)[name]
    slicer = Slicer(plan, prune=prune)
    releases = [summarise(PurePath(str(i)), slicer(source), plan) for i, source in enumerate(sources(plan))]
    statements = [AuditedStatement(plan, False, releases)]
    checks = [check_values(statements), *(check(statements, ERROR_RATE / len(PIXEL_CHECKS)) for check in PIXEL_CHECKS)]
    assert [(check.name, check.failures) for check in checks if not check.passed] == []


@pytest.mark.parametrize(
    ("name", "level"),
    [
        *(("paper 20", level) for level in (85, 120, 255)),
        *(("paper, chroma dropped", level) for level in (103, 255)),  # which are clamped least and most often
        ("grey 20", 77),
    ],
)
def test_copies_of_one_source_under_an_owners_key_are_not_refuted(name: str, level: int) -> None:
    """They have one mask. Counted as further trials, the chance of one release would be taken for a lack of noise.

    In colour that shows in the clamped pixels, in grey in the neighbours: those of a flat source reach their bound.
    """
    plan = PLANS[name]
    source = np.full((40, 40, 3) if plan.is_colour else (40, 40), level, np.uint8)
    for _ in range(10):
        one = summarise(PurePath("0"), Slicer(plan, prune=None)(source), plan)
        copies = [replace(one, path=PurePath(str(i))) for i in range(400)]
        statements = [AuditedStatement(plan, True, copies)]
        checks = [check(statements, ERROR_RATE / len(PIXEL_CHECKS)) for check in PIXEL_CHECKS]
        assert [(check.name, check.failures) for check in checks if not check.passed] == []
