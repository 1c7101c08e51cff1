"""The audit of a set of releases, by somebody who has nothing but the releases and their card.

Every test of pixels is one-sided and holds for any sources: docs/proofs.md, 14. Tests: tests/audit/test_releases.py.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ldp_slicing.audit.exact import Group, read_groups
from ldp_slicing.audit.files import ReleaseFile, ReleaseSet, read_set
from ldp_slicing.audit.report import ERROR_RATE, Check, Report
from ldp_slicing.audit.shared import QUESTIONS, Comparison, equal_at
from ldp_slicing.audit.tails import tail_above
from ldp_slicing.card import CARD_VERSION, EQUALITY, Statement, counted, differences, promised, spent_on_one
from ldp_slicing.errors import AuditError, LdpSlicingError, ReleaseError
from ldp_slicing.files import digest_of
from ldp_slicing.manifest import MANIFEST_NAME, is_lost, read_manifest
from ldp_slicing.plan import COLOUR_BITS, Plan
from ldp_slicing.storage import LocalStorage

SECTION = "releases"
BLIND = (
    "whether the noise is just the plan's: without the sources only its absence shows (the owner runs `ldp-slicing audit`)",
    "shared masks where releases are small or of different size, epsilon is high, slices seldom change or the sources have much texture",
    "whether a source was released before, or is a near-duplicate of another: that is the owner's to count",
)


@dataclass(frozen=True)
class Claim:
    """One statement of the card: the plan it speaks of, and the sums it gives."""

    plan: Plan
    statement: Statement | None  # recomputed for the releases it is about; None where there are none
    written: dict[str, Any]
    releases: list[ReleaseFile]
    owners_key: bool = False  # then equal sources have equal releases, as the card says

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return read_groups(self.plan.tables)


def audit_releases(target: Path | str, *, error_rate: float = ERROR_RATE) -> Report:
    """Every check of a folder of releases, or of one release with its card."""
    started = time.monotonic()
    target = Path(target)
    if target.is_dir():
        _refuse_containers(LocalStorage(target))
    elif target.name.endswith(".card.json"):
        raise AuditError(f"{target} is a card: name the release that it speaks of")
    elif target.is_file() and target.suffix.lower() != ".png":
        raise AuditError(f"{target}: of releases only PNG files are audited")
    found = read_set(target)
    if not found.card_path.exists() and not (found.folder and (found.folder / MANIFEST_NAME).exists()):
        what = (
            "the run is not finished, or this is no set of releases"
            if found.folder
            else "this is no release, or was parted from its card"
        )
        raise AuditError(f"{target} has no {found.card_path.name}: {what}")
    claims, problems = read_card(found)
    each = error_rate / len(PIXEL_CHECKS)
    checks = [_check_card(found, claims, problems), _check_files(found), _check_metadata(found)]
    if found.folder is not None:
        checks.append(_check_manifest(found.folder, found.releases))
    if claims:
        checks += [check(claims, each) for check in PIXEL_CHECKS]
    count = len(found.releases)
    return Report(f"{counted(count, 'release')} in {found.name}", tuple(checks), BLIND, time.monotonic() - started)


def _refuse_containers(folder: LocalStorage) -> None:
    """A verdict on files that were not looked into would be no verdict."""
    try:
        others = sorted(
            {line["output"] for line in read_manifest(folder) if not line["output"].lower().endswith(".png")}
        )
    except ReleaseError:
        return  # one of the checks says so
    if others:
        raise AuditError(
            f"{others[0]}{f' and {len(others) - 1:,} more' * (len(others) > 1)}: of releases only PNG files are audited; "
            "`ldp-slicing verify` compares these with manifest and card"
        )


def read_card(found: ReleaseSet) -> tuple[list[Claim], list[str]]:
    """The statements of the card with the releases each is about, and what is wrong with the card."""
    try:
        card = json.loads(found.card_path.read_bytes())
        version, statements, owners_key = card["card"], list(card["statements"]), EQUALITY in card["not_protected"]
    except OSError as error:
        return [], [f"{found.card_path.name} cannot be read: {error.strerror}"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return [], [f"{found.card_path.name} is not a card"]
    if version != CARD_VERSION:
        return [], [f"the card has version {version!r}; this software reads version {CARD_VERSION}"]
    claims, problems, left, lost = list[Claim](), list[str](), list(found.releases), _read_lost(found)
    for number, written in enumerate(statements, 1):
        try:
            claim = replace(_read_statement(written, left, lost), owners_key=owners_key)
            wrong = _wrong_sums(claim)
        except LdpSlicingError as error:
            problems.append(f"statement {number}: {error}")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            problems.append(f"statement {number} cannot be read: {type(error).__name__}: {error}")
        else:
            claims.append(claim)
            lost.pop(claim.plan.word_bits, None)  # no other statement is about them
            taken = set(claim.releases)
            left = [release for release in left if release not in taken]
            problems += [f"statement {number}, {line}" for line in wrong]
    if left and not problems:
        problems.append(f"no statement is about {counted(len(left), 'release')}, such as {left[0].path}")
    if lost and not problems:
        problems.append(f"no statement is about lost releases of {', '.join(map(str, sorted(lost)))}-bit words")
    return claims, problems


def _read_lost(found: ReleaseSet) -> dict[int, list[tuple[int, int]]]:
    """The sizes of the releases that are gone, by the bits of their words: they were made, and a card counts them."""
    lost = defaultdict[int, list[tuple[int, int]]](list)
    if found.folder is not None:
        place = LocalStorage(found.folder)
        with contextlib.suppress(ReleaseError):  # one of the checks says so
            for line in read_manifest(place):
                if is_lost(place, line):
                    lost[line["word_bits"]].append((line["width"], line["height"]))  # a PNG file has one
    return lost


def _read_statement(
    written: dict[str, Any], releases: list[ReleaseFile], lost: Mapping[int, list[tuple[int, int]]]
) -> Claim:
    plan, prune = promised(written)
    file_bits = COLOUR_BITS if plan.is_colour else 8 if plan.word_bits <= 8 else 16
    mine = [release for release in releases if release.word_bits == file_bits]
    sizes = (*(release.size for release in mine), *lost.get(plan.word_bits, ()))
    times, spent = (
        written["most_releases_of_one_source"],
        spent_on_one(written),
    )  # which sources are one, only their owner knows
    statement = Statement(plan, prune, "rgb", sizes, times=times, spent=spent) if sizes else None
    return Claim(plan, statement, written, mine)


def _wrong_sums(claim: Claim) -> list[str]:
    if claim.statement is None:
        return [f"releases: the card says {claim.written.get('releases')!r}, there are 0"]
    return [
        f"{where}: the card says {said!r}, should be {right!r}"
        for where, said, right in differences(claim.written, claim.statement.to_dict())
    ]


def _check_card(found: ReleaseSet, claims: list[Claim], problems: list[str]) -> Check:
    tried = f"{found.card_path.name}: {counted(len(claims), 'statement')}, recomputed from plan and files"
    return Check(SECTION, "card", tried, not problems, complaints=tuple(problems))


def _check_files(found: ReleaseSet) -> Check:
    complaints = [*found.odd, *([] if found.releases else ["there is no release"])]
    return Check(SECTION, "files", "nothing but releases and what belongs to them", not complaints, "others", len(found.odd), "<=", 0,
                 complaints=tuple(complaints))  # fmt: skip


def _check_manifest(folder: Path, releases: list[ReleaseFile]) -> Check:
    place, listed, problems, lost = LocalStorage(folder), dict[str, str](), list[str](), 0
    try:
        for line in read_manifest(place):
            if is_lost(place, line):
                lost += 1
            else:
                listed[line["output"]] = line["sha256"]
    except ReleaseError as error:
        problems.append(f"it {error}")
    for output, checksum in listed.items():
        if place.size(output) is None:
            problems.append(f"{output}: is missing")
            continue
        with place.open(output) as file:
            if digest_of(file).hex() != checksum:
                problems.append(f"{output}: is not the file that was released")
    problems += [f"{release.path}: is not in it" for release in releases if str(release.path) not in listed]
    tried = f"{MANIFEST_NAME}: every file is in it, with its checksum{f'; {lost:,} lost' * bool(lost)}"
    return Check(SECTION, "manifest", tried, not problems, "wrong", len(problems), "<=", 0, complaints=tuple(problems))


def _check_metadata(found: ReleaseSet) -> Check:
    tried = f"{counted(len(found.releases), 'PNG file')}: pixels and nothing else"
    return Check(
        SECTION,
        "metadata",
        tried,
        not found.metadata,
        "leaks",
        len(found.metadata),
        "<=",
        0,
        complaints=tuple(found.metadata),
    )


def _check_duplicates(claims: list[Claim], error_rate: float) -> Check:
    """Equal releases. That two fresh masks make them equal has at most P(likeliest mask)^(certain pixels)."""
    complaints, small, allowed, count = list[str](), 0, 0, sum(len(claim.releases) for claim in claims)
    pairs = max(1, count * (count - 1) // 2)
    for claim in claims:
        likeliest = math.prod(float(group.largest) for group in claim.groups)
        seen: dict[bytes, ReleaseFile] = {}
        for release in claim.releases:
            other = seen.setdefault(release.digest, release)
            if other is release:
                continue
            if claim.owners_key:
                allowed += 1
            elif math.log(pairs) + release.certain * math.log(likeliest) > math.log(error_rate):
                small += 1
            else:
                complaints.append(f"{other.path} and {release.path} have the same pixels")
    tried = f"{counted(count, 'release')}, all pairs" + f"; {small} too small to tell from chance" * bool(small)
    tried += f"; {allowed} equal to another, as the owner's key makes releases of equal sources" * bool(allowed)
    return Check(
        SECTION,
        "duplicates",
        tried,
        not complaints,
        "equal",
        len(complaints),
        "<=",
        0,
        error_rate,
        "",
        tuple(complaints),
    )


def _check_noise(claims: list[Claim], error_rate: float) -> Check:
    """A release whose neighbouring words are equal more often than two masks are, or in which dropped bits are not constant."""
    complaints, smallest, blind = list[str](), 1.0, 0
    count = sum(len(claim.releases) for claim in claims)
    limit = error_rate / max(1, count)
    for claim in claims:
        equal = equal_at(claim.groups, 2)
        kept = np.uint32(claim.plan.kept_bits)
        for release in claim.releases:
            same = np.count_nonzero(release.sure & ((release.left ^ release.right) & kept == 0))
            p_value = float(tail_above(same, release.left.size, equal)[0])
            smallest = min(smallest, p_value)
            blind += release.left.size * math.log(equal) > math.log(limit)
            if p_value < limit:
                complaints.append(
                    f"{release.path}: {same} of {release.left.size} neighbouring pixels are equal (p = {p_value:.1e})"
                )
            if np.any(release.left[release.sure] & ~kept != claim.plan.dropped_value):
                complaints.append(f"{release.path}: bits that its plan drops are not constant")
    tried = (
        f"{counted(count, 'release')}: neighbours equal too often for the plan's masks"
        + f"; {blind} too small to tell" * bool(blind)
    )
    return Check(
        SECTION, "noise", tried, not complaints, "smallest p", smallest, ">=", limit, error_rate, "", tuple(complaints)
    )


def _check_masks(claims: list[Claim], error_rate: float) -> Check:
    """Pairs of releases of one size under one mask."""
    sets = [Comparison(same_size, claim.groups) for claim in claims for same_size in _by_size(_different(claim))]
    pairs, possible = sum(each.pairs for each in sets), sum(each.possible for each in sets)
    limit = error_rate / max(1, QUESTIONS * pairs)
    blind = sum(each.pairs for each in sets if not each.can_see(limit))
    answers = [each.compare(limit) for each in sets]
    complaints = tuple(str(suspicion) for _, found in answers for suspicion in found)
    smallest = min((p_value for p_value, _ in answers), default=1.0)
    tried = f"{pairs:,} of {possible:,} pairs of releases of equal size" + f"; {blind:,} too small to tell" * bool(
        blind
    )
    return Check(
        SECTION, "shared masks", tried, not complaints, "smallest p", smallest, ">=", limit, error_rate, "", complaints
    )


PIXEL_CHECKS: tuple[Callable[[list[Claim], float], Check], ...] = (_check_duplicates, _check_noise, _check_masks)


def _different(claim: Claim) -> list[ReleaseFile]:
    """Under an owner's key equal releases are one."""
    return (
        list({release.digest: release for release in claim.releases}.values()) if claim.owners_key else claim.releases
    )


def _by_size(releases: list[ReleaseFile]) -> list[list[ReleaseFile]]:
    sizes: dict[tuple[int, int], list[ReleaseFile]] = {}
    for release in releases:
        sizes.setdefault(release.size, []).append(release)
    return [same for same in sizes.values() if len(same) > 1 and same[0].left.size]
