"""The manifest: what was released, with checksums, for whoever receives it. And the check of a whole set against manifest and card."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Any

from ldp_slicing.card import CARD_VERSION, Statement, counted, differences, promised, spent_on_one
from ldp_slicing.errors import LdpSlicingError, ReleaseError
from ldp_slicing.formats import WRITERS, module_of
from ldp_slicing.release.names import printable
from ldp_slicing.storage import PARTIAL, Storage, digest_of, write_whole

CARD_NAME = "card.json"
MANIFEST_NAME = "manifest.jsonl"
LOST, AGAIN = (
    "lost",
    "released again",
)  # the status of a release that was made and is gone, and of one that was made in its place


def write_manifest(place: Storage, lines: Iterable[dict[str, Any]]) -> None:
    """JSON lines, one for each release: output, sha256, status; the member of a shard; the frames of a film; what a lost one was like."""
    write_whole(place, MANIFEST_NAME, (json.dumps(line).encode() + b"\n" for line in lines))


def read_manifest(place: Storage) -> Iterator[dict[str, Any]]:
    """Line by line: there may be millions."""
    try:
        with place.open(MANIFEST_NAME) as file:
            for number, text in enumerate(file, 1):
                line = json.loads(text)
                if not isinstance(line, dict) or not _is_line(line):
                    raise ValueError(f"line {number} is not one of a manifest")
                yield line
    except (ValueError, RecursionError) as error:
        if isinstance(error, LdpSlicingError):
            raise ReleaseError(
                f"has no {MANIFEST_NAME}: the run is not finished, or this is no set of releases ({error})"
            ) from None
        raise ReleaseError(f"its {MANIFEST_NAME} is damaged: {error}") from None


def _is_line(line: dict[str, Any]) -> bool:
    """Whether it has what a line has, and names a file below the set's folder: whoever wrote it is not trusted."""
    texts = [line.get(key) for key in ("output", "sha256", "status")] + [line.get("member", "")]
    frames = line.get("frames", 1)
    if (
        not all(isinstance(text, str) for text in texts)
        or isinstance(frames, bool)
        or not isinstance(frames, int)
        or frames < 1
    ):
        return False
    try:
        name = os.fsencode(line["output"])
    except UnicodeEncodeError:
        return False
    if line["status"] == LOST and not all(
        type(line.get(key)) is int and line[key] > 0 for key in ("width", "height", "word_bits")
    ):
        return False
    return (
        b"\0" not in name and not name.startswith((b"/", b"\\")) and b".." not in name.replace(b"\\", b"/").split(b"/")
    )


def is_lost(place: Storage, line: dict[str, Any]) -> bool:
    """Whether the manifest gives the release up, and nothing has its name."""
    return line["status"] == LOST and not place.is_taken(line["output"])


@dataclass
class Findings:
    """Of a check: how many files and releases were seen, and what is wrong."""

    files: int = 0
    releases: int = 0
    lost: int = 0  # releases that are gone, as the manifest says: they are among those that the card counts
    problems: list[tuple[str, str]] = field(default_factory=list)
    sizes: dict[int, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    frames: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # the most of one film
    kept: set[str] = field(default_factory=set)

    def count(self, bits: int, width: int, height: int, frames: int) -> None:
        self.sizes[bits].add((width, height))
        self.counts[bits] += frames
        self.frames[bits] = max(self.frames[bits], frames)


def verify(place: Storage, *, progress: Callable[[], None] = lambda: None) -> Findings:
    """Every file against the manifest, nothing in it but releases and what was kept, nothing beside them, and a card that adds up."""
    findings = Findings()
    expected = set()
    for output, lines in groupby(read_manifest(place), key=lambda line: line["output"]):
        again = "is in the manifest more than once" if output in expected else None
        expected.add(output)
        problem = again or _verify_file(place, output, list(lines), findings)
        if problem is not None:
            findings.problems.append((output, problem))
        progress()
    for found in place.files():
        if found.path not in expected and found.path not in (CARD_NAME, MANIFEST_NAME):
            stray = (
                "is an unfinished file; run privatize again"
                if found.path.startswith(f"{PARTIAL}/")
                else "is not in the manifest"
            )
            findings.problems.append((found.path, found.problem or stray))
    findings.problems += [(CARD_NAME, problem) for problem in _verify_card(place, findings)]
    return findings


def _verify_file(place: Storage, output: str, lines: list[dict[str, Any]], findings: Findings) -> str | None:
    count = sum(line.get("frames", 1) for line in lines)
    if len({line["status"] for line in lines}) > 1:
        return "has lines in the manifest that do not agree"
    if is_lost(place, lines[0]):
        findings.lost += count
        for line in lines:
            findings.count(line["word_bits"], line["width"], line["height"], line.get("frames", 1))
        return "is lost, as its owner knows"
    findings.files += 1
    findings.releases += count
    suffix = output[output.rfind(".") :].lower()
    if suffix not in WRITERS:
        return "is of a kind that is not released"
    if place.size(output) is None:
        return "is missing"
    format_of = module_of(WRITERS[suffix])  # without it nothing can be said, neither good nor bad
    try:
        if digest_of(place.open(output)).hex() != lines[0]["sha256"]:
            return "is not the file that was released: its checksum is another"
        with place.open(output) as file:
            seen = list(format_of.inspect(file))
    except Exception as error:  # whatever a reader raises on a file that is not what it should be
        return f"cannot be read: {error}"
    for one in seen:
        if one.problem is not None:
            return one.problem if one.member is None else f"{one.member} {one.problem}"
        if one.kept is not None:
            findings.kept.add(one.kept)
            continue
        findings.count(one.bits, one.width, one.height, one.frames)
    named = [(one.member and printable(one.member), one.frames) for one in seen if one.kept is None]
    if named != [(line.get("member"), line.get("frames", 1)) for line in lines]:
        return "does not hold the releases that the manifest names"
    return None


def _verify_card(place: Storage, findings: Findings) -> Iterator[str]:
    """Its sums, computed again from the plans on it and the releases that were seen."""
    try:
        with place.open(CARD_NAME) as file:
            card = json.loads(file.read())
        if card["card"] != CARD_VERSION:
            yield f"has version {card['card']!r}; this software knows {CARD_VERSION}"
            return
        on_card = {}
        for number, statement in enumerate(card["statements"]):
            plan, prune = promised(statement)
            bits = plan.word_bits
            if bits in on_card:
                yield f"has two statements about {bits}-bit words"
                continue
            on_card[bits] = number
            times, spent = statement["most_releases_of_one_source"], spent_on_one(statement)
            if findings.counts[bits] != statement["releases"]:
                yield f"speaks of {counted(statement['releases'], 'release')} of {bits}-bit words; there are {findings.counts[bits]:,}"
            elif times < findings.frames[bits] or Fraction(spent[0]) < findings.frames[bits] * Fraction(
                plan.realised_epsilon
            ):
                film = counted(findings.frames[bits], "frame")
                yield f"speaks of {counted(times, 'release')} of one source, epsilon {spent[0]:g}; a film has {film}"
            else:
                sizes = tuple(sorted(findings.sizes[bits]))
                again = Statement(
                    plan, prune, statement["output"], sizes, statement["releases"], times, spent
                ).to_dict()
                again["output"] = statement["output"]
                if wrong := [f"{where} should be {right!r}" for where, _, right in differences(statement, again)]:
                    yield f"does not add up: {', '.join(wrong)}"
        if unsaid := sorted(findings.kept - set(card["kept_beside"])):
            yield f"does not say that these were kept: {', '.join(unsaid)}"
        for bits in set(findings.counts) - set(on_card):
            yield f"says nothing of {counted(findings.counts[bits], 'release')} of {bits}-bit words"
    except (LdpSlicingError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        yield f"is missing or damaged: {error}"
