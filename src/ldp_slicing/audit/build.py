"""The audit of a plan on this installation: its tables exactly, its paths by measurement.

Tests: tests/audit/test_build.py; the faults it must find: faults.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from ldp_slicing.audit.blocks import check_blocks
from ldp_slicing.audit.exact import check_tables, epsilon_of, worst_ratio
from ldp_slicing.audit.pixel_words import Words, masks_of, view_words
from ldp_slicing.audit.report import ERROR_RATE, Check, Report
from ldp_slicing.audit.statistics import (
    LAGS,
    Law,
    Questions,
    ask,
    ask_two,
    measured_epsilons,
    repeated_runs,
    run_length,
)
from ldp_slicing.audit.subject import Subject, sources
from ldp_slicing.errors import AuditError

PIXELS = 1 << 22
FEWEST = 1 << 12  # with fewer the statistics see nothing
PROCESS_PIXELS = 1 << 16
SECTION = "statistics, through the public interface"
FAMILIES = {
    "flip rates": ("flip rates",),
    "bits of one pixel": ("bits of one pixel", "masks of a group"),
    "neighbouring pixels": ("neighbouring pixels",),
    "two releases": ("two releases",),
}
PER_PATH = len(FAMILIES) + 2  # and repeated masks, and the measured eps
BLIND = (
    "faults of a path that are smaller than the interval of the measured epsilon (in the tables the exact part sees them)",
    "keys that somebody else knows: the operating system's random numbers are taken on trust",
    "what whole images still show to a learner or an adversary: that is for measured attacks",
)


def audit_build(
    subject: Subject,
    *,
    pixels: int = PIXELS,
    error_rate: float = ERROR_RATE,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Every check of the tables and of each path. ``pixels``: how many are measured on each path. ``say`` is told what goes on."""
    if pixels < FEWEST:
        raise AuditError(f"at least {FEWEST} pixels are measured on each path; got {pixels}")
    started = time.monotonic()
    say("tables")
    checks = check_tables(subject.plan, subject.prune, subject.tables) + check_blocks(
        subject.plan, subject.prune, subject.tables
    )
    checks += audit_paths(subject, pixels, error_rate, say)
    view = f"pruning {subject.prune or 'none'}"
    epsilon = f"epsilon {subject.plan.epsilon:g} (realised {subject.plan.realised_epsilon:.12g})"
    return Report(
        f"{_slices(len(subject.plan.slices))}, {epsilon}, {view}", tuple(checks), BLIND, time.monotonic() - started
    )


def _slices(count: int) -> str:
    return f"{count} slice{'s' * (count > 1)}"


def audit_paths(
    subject: Subject, pixels: int, error_rate: float, say: Callable[[str], None] = lambda _: None
) -> list[Check]:
    """What masks look like, path by path, and in a new process."""
    law = Law(subject.plan)  # of the plan, not of the subject's tables: what was promised
    each = error_rate / (PER_PATH * len(subject.paths) + 1)
    images, small = sources(subject.plan, pixels), sources(subject.plan, 4 * min(pixels // 4, PROCESS_PIXELS))[0]
    views = [view_words(image, subject.plan, subject.prune) for image in images]
    small_view = view_words(small, subject.plan, subject.prune)
    checks, others = list[Check](), list[Words]()
    for name, make in subject.paths.items():
        say(name)
        release = make()
        masks = [masks_of(subject.plan, release(image), words) for image, words in zip(images, views, strict=True)]
        checks += _check_path(law, masks, views, each, name)
        others += [masks_of(subject.plan, make()(small), small_view) for _ in range(2)]
    say("new processes")
    others += [masks_of(subject.plan, subject.elsewhere(small), small_view) for _ in range(2)]
    tried = f"{len(others)} releases of one source, by new slicers and by two new processes"
    return [*checks, _check_repeats(law, others, each, "new slicers, processes", tried)]


def _check_path(law: Law, masks: list[Words], views: list[Words], error_rate: float, path: str) -> list[Check]:
    every = np.concatenate(masks)
    # Images 0 and 1 are releases of one source; 2 and 3 of two others.
    across = ask_two(law, np.concatenate([masks[0], masks[2]]), np.concatenate([masks[1], masks[3]]))
    asked = [*ask(law, every, sorted({*LAGS, views[0].shape[1]})), across]
    checks = [
        _check_questions(name, [questions for questions in asked if questions.family in families], error_rate, path)
        for name, families in FAMILIES.items()
    ]
    checks.append(
        _check_repeats(
            law, masks, error_rate, "repeated masks", f"{len(masks)} releases, two of them of one source", path
        )
    )
    return checks + _check_epsilons(law, every, np.concatenate([view.ravel() for view in views]), error_rate, path)


def _check_questions(name: str, asked: list[Questions], error_rate: float, path: str) -> Check:
    count = sum(len(questions.names) for questions in asked)
    limit = error_rate / count
    complaints = [line for questions in asked for line in questions.complaints(limit)]
    smallest = min(float(questions.p_values.min()) for questions in asked)
    tried = f"{count:,} counts against exact binomials, {asked[0].trials:,} trials"
    return Check(
        SECTION, name, tried, not complaints, "smallest p", smallest, ">=", limit, error_rate, path, tuple(complaints)
    )


def _check_repeats(law: Law, masks: list[Words], error_rate: float, name: str, tried: str, path: str = "") -> Check:
    every = np.concatenate(masks)
    length = run_length(law, every.size, error_rate)
    if length is None:
        tried = f"{tried}: NOT ASKED, since this plan leaves most pixels as they are"
        return Check(SECTION, name, tried, True, where=path)
    ends = np.cumsum([each.size for each in masks])

    def place(at: int) -> str:
        image = int(np.searchsorted(ends, at, "right"))
        return f"pixel {at - int(ends[image]) + masks[image].size:,} of release {image + 1}"

    found = repeated_runs(every, length)
    complaints = tuple(f"the same masks at {place(a)} and at {place(b)}" for a, b in found)
    tried = f"{tried}: runs of {length} masks that occur twice, anywhere"
    return Check(SECTION, name, tried, not found, "found", len(found), "<=", 0, error_rate, path, complaints)


def _check_epsilons(law: Law, masks: Words, words: Words, error_rate: float, path: str) -> list[Check]:
    """The measured eps of each slice, and their sum: bounds that all hold together, so the sum costs no error rate of its own."""
    intervals = measured_epsilons(law, masks, words, error_rate)
    complaints = tuple(
        f"{each.name}: at least {each.low:.6g}, should be {each.limit:.6g}"
        for each in intervals
        if each.low > each.limit
    )
    nearest = max(intervals, key=lambda each: each.low - each.limit)
    confidence = f"confidence 1 - {error_rate:.0e}"
    details = {
        "confidence": 1 - error_rate,
        "slices": [
            {"name": each.name, "low": each.low, "high": _number(each.high), "realised": each.limit}
            for each in intervals
        ],
    }
    low, high = sum(each.low for each in intervals), sum(each.high for each in intervals)
    realised = epsilon_of(worst_ratio(law.groups, law.plan.kept_bits))
    return [
        Check(
            SECTION,
            "epsilon of each slice",
            f"lower bounds of {_slices(len(intervals))}, {confidence}; nearest is {nearest.name}",
            not complaints,
            "at least",
            nearest.low,
            "<=",
            nearest.limit,
            error_rate,
            path,
            complaints,
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
            where=path,
            details={"low": low, "high": _number(high), "realised": realised},
        ),
    ]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
