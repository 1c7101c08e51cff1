"""The audit of a set of releases, by somebody who has only the releases and their card.

Such an audit can refute a card, and never prove it: without the sources, only missing noise shows. So it has three
verdicts. Every test of pixels is exact, or a bound that holds for any sources: docs/proofs.md, 14.5 to 14.8.

Tests: tests/audit/test_releases.py, tests/audit/test_unprotected.py, tests/audit/test_false_alarms.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ldp_slicing.audit.exact import read_groups
from ldp_slicing.audit.files import AuditedStatement, Progress, ReleaseFile, ReleaseSet, read_set
from ldp_slicing.audit.noise import (
    NoiseCounts,
    add_up,
    agreement_p_values,
    clamped_p_value,
    pair_tests,
    too_few_clamped,
    too_many_clamped,
)
from ldp_slicing.audit.parts import SIDE, add_parts
from ldp_slicing.audit.power import MODERATE, detectable, detected_sigma
from ldp_slicing.audit.report import ERROR_RATE, SHOWN, Check, Power, Report, Verdicts, p_value_check
from ldp_slicing.audit.shared_masks import TESTS, Comparison
from ldp_slicing.plan import Plan, kind_of_pixels
from ldp_slicing.sets import MANIFEST_NAME
from ldp_slicing.wording import counted

SECTION = "releases"
VERDICTS = Verdicts("consistent with the card", "refuted", "cannot tell at this budget")
LIMITATIONS = (
    "noise other than the plan's, or an encrypted image: without the sources only missing noise is detected (the owner "
    "runs `ldp-slicing audit`)",
    "less noise than the plan's: a card may claim a smaller epsilon than was used, unless the difference is large",
    "unprotected images whose noise is as strong as the plan's, or most of whose colours are 0 or 255",
    f"unprotected parts that are small (about {SIDE} x {SIDE} pixels), or whose pixels are seldom next to each other",
    "masks that are repeated within a release, other than from row to row or after 8, 16, ... 512 pixels",
    "masks that two releases share, if their sizes differ or the masks are at different places",
    "shared or repeated masks if releases are small, epsilon is high, slices seldom change or sources are textured",
    "whether a source was released before, or is a near-duplicate of another: only the owner can count that",
)


def audit_releases(
    target: Path | str,
    *,
    error_rate: float = ERROR_RATE,
    strict: bool = False,
    progress: Progress = lambda which: None,
) -> Report:
    """Check a folder of releases, or one file of releases with its card.

    ``strict``: files that file managers left in the folder are wrong. ``progress`` is called before each file with its
    number.
    """
    started = time.monotonic()
    found = read_set(Path(target), strict=strict, progress=progress)
    statements = list(found.statements.values())
    checks = [_check_card(found), _check_files(found)]
    power, verdicts = Power(), VERDICTS
    if not found.releases and not found.card:
        verdicts = replace(VERDICTS, failure="nothing to audit")
    if found.releases:
        share = error_rate / len(PIXEL_CHECKS)
        checks += [check_values(statements), *(check(statements, share) for check in PIXEL_CHECKS)]
        power = _measure_power(statements, share)
    subject = f"{counted(len(found.releases), 'release')} in {found.name}"
    measured = tuple(statement.measured for statement in statements)
    return Report(subject, tuple(checks), LIMITATIONS, time.monotonic() - started, verdicts, power, measured)


def _check_card(found: ReleaseSet) -> Check:
    tested = f"{found.card_name}: {counted(len(found.statements), 'statement')}, recomputed from plan and files"
    if found.files:
        tested += "; files that are missing or wrong are not counted"
    if not found.complete:
        tested += "; the run is not complete"
    return Check(SECTION, "card", tested, not found.card, failures=tuple(found.card))


def _check_files(found: ReleaseSet) -> Check:
    failures = tuple(found.files) if found.releases or found.files or found.card else ("there is no release",)
    listed = f"{MANIFEST_NAME}, checksums" if found.has_manifest else "no manifest to compare it with"
    tested = f"what `ldp-slicing verify` checks: {listed}, nothing but releases"
    if found.lost:
        tested += f"; {found.lost:,} lost"
    if found.litter:
        named = ", ".join(f"{file} ({size:,} bytes)" for file, size in found.litter[:SHOWN])
        more = f" and {len(found.litter) - SHOWN:,} more" if len(found.litter) > SHOWN else ""
        tested += f"; not looked into: {named}{more}, which file managers left and which may hold a source"
    return Check(SECTION, "files", tested, not failures, "wrong", len(failures), "<=", 0, failures=failures)


def check_values(statements: list[AuditedStatement]) -> Check:
    """Check that every pixel has a value that a release of its plan can have. Exact: docs/proofs.md, 14.6."""
    failures = tuple(
        f"{release.path}: {release.counts.impossible:,} of {counted(release.counts.pixels, 'pixel')} "
        "have values that no release of its plan has"
        for statement in statements
        for release in statement.releases
        if release.counts.impossible
    )
    pixels = sum(release.counts.pixels for statement in statements for release in statement.releases)
    tested = f"{counted(pixels, 'pixel')}: values that the plan can release"
    return Check(SECTION, "values", tested, not failures, "impossible", len(failures), "<=", 0, failures=failures)


def _check_duplicates(statements: list[AuditedStatement], error_rate: float) -> Check:
    """Check for equal releases. Fresh ones are equal with probability at most P(likeliest mask)^(certain pixels)."""
    failures, too_small, allowed = list[str](), 0, 0
    count = sum(len(statement.releases) for statement in statements)
    pairs = max(1, count * (count - 1) // 2)
    for statement in statements:
        likeliest = math.prod(float(group.largest_probability) for group in read_groups(statement.plan.tables))
        seen: dict[bytes, ReleaseFile] = {}
        for release in statement.releases:
            other = seen.setdefault(release.digest, release)
            if other is release:
                continue
            if statement.owners_key:
                allowed += 1
            elif math.log(pairs) + release.certain_pixels * math.log(likeliest) > math.log(error_rate):
                too_small += 1
            else:
                failures.append(f"{other.path} and {release.path} have the same pixels")
    tested = f"{counted(count, 'release')}, all pairs"
    if too_small:
        tested += f"; {too_small} too small to tell from chance"
    if allowed:
        tested += f"; {allowed} equal to another, as the owner's key makes releases of equal sources"
    return Check(
        SECTION,
        "duplicates",
        tested,
        not failures,
        "equal",
        len(failures),
        "<=",
        0,
        error_rate,
        failures=tuple(failures),
    )


def noise_limit(plan: Plan, releases: int, error_rate: float) -> float:
    """The p-value below which a test of one release, or of all together, fails: all tests share the error rate."""
    return error_rate / ((releases + 1) * max(1, len(pair_tests(plan))))


def _all_counts(statement: AuditedStatement) -> NoiseCounts:
    return add_up([release.counts for release in statement.releases])


def _distinct_counts(statement: AuditedStatement) -> NoiseCounts:
    return add_up([release.counts for release in statement.distinct])


def _check_noise(statements: list[AuditedStatement], error_rate: float) -> Check:
    """Check that neighbours do not agree more often than the plan's masks let them: each release, and all together."""
    failures, found, tests = list[str](), list[tuple[float, float]](), 0
    share = error_rate / len(statements)
    for statement in (statement for statement in statements if statement.releases):
        plan, releases = statement.plan, statement.releases
        limit = noise_limit(plan, len(releases), share)
        # Copies under one mask are no further trials, and which releases are copies is uncertain: docs/proofs.md, 14.8.
        together = replace(_all_counts(statement), agreeing=_distinct_counts(statement).agreeing)
        counts = [*(release.counts for release in releases), together]
        names = [*(str(release.path) for release in releases), "all releases together"]
        agreeing, pairs = np.stack([one.agreeing for one in counts]), np.stack([one.pairs for one in counts])
        p_values = agreement_p_values(agreeing, pairs, plan)
        tests += p_values.size
        found.append((float(p_values.min(initial=1.0)), limit))
        for i in np.flatnonzero(p_values.min(axis=1, initial=1.0) < limit).tolist():
            worst = int(p_values[i].argmin())
            test = pair_tests(plan)[worst]
            failures.append(
                f"{names[i]}: {test.what} in {agreeing[i, worst]:,} of {pairs[i, worst]:,} pairs of "
                f"{test.family.what} (p = {p_values[i, worst]:.1e})"
            )
    tested = f"{counted(tests, 'test')}: whether neighbours agree too often for the plan's masks"
    smallest, limit = min(found, default=(1.0, error_rate), key=lambda pair: pair[0] / pair[1])
    return p_value_check(SECTION, "noise", tested, smallest, limit, error_rate, failures)


def _check_parts(statements: list[AuditedStatement], error_rate: float) -> Check:
    """Check that no part of a release has less noise than the plan's."""
    releases = [release for statement in statements for release in statement.releases]
    together = add_parts(release.counts.parts for release in releases)
    limit = error_rate / max(1, together.tests)
    failures = tuple(
        f"{release.path}: {release.counts.parts.worst} (p = {release.counts.parts.smallest:.1e})"
        for release in releases
        if release.counts.parts.smallest < limit
    )
    tested = (
        f"{counted(together.tests, 'test')}: whether neighbours agree too often in a part of {SIDE} x {SIDE} pixels or "
        "more"
    )
    return p_value_check(SECTION, "parts", tested, together.smallest, limit, error_rate, failures)


def _check_clamped(statements: list[AuditedStatement], error_rate: float) -> Check:
    """Check that the share of clamped pixels, of each release and of all, is one that some words of the plan have."""
    failures, smallest = list[str](), 1.0
    limit = error_rate / max(1, sum(len(statement.releases) + 1 for statement in statements))
    pixels = 0
    for statement in (statement for statement in statements if statement.plan.is_colour and statement.releases):
        plan, total, distinct = statement.plan, _all_counts(statement), _distinct_counts(statement)
        pixels += total.pixels
        counts = [(str(release.path), release.counts) for release in statement.releases]
        found = [(name, one, clamped_p_value(one.clamped, one.pixels, plan)) for name, one in counts]
        too_many = too_many_clamped(distinct.clamped, total.pixels, plan)
        too_few = too_few_clamped(total.clamped, distinct.pixels, plan)
        found.append(("all releases together", total, min(too_many, too_few)))
        for name, one, p_value in found:
            smallest = min(smallest, p_value)
            if p_value < limit:
                failures.append(
                    f"{name}: {one.clamped:,} of {counted(one.pixels, 'pixel')} have a colour of 0 or 255 "
                    f"(p = {p_value:.1e})"
                )
    tested = f"{counted(pixels, 'pixel')} in colour: whether they are 0 or 255 more or less often than the plan allows"
    return p_value_check(SECTION, "clamped", tested, smallest, limit, error_rate, failures)


def _check_shared_masks(statements: list[AuditedStatement], error_rate: float) -> Check:
    """Check pairs of releases of one size for a shared mask."""
    sets, possible = list[Comparison](), 0
    for statement in statements:
        for same in _releases_by_size(statement):
            possible += math.comb(len(same), 2)
            kept = [release for release in same if release.left.size]
            if len(kept) > 1:
                sets.append(Comparison(kept, read_groups(statement.plan.tables)))
    pairs = sum(each.pairs for each in sets)
    limit = error_rate / max(1, TESTS * pairs)
    too_small = sum(each.pairs for each in sets if not each.has_power(limit))
    results = [each.compare(limit) for each in sets]
    failures = tuple(str(suspect) for _, found in results for suspect in found)
    smallest = min((p_value for p_value, _ in results), default=1.0)
    tested = f"{pairs:,} of {possible:,} pairs of releases of equal size"
    if too_small:
        tested += f"; {too_small:,} too small to tell"
    return p_value_check(SECTION, "shared masks", tested, smallest, limit, error_rate, failures)


PIXEL_CHECKS: tuple[Callable[[list[AuditedStatement], float], Check], ...] = (
    _check_duplicates,
    _check_noise,
    _check_parts,
    _check_clamped,
    _check_shared_masks,
)


def _releases_by_size(statement: AuditedStatement) -> list[list[ReleaseFile]]:
    """The releases of a statement by size, of at least two columns. Under an owner's key, equal ones count once."""
    sizes: dict[tuple[int, int], list[ReleaseFile]] = {}
    for release in statement.distinct:
        sizes.setdefault(release.size, []).append(release)
    return [same for (width, _), same in sizes.items() if width > 1]


def _measure_power(statements: list[AuditedStatement], error_rate: float) -> Power:
    """What the check of noise would detect: a self-test for each plan, at the sizes of its releases."""
    sentences, details, missed = list[str](), list[dict[str, object]](), list[ReleaseFile]()
    for statement in (statement for statement in statements if statement.releases):
        plan, releases = statement.plan, statement.releases
        limit = noise_limit(plan, len(releases), error_rate / len(statements))
        found, moderate = detectable(plan, limit), MODERATE[plan.is_colour]
        sigmas = [detected_sigma(found, release.counts.pixels) for release in releases]
        every, distinct = (sum(one.counts.pixels for one in some) for some in (releases, statement.distinct))
        # Copies are trials and add no counts (docs/proofs.md, 14.8). Then at least each release alone has its power.
        alone = max(release.counts.pixels for release in releases)
        together = detected_sigma(found, every if distinct == every else alone)
        unseen = [release for release, sigma in zip(releases, sigmas, strict=True) if sigma is None or sigma < moderate]
        missed += unseen
        kind = kind_of_pixels(plan.word_bits)
        needed = ", ".join(
            f"sigma {each.sigma}: {'never' if each.pixels is None else f'{each.pixels:,}'}" for each in found
        )
        sentences += [
            f"{kind}, epsilon {plan.epsilon:g}: pixels from which an unprotected image with Gaussian noise is detected",
            f"  {needed}",
        ]
        if unseen:
            what = "an unprotected image" if len(unseen) == 1 else "unprotected images"
            sentences.append(
                f"  {len(unseen):,} of {counted(len(releases), 'release')} could be {what} with noise of "
                f"sigma {moderate}, such as {unseen[0].path}"
            )
        details.append(
            {
                "plan": plan.to_dict(),
                "limit": limit,
                "pixels_needed": [{"sigma": each.sigma, "pixels": each.pixels} for each in found],
                "moderate_sigma": moderate,
                "releases": len(releases),
                "releases_detected_at_moderate_sigma": len(releases) - len(unseen),
                "sigma_detected_in_all_together": together,
            }
        )
    too_little = ""
    if missed:
        what = "an unprotected image" if len(missed) == 1 else "unprotected images"
        too_little = f"{counted(len(missed), 'release')} could be {what} with a camera's noise"
    return Power(tuple(sentences), details, too_little)
