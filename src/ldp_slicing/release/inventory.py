"""What is to be done: list the sources, compare them with earlier releases, and name the outputs of the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ldp_slicing.card import CARD_BYTES
from ldp_slicing.digests import frame
from ldp_slicing.errors import ImageError, Reason, ReleaseError
from ldp_slicing.files import digest_of, read_limited
from ldp_slicing.formats import KINDS, Kind, load_format, may_hold_images
from ldp_slicing.formats.base import KeepableNames
from ldp_slicing.keys import Secret
from ldp_slicing.ledger import Ledger, run_id
from ldp_slicing.release.names import random_name
from ldp_slicing.release.records import count_files, count_states
from ldp_slicing.release.report import FileState
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.sources import read_bytes, source_kind
from ldp_slicing.release.state import Finding, KnownOutput, RunState
from ldp_slicing.release.target import ReleasePaths, is_whole, reserved_name
from ldp_slicing.sets import CARD_NAME, card_beside, has_card, is_card
from ldp_slicing.storage import SYSTEM_FILES, StoredFile, is_apple_double

CLASS_NAME_FILES = ("meta", "batches.meta")  # CIFAR's names of classes, without images

Stop = Callable[[], bool]


@dataclass(frozen=True)
class Inventory:
    """What there is to do: files that wait, and files whose earlier releases are kept.

    ``interrupted`` is set if the owner stopped before everything was known; then nothing may be released.
    """

    waiting: int
    kept: int
    interrupted: bool


def take_inventory(
    paths: ReleasePaths,
    settings: ReleaseSettings,
    state: RunState,
    ledger: Ledger,
    owners: Secret | None,
    *,
    spend: bool,
    stop: Stop,
) -> tuple[Inventory, Secret]:
    """Bring the state up to date with source and target. Return what is to be done, and the key to do it with."""
    if state.get("complete"):
        state.destroy_key()  # in case the run crashed just before it did so
    paths.target.remove_temporary_files()
    list_sources(paths, settings, state)
    check_outputs(paths, state, owners, voided=ledger.voided_streams(), spend=spend, stop=stop)
    check_sources(paths, state, ledger)
    waits = count_states(state)[FileState.WAITING] > 0
    if waits:
        state.set_durably("complete", False)
    secret = owners or (state.secret() if waits else Secret(b"", is_owners=False))
    choose_names(paths, settings, state, secret)
    counts = count_files(state)
    return Inventory(counts.waiting, counts.released, stop()), secret


def list_sources(paths: ReleasePaths, settings: ReleaseSettings, state: RunState) -> None:
    """Enter every file of the source. Files without a release wait again, copies only if the first may still fail."""
    retry_copies, ignored, unselected, card = state.has_key, 0, 0, None
    with state.listing() as number:
        for found in paths.source.all_files():
            card = card or _find_card(paths, found)
            if is_ignored(paths, found):
                ignored += 1
            elif not paths.source.selects(found):
                unselected += 1
            elif not state.keep_listed(found, number, retry_copies=retry_copies):
                problem = _problem(paths, settings, found)
                kind = "" if problem else source_kind(paths.source, found.path, frames=paths.frames)
                state.enter(found, number, kind, problem)
                if kind:
                    state.names.request(found.path, KINDS[kind].suffix)
    state.set_durably("ignored", ignored)
    state.set_durably("not selected", unselected)
    state.set_durably("card in sources", card)


def _find_card(paths: ReleasePaths, found: StoredFile) -> str | None:
    """Return the path of a card: the file itself, or one beside a file that the owner named.

    Files beside a card are releases, not sources.
    """
    folder = paths.source.folder_of_named(found.path)
    if folder is not None:
        return next((name for name in (card_beside(found.path), CARD_NAME) if has_card(folder, name)), None)
    if found.problem or not found.path.endswith(CARD_NAME):
        return None
    content = read_bytes(paths.source, found.path, lambda file: read_limited(file, CARD_BYTES))
    return found.path if is_card(content) else None


def is_ignored(paths: ReleasePaths, found: StoredFile) -> bool:
    """Return whether a file is no source: left by the operating system, or CIFAR's names of classes.

    A file that the owner names by itself is always a source.
    """
    name = found.path.rpartition("/")[2]
    if found.problem is not None or paths.source.is_named(found.path):
        return False
    if name in CLASS_NAME_FILES:
        return source_kind(paths.source, found.path, frames=paths.frames) == "cifar"
    return name.casefold() in SYSTEM_FILES or is_apple_double(paths.source, found.path)


def is_source(paths: ReleasePaths, found: StoredFile) -> bool:
    """Return whether a file is to be released, or must be reported because it cannot be."""
    return not is_ignored(paths, found) and (found.problem is not None or not _is_unknown(paths, found))


def check_keep_names(paths: ReleasePaths, keep: Collection[str]) -> None:
    """Refuse a name of --keep that no source can have, as far as that is known before the sources are read."""
    missing, present = set(keep), set[str]()
    for found in paths.source.files() if keep else ():
        kind = KINDS[source_kind(paths.source, found.path, frames=paths.frames)] if is_source(paths, found) else None
        if kind is not None and kind.can_keep:
            names = _keepable(paths, found.path, kind)
            present.update(names or ())
            missing -= present
            if names is None or not missing:
                return
    if missing:
        named = " ".join(f"--keep {name}" for name in sorted(missing))
        held = f"these can be kept: {', '.join(sorted(present))}" if present else "they hold only images"
        raise ReleaseError(f"{named}: there is no such data in the sources that could be kept; {held}", Reason.KEEP)


def _keepable(paths: ReleasePaths, path: str, kind: Kind) -> Collection[str] | None:
    """Return the names of the data that can be kept of a file, or None if they are not known before it is read."""
    try:
        keepable: KeepableNames = load_format(kind.reader, kind.extra).keepable
        return keepable(lambda: paths.source.open(path))
    except Exception:  # a library may raise anything on a damaged file
        return None  # the file will be refused, and the refusal says why


def _is_unknown(paths: ReleasePaths, found: StoredFile) -> bool:
    """Return whether nothing tells that a file holds images. A file that the owner names is taken for one."""
    if paths.source.is_named(found.path):
        return False
    return not may_hold_images(found.path, found.size, lambda: read_bytes(paths.source, found.path))


def _problem(paths: ReleasePaths, settings: ReleaseSettings, found: StoredFile) -> tuple[str, Reason] | None:
    """Return why a file is not released, if that can be told before it is read."""
    if found.problem is not None:
        return found.problem, Reason.NOT_A_FILE
    if not paths.is_single and (problem := reserved_name(found.path, keeps_names=settings.names == "keep")):
        return problem, Reason.NAME
    if _is_unknown(paths, found):
        return "is not in a format that is read here", Reason.UNKNOWN
    return None


def check_voided(paths: ReleasePaths, state: RunState, ledger: Ledger) -> None:
    """Refuse outputs of a voided run: by the owner's word they were destroyed."""
    voided = ledger.voided_streams() & {*state.streams()}
    for known in state.known_outputs() if voided else ():
        if known.stream in voided and paths.target.exists(known.name):
            raise ReleaseError(
                f"{known.name} exists, and the run {run_id(known.stream)}, which released it, was voided because its "
                "outputs were destroyed: destroy all of them",
                Reason.LEDGER,
            )


def check_outputs(
    paths: ReleasePaths, state: RunState, owners: Secret | None, *, voided: Collection[bytes], spend: bool, stop: Stop
) -> None:
    """Look for every earlier release. What is lost or damaged is made again where that is allowed.

    ``voided``: the keys of voided runs. Their releases were destroyed, by the owner's word.
    """
    key = owners or (state.secret() if state.has_key else None)
    stream = None if key is None else key.identity()  # what this key made can be made again, the same
    for known in state.known_outputs():
        if stop():
            return
        if known.state is not FileState.RELEASED:  # it was lost, and has not been made again yet
            if is_whole(paths.target, known.name, known.size, known.sha256):
                state.mark_present(known.path)
            continue
        can_repeat = known.stream == stream
        # On disk for certain, by the key of this unfinished run: then the size is enough.
        trusted = known.flushed and can_repeat and owners is None
        finding = _check_output(paths, known, trusted=trusted)
        if finding is None:
            continue
        may_spend = (spend or known.stream in voided) and finding is Finding.LOST  # nothing is overwritten
        if known.has_source and (can_repeat or may_spend):
            state.wait_again(known.path, source_kind(paths.source, known.path, frames=paths.frames))
        else:
            state.find(known.path, finding)


def _check_output(paths: ReleasePaths, known: KnownOutput, *, trusted: bool) -> Finding | None:
    if not paths.target.exists(known.name):
        return Finding.LOST
    if trusted and paths.target.size(known.name) == known.size:
        return None
    return None if is_whole(paths.target, known.name, known.size, known.sha256) else Finding.DAMAGED


def check_sources(paths: ReleasePaths, state: RunState, ledger: Ledger) -> None:
    """Tell released sources that were only touched from those whose content has changed."""
    for path, digest in state.changed_sources():
        try:
            same = digest is not None and digest in ledger.keyed_each("file", digest_of(paths.source.open(path)))
        except ImageError:
            same = False
        if same:
            state.accept_stamp(path)
        else:
            state.find(path, Finding.CHANGED)


def choose_names(paths: ReleasePaths, settings: ReleaseSettings, state: RunState, secret: Secret) -> None:
    """Give every waiting file the name of its output."""
    # Under an owner's key, a path would otherwise have the same random name in every run.
    salt = state.salt() if secret.is_owners and settings.names == "random" else b""

    def choose(path: str, kind: str) -> str:
        if paths.output is not None:
            return paths.output
        if settings.names == "random":
            return random_name(lambda item: secret.output_name(frame(salt, item)), path, KINDS[kind].suffix)
        return state.names.choose(path, KINDS[kind].suffix)

    state.choose_names(choose)
