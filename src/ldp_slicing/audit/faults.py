"""Known faults of colour releases. Each is this installation, or a folder of releases, with one part replaced.

An audit must reject all of them, and accept the controls. The folder is made with ``Slicer`` and the writers of cards
and manifests, not by a run of ``ldp-slicing privatize``: like the rest of ``audit``, this module does not import
``release``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ldp_slicing.audit.backends import Installation, Release, this_installation
from ldp_slicing.audit.exact import read_groups
from ldp_slicing.audit.pixel_words import Pixels, Words, release_words, view_words
from ldp_slicing.audit.power import normal_numbers
from ldp_slicing.card import Card, Statement
from ldp_slicing.manifest import write_manifest
from ldp_slicing.plan import Plan, Slice
from ldp_slicing.png import SIGNATURE, encode_chunk, encode_png
from ldp_slicing.randomness import SeededForTests
from ldp_slicing.sets import CARD_NAME
from ldp_slicing.slicer import Slicer
from ldp_slicing.storage import LocalStorage
from ldp_slicing.tables import Tables
from ldp_slicing.view import Prune, to_rgb

SIDE = 128  # of the images in a folder of releases
IMAGES = 6


@dataclass(frozen=True)
class Fault:
    """``planted`` describes the fault. ``rejected_by``: the checks that must reject it; none for a control."""

    name: str
    planted: str
    rejected_by: frozenset[str]


@dataclass(frozen=True)
class InstallationFault(Fault):
    """``plant`` returns an installation with the fault."""

    plant: Callable[[Plan, Prune], Installation]


@dataclass(frozen=True)
class FolderFault(Fault):
    """``plant`` changes a folder of releases made with the given plan and view."""

    plant: Callable[[Path, Plan, Prune], None]


def default_backend(plan: Plan, prune: Prune) -> Installation:
    """This installation with the backend that is used by default, and no fault."""
    installation = this_installation(plan, prune)
    name = list(installation.backends)[-1]
    return dataclasses.replace(installation, backends={name: installation.backends[name]})


def _with_masks(change: Callable[[Words, Words, Plan], Words]) -> Callable[[Plan, Prune], Installation]:
    """An installation that changes its masks: ``change`` gets those of two fresh releases."""

    def plant(plan: Plan, prune: Prune) -> Installation:
        def make() -> Release:
            slicer = Slicer(plan, prune=prune, output="ycbcr")

            def release(source: Pixels) -> Pixels:
                words = view_words(source, plan, prune)
                masks, more = (release_words(slicer(source), plan) ^ words for _ in range(2))
                return _ycbcr(words ^ change(masks, more, plan))

            return release

        return _with_backend(plan, prune, make)

    return plant


def _with_backend(plan: Plan, prune: Prune, make: Callable[[], Release]) -> Installation:
    installation = default_backend(plan, prune)
    return dataclasses.replace(installation, backends={"planted": make}, new_process=lambda source: make()(source))


def _ycbcr(words: Words) -> Pixels:
    return np.stack([words >> np.uint32(shift) & np.uint32(255) for shift in (16, 8, 0)], axis=-1).astype(np.uint8)


def _reverse_bits(masks: Words, _: Words, plan: Plan) -> Words:
    out = np.zeros_like(masks)
    for b in range(plan.word_bits):
        out |= (masks >> np.uint32(b) & np.uint32(1)) << np.uint32(b ^ 7)  # within its byte, which is its channel
    return out


def _skip_slice(index: int) -> Callable[[Words, Words, Plan], Words]:
    return lambda masks, _, plan: masks & np.uint32(~plan.slices[index].bits & 0xFFFFFFFF)


def _double_budget(plan: Plan, prune: Prune) -> Installation:
    double = Plan([Slice(part.bits, 2 * part.epsilon) for part in plan.slices], plan.word_bits)
    return dataclasses.replace(default_backend(double, prune), plan=plan)


def _reused_mask(plan: Plan, prune: Prune) -> Installation:
    def make() -> Release:
        slicer, kept = Slicer(plan, prune=prune, output="ycbcr"), dict[tuple[int, ...], Words]()

        def release(source: Pixels) -> Pixels:
            words = view_words(source, plan, prune)
            if words.shape not in kept:
                kept[words.shape] = release_words(slicer(source), plan) ^ words
            return _ycbcr(words ^ kept[words.shape])

        return release

    return _with_backend(plan, prune, make)


def _seeded(plan: Plan, prune: Prune) -> Installation:
    def make() -> Release:
        return Slicer(plan, prune=prune, output="ycbcr", randomness=SeededForTests(42))

    return _with_backend(plan, prune, make)


def _seeded_process(plan: Plan, prune: Prune) -> Installation:
    return dataclasses.replace(default_backend(plan, prune), new_process=_seeded(plan, prune).new_process)


def less_noise(tables: Tables) -> Tables:
    """Move one threshold of each group's rarest mask by 2^-20 of its column (2^-28 of all draws), to less noise."""
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


def _wrong_tables(plan: Plan, prune: Prune) -> Installation:
    sampled = Plan(plan.slices, plan.word_bits)
    vars(sampled)["tables"] = less_noise(plan.tables)
    # A plan with these tables has no JSON form, so the new process gets the promised one.
    new_process = default_backend(plan, prune).new_process
    return dataclasses.replace(default_backend(sampled, prune), plan=plan, new_process=new_process)


INSTALLATION_FAULTS = (
    InstallationFault("nothing", "the control: this installation unchanged", frozenset(), default_backend),
    InstallationFault(
        "bit order", "the masks of each channel reversed", frozenset({"flip rates"}), _with_masks(_reverse_bits)
    ),
    InstallationFault(
        "double spending",
        "the tables of twice the epsilon",
        frozenset({"released pixel", "flip rates", "epsilon of their sum"}),
        _double_budget,
    ),
    InstallationFault(
        "two releases combined",
        "a bit is changed only where two fresh releases agree on it",
        frozenset({"flip rates", "epsilon of each slice", "epsilon of their sum"}),
        _with_masks(lambda masks, more, _: masks & more),
    ),
    InstallationFault(
        "mask reuse", "one mask for all images of a size", frozenset({"two releases", "repeated masks"}), _reused_mask
    ),
    InstallationFault(
        "a fixed seed", "every slicer starts from seed 42", frozenset({"new slicers, processes"}), _seeded
    ),
    InstallationFault(
        "a seed per process",
        "every process starts from seed 42",
        frozenset({"new slicers, processes"}),
        _seeded_process,
    ),
    InstallationFault(
        "a skipped slice",
        "the highest slice is released unchanged",
        frozenset({"flip rates", "epsilon of each slice"}),
        _with_masks(_skip_slice(0)),
    ),
    InstallationFault(
        "a skipped slice, lowest",
        "the lowest slice is released unchanged",
        frozenset({"flip rates", "epsilon of each slice"}),
        _with_masks(_skip_slice(-1)),
    ),
    InstallationFault(
        "thresholds off by 2^-20",
        "one column of each table, towards less noise (too small for the statistics)",
        frozenset({"slices", "released pixel"}),
        _wrong_tables,
    ),
)


def sample_image(number: int) -> Pixels:
    """A smooth colour image, uint8 [SIDE, SIDE, 3], as photographs are."""
    y, x, c = np.meshgrid(np.arange(SIDE), np.arange(SIDE), np.arange(3), indexing="ij")
    waves = np.sin(x / (17 + 3 * number) + c) + np.cos(y / (23 + number) - c * number)
    return (128 + 50 * waves).astype(np.uint8)


def make_releases(folder: Path, plan: Plan, prune: Prune) -> None:
    """Fill an empty folder with releases of the sample images, their card and their manifest."""
    slicer = Slicer(plan, prune=prune)
    lines = []
    for number in range(IMAGES):
        data = _png(slicer(sample_image(number)), plan)
        (folder / f"{number}.png").write_bytes(data)
        lines.append({"output": f"{number}.png", "sha256": hashlib.sha256(data).hexdigest(), "status": "released"})
    write_manifest(LocalStorage(folder), lines)
    card = Card((Statement.of(plan, prune, slicer.output, ((SIDE, SIDE),) * IMAGES),))
    (folder / CARD_NAME).write_text(card.to_json())


def _png(pixels: Pixels, plan: Plan | None = None) -> bytes:
    return b"".join(encode_png(pixels, plan))


def _add_comment(folder: Path, _: Plan, __: Prune) -> None:
    path = folder / "0.png"
    header = len(SIGNATURE) + 25  # signature and IHDR
    data = path.read_bytes()
    chunk = b"".join(encode_chunk(b"tEXt", b"Comment\0taken at home"))
    path.write_bytes(data[:header] + chunk + data[header:])


def _understate_source_pixel(folder: Path, _: Plan, __: Prune) -> None:
    card = json.loads((folder / CARD_NAME).read_text())
    card["statements"][0]["levels"][2]["epsilon"] /= 4  # the source pixel, as if pruning cost nothing
    (folder / CARD_NAME).write_text(json.dumps(card, indent=2) + "\n")


def _add_notes(folder: Path, _: Plan, __: Prune) -> None:
    (folder / "notes.txt").write_text("0.png is Anna\n")


def _duplicate_release(folder: Path, _: Plan, __: Prune) -> None:
    shutil.copy(folder / "0.png", folder / "1.png")


def _share_mask(folder: Path, plan: Plan, prune: Prune) -> None:
    for number in (2, 4):
        seeded = Slicer(plan, prune=prune, randomness=SeededForTests(42))
        (folder / f"{number}.png").write_bytes(_png(seeded(sample_image(number)), plan))


def _replace_release(folder: Path, plan: Plan, prune: Prune) -> None:
    (folder / "5.png").write_bytes(_png(Slicer(plan, prune=prune)(sample_image(5)), plan))


def _add_source(folder: Path, _: Plan, __: Prune) -> None:
    (folder / "3.png").write_bytes(_png(sample_image(3)))


def _add_source_in_columns(folder: Path, plan: Plan, prune: Prune) -> None:
    """Every second column of a release is the source's: no two pixels of the source are side by side."""
    mixed = np.array(Slicer(plan, prune=prune)(sample_image(3)))
    mixed[:, ::2] = sample_image(3)[:, ::2]
    (folder / "3.png").write_bytes(_png(mixed))


def _add_noisy_source(folder: Path, plan: Plan, _: Prune) -> None:
    """Rebuild the source as the plan does, so that every value is one that the plan can release."""
    noise = 5 * normal_numbers("camera noise", (SIDE, SIDE, 3))
    source = np.clip(np.rint(sample_image(3) + noise), 0, 255).astype(np.uint8)
    words = view_words(source, plan, None) & np.uint32(plan.kept_bits) | np.uint32(plan.dropped_value)
    rebuilt = to_rgb(np.moveaxis(_ycbcr(words).astype(np.uint8), -1, 0))
    (folder / "3.png").write_bytes(_png(np.moveaxis(rebuilt, 0, -1)))


def _add_source_without_red(folder: Path, _: Plan, __: Prune) -> None:
    (folder / "3.png").write_bytes(_png(sample_image(3) * np.array([0, 1, 1], np.uint8)))


FOLDER_FAULTS = (
    FolderFault("releases, nothing", "the control: releases unchanged", frozenset(), lambda *_: None),
    FolderFault("a metadata leak", "a comment in one PNG", frozenset({"files"}), _add_comment),
    FolderFault(
        "a wrong card",
        "the source pixel's epsilon as if pruning cost nothing",
        frozenset({"card"}),
        _understate_source_pixel,
    ),
    FolderFault("a stray file", "notes among the releases", frozenset({"files"}), _add_notes),
    FolderFault(
        "a second release", "one release made again, in place of the first", frozenset({"files"}), _replace_release
    ),
    FolderFault("a duplicate", "one release under two names", frozenset({"duplicates"}), _duplicate_release),
    FolderFault("a shared mask", "two of the releases under one mask", frozenset({"shared masks"}), _share_mask),
    FolderFault("an unprotected image", "a source among the releases", frozenset({"noise", "values"}), _add_source),
    FolderFault("half of a source", "every second column of a source", frozenset({"noise"}), _add_source_in_columns),
    FolderFault("a noisy source", "a source with noise of sigma 5", frozenset({"noise"}), _add_noisy_source),
    FolderFault("a source in two colours", "a source without red", frozenset({"clamped"}), _add_source_without_red),
)
