"""Check a folder of releases against its manifest and its card, or one file of releases against its card.

``verify`` answers three questions. Are these the files that were released? Is anything else in them or beside them?
Are the numbers on the card right? It needs neither sources nor keys. Whether the mechanism keeps its privacy promise is
a different question: see ``ldp_slicing.audit``.

Checksums answer the first question only, because whoever hides something in a file can write its checksum into the
manifest. So every byte of every file is accounted for: see ``formats.base.Checker``.

Some numbers on a card are the owner's word, because the releases do not show them: NOT_CHECKED.
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

from ldp_slicing.card import Card, Statement
from ldp_slicing.card.statement import dependents_of
from ldp_slicing.errors import CardError, LdpSlicingError, ReleaseError
from ldp_slicing.files import digest_of
from ldp_slicing.formats import MOST_BYTES, WRITERS, load_format, suffix_of
from ldp_slicing.formats.base import Checker, Claims, Content
from ldp_slicing.manifest import LOST, DamagedManifestError, is_lost, read_manifest
from ldp_slicing.sets import CARD_NAME, MANIFEST_NAME, card_beside, set_around
from ldp_slicing.storage import PARTIAL, LocalStorage, Storage, is_apple_double, is_litter, printable
from ldp_slicing.strict_json import shown
from ldp_slicing.wording import counted

_MISSING = "is missing"
_UNLISTED = "is not in the manifest"
_CHANGED = "has changed since its release: its checksum differs from the manifest"
_NOT_OURS = "pixels intact, not our file: other software encoded it again. Restore the file that was released"

LOST_PROBLEM = "is lost, as the manifest records"
NOT_CHECKED = (
    "the plan and its epsilon",  # `audit` notices a large difference
    "pruning and shrinking before the noise",
    "how often a source was released",
    "whose key was used",
    "whether a run is complete",
)
_RANDOM_NAME = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{30}\.\w+")  # as `--names random` gives them
_RANDOM_MEMBER = re.compile(r"[0-9a-f]{32}\.png")
# Attributes that systems set by themselves: SELinux labels, access lists, integrity hashes. They are short.
_SYSTEM_ATTRIBUTES = re.compile(r"security\.(selinux|SMACK64|ima|evm)|system\.posix_acl_(access|default)")
_SYSTEM_ATTRIBUTE_BYTES = 256


@dataclass
class VerifyReport:
    """Number of files and releases checked, and a (path, problem) pair for everything that is wrong.

    missing: number of files that the manifest lists and that are not there.
    complete: whether the card says that its run is complete; true if there is no card to say so.
    litter: names and sizes of files that file managers left. They may hold anything, even a source.
    """

    files: int = 0
    releases: int = 0
    missing: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)
    complete: bool = True
    litter: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class _Tally:
    """The releases of one word width: their number and, for each size (width, height), the most frames of one file."""

    releases: int = 0
    frames: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, width: int, height: int, frames: int) -> None:
        self.releases += frames
        self.frames[width, height] = max(frames, self.frames.get((width, height), 0))


@dataclass
class _Contents:
    """Everything found in the files: a tally per word width, and the names of the data kept beside the images.

    telling_name: a name of a file or member that is not a random one, if there is one.
    series: whether there are DICOM files, whose UIDs tell which of them belong together.
    lost: whether some files cannot be looked at, because they are lost. The manifest tells their sizes.
    wrong: whether some files are missing or wrong, so that the tallies lack their releases.
    unlisted: whether there are files of releases that the manifest does not list.
    """

    tallies: dict[int, _Tally] = field(default_factory=lambda: defaultdict(_Tally))
    kept: set[str] = field(default_factory=set)
    telling_name: str | None = None
    series: bool = False
    lost: bool = False
    wrong: bool = False
    unlisted: bool = False


def verify_file(place: Storage, name: str) -> VerifyReport:
    """Account for every byte of one file that was released on its own, and recompute the card beside it.

    There is no manifest, so nothing is said about whether these are the pixels that were released. Raises ReleaseError
    if this is not a file with a card, or if a library that is needed to read the file is not installed.
    """
    # The owner chose the name, so no card of a single file says that names are random.
    card_name, contents, report = card_beside(name), _Contents(telling_name=name), VerifyReport(files=1)
    if place.size(name) is None:
        raise ReleaseError("is neither a folder of releases nor a release")
    if name.endswith(f".{CARD_NAME}"):
        raise ReleaseError("is a card: name the release that it is about")
    if suffix_of(name) not in WRITERS:
        raise ReleaseError(f"is not a release: releases are {', '.join(WRITERS)} files")
    if not place.exists(card_name):
        if isinstance(place, LocalStorage) and (folder := set_around(place.root / name)) is not None:
            raise ReleaseError(f"is one of a set, which has one card: name the folder of the set, {folder}")
        raise ReleaseError(
            f"has no {card_name}: this is not a release, or it was separated from its card, or it was made from Python "
            "without a card"
        )
    if (problem := _check_file(place, name, None, _read_claims(place, card_name), contents)) is not None:
        report.problems.append((name, problem))
        contents.wrong = True
    report.releases = sum(tally.releases for tally in contents.tallies.values())
    if isinstance(place, LocalStorage):
        for one in (name, card_name):
            report.problems += [(one, problem) for problem in _attribute_problems(place.root / one)]
        if (folder := _set_with(place.root / name)) is not None:
            report.problems.append(
                (
                    card_name,
                    f"is a second card about {name}, which is one of the set in {folder}, which has a card",
                )
            )
    report.problems += [(card_name, problem) for problem in _check_card(place, card_name, contents, report)]
    return report


def _set_with(path: Path) -> Path | None:
    """Return the folder of the set whose manifest lists a file, if there is one."""
    if (folder := set_around(path)) is None:
        return None
    try:
        name = path.resolve().relative_to(folder).as_posix()
        return folder if any(line["output"] == name for line in read_manifest(LocalStorage(folder))) else None
    except ReleaseError:
        return None


def verify(
    place: Storage, *, fast: bool = False, strict: bool = False, progress: Callable[[], None] = lambda: None
) -> VerifyReport:
    """Check every file against the manifest, look for anything that is not a release, and recompute the card.

    ``fast``: compare names and checksums only. Neither the contents of the files nor the card are looked at.
    ``strict``: files that file managers left are problems. ``progress`` is called after each file. Raises ReleaseError
    if there is no manifest, or if a library that is needed to read a file is not installed.
    """
    report = VerifyReport()
    try:
        _check_set(place, report, progress, fast=fast)
    except DamagedManifestError as error:  # what follows in it cannot be told
        report.problems.append((MANIFEST_NAME, f"is damaged: {error.damage}"))
    if strict:
        report.problems += [
            (path, f"was left by a file manager, and its {size:,} bytes may hold a source: remove it")
            for path, size in report.litter
        ]
    return report


def _check_set(place: Storage, report: VerifyReport, progress: Callable[[], None], *, fast: bool) -> None:
    contents, claims, expected = _Contents(), None if fast else _read_claims(place, CARD_NAME), set[str]()
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
            contents.lost = True
            for line in lines:
                contents.tallies[line["word_bits"]].add(line["width"], line["height"], line.get("frames", 1))
            problem = LOST_PROBLEM
        elif (problem := _check_file(place, output, lines, claims, contents)) == _MISSING:
            report.missing += 1
        else:
            report.files += 1
            report.releases += sum(line.get("frames", 1) for line in lines)
        expected.add(output)
        last = max(last, name)
        if not _RANDOM_NAME.fullmatch(output):
            contents.telling_name = contents.telling_name or output
        if problem is not None:
            report.problems.append((output, problem))
            contents.wrong = contents.wrong or problem != LOST_PROBLEM
        progress()
    unexpected = list(_unexpected_files(place, expected | {CARD_NAME, MANIFEST_NAME}, report.litter))
    contents.unlisted = any(problem == _UNLISTED and suffix_of(path) in WRITERS for path, problem in unexpected)
    report.problems += unexpected
    if not fast:
        report.problems += _telling_surroundings(place)
        report.problems += [(CARD_NAME, problem) for problem in _check_card(place, CARD_NAME, contents, report)]


def _unexpected_files(place: Storage, expected: set[str], litter: list[tuple[str, int]]) -> Iterator[tuple[str, str]]:
    """Yield files that are no releases, with the problem. What file managers left is added to ``litter`` instead."""
    for found in place.files():
        if found.path in expected:
            continue
        if found.problem is not None:
            yield found.path, found.problem
        elif found.path.startswith(f"{PARTIAL}/"):
            yield found.path, "is an unfinished file: run privatize again to complete the set"
        elif _is_litter(place, found.path):
            litter.append((found.path, found.size))
        else:
            yield found.path, _UNLISTED


def _is_litter(place: Storage, path: str) -> bool:
    """Return whether file managers leave such a file: one of the usual names, or what macOS puts beside another file.

    Otherwise "._NAME" could be any file of any name.
    """
    folder, slash, name = path.rpartition("/")
    if not name.startswith("._"):
        return is_litter(path)
    return is_apple_double(place, path) and place.exists(f"{folder}{slash}{name[2:]}")


def _telling_surroundings(place: Storage) -> Iterator[tuple[str, str]]:
    """Yield folders without a release, whose names may tell something, and extended attributes of files and folders."""
    if not isinstance(place, LocalStorage):
        return
    for folder, folders, files in os.walk(place.root):
        below = Path(folder).relative_to(place.root)
        if not folders and all(map(is_litter, files)) and str(below) not in (".", PARTIAL):
            yield below.as_posix(), "is a folder without a release, and none needs it: remove it"
        for path in (below, *(below / name for name in files)):
            for problem in _attribute_problems(place.root / path):
                yield path.as_posix(), problem


def _attribute_problems(path: Path) -> Iterator[str]:
    """Yield the extended attributes that somebody gave a file or a folder. They can be listed on Linux only."""
    try:
        found = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    except (AttributeError, OSError):  # another system, or a file system without attributes
        return
    for name, value in found.items():
        if not _SYSTEM_ATTRIBUTES.fullmatch(name) or len(value) > _SYSTEM_ATTRIBUTE_BYTES:
            yield f"has the extended attribute {name}: remove it, for example with `setfattr -x {name}`"


def _read_claims(place: Storage, card_name: str) -> Claims:
    """Return what the card says about the files. ``_check_card`` reports what is wrong with it."""
    try:
        statements = Card.load(place.open(card_name)).statements
    except LdpSlicingError:
        return Claims()
    plans = {one.plan.word_bits: one.plan for one in statements}
    largest = {one.plan.word_bits: (one.width[1], one.height[1]) for one in statements}
    return Claims(plans, largest, {one.plan.word_bits: one.value_range for one in statements if one.value_range})


def _check_file(
    place: Storage, output: str, lines: list[dict[str, Any]] | None, claims: Claims | None, contents: _Contents
) -> str | None:
    """Return what is wrong with one file, or None; add what it holds to ``contents``.

    Without ``lines`` of a manifest it is compared with its card alone, and without ``claims`` with its checksum alone.
    """
    suffix = suffix_of(output)
    if (problem := _unread_problem(place, output)) is not None:
        return problem
    # Outside of the block below: if the library of the format is missing, nothing can be said of the file.
    file_format = None if claims is None else load_format(WRITERS[suffix])
    try:
        is_same = lines is None or digest_of(place.open(output)).hex() == lines[0]["sha256"]
        if claims is None or file_format is None:
            return None if is_same else _CHANGED
        with place.open(output) as file:
            if lines and not is_same:
                is_intact = getattr(file_format, "is_intact", None)
                return _NOT_OURS if is_intact and is_intact(file, claims, lines[0]["sha256"]) else _CHANGED
            check: Checker = file_format.check
            found = list(check(file, claims))
    except Exception as error:  # a reader may raise anything on a damaged file
        return f"cannot be read: {error}"
    if problem := _add_contents(output, found, claims, contents):
        return problem
    return None if lines is None else _difference([one for one in found if one.kept is None], lines)


def _add_contents(output: str, found: list[Content], claims: Claims, contents: _Contents) -> str | None:
    """Add what a file holds to ``contents``. Return the first thing in it that is wrong, or None."""
    is_dicom = suffix_of(output) == ".dcm"
    for one in found:
        if one.problem is not None:
            return one.problem if one.member is None else f"{one.member} {one.problem}"
        if not is_dicom and one.bits in claims.ranges:
            return f"has words of {one.bits} bits, for which the card states a range, but only DICOM files have one"
        if one.kept is not None:
            contents.kept.add(one.kept)
        else:
            contents.tallies[one.bits].add(one.width, one.height, one.frames)
    contents.series = contents.series or is_dicom
    for one in found:
        if one.kept is None and one.member is not None and not _RANDOM_MEMBER.fullmatch(one.member):
            contents.telling_name = contents.telling_name or f"{output}: {printable(one.member)}"
    return None


def _unread_problem(place: Storage, output: str) -> str | None:
    """Return what is wrong with one file, if that can be told before it is read, or None."""
    suffix, size = suffix_of(output), place.size(output)
    if suffix not in WRITERS:
        return "has a file type that is never released"
    if size is None:
        return _MISSING
    if size > MOST_BYTES.get(suffix, size):  # a sparse file can have any size, and would be read for days
        return f"has {size:,} bytes, more than any release has"
    return None


def _difference(releases: list[Content], lines: list[dict[str, Any]]) -> str | None:
    """Return how the releases in a file differ from its lines in the manifest, or None."""
    found = [(one.member and printable(one.member), one.frames) for one in releases]
    if found != [(line.get("member"), line.get("frames", 1)) for line in lines]:
        return "does not hold the releases that the manifest lists"
    stated = [(line["width"], line["height"], line["word_bits"]) for line in lines if line["status"] == LOST]
    if stated and stated != [(one.width, one.height, one.bits) for one in releases]:
        return "is there, although the manifest records it as lost, and its size is not the one in the manifest"
    return None


def _check_card(place: Storage, card_name: str, contents: _Contents, report: VerifyReport) -> Iterator[str]:
    """Recompute every number on the card from its plans and from the releases that were found.

    Note in the report whether the card says that its run is complete.
    """
    if place.size(card_name) is None:
        hint = ": the run may have been interrupted, and its owner can run it again" if contents.unlisted else ""
        yield f"{_MISSING}{hint}"
        return
    try:
        card = Card.load(place.open(card_name))
    except LdpSlicingError as error:
        yield f"is not a valid card: {error}"
        return
    report.complete = card.complete
    for statement in card.statements:
        tally = contents.tallies.get(statement.plan.word_bits, _Tally())
        if problem := _check_statement(statement, tally, is_whole=not contents.wrong):
            yield problem
    stated = {statement.plan.word_bits for statement in card.statements}
    if card.random_names and contents.telling_name:
        yield f"does not say that file names are visible, but {contents.telling_name} is not a random name"
    if contents.series and not card.series:
        yield "does not say that the UIDs of DICOM files tell which of them belong together"
    if unsaid := sorted(contents.kept - set(card.kept)):
        yield f"does not mention data kept beside the images: {', '.join(unsaid)}"
    if not contents.lost and not contents.wrong and (absent := sorted(set(card.kept) - contents.kept)):
        yield f"mentions data kept beside the images that no file holds: {shown(absent[0])}"
    for bits, tally in contents.tallies.items():
        if bits not in stated:
            yield f"has no statement about {counted(tally.releases, 'release')} of {bits}-bit words"


def _check_statement(statement: Statement, tally: _Tally, *, is_whole: bool) -> str | None:
    """Return what a statement says wrongly. If the tally is not whole, it may state more than was found."""
    plan = statement.plan
    if tally.releases > statement.count or (is_whole and tally.releases < statement.count):
        stated = counted(statement.count, "release")
        return f"states {stated} of {plan.word_bits}-bit words; found {tally.releases:,}"
    for times, released, source in filter(None, [(statement.times, *statement.most_spent[:2]), statement.unvoided]):
        for (width, height), frames in tally.frames.items():  # the frames of a file are releases of one source
            least = frames * Fraction(plan.realised_epsilon)
            of_a_source_pixel = least * dependents_of(statement.prune, width, height)
            if times < frames or Fraction(released) < least or Fraction(source) < of_a_source_pixel:
                stated = f"{counted(times, 'release')} of one source, epsilon {released:g} and {source:g}"
                return f"states {stated} per released and source pixel; one file has {counted(frames, 'frame')}"
    try:
        wrong = statement.differences(sorted(tally.frames), count=tally.releases) if is_whole else []
    except CardError as error:
        return f"cannot be about the releases that were found: {error}"
    if wrong:
        return f"has wrong numbers: {', '.join(f'{where} should be {right!r}' for where, _, right in wrong)}"
    return None
