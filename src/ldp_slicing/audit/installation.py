"""The audit of a plan on this installation: its tables exactly, its backends by measurement.

Tests: tests/audit/test_installation.py. The faults that it must find: faults.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from ldp_slicing.audit.backends import Installation, audit_sources
from ldp_slicing.audit.blocks import check_blocks
from ldp_slicing.audit.exact import check_tables, epsilon_of, worst_ratio
from ldp_slicing.audit.pixel_words import Words, masks_of, view_words
from ldp_slicing.audit.report import ERROR_RATE, Check, Report, Verdicts, p_value_check
from ldp_slicing.audit.statistics import (
    LAGS,
    BinomialTests,
    MaskDistribution,
    mask_tests,
    measured_epsilons,
    release_pair_tests,
    repeated_runs,
    run_length,
)
from ldp_slicing.errors import AuditError
from ldp_slicing.measured import risk
from ldp_slicing.wording import counted

PIXELS = 1 << 22
MIN_PIXELS = 1 << 12  # with fewer, the statistics have no power
PROCESS_PIXELS = 1 << 16
SECTION = "statistics, through the public interface"
TEST_CHECKS = {  # each check with its kinds of tests
    "flip rates": ("flip rates",),
    "bits of one pixel": ("bits of one pixel", "masks of a group"),
    "neighbouring pixels": ("neighbouring pixels",),
    "two releases": ("two releases",),
}
CHECKS_PER_BACKEND = len(TEST_CHECKS) + 2  # and repeated masks, and the measured eps
VERDICTS = Verdicts("the mathematical bound holds", "THE MATHEMATICAL BOUND DOES NOT HOLD")
LIMITATIONS = (
    "faults of a backend smaller than the interval of the measured epsilon (the exact part finds those in tables)",
    "keys that somebody else knows: the operating system's random numbers are trusted",
    "what whole images still show to a learner or an adversary: see the measured attacks",
)
Progress = Callable[[str], None]


def audit_installation(
    installation: Installation,
    *,
    pixels: int = PIXELS,
    error_rate: float = ERROR_RATE,
    progress: Progress = lambda _: None,
) -> Report:
    """Check the tables and every backend.

    ``pixels``: how many are measured on each backend. ``progress`` is called with the name of each step.
    """
    if pixels < MIN_PIXELS:
        raise AuditError(f"at least {MIN_PIXELS} pixels are needed for each backend; got {pixels}")
    started = time.monotonic()
    plan, prune, tables = installation.plan, installation.prune, installation.tables
    progress("tables")
    checks = check_tables(plan, prune, tables) + check_blocks(plan, prune, tables)
    checks += audit_backends(installation, pixels, error_rate, progress)
    epsilon = f"epsilon {plan.epsilon:g} (realised {plan.realised_epsilon:.12g})"
    subject = f"{counted(len(plan.slices), 'slice')}, {epsilon}, pruning {prune or 'none'}"
    measured = (risk(plan, prune, None).sentence,)
    return Report(subject, tuple(checks), LIMITATIONS, time.monotonic() - started, VERDICTS, measured=measured)


def audit_backends(
    installation: Installation, pixels: int, error_rate: float, progress: Progress = lambda _: None
) -> list[Check]:
    """Check the masks of every backend, and of a new process."""
    plan, prune = installation.plan, installation.prune
    expected = MaskDistribution(plan)  # of the promised plan, not of the tables in use
    each = error_rate / (CHECKS_PER_BACKEND * len(installation.backends) + 1)
    images, small = audit_sources(plan, pixels), audit_sources(plan, 4 * min(pixels // 4, PROCESS_PIXELS))[0]
    views = [view_words(image, plan, prune) for image in images]
    small_view = view_words(small, plan, prune)
    checks, others = list[Check](), list[Words]()
    for name, make in installation.backends.items():
        progress(name)
        release = make()
        masks = [masks_of(plan, release(image), words) for image, words in zip(images, views, strict=True)]
        checks += _check_backend(expected, masks, views, each, name)
        others += [masks_of(plan, make()(small), small_view) for _ in range(2)]
    progress("new processes")
    others += [masks_of(plan, installation.new_process(small), small_view) for _ in range(2)]
    tested = f"{len(others)} releases of one source, by new slicers and by two new processes"
    return [*checks, _check_repeats(expected, others, each, "new slicers, processes", tested)]


def _check_backend(
    expected: MaskDistribution, masks: list[Words], views: list[Words], error_rate: float, backend: str
) -> list[Check]:
    every = np.concatenate(masks)
    # Images 0 and 1 are releases of one source; 2 and 3 are releases of two others.
    one, two = np.concatenate([masks[0], masks[2]]), np.concatenate([masks[1], masks[3]])
    lags = sorted({*LAGS, views[0].shape[1]})
    tests = [*mask_tests(expected, every, lags), release_pair_tests(expected, one, two)]
    checks = [
        _check_tests(name, [several for several in tests if several.kind in kinds], error_rate, backend)
        for name, kinds in TEST_CHECKS.items()
    ]
    tested = f"{len(masks)} releases, two of them of one source"
    checks.append(_check_repeats(expected, masks, error_rate, "repeated masks", tested, backend))
    words = np.concatenate([view.ravel() for view in views])
    return checks + _check_epsilons(expected, every, words, error_rate, backend)


def _check_tests(name: str, tests: list[BinomialTests], error_rate: float, backend: str) -> Check:
    count = sum(len(several.names) for several in tests)
    limit = error_rate / count
    failures = tuple(failure for several in tests for failure in several.failures(limit))
    smallest = min(float(several.p_values.min()) for several in tests)
    tested = f"{count:,} counts against exact binomials, {tests[0].trials:,} trials"
    return p_value_check(SECTION, name, tested, smallest, limit, error_rate, failures, backend=backend)


def _check_repeats(
    expected: MaskDistribution, masks: list[Words], error_rate: float, name: str, tested: str, backend: str = ""
) -> Check:
    every = np.concatenate(masks)
    length = run_length(expected, every.size, error_rate)
    if length is None:
        tested = f"{tested}: NOT TESTED, since this plan leaves most pixels unchanged"
        return Check(SECTION, name, tested, True, backend=backend)
    ends = np.cumsum([each.size for each in masks])

    def place(at: int) -> str:
        image = int(np.searchsorted(ends, at, "right"))
        return f"pixel {at - int(ends[image]) + masks[image].size:,} of release {image + 1}"

    found = repeated_runs(every, length)
    failures = tuple(f"the same masks at {place(a)} and at {place(b)}" for a, b in found)
    tested = f"{tested}: runs of {length} masks that occur twice, anywhere"
    return Check(SECTION, name, tested, not found, "found", len(found), "<=", 0, error_rate, backend, failures)


def _check_epsilons(
    expected: MaskDistribution, masks: Words, words: Words, error_rate: float, backend: str
) -> list[Check]:
    """Check the measured eps of each slice, and their sum.

    The bounds of all slices hold together, so the sum has no error rate of its own.
    """
    intervals = measured_epsilons(expected, masks, words, error_rate)
    failures = tuple(
        f"{each.name}: at least {each.low:.6g}, should be {each.realised:.6g}"
        for each in intervals
        if each.low > each.realised
    )
    nearest = max(intervals, key=lambda each: each.low - each.realised)
    confidence = f"confidence 1 - {error_rate:.0e}"
    details = {
        "confidence": 1 - error_rate,
        "slices": [
            {"name": each.name, "low": each.low, "high": _finite(each.high), "realised": each.realised}
            for each in intervals
        ],
    }
    low, high = sum(each.low for each in intervals), sum(each.high for each in intervals)
    realised = epsilon_of(worst_ratio(expected.groups, expected.plan.kept_bits))
    return [
        Check(
            SECTION,
            "epsilon of each slice",
            f"lower bounds of {counted(len(intervals), 'slice')}, {confidence}; nearest: {nearest.name}",
            not failures,
            "at least",
            nearest.low,
            "<=",
            nearest.realised,
            error_rate,
            backend,
            failures,
            details,
        ),
        Check(
            SECTION,
            "epsilon of their sum",
            f"measured {low:.5g} to {high:.5g}, each side with {confidence}",
            low <= realised,
            "at least",
            low,
            "<=",
            realised,
            backend=backend,
            details={"low": low, "high": _finite(high), "realised": realised},
        ),
    ]


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None
