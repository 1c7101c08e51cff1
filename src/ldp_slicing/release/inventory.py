"""Everything before the first release: may this be done, what is there already, what is left to do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ldp_slicing.errors import ImageError, ReleaseError
from ldp_slicing.files import digest_of
from ldp_slicing.formats import KINDS, detect_kind
from ldp_slicing.keys import Secret, frame, read_key_file
from ldp_slicing.ledger import Ledger, default_ledger
from ldp_slicing.manifest import AGAIN, CARD_NAME, LOST, MANIFEST_NAME
from ldp_slicing.release.names import random_name
from ldp_slicing.release.run import Job, check_card
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.state import WAITING, Journal, Kept
from ldp_slicing.release.target import (
    Route,
    check_above,
    check_new,
    check_new_target,
    default_state,
    hold,
    peek,
    route_of,
    same_place,
)
from ldp_slicing.storage import (
    PARTIAL,
    Found,
    LocalStorage,
    RemoteStorage,
    Storage,
    is_apple_double,
    is_remote,
    local_path,
)

LITTER = (".ds_store", "thumbs.db", "desktop.ini")
CLASSES = ("meta", "batches.meta")  # CIFAR's files that name the classes, and hold no pictures


def prepare(
    source: str | Path,
    target: str | Path,
    settings: ReleaseSettings,
    *,
    ledger: Path | None = None,
    key: Path | None = None,
    state: Path | None = None,
    spend: bool = False,
    shared: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Job:
    """Check everything that can be checked before the first source is opened; then see what there is to do.

    shared: workers on other machines write to the target, so nothing of theirs may lie beside it.
    """
    settings.check()
    source, target = local_path(str(source)), local_path(str(target))
    if not (source and target):
        raise ReleaseError("a source and a target must be named; one of them is empty")
    owners = None if key is None else Secret(read_key_file(key), is_owners=True)
    if owners and settings.duplicates == "once":
        raise ReleaseError(
            "under an owner's key copies have equal releases and cost nothing more: leave out --duplicates once"
        )
    try:
        route = route_of(source, target, state, shared=shared)
        ledger = ledger or default_ledger()
        known = (route.state / "journal.sqlite").exists()
        for file in (ledger, *([key] if key else [])):
            if not is_remote(target) and any(
                same_place(Path(target).resolve(), folder) for folder in file.resolve().parents
            ):
                raise ReleaseError(f"{file} would be in {target}, which is handed on: keep it elsewhere")
            if any(same_place(route.state.resolve(), folder) for folder in file.resolve().parents):
                raise ReleaseError(
                    f"{file} is in {route.state}, which is the run's own and goes when it is not needed: keep it elsewhere"
                )
        if not known:
            check_new(route)
        check_above(route)
        parameters = {
            **settings.parameters(),
            "source": route.source_name,
            "key": owners.identity().hex() if owners else "run",
        }
        if not known and all(_is_litter(route, found) for found in route.source.files()):
            raise ReleaseError(f"{source} holds no files")
        if known and not ledger.exists():
            raise ReleaseError(
                f"this release was begun with the ledger {_ledger_of(route)}, and {ledger} is not there: name it with --ledger"
            )
        opened = Ledger(ledger, must_exist=known)
        journal = _open_journal(route, {**parameters, "ledger": opened.identity}, ledger)
        with contextlib.ExitStack() as undo:
            undo.callback(opened.close)
            undo.callback(journal.close)
            if let_go := hold(route):
                undo.callback(let_go)
            job = _begin(route, settings, opened, journal, owners, let_go, spend=spend, stop=stop)
            undo.pop_all()
            return job
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to one another
        where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
        raise ReleaseError(
            f"{source} cannot be released to {target}: {getattr(error, 'strerror', None) or error}{where}"
        ) from None


def _begin(
    route: Route,
    settings: ReleaseSettings,
    ledger: Ledger,
    journal: Journal,
    owners: Secret | None,
    let_go: Callable[[], None] | None,
    *,
    spend: bool,
    stop: Callable[[], bool],
) -> Job:
    try:
        check_card(route.target, route.card_path, journal)
    except ImageError as error:
        raise ReleaseError(f"{route.card_path} cannot be read: {error}") from None
    _check_moved(route, journal)
    ledger.check_knows(journal.numbers())  # an older one that was put back is refused before anything is spent
    if isinstance(
        route.target, LocalStorage | RemoteStorage
    ):  # where drafts must lie in the target, not where another run's do
        route = replace(route, target=replace(route.target, partial=f"{PARTIAL}/{journal.salt().hex()[:16]}"))
    job = _take_stock(route, settings, ledger, journal, owners, spend=spend, stop=stop)
    job.let_go = let_go
    return job


def open_state(target: str, state: Path | None) -> Journal:
    """The journal of a run that was made, for its owner to look at."""
    folder = state or default_state(local_path(target))
    if not (folder / "journal.sqlite").exists():
        raise ReleaseError(
            f"there is no {folder}, the folder that a run of `ldp-slicing privatize` leaves beside {target}"
        )
    try:
        return Journal(folder)
    except OSError as error:
        raise ReleaseError(f"{folder} cannot be opened: {error.strerror}") from None


def _check_moved(route: Route, journal: Journal) -> None:
    """A run goes on where it was, or where its releases have been moved to; any other place would be mixed with them, or with sources."""
    target = route.target
    here = (
        target.address
        if isinstance(target, RemoteStorage)
        else os.path.realpath(target.root)
        if isinstance(target, LocalStorage)
        else ""
    )
    here, told = f"{here}/{route.output or ''}", journal.get("target")
    if told is None or (told != here and next(journal.released(), None) is None):
        check_new_target(route)
    elif told != here and not any(_is_whole(target, kept) for kept in journal.released()):
        raise ReleaseError(
            f"{route.state} is the state of a run to {told.rstrip('/')}, and none of its releases is here: name that target"
        )
    if told != here:
        journal.set_durably("target", here)


def _ledger_of(route: Route) -> str:
    """Where the ledger lay that the run was begun with."""
    journal = Journal(route.state)
    try:
        return str(journal.get("ledger path"))
    finally:
        journal.close()


def _open_journal(route: Route, parameters: dict[str, Any], ledger: Path) -> Journal:
    """The run's journal, new or found again; then its parameters must be these."""
    journal = Journal(route.state)
    try:
        _check_parameters(route, journal, parameters, ledger)
    except BaseException:
        journal.close()
        raise
    return journal


def _check_parameters(route: Route, journal: Journal, parameters: dict[str, Any], ledger: Path) -> None:
    before = journal.get("parameters")
    if before is None:  # new, or it was killed before it had begun
        if isinstance(route.target, LocalStorage) and not route.target.root.exists():
            route.target.root.mkdir(parents=True)
            journal.set_durably("made target", True)
        journal.set_durably("ledger path", str(ledger.resolve()))
        journal.set_durably("parameters", parameters)
    elif before.get("ledger") != parameters["ledger"]:
        begun = journal.get("ledger path")
        raise ReleaseError(f"this release was begun with the ledger {begun}, not with {ledger}: name it with --ledger")
    elif before != parameters:
        differing = [name for name in parameters if before.get(name) != parameters[name]]
        values = "; ".join(
            f"{name}: {_shown(before.get(name))} then, {_shown(parameters[name])} now" for name in differing
        )
        raise ReleaseError(f"this release was begun with other parameters ({values}); use the same, or another target")


def _shown(value: Any) -> str:  # noqa: ANN401
    return (
        ":".join(f"{part:g}" if isinstance(part, float) else str(part) for part in value)
        if isinstance(value, list)
        else str(value)
    )


def _take_stock(
    route: Route,
    settings: ReleaseSettings,
    ledger: Ledger,
    journal: Journal,
    owners: Secret | None,
    *,
    spend: bool,
    stop: Callable[[], bool],
) -> Job:
    """Which of the releases that were made are still there and whole, what the source holds now, and so what is left to do."""
    if journal.get("complete"):
        journal.destroy_key()  # in case a crash came just before it
    here = owners or (journal.secret() if journal.has_key else None)
    alive = None if here is None else here.identity()  # what was made with this key can be made again, the same
    route.target.clear_drafts()
    journal.forget_remarks()
    for kept in journal.missed():
        if _is_whole(route.target, kept):
            journal.has_come_back(kept.path)
    for kept in journal.released():
        if stop():
            break
        _check_kept(
            route.target,
            journal,
            kept,
            can_repeat=kept.run == alive,
            spend=spend,
            thorough=owners is not None or kept.run != alive,
        )
    waiting = bool(journal.counts()[WAITING])
    journal.list_files(
        route.source.files(),
        lambda found: _kind(route, found),
        lambda path: None if route.single else _in_the_way(path, names_are_kept=settings.names == "keep"),
        lambda found: _is_litter(route, found),
        copies_again=journal.has_key,
    )
    _check_changed(route.source, journal, ledger)
    waiting = waiting or bool(journal.counts()[WAITING])
    if waiting:
        journal.set_durably("complete", False)
    secret = owners or (journal.secret() if waiting else Secret(b"", is_owners=False))
    salt = (
        journal.salt() if owners and settings.names == "random" else b""
    )  # else one path would have one name in all runs of that key
    suffixes = {kind: next(iter(about.writers)) for kind, about in KINDS.items()}

    def name(path: str, kind: str) -> str:
        if route.output is not None:
            return route.output
        if settings.names == "random":
            return random_name(lambda item: secret.output_name(frame(salt, item)), path, suffixes[kind])
        return journal.namer.name(path, suffixes[kind])

    journal.name_files(name)
    tally = journal.tally()
    return Job(
        route.source,
        route.target,
        settings,
        journal,
        ledger,
        secret,
        spend,
        route.card_path,
        route.single,
        tally.waiting,
        tally.released,
        stop(),
    )


def _is_whole(target: Storage, kept: Kept) -> bool:
    return target.size(kept.output) == kept.size and digest_of(target.open(kept.output)) == kept.sha256


def _check_kept(
    target: Storage, journal: Journal, kept: Kept, *, can_repeat: bool, spend: bool, thorough: bool
) -> None:
    """A release that was made: whole, or to be made again, or lost. Of what is surely on the disk a resumed run only looks at the size."""
    size = target.size(kept.output)
    if not target.is_taken(kept.output):
        wrong = LOST
    elif size == kept.size and ((kept.settled and not thorough) or digest_of(target.open(kept.output)) == kept.sha256):
        return
    else:
        wrong = "damaged"
    if can_repeat:
        journal.wait_again(kept.path, "released")
    elif wrong == "damaged":
        journal.remark(kept.path, f"something else has the name of its release, {kept.output}: move it away", wrong)
    elif spend:
        journal.wait_again(kept.path, AGAIN)
    else:
        remark = (
            f"its release {kept.output} is {wrong}, and cannot be made again without spending again; --spend allows it"
        )
        journal.remark(kept.path, remark, wrong)


def _check_changed(source: Storage, journal: Journal, ledger: Ledger) -> None:
    """Files that were released and look different now: touched, or other files under the old name."""
    for path, digest, stamp in journal.changed():
        try:
            same = digest is not None and ledger.keyed("file", digest_of(source.open(path))) == digest
        except ImageError:
            same = False
        if same:
            journal.unchanged_after_all(path, stamp)
        else:
            journal.remark(path, "has changed since it was released; to release what it is now, give it another name")


def _kind(route: Route, found: Found) -> tuple[str, str]:
    kind = detect_kind(found.path, lambda: peek(route.source, found.path))
    return kind, next(iter(KINDS[kind].writers))


def _is_litter(route: Route, found: Found) -> bool:
    """Whether nobody means to release it: what systems leave in folders, or names of classes. A file that is named by itself is meant."""
    name = found.path.rpartition("/")[2]
    if route.single or found.problem is not None:
        return False
    if name in CLASSES:
        return _kind(route, found)[0] == "cifar"
    return name.casefold() in LITTER or is_apple_double(route.source, found.path)


def _in_the_way(path: str, *, names_are_kept: bool) -> str | None:
    if ".." in path.split("/") or path.startswith("/"):  # whatever a server says that it holds
        return "has a name that leads out of its folder"
    folder, separator, _ = path.partition("/")
    taken = names_are_kept and separator and folder.casefold() in (CARD_NAME, MANIFEST_NAME, PARTIAL)
    return (
        f"is in a folder that has the name of something else here, {folder.casefold()}: rename the folder"
        if taken
        else None
    )
