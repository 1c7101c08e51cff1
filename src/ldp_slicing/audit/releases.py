"""The audit of a set of releases, by somebody who has only the releases and their card.

Every test of pixels is one-sided and valid for any sources: docs/proofs.md, 14.5. Tests: tests/audit/test_releases.py.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ldp_slicing.audit.exact import Group, read_groups
from ldp_slicing.audit.files import ReleaseFile, ReleaseSet, read_set
from ldp_slicing.audit.report import ERROR_RATE, Check, Report
from ldp_slicing.audit.shared_masks import TESTS, Comparison, equality_probability
from ldp_slicing.audit.tails import tail_above
from ldp_slicing.card import Card, counted
from ldp_slicing.errors import AuditError, LdpSlicingError, ReleaseError
from ldp_slicing.files import digest_of, open_regular
from ldp_slicing.manifest import MANIFEST_NAME, is_lost, read_manifest
from ldp_slicing.plan import COLOUR_BITS, Plan
from ldp_slicing.storage import LocalStorage

SECTION = "releases"
LIMITATIONS = (
    "noise other than the plan's: without the sources only missing noise shows (the owner runs `ldp-slicing audit`)",
    "shared masks if releases are small or differ in size, epsilon is high, slices seldom change or sources are "
    "textured",
    "whether a source was released before, or is a near-duplicate of another: only the owner can count that",
)


@dataclass(frozen=True)
class AuditedStatement:
    """One statement of the card, with the releases that it is about.

    ``owners_key``: equal sources have equal releases, as the card says.
    """

    plan: Plan
    releases: list[ReleaseFile]
    owners_key: bool = False

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return read_groups(self.plan.tables)


def audit_releases(target: Path | str, *, error_rate: float = ERROR_RATE) -> Report:
    """Check a folder of releases, or one release with its card."""
    started = time.monotonic()
    target = Path(target)
    _refuse_other_formats(target)
    found = read_set(target)
    if not found.card_path.exists() and not (found.folder and (found.folder / MANIFEST_NAME).exists()):
        folder = "the run is not finished, or this is not a folder of releases"
        single = "this is not a release, or it was separated from its card"
        raise AuditError(f"{target} has no {found.card_path.name}: {folder if found.folder else single}")
    statements, problems = read_statements(found)
    checks = [_check_card(found, statements, problems), _check_files(found), _check_metadata(found)]
    if found.folder is not None:
        checks.append(_check_manifest(found.folder, found.releases))
    if statements:
        checks += [check(statements, error_rate / len(PIXEL_CHECKS)) for check in PIXEL_CHECKS]
    subject = f"{counted(len(found.releases), 'release')} in {found.name}"
    return Report(subject, tuple(checks), LIMITATIONS, time.monotonic() - started)


def _refuse_other_formats(target: Path) -> None:
    """Refuse releases that are not PNG files: a verdict on files that were not inspected would mean nothing."""
    if target.is_file() and target.name.endswith(".card.json"):
        raise AuditError(f"{target} is a card: name the release that it is about")
    if target.is_file() and target.suffix.lower() != ".png":
        raise AuditError(f"{target} cannot be audited: only PNG files can")
    if not target.is_dir():
        return
    try:
        outputs = [line["output"] for line in read_manifest(LocalStorage(target))]
    except ReleaseError:
        return  # the check of the manifest reports it
    others = {output for output in outputs if not output.lower().endswith(".png")}
    if others:
        more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
        raise AuditError(
            f"{min(others)}{more} cannot be audited: only PNG files can. "
            "Use `ldp-slicing verify` to compare them with manifest and card"
        )


def read_statements(found: ReleaseSet) -> tuple[list[AuditedStatement], list[str]]:
    """The statements of the card, each with its releases, and the problems of the card."""
    try:
        card = Card.load(open_regular(found.card_path))
    except LdpSlicingError as error:
        return [], [f"{found.card_path.name} is not a valid card: {error}"]
    statements, problems = list[AuditedStatement](), list[str]()
    left, lost = list(found.releases), _read_lost(found)
    for number, stated in enumerate(card.statements, 1):
        plan = stated.plan
        file_bits = COLOUR_BITS if plan.is_colour else 8 * plan.dtype.itemsize
        mine = [release for release in left if release.word_bits == file_bits]
        statements.append(AuditedStatement(plan, mine, card.owners_key))
        sizes = [*(release.size for release in mine), *lost.pop(plan.word_bits, ())]
        left = [release for release in left if release.word_bits != file_bits]
        problems += [
            f"statement {number}, {where}: the card says {said!r}, should be {right!r}"
            for where, said, right in stated.differences(sizes)
        ]
    if left and not problems:
        problems.append(f"no statement is about {counted(len(left), 'release')}, such as {left[0].path}")
    if lost and not problems:
        problems.append(f"no statement is about lost releases of {', '.join(map(str, sorted(lost)))}-bit words")
    return statements, problems


def _read_lost(found: ReleaseSet) -> dict[int, list[tuple[int, int]]]:
    """The sizes of lost releases, by the bits of their words. They were made, so the card counts them."""
    lost = defaultdict[int, list[tuple[int, int]]](list)
    if found.folder is not None:
        storage = LocalStorage(found.folder)
        with contextlib.suppress(ReleaseError):  # the check of the manifest reports it
            for line in read_manifest(storage):
                if is_lost(storage, line):
                    lost[line["word_bits"]].append((line["width"], line["height"]))  # a PNG file holds one release
    return lost


def _check_card(found: ReleaseSet, statements: list[AuditedStatement], problems: list[str]) -> Check:
    tested = f"{found.card_path.name}: {counted(len(statements), 'statement')}, recomputed from plan and files"
    return Check(SECTION, "card", tested, not problems, failures=tuple(problems))


def _check_files(found: ReleaseSet) -> Check:
    failures = tuple(found.unexpected) if found.releases else (*found.unexpected, "there is no release")
    count = len(found.unexpected)
    tested = "nothing but releases, card and manifest"
    return Check(SECTION, "files", tested, not failures, "others", count, "<=", 0, failures=failures)


def _check_manifest(folder: Path, releases: list[ReleaseFile]) -> Check:
    storage, listed, problems, lost = LocalStorage(folder), dict[str, str](), list[str](), 0
    try:
        for line in read_manifest(storage):
            if is_lost(storage, line):
                lost += 1
            else:
                listed[line["output"]] = line["sha256"]
    except ReleaseError as error:
        problems.append(f"the folder {error}")
    for output, checksum in listed.items():
        if storage.size(output) is None:
            problems.append(f"{output}: is missing")
            continue
        with storage.open(output) as file:
            if digest_of(file).hex() != checksum:
                problems.append(f"{output}: is not the file that was released")
    problems += [f"{release.path}: is not listed" for release in releases if str(release.path) not in listed]
    tested = f"{MANIFEST_NAME}: lists every file, with its checksum"
    if lost:
        tested += f"; {lost:,} lost"
    return Check(SECTION, "manifest", tested, not problems, "wrong", len(problems), "<=", 0, failures=tuple(problems))


def _check_metadata(found: ReleaseSet) -> Check:
    tested = f"{counted(len(found.releases), 'PNG file')}: pixels and nothing else"
    leaks = tuple(found.metadata)
    return Check(SECTION, "metadata", tested, not leaks, "leaks", len(leaks), "<=", 0, failures=leaks)


def _check_duplicates(statements: list[AuditedStatement], error_rate: float) -> Check:
    """Check for equal releases. Fresh ones are equal with probability at most P(likeliest mask)^(certain pixels)."""
    failures, too_small, allowed = list[str](), 0, 0
    count = sum(len(statement.releases) for statement in statements)
    pairs = max(1, count * (count - 1) // 2)
    for statement in statements:
        likeliest = math.prod(float(group.largest_probability) for group in statement.groups)
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


def _check_noise(statements: list[AuditedStatement], error_rate: float) -> Check:
    """Check that neighbouring words are not equal more often than two masks are, and that dropped bits are constant."""
    failures, smallest, too_small = list[str](), 1.0, 0
    count = sum(len(statement.releases) for statement in statements)
    limit = error_rate / max(1, count)
    for statement in statements:
        probability = equality_probability(statement.groups, 2)
        kept = np.uint32(statement.plan.kept_bits)
        for release in statement.releases:
            pairs = release.left.size
            equal = np.count_nonzero(release.certain & ((release.left ^ release.right) & kept == 0))
            p_value = float(tail_above(equal, pairs, probability)[0])
            smallest = min(smallest, p_value)
            too_small += pairs * math.log(probability) > math.log(limit)
            if p_value < limit:
                failures.append(
                    f"{release.path}: {equal} of {pairs} pairs of neighbouring pixels are equal (p = {p_value:.1e})"
                )
            if np.any(release.left[release.certain] & ~kept != statement.plan.dropped_value):
                failures.append(f"{release.path}: bits that its plan drops are not constant")
    tested = f"{counted(count, 'release')}: neighbours equal too often for the plan's masks"
    if too_small:
        tested += f"; {too_small} too small to tell"
    return Check(
        SECTION,
        "noise",
        tested,
        not failures,
        "smallest p",
        smallest,
        ">=",
        limit,
        error_rate,
        failures=tuple(failures),
    )


def _check_shared_masks(statements: list[AuditedStatement], error_rate: float) -> Check:
    """Check pairs of releases of one size for a shared mask."""
    sets = [Comparison(same, statement.groups) for statement in statements for same in _comparable_releases(statement)]
    pairs, possible = sum(each.pairs for each in sets), sum(each.possible_pairs for each in sets)
    limit = error_rate / max(1, TESTS * pairs)
    too_small = sum(each.pairs for each in sets if not each.has_power(limit))
    results = [each.compare(limit) for each in sets]
    failures = tuple(str(suspect) for _, found in results for suspect in found)
    smallest = min((p_value for p_value, _ in results), default=1.0)
    tested = f"{pairs:,} of {possible:,} pairs of releases of equal size"
    if too_small:
        tested += f"; {too_small:,} too small to tell"
    return Check(
        SECTION,
        "shared masks",
        tested,
        not failures,
        "smallest p",
        smallest,
        ">=",
        limit,
        error_rate,
        failures=failures,
    )


PIXEL_CHECKS: tuple[Callable[[list[AuditedStatement], float], Check], ...] = (
    _check_duplicates,
    _check_noise,
    _check_shared_masks,
)


def _comparable_releases(statement: AuditedStatement) -> list[list[ReleaseFile]]:
    """The releases of a statement by size, where several have it. Under an owner's key, equal releases count once."""
    releases = statement.releases
    if statement.owners_key:
        releases = list({release.digest: release for release in releases}.values())
    sizes: dict[tuple[int, int], list[ReleaseFile]] = {}
    for release in releases:
        sizes.setdefault(release.size, []).append(release)
    return [same for same in sizes.values() if len(same) > 1 and same[0].left.size]
