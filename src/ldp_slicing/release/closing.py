"""The end of a run: the card, the manifest, and the destruction of the run key.

A card lies beside releases only while it is true of all of them. It is withdrawn before a run begins to release, and
written again when the run ends, complete or not. docs/proofs.md, 13.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from ldp_slicing.card import Card, Statement
from ldp_slicing.errors import LdpSlicingError, ReleaseError
from ldp_slicing.ledger import Spent
from ldp_slicing.manifest import write_manifest
from ldp_slicing.release import records
from ldp_slicing.release.ledger_join import LedgerJoin
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.state import RunState
from ldp_slicing.release.target import ReleasePaths, check_own_card, uncounted_file
from ldp_slicing.sets import has_card
from ldp_slicing.storage import write_file
from ldp_slicing.tables import round_up
from ldp_slicing.view import block_of

CARDS_REMEMBERED = 10
# By word length: the most releases of one source, and their eps per released pixel, per source pixel and per image.
Stated = dict[str, tuple[int, float, float, float]]
Sums = tuple[int, float, float]  # releases of one source, and their eps per released pixel and per source pixel


@dataclass(frozen=True)
class Closing:
    """How a run ended: the card as it was written, or why there is none; and whether the run is complete."""

    card: Card | None = None
    problem: str | None = None
    complete: bool = False


def withdraw_card(paths: ReleasePaths) -> None:
    """Remove the card of an earlier run, which does not count what is released from now on."""
    try:
        paths.target.remove(paths.card_path)
    except OSError as error:
        raise ReleaseError(
            f"{paths.card_path} cannot be removed, and would not count the new releases: {error.strerror or error}"
        ) from None


def close_run(
    paths: ReleasePaths,
    settings: ReleaseSettings,
    state: RunState,
    ledger: LedgerJoin,
    *,
    owners_key: bool,
    locked: bool,
) -> Closing:
    """Write card and manifest, and complete the run if nothing is left to do.

    If the target is not ``locked``, another run may be naming files in it. Each run lists the target after it has
    written its card, so at least one of the two notices the other and removes the card.
    """
    try:
        paths.target.remove_temporary_files()
        if problem := _check_counted(paths, state):
            return Closing(problem=problem)
        ledger.copy_entries()
        card, stated = make_card(settings, state, ledger, owners_key=owners_key, is_single=paths.is_single)
        if card is not None:
            write_card(paths, state, card, stated)
            if not locked and (problem := _check_counted(paths, state)):
                return Closing(problem=problem)
        if records.is_unfinished(state):
            return Closing(card)
        complete(paths, state)
        return Closing(card, complete=True)
    except (OSError, LdpSlicingError) as error:
        return Closing(problem=f"the card could not be written: {getattr(error, 'strerror', None) or error}")


def _check_counted(paths: ReleasePaths, state: RunState) -> str | None:
    """Return why no card would be true of what lies in the target, if so; then remove any card, whoever wrote it."""
    if output := records.damaged_output(state):
        problem: str | None = (
            f"{output} is not the file that was released under that name: move it away, or restore the release, "
            "and run the same command again"
        )
    else:
        problem = uncounted_file(paths, lambda path: records.is_released(state, path), records.all_outputs(state))
    if problem and has_card(paths.target, paths.card_path):
        paths.target.remove(paths.card_path)
    return problem


def make_card(
    settings: ReleaseSettings, state: RunState, ledger: LedgerJoin, *, owners_key: bool, is_single: bool
) -> tuple[Card | None, Stated]:
    """Return the card about everything released, or None if nothing was, and what it states about one source.

    The ledger says what the sources have cost. No card says less than the one before it. A single file has the name
    that its owner gave it, so its card never says that names are random.
    """
    statements, stated = list[Statement](), Stated(state.get("stated") or {})
    for words in records.statements(state):
        slicer, known = settings.slicer(words.bits), ledger.most_spent(records.ledger_entries(words.bits))
        # Under an owner's key, equal frames are one entry of the ledger.
        video = Fraction(slicer.plan.realised_epsilon) * words.most_frames
        one_video = (words.most_frames, round_up(video), round_up(video * block_of(slicer.prune) ** 2))
        before = stated.get(str(words.bits), (0, 0.0, 0.0, 0.0))
        times, epsilon, source = _largest([before[:3], one_video, *map(_sums, known)])
        pixels = max(width * height for width, height in words.sizes)
        image = max([before[3], round_up(Fraction(epsilon) * pixels), *(one.image_epsilon for one in known)])
        stated[str(words.bits)] = (times, epsilon, source, image)
        unvoided = None
        if any(one.unvoided for one in known):
            unvoided = _largest([one_video, *(_sums(one.unvoided or one) for one in known)])
        statements.append(
            Statement.of(
                slicer.plan,
                slicer.prune,
                slicer.output,
                words.sizes,
                count=words.releases,
                times=times,
                spent=(epsilon, source, image),
                size=slicer.size,
                unvoided=unvoided,
                value_range=settings.values,
            )
        )
    if not statements:
        return None, stated
    card = Card(
        tuple(statements),
        random_names=settings.names == "random" and not is_single,
        owners_key=owners_key,
        complete=not records.is_unfinished(state),
        kept=tuple(records.kept_names(state)),
        series=records.has_kind(state, "dicom"),
    )
    return card, stated


def _sums(spent: Spent) -> Sums:
    return spent.releases, spent.epsilon, spent.source_pixel_epsilon


def _largest(sums: Iterable[Sums]) -> Sums:
    """Return the largest number of releases and the largest eps of each kind, which may be of different sources."""
    releases, epsilon, source = (max(column) for column in zip(*sums, strict=True))
    return releases, epsilon, source


def write_card(paths: ReleasePaths, state: RunState, card: Card, stated: Stated) -> None:
    """Write the manifest and the card. What the card says is recorded before it can be read."""
    content = card.to_json().encode()
    written = state.get("cards") or []
    check_own_card(paths, written)
    digests = [*written, hashlib.sha256(content).hexdigest()]
    state.set_durably("cards", digests[-CARDS_REMEMBERED:])
    state.set_durably("stated", stated)
    if not paths.is_single:
        write_manifest(paths.target, records.manifest_lines(state))
    write_file(paths.target, paths.card_path, [content])
    paths.target.remove_temporary_files()


def complete(paths: ReleasePaths, state: RunState) -> None:
    """Flush everything to disk and destroy the run key. From now on nothing can be made again without spending."""
    paths.target.sync()
    state.mark_flushed()
    state.set_durably("complete", True)
    state.destroy_key()
