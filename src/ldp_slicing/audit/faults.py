"""Known faults of colour releases, planted from outside: each is this installation with one piece replaced. An audit must reject all."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ldp_slicing.audit.exact import read_groups
from ldp_slicing.audit.pixel_words import Pixels, Words, release_words, view_words
from ldp_slicing.audit.subject import Release, Subject, installed
from ldp_slicing.files import write_atomically
from ldp_slicing.manifest import CARD_NAME
from ldp_slicing.plan import Plan, Slice
from ldp_slicing.png import SIGNATURE, encode_chunk, encode_png
from ldp_slicing.randomness import SeededForTests
from ldp_slicing.release.inventory import prepare
from ldp_slicing.release.run import on_this_machine
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.slicer import Slicer
from ldp_slicing.tables import Tables
from ldp_slicing.view import Prune

SIDE = 128  # of the pictures in a set of releases
PICTURES = 6


@dataclass(frozen=True)
class Fault:
    """``plant`` makes what is audited; ``by``: the checks that must reject it (none: the audit must accept it)."""

    name: str
    planted: str
    by: frozenset[str]


@dataclass(frozen=True)
class BuildFault(Fault):
    plant: Callable[[Plan, Prune], Subject]


@dataclass(frozen=True)
class FolderFault(Fault):
    plant: Callable[[Path, Path, ReleaseSettings], None]  # in a folder of releases, given that of their sources


def one_path(plan: Plan, prune: Prune) -> Subject:
    """This installation with the path that is used by default, and nothing planted."""
    subject = installed(plan, prune)
    name = list(subject.paths)[-1]
    return dataclasses.replace(subject, paths={name: subject.paths[name]})


def _with_masks(change: Callable[[Words, Words, Plan], Words]) -> Callable[[Plan, Prune], Subject]:
    """A subject whose masks are changed on the way: ``change`` gets the masks of two fresh releases."""

    def plant(plan: Plan, prune: Prune) -> Subject:
        def make() -> Release:
            slicer = Slicer(plan, prune=prune, output="ycbcr")

            def release(source: Pixels) -> Pixels:
                words = view_words(source, plan, prune)
                masks, more = (release_words(slicer(source), plan) ^ words for _ in range(2))
                return _pixels(words ^ change(masks, more, plan))

            return release

        return _subject(plan, prune, make)

    return plant


def _subject(plan: Plan, prune: Prune, make: Callable[[], Release]) -> Subject:
    return dataclasses.replace(one_path(plan, prune), paths={"planted": make}, elsewhere=lambda source: make()(source))


def _pixels(words: Words) -> Pixels:
    return np.stack([words >> np.uint32(shift) & np.uint32(255) for shift in (16, 8, 0)], axis=-1).astype(np.uint8)


def _reversed(masks: Words, _: Words, plan: Plan) -> Words:
    out = np.zeros_like(masks)
    for b in range(plan.word_bits):
        out |= (masks >> np.uint32(b) & np.uint32(1)) << np.uint32(b ^ 7)  # within its byte, its channel
    return out


def _skip(which: int) -> Callable[[Words, Words, Plan], Words]:
    return lambda masks, _, plan: masks & np.uint32(~plan.slices[which].bits & 0xFFFFFFFF)


def _twice_the_budget(plan: Plan, prune: Prune) -> Subject:
    double = Plan([Slice(part.bits, 2 * part.epsilon) for part in plan.slices], plan.word_bits)
    return dataclasses.replace(one_path(double, prune), plan=plan)


def _one_mask(plan: Plan, prune: Prune) -> Subject:
    def make() -> Release:
        slicer, kept = Slicer(plan, prune=prune, output="ycbcr"), dict[tuple[int, ...], Words]()

        def release(source: Pixels) -> Pixels:
            words = view_words(source, plan, prune)
            if words.shape not in kept:
                kept[words.shape] = release_words(slicer(source), plan) ^ words
            return _pixels(words ^ kept[words.shape])

        return release

    return _subject(plan, prune, make)


def _seeded(plan: Plan, prune: Prune) -> Subject:
    return _subject(plan, prune, lambda: Slicer(plan, prune=prune, output="ycbcr", randomness=SeededForTests(42)))


def _seeded_process(plan: Plan, prune: Prune) -> Subject:
    return dataclasses.replace(one_path(plan, prune), elsewhere=_seeded(plan, prune).elsewhere)


def less_noise(tables: Tables) -> Tables:
    """In each group one threshold of the rarest mask moved by 2^-20 of its column (2^-28 of all draws), to less noise."""
    first, rest = tables.first.copy(), tables.rest.copy()
    for g, group in enumerate(read_groups(tables)):
        rarest = min(group.weights, key=lambda mask: (group.weights[mask], -mask))
        for column in range(first.shape[1]):
            words = [int.from_bytes(tables.outcome[g, side, :, column].tobytes(), "little") for side in (0, 1)]
            threshold = int(first[g, column]) << 48 | int(rest[g, column])
            step = min(1 << 36, (threshold if words[0] == rarest else (1 << 56) - threshold) // 2)
            if words[0] != words[1] and rarest in words and step:
                threshold += step if words[1] == rarest else -step
                first[g, column], rest[g, column] = threshold >> 48, threshold & ((1 << 48) - 1)
                break
    return dataclasses.replace(tables, first=first, rest=rest)


def _wrong_tables(plan: Plan, prune: Prune) -> Subject:
    sampled = Plan(plan.slices, plan.word_bits)
    vars(sampled)["tables"] = less_noise(plan.tables)
    # A plan with these tables has no JSON form: the new process gets the promised one.
    return dataclasses.replace(one_path(sampled, prune), plan=plan, elsewhere=one_path(plan, prune).elsewhere)


BUILD_FAULTS = (
    BuildFault("nothing", "the control: this installation as it is", frozenset(), one_path),
    BuildFault("bit order", "the masks of each channel reversed", frozenset({"flip rates"}), _with_masks(_reversed)),
    BuildFault(
        "double spending",
        "the tables of twice the epsilon",
        frozenset({"released pixel", "flip rates", "epsilon of their sum"}),
        _twice_the_budget,
    ),
    BuildFault(
        "two releases combined",
        "a bit is changed only where two fresh releases agree on it",
        frozenset({"flip rates", "epsilon of each slice", "epsilon of their sum"}),
        _with_masks(lambda masks, more, _: masks & more),
    ),
    BuildFault(
        "mask reuse", "one mask for all images of a size", frozenset({"two releases", "repeated masks"}), _one_mask
    ),
    BuildFault("a fixed seed", "every slicer starts from seed 42", frozenset({"new slicers, processes"}), _seeded),
    BuildFault(
        "a seed per process",
        "every process starts from seed 42",
        frozenset({"new slicers, processes"}),
        _seeded_process,
    ),
    BuildFault(
        "a skipped slice",
        "the highest slice is released as it is",
        frozenset({"flip rates", "epsilon of each slice"}),
        _with_masks(_skip(0)),
    ),
    BuildFault(
        "a skipped slice, lowest",
        "the lowest slice is released as it is",
        frozenset({"flip rates", "epsilon of each slice"}),
        _with_masks(_skip(-1)),
    ),
    BuildFault(
        "thresholds off by 2^-20",
        "one column of each table, to less noise (the statistics cannot see it)",
        frozenset({"slices", "released pixel"}),
        _wrong_tables,
    ),
)


def picture(number: int) -> Pixels:
    """A smooth colour picture, uint8 SIDE x SIDE x 3, as photographs are."""
    y, x, c = np.meshgrid(np.arange(SIDE), np.arange(SIDE), np.arange(3), indexing="ij")
    waves = np.sin(x / (17 + 3 * number) + c) + np.cos(y / (23 + number) - c * number)
    return (128 + 50 * waves).astype(np.uint8)


def make_set(folder: Path, recipe: ReleaseSettings) -> tuple[Path, Path]:
    """Sources and their releases, made as ``ldp-slicing privatize`` makes them."""
    sources, releases = folder / "sources", folder / "releases"
    sources.mkdir()
    for number in range(PICTURES):
        write_atomically(sources / f"{number}.png", encode_png(picture(number)))
    job = prepare(sources, releases, recipe, ledger=folder / "ledger.sqlite")
    list(job.run(on_this_machine(1)))
    job.close()
    return sources, releases


def _leak(releases: Path, _: Path, __: ReleaseSettings) -> None:
    path = releases / "0.png"
    header = len(SIGNATURE) + 25
    data = path.read_bytes()
    chunk = b"".join(encode_chunk(b"tEXt", b"Comment\0taken at home"))
    path.write_bytes(data[:header] + chunk + data[header:])


def _wrong_card(releases: Path, _: Path, __: ReleaseSettings) -> None:
    card = json.loads((releases / CARD_NAME).read_text())
    card["statements"][0]["levels"][2]["epsilon"] /= 4  # the source pixel, as if pruning cost nothing
    (releases / CARD_NAME).write_text(json.dumps(card))


def _stray(releases: Path, _: Path, __: ReleaseSettings) -> None:
    (releases / "notes.txt").write_text("0.png is Anna\n")


def _duplicate(releases: Path, _: Path, __: ReleaseSettings) -> None:
    shutil.copy(releases / "0.png", releases / "1.png")


def _shared(releases: Path, _: Path, recipe: ReleaseSettings) -> None:
    plan = recipe.slicer(24).plan
    for number in (2, 4):
        seeded = Slicer(plan, prune=recipe.prune, randomness=SeededForTests(42))
        (releases / f"{number}.png").write_bytes(b"".join(encode_png(seeded(picture(number)))))


def _replaced(releases: Path, _: Path, recipe: ReleaseSettings) -> None:
    (releases / "5.png").write_bytes(b"".join(encode_png(recipe.slicer(24)(picture(5)))))


def _unprotected(releases: Path, sources: Path, __: ReleaseSettings) -> None:
    shutil.copy(sources / "3.png", releases / "3.png")


FOLDER_FAULTS = (
    FolderFault("releases, nothing", "the control: releases as they are made", frozenset(), lambda *_: None),
    FolderFault("a metadata leak", "a comment in one PNG", frozenset({"metadata"}), _leak),
    FolderFault(
        "a wrong card", "the source pixel's epsilon as if pruning cost nothing", frozenset({"card"}), _wrong_card
    ),
    FolderFault("a stray file", "notes among the releases", frozenset({"files"}), _stray),
    FolderFault(
        "a second release", "one release made again, in place of the first", frozenset({"manifest"}), _replaced
    ),
    FolderFault("a duplicate", "one release under two names", frozenset({"duplicates"}), _duplicate),
    FolderFault("a shared mask", "two of the releases under one mask", frozenset({"shared masks"}), _shared),
    FolderFault("an unprotected image", "a source among the releases", frozenset({"noise"}), _unprotected),
)
