"""Reading a set of releases: what its card says, what ``verify`` finds, and what the pixels of every release show."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.arrays import word_bits_of
from ldp_slicing.audit.noise import NoiseCounts, count_noise
from ldp_slicing.audit.pixel_words import Pixels, Words
from ldp_slicing.audit.rebuilt import rebuilt
from ldp_slicing.card import Card
from ldp_slicing.errors import AuditError, ImageError, LdpSlicingError, ReleaseError
from ldp_slicing.files import open_regular
from ldp_slicing.formats import WRITERS, load_format, suffix_of
from ldp_slicing.formats.base import Damaged, Options
from ldp_slicing.manifest import is_lost, read_manifest
from ldp_slicing.plan import Plan
from ldp_slicing.png import HEADER_BYTES, read_header, read_release_png
from ldp_slicing.sets import CARD_NAME, MANIFEST_NAME, card_beside
from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import LOST_PROBLEM, verify, verify_file
from ldp_slicing.wording import counted

Progress = Callable[[str], None]
PAIRS = 2048  # pairs of neighbouring pixels kept of each release, to compare it with others
PAIRS_KEPT = 1 << 24  # of all releases: 150 MB of memory
_SIZE_END = 24  # of the width and the height at the beginning of a PNG
_SMALL_PIXELS = 1 << 22


@dataclass(frozen=True, eq=False)
class ReleaseFile:
    """One release. ``left`` and ``right``: words of neighbouring pixels. ``certain``: where both words are certain."""

    path: PurePath
    size: tuple[int, int]  # width, height
    digest: bytes  # of shape, dtype and pixels
    certain_pixels: int
    counts: NoiseCounts
    left: Words
    right: Words
    certain: NDArray[np.bool_]


@dataclass(frozen=True)
class AuditedStatement:
    """One statement of the card, with the releases that it is about.

    ``owners_key``: equal sources have equal releases, as the card says. ``measured``: what attackers got at the nearest
    measured setting.
    """

    plan: Plan
    owners_key: bool = False
    releases: list[ReleaseFile] = field(default_factory=list)
    measured: str = ""

    @property
    def distinct(self) -> list[ReleaseFile]:
        """The releases, of which equal ones count once under an owner's key: they may have one source and one mask."""
        if not self.owners_key:
            return self.releases
        return list({release.digest: release for release in self.releases}.values())


@dataclass
class ReleaseSet:
    """What was read of a set: the statements with their releases, and what is wrong with files and card."""

    name: str
    card_name: str = CARD_NAME
    has_manifest: bool = True
    statements: dict[int, AuditedStatement] = field(default_factory=dict)  # by the bits of a word
    files: list[str] = field(default_factory=list)
    card: list[str] = field(default_factory=list)
    lost: int = 0
    complete: bool = True
    litter: list[tuple[str, int]] = field(default_factory=list)  # what file managers left, with its size
    pairs_kept: int = 0

    @property
    def releases(self) -> list[ReleaseFile]:
        return [release for statement in self.statements.values() for release in statement.releases]


def read_set(target: Path, *, strict: bool = False, progress: Progress = lambda which: None) -> ReleaseSet:
    """Read a folder of releases, or one file of releases with its card. Of pixels, only counts and samples are kept.

    ``strict``: files that file managers left are wrong. ``progress`` is called before each file with its number.
    """
    if target.is_dir():
        if not any((target / name).exists() for name in (CARD_NAME, MANIFEST_NAME)):
            raise AuditError(
                f"{target} has no {CARD_NAME}: the run is not finished, or this is not a folder of releases"
            )
        return _read_folder(target, str(target), strict=strict, progress=progress)
    return _read_single(target)


def _read_single(target: Path) -> ReleaseSet:
    """Read one file with its card."""
    card_name = card_beside(target.name)
    found = ReleaseSet(str(target), card_name, has_manifest=False)
    try:
        problems = verify_file(LocalStorage(target.parent), target.name).problems
    except ReleaseError as error:
        raise AuditError(f"{target} {error}") from None
    _read_card(found, target.with_name(card_name))
    _read_files(found, target.parent, [target.name], problems, card_name)
    return found


def _read_folder(folder: Path, name: str, *, strict: bool, progress: Progress) -> ReleaseSet:
    found, place = ReleaseSet(name), LocalStorage(folder)
    _read_card(found, folder / CARD_NAME)
    outputs, lost = list[str](), set[str]()
    try:
        for line in read_manifest(place):
            if is_lost(place, line):
                found.lost += 1
                lost.add(line["output"])
            elif line["output"] not in outputs[-1:]:
                outputs.append(line["output"])
    except ReleaseError as error:
        found.files.append(f"the folder {error}")
        return found
    found.files += [f"{output}: {problem}" for output in outputs if (problem := _size_problem(folder / output))]
    if found.files:
        return found
    try:
        # A loss that the manifest records is not a fault of the set.
        expected = {(path, LOST_PROBLEM) for path in lost}
        report = verify(place, strict=strict)
        problems = [one for one in report.problems if one not in expected]
        found.complete, found.litter = report.complete, [] if strict else report.litter
    except ReleaseError as error:  # a library is missing
        raise AuditError(f"{name} {error}") from None
    _read_files(found, folder, sorted(set(outputs)), problems, CARD_NAME, progress)
    return found


def _read_files(
    found: ReleaseSet,
    folder: Path,
    outputs: list[str],
    problems: list[tuple[str, str]],
    card_name: str,
    progress: Progress = lambda which: None,
) -> None:
    """Read the pixels of files, after ``verify`` has found the ``problems``."""
    found.card += [problem for path, problem in problems if path == card_name]
    found.files += [f"{path}: {problem}" for path, problem in problems if path != card_name]
    wrong, place = {path for path, _ in problems}, LocalStorage(folder)
    for number, output in enumerate(outputs, 1):
        progress(f"{number:,} of {counted(len(outputs), 'file')}")
        suffix = suffix_of(output)
        # Containers are decoded by libraries, so only those are that ``verify`` has accounted for byte by byte.
        if suffix in WRITERS and (suffix == ".png" or output not in wrong) and place.size(output) is not None:
            _read_file(found, folder, output, known_as_wrong=output in wrong)


def _size_problem(path: Path) -> str | None:
    """Why no release has the size that a PNG declares, or None. Called before memory is allocated for its pixels."""
    if suffix_of(path.name) != ".png" or not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            head = file.read(_SIZE_END)
    except OSError as error:
        raise AuditError(f"{path} cannot be read: {error.strerror}") from None
    width, height = struct.unpack(">II", head[-8:]) if len(head) == _SIZE_END else (0, 0)
    if width * height <= max(_SMALL_PIXELS, 8 * path.stat().st_size):  # a released pixel takes at least one bit
        return None
    return f"declares {width} x {height} pixels, more than its bytes can hold"


def _read_card(found: ReleaseSet, path: Path) -> None:
    """Read the statements. ``verify`` reports what is wrong with them."""
    try:
        card = Card.load(open_regular(path))
    except LdpSlicingError:
        return
    for stated in card.statements:
        audited = AuditedStatement(stated.plan, card.owners_key, measured=stated.risk.sentence)
        found.statements.setdefault(stated.plan.word_bits, audited)


def _read_file(found: ReleaseSet, folder: Path, output: str, *, known_as_wrong: bool) -> None:
    try:
        for member, pixels, bits in released_pixels(folder / output):
            statement = found.statements.get(bits)
            path = PurePath(output, member) if member else PurePath(output)
            if statement is None:
                continue  # ``verify`` reports what the card does not mention
            if pixels.dtype != statement.plan.dtype:
                found.files.append(f"{path}: the card's plan does not release pixels of type {pixels.dtype}")
                continue
            release = summarise(path, pixels, statement.plan, keep=found.pairs_kept < PAIRS_KEPT)
            found.pairs_kept += release.left.size
            statement.releases.append(release)
    except OSError as error:
        raise AuditError(f"{folder / output} cannot be read: {error.strerror}") from None
    except ImageError as error:
        if not known_as_wrong:
            found.files.append(f"{output}: {error}")


def released_pixels(path: Path) -> Iterator[tuple[str, Pixels, int]]:
    """Yield the name, the pixels and the bits per word of every release in a file."""
    suffix = suffix_of(path.name)
    if suffix == ".png":
        with path.open("rb") as file:
            head = file.read(HEADER_BYTES)
            most = min(path.stat().st_size, read_header(head).most_file_bytes)
            pixels, _ = read_release_png(head + file.read(most))
        yield "", pixels, word_bits_of(pixels)
        return
    with path.open("rb") as file:
        for entry in load_format(WRITERS[suffix]).read(file, Options()):
            if isinstance(entry, Damaged):
                raise ImageError(f"{entry.name} {entry.problem}")
            yield entry.name, entry.pixels, entry.bits


def summarise(path: PurePath, pixels: Pixels, plan: Plan, *, keep: bool = True) -> ReleaseFile:
    """Keep of a release, [H, W, 3] or [H, W], what the tests need: a digest, counts, and words of some neighbours.

    ``keep``: whether to keep words.
    """
    height, width = pixels.shape[:2]
    digest = hashlib.sha256(f"{pixels.shape} {pixels.dtype}".encode() + pixels.tobytes()).digest()
    across = width // 2
    count = min(PAIRS, height * across) if keep else 0
    chosen = np.arange(count) * (height * across) // max(1, count)
    rows, columns = (chosen // across, 2 * (chosen % across)) if across else (chosen, chosen)
    values, kept_bits = rebuilt(plan), np.uint32(plan.kept_bits)
    (left, left_known), (right, right_known) = (values.words(pixels[rows, columns + step]) for step in (0, 1))
    certain = left_known & right_known & kept_bits == kept_bits
    counts = count_noise(pixels, plan)
    return ReleaseFile(path, (width, height), digest, counts.pixels - counts.clamped, counts, left, right, certain)
