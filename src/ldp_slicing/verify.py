"""Check a folder of releases against its manifest and its card.

``verify`` answers three questions. Are these the files that were released? Is anything else in them or beside them?
Are the numbers on the card right? It needs neither sources nor keys. Whether the mechanism keeps its privacy promise is
a different question: see ``ldp_slicing.audit``.

Checksums answer the first question only, because whoever hides something in a file can write its checksum into the
manifest. So every byte of every file is accounted for: see ``formats.base.Checker``.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any

from ldp_slicing.card import Card, Statement, counted
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.files import digest_of
from ldp_slicing.formats import WRITERS, load_format, suffix_of
from ldp_slicing.formats.base import Claims, Content
from ldp_slicing.manifest import CARD_NAME, MANIFEST_NAME, DamagedManifestError, is_lost, read_manifest
from ldp_slicing.storage import PARTIAL, LocalStorage, Storage, printable

_CHANGED = "has changed since its release: its checksum differs from the manifest"
_NOT_OURS = "pixels intact, not our file: other software encoded it again. Restore the file that was released"

LOST_PROBLEM = "is lost, as the manifest records"
RANDOM_NAME = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{30}\.\w+")  # as `--names random` gives them


@dataclass
class VerifyReport:
    """Number of files and releases checked, and a (path, problem) pair for everything that is wrong."""

    files: int = 0
    releases: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class _Tally:
    """The releases of one word width: their sizes (width, height), their number, and the most frames of one file."""

    sizes: set[tuple[int, int]] = field(default_factory=set)
    releases: int = 0
    most_frames: int = 0

    def add(self, width: int, height: int, frames: int) -> None:
        self.sizes.add((width, height))
        self.releases += frames
        self.most_frames = max(self.most_frames, frames)


@dataclass
class _Contents:
    """Everything found in the files: a tally per word width, and the names of the data kept beside the images."""

    tallies: dict[int, _Tally] = field(default_factory=lambda: defaultdict(_Tally))
    kept: set[str] = field(default_factory=set)
    telling_names: list[str] = field(default_factory=list)  # of files, where random names would reveal nothing


def verify(place: Storage, *, fast: bool = False, progress: Callable[[], None] = lambda: None) -> VerifyReport:
    """Check every file against the manifest, look for anything that is not a release, and recompute the card.

    ``fast``: compare names and checksums only. Neither the contents of the files nor the card are looked at.
    ``progress`` is called after each file. Raises ReleaseError if there is no manifest, or if a library that is needed
    to read a file is not installed.
    """
    report = VerifyReport()
    try:
        _check_set(place, report, progress, fast=fast)
    except DamagedManifestError as error:  # what follows in it cannot be told
        report.problems.append((MANIFEST_NAME, f"is damaged: {error.reason}"))
    return report


def _check_set(place: Storage, report: VerifyReport, progress: Callable[[], None], *, fast: bool) -> None:
    contents, claims, expected = _Contents(), None if fast else _read_claims(place), set[str]()
    last = b""
    for output, group in groupby(read_manifest(place), key=lambda line: line["output"]):
        lines, name = list(group), output.encode("utf-8", "surrogateescape")
        if output in expected:
            problem: str | None = "is listed in the manifest more than once"
        elif name < last:
            problem = "is out of order in the manifest, which lists files by name"
        elif len({(line["status"], line["sha256"]) for line in lines}) > 1:
            problem = "has contradictory lines in the manifest"
        elif is_lost(place, lines[0]):
            for line in lines:
                contents.tallies[line["word_bits"]].add(line["width"], line["height"], line.get("frames", 1))
            problem = LOST_PROBLEM
        else:
            report.files += 1
            report.releases += sum(line.get("frames", 1) for line in lines)
            problem = _check_file(place, output, lines, claims, contents)
        expected.add(output)
        last = max(last, name)
        if not RANDOM_NAME.fullmatch(output):
            contents.telling_names.append(output)
        if problem is not None:
            report.problems.append((output, problem))
        progress()
    report.problems += _unexpected_files(place, expected | {CARD_NAME, MANIFEST_NAME})
    if not fast:
        report.problems += _telling_surroundings(place)
        report.problems += [(CARD_NAME, problem) for problem in _check_card(place, contents)]


def _unexpected_files(place: Storage, expected: set[str]) -> Iterator[tuple[str, str]]:
    for found in place.files():
        if found.path in expected:
            continue
        if found.problem is not None:
            yield found.path, found.problem
        elif found.path.startswith(f"{PARTIAL}/"):
            yield found.path, "is an unfinished file: run privatize again to complete the set"
        else:
            yield found.path, "is not in the manifest"


def _telling_surroundings(place: Storage) -> Iterator[tuple[str, str]]:
    """Yield empty folders, whose names may tell something, and extended attributes of files and folders.

    Attributes can be listed on Linux only.
    """
    if not isinstance(place, LocalStorage):
        return
    for folder, folders, files in os.walk(place.root):
        below = Path(folder).relative_to(place.root)
        if not folders and not files and str(below) not in (".", PARTIAL):
            yield below.as_posix(), "is an empty folder, and no release needs it: remove it"
        for path in (below, *(below / name for name in files)):
            for attribute in _attributes(place.root / path):
                wrong = f"has the extended attribute {attribute}: remove it, for example with `setfattr -x {attribute}`"
                yield path.as_posix(), wrong


def _attributes(path: Path) -> list[str]:
    try:
        found = os.listxattr(path, follow_symlinks=False)
    except (AttributeError, OSError):  # another system, or a file system without attributes
        return []
    return [name for name in found if name.startswith("user.")]


def _read_claims(place: Storage) -> Claims:
    """Return what the card says about the files. ``_check_card`` reports what is wrong with it."""
    try:
        statements = Card.load(place.open(CARD_NAME)).statements
    except LdpSlicingError:
        return Claims()
    plans = {one.plan.word_bits: one.plan for one in statements}
    return Claims(plans, {one.plan.word_bits: (one.width[1], one.height[1]) for one in statements})


def _check_file(
    place: Storage, output: str, lines: list[dict[str, Any]], claims: Claims | None, contents: _Contents
) -> str | None:
    """Return what is wrong with one file, or None; add what it holds to ``contents``.

    Without ``claims`` only its checksum is compared.
    """
    suffix = suffix_of(output)
    if suffix not in WRITERS:
        return "has a file type that is never released"
    if place.size(output) is None:
        return "is missing"
    file_format = (
        load_format(WRITERS[suffix]) if claims else None
    )  # raises if the library is missing: then nothing can be said of the file
    try:
        is_same = digest_of(place.open(output)).hex() == lines[0]["sha256"]
        if claims is None or file_format is None:
            return None if is_same else _CHANGED
        with place.open(output) as file:
            if not is_same:
                is_intact = getattr(file_format, "is_intact", None)
                return _NOT_OURS if is_intact and is_intact(file, claims, lines[0]["sha256"]) else _CHANGED
            found: list[Content] = list(file_format.check(file, claims))
    except Exception as error:  # a reader may raise anything on a damaged file
        return f"cannot be read: {error}"
    for one in found:
        if one.problem is not None:
            return one.problem if one.member is None else f"{one.member} {one.problem}"
        if one.kept is not None:
            contents.kept.add(one.kept)
        else:
            contents.tallies[one.bits].add(one.width, one.height, one.frames)
    named = [(one.member and printable(one.member), one.frames) for one in found if one.kept is None]
    if named != [(line.get("member"), line.get("frames", 1)) for line in lines]:
        return "does not hold the releases that the manifest lists"
    return None


def _check_card(place: Storage, contents: _Contents) -> Iterator[str]:
    """Recompute every number on the card from its plans and from the releases that were found."""
    if place.size(CARD_NAME) is None:
        yield "is missing"
        return
    try:
        card = Card.load(place.open(CARD_NAME))
    except LdpSlicingError as error:
        yield f"is not a valid card: {error}"
        return
    for statement in card.statements:
        if problem := _check_statement(statement, contents.tallies.get(statement.plan.word_bits, _Tally())):
            yield problem
    stated = {statement.plan.word_bits for statement in card.statements}
    if card.random_names and contents.telling_names:
        yield f"does not say that file names are visible, but {contents.telling_names[0]} is not a random name"
    if unsaid := sorted(contents.kept - set(card.kept)):
        yield f"does not mention data kept beside the images: {', '.join(unsaid)}"
    for bits, tally in contents.tallies.items():
        if bits not in stated:
            yield f"has no statement about {counted(tally.releases, 'release')} of {bits}-bit words"


def _check_statement(statement: Statement, tally: _Tally) -> str | None:
    plan, times, epsilon = statement.plan, statement.times, statement.most_spent[0]
    if tally.releases != statement.count:
        stated = counted(statement.count, "release")
        return f"states {stated} of {plan.word_bits}-bit words; found {tally.releases:,}"
    if times < tally.most_frames or Fraction(epsilon) < tally.most_frames * Fraction(plan.realised_epsilon):
        stated, frames = counted(times, "release"), counted(tally.most_frames, "frame")
        return f"states {stated} of one source, epsilon {epsilon:g}; one file has {frames}"
    wrong = statement.differences(sorted(tally.sizes), count=tally.releases)
    if wrong:
        return f"has wrong numbers: {', '.join(f'{where} should be {right!r}' for where, _, right in wrong)}"
    return None
