"""Reading a set of releases: what its card says, what ``verify`` finds, and what the pixels of every release show."""

from __future__ import annotations

import hashlib
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.audit.noise import NoiseCounts, count_noise
from ldp_slicing.audit.pixel_words import Pixels, Words
from ldp_slicing.audit.rebuilt import rebuilt
from ldp_slicing.card import Card
from ldp_slicing.errors import AuditError, ImageError, LdpSlicingError, ReleaseError
from ldp_slicing.files import digest_of, open_regular
from ldp_slicing.formats import WRITERS, load_format, suffix_of
from ldp_slicing.formats.base import Claims, Content, Damaged, Options
from ldp_slicing.manifest import CARD_NAME, MANIFEST_NAME, is_lost, read_manifest, write_manifest
from ldp_slicing.plan import COLOUR_BITS, Plan
from ldp_slicing.png import read_release_png
from ldp_slicing.storage import LocalStorage, printable
from ldp_slicing.verify import LOST_PROBLEM, verify

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

    ``owners_key``: equal sources have equal releases, as the card says.
    """

    plan: Plan
    owners_key: bool = False
    releases: list[ReleaseFile] = field(default_factory=list)


@dataclass
class ReleaseSet:
    """What was read of a set: the statements with their releases, and what is wrong with files and card."""

    name: str
    statements: dict[int, AuditedStatement] = field(default_factory=dict)  # by the bits of a word
    files: list[str] = field(default_factory=list)
    card: list[str] = field(default_factory=list)
    lost: int = 0
    pairs_kept: int = 0

    @property
    def releases(self) -> list[ReleaseFile]:
        return [release for statement in self.statements.values() for release in statement.releases]


def read_set(target: Path) -> ReleaseSet:
    """Read a folder of releases, or one file of releases with its card. Of pixels, only counts and samples are kept."""
    if target.is_dir():
        if not any((target / name).exists() for name in (CARD_NAME, MANIFEST_NAME)):
            raise AuditError(
                f"{target} has no {CARD_NAME}: the run is not finished, or this is not a folder of releases"
            )
        return _read_folder(target, str(target))
    if not target.is_file():
        raise AuditError(f"{target} is neither a folder of releases nor a release")
    return _read_single(target)


def _read_single(target: Path) -> ReleaseSet:
    """Read one file with its card: a folder of one file, whose manifest says what is in the file."""
    card = target.with_name(f"{target.name}.card.json")
    if target.name.endswith(".card.json"):
        raise AuditError(f"{target} is a card: name the release that it is about")
    if suffix_of(target.name) not in WRITERS:
        raise AuditError(f"{target} is not a release: releases are {', '.join(WRITERS)} files")
    if not card.exists():
        raise AuditError(f"{target} has no {card.name}: this is not a release, or it was separated from its card")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(card, Path(folder, CARD_NAME))
        shutil.copyfile(target, Path(folder, target.name))
        with target.open("rb") as file:
            digest = digest_of(file).hex()
        line = {"output": target.name, "sha256": digest, "status": "released"}
        write_manifest(LocalStorage(Path(folder)), (line | more for more in _members(Path(folder, target.name))))
        return _read_folder(Path(folder), str(target))


def _members(path: Path) -> list[dict[str, Any]]:
    """What the manifest says of each release in a file. ``verify`` reports what is wrong with the file."""
    file_format = load_format(WRITERS[suffix_of(path.name)])
    try:
        with path.open("rb") as file:
            check = getattr(file_format, "check", None)
            contents: list[Content] = list(check(file, Claims()) if check else file_format.inspect(file))
    except Exception:
        return [{}]
    found = [one for one in contents if one.kept is None and one.problem is None]
    return [
        ({"member": printable(one.member)} if one.member is not None else {})
        | ({"frames": one.frames} if one.frames > 1 else {})
        for one in found
    ] or [{}]


def _read_folder(folder: Path, name: str) -> ReleaseSet:
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
        problems = [one for one in verify(place).problems if one not in expected]
    except ReleaseError as error:  # a library is missing
        raise AuditError(f"{name} {error}") from None
    found.card += [problem for path, problem in problems if path == CARD_NAME]
    found.files += [f"{path}: {problem}" for path, problem in problems if path != CARD_NAME]
    wrong = {path for path, _ in problems}
    for output in sorted(set(outputs)):
        suffix = suffix_of(output)
        # Containers are decoded by libraries, so only those are that ``verify`` has accounted for byte by byte.
        if suffix in WRITERS and (suffix == ".png" or output not in wrong) and place.size(output) is not None:
            _read_file(found, folder, output, known_as_wrong=output in wrong)
    return found


def _size_problem(path: Path) -> str | None:
    """Why no release has the size that a PNG declares, or None. Called before memory is allocated for its pixels."""
    if suffix_of(path.name) != ".png" or not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(_SIZE_END)
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
        found.statements.setdefault(stated.plan.word_bits, AuditedStatement(stated.plan, card.owners_key))


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
        pixels, _ = read_release_png(path.read_bytes())
        yield "", pixels, COLOUR_BITS if pixels.ndim == 3 else 8 * pixels.dtype.itemsize
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
