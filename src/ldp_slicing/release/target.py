"""May a run write here? Every question about the places of a run is answered in this module.

Sources, target and state folder lie apart. A target belongs to one run, nothing in it is overwritten, and no card lies
beside a file that it does not count.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ldp_slicing.errors import ImageError, Reason, ReleaseError
from ldp_slicing.files import dangling, digest_of, lock_folder, try_to_create_in
from ldp_slicing.formats import KINDS, WRITERS
from ldp_slicing.ledger import default_ledger
from ldp_slicing.release.sources import open_sources, source_kind
from ldp_slicing.sets import (
    BLANK,
    CARD_NAME,
    MANIFEST_NAME,
    STATE_SUFFIX,
    card_beside,
    check_outside_sets,
    has_card,
    read_or_empty,
)
from ldp_slicing.storage import (
    PARTIAL,
    LocalStorage,
    RemoteStorage,
    Selection,
    SourceFiles,
    Storage,
    is_apple_double,
    is_remote,
    remote,
)


@dataclass(frozen=True)
class ReleasePaths:
    """Where a run reads and writes. ``output`` is the name of a single release, or None for a set.

    ``frames``: whether an animation is read frame by frame.
    """

    source: SourceFiles
    target: Storage
    source_names: tuple[str, ...]
    state: Path
    card_path: str
    output: str | None = None
    frames: bool = False

    @property
    def is_single(self) -> bool:
        return self.output is not None

    @property
    def location(self) -> str:
        """The address or real path of the target."""
        target = self.target
        if isinstance(target, RemoteStorage):
            folder = target.address
        else:
            folder = os.path.realpath(target.root) if isinstance(target, LocalStorage) else ""
        return f"{folder}/{self.output or ''}"

    @property
    def places(self) -> dict[str, str]:
        """Where the run writes and where its state lies, as the ledger records it."""
        return {"target": self.location, "state": str(self.state.absolute())}


# Where to read and write


def resolve_paths(
    sources: Sequence[str], target: str, state: Path | None, selection: Selection, *, shared: bool, frames: bool = False
) -> ReleasePaths:
    """Return the places of a run; refuse places that overlap.

    With ``shared``, workers on other machines write to the target, so their temporary files must lie inside it.
    """
    opened = open_sources(sources, selection, into_folder=_is_folder(target))
    for one, other in itertools.combinations([Path(source) for source in sources if not is_remote(source)], 2):
        if _overlap(one, other) and not any(path.suffix.lower() == ".zip" for path in (one, other)):
            raise ReleaseError(
                f"{one} and {other} overlap, and images that are in both would be released twice: name only one of "
                "them",
                Reason.OVERLAP,
            )
    state, only = state or default_state(target), opened.only
    if is_remote(target):
        for source in sources:
            _check_remote_overlap(source, target)
        folder, output = (target.rstrip("/"), None) if only is None else target.rstrip("/").rsplit("/", 1)
        target_storage: Storage = remote(folder)
    else:
        path = Path(target)
        for source in sources:
            _check_local_overlap(source, path, state)
        root, output = (path, None) if only is None else (path.parent, path.name)
        target_storage = LocalStorage(root, None if shared else state / "temporary")
    if only is None or output is None:
        return ReleasePaths(opened.files, target_storage, opened.names, state, CARD_NAME, frames=frames)
    suffix = os.path.splitext(output)[1].lower()  # noqa: PTH122
    writers = KINDS[source_kind(opened.files, only, frames=frames)].writers
    if suffix not in writers:
        raise ReleaseError(
            f"{target} must end in {' or '.join(writers)}, since a release is written without loss; "
            f"or name a folder: {target.rstrip('/')}/"
        )
    return ReleasePaths(opened.files, target_storage, opened.names, state, card_beside(output), output, frames)


def _is_folder(target: str) -> bool:
    """Return whether the owner means a folder: its name ends so, or it is one."""
    return target.endswith(("/", os.sep)) or (not is_remote(target) and Path(target).is_dir())


def default_state(target: str) -> Path:
    """Return the state folder: beside the target, or in the owner's data folder if the target is remote."""
    if is_remote(target):
        return default_ledger().parent / "runs" / hashlib.sha256(os.fsencode(target.rstrip("/"))).hexdigest()[:32]
    return Path(f"{os.path.realpath(target)}{STATE_SUFFIX}")  # one target has one state, whatever name it is given by


def _check_remote_overlap(source: str, target: str) -> None:
    one, two = f"{source.rstrip('/')}/", f"{target.rstrip('/')}/"
    if is_remote(source) and (one.startswith(two) or two.startswith(one)):
        raise ReleaseError(f"{target} overlaps the source {source}: choose a place outside the sources", Reason.OVERLAP)


def _check_local_overlap(source: str, target: Path, state: Path) -> None:
    for place in (target, state):
        if not is_remote(source) and _overlap(Path(source), place):
            raise ReleaseError(
                f"{place} overlaps the source {source}: choose a place outside the sources", Reason.OVERLAP
            )
    if _overlap(target, state):
        raise ReleaseError(
            f"{state} and {target} overlap: the state folder holds the run key, and a target is handed on",
            Reason.OVERLAP,
        )


def _overlap(one: Path, two: Path) -> bool:
    return _is_inside(one, two) or _is_inside(two, one)


def _is_inside(path: Path, folder: Path) -> bool:
    """Return whether ``path`` is the folder or lies in it, by name or because two names are one place on disk."""
    folder, path = folder.resolve(), path.resolve()
    return any(
        place == folder or (place.exists() and folder.exists() and place.samefile(folder))
        for place in (path, *path.parents)
    )


# Checks before a run


def check_private_files(paths: ReleasePaths, target: str, files: Iterable[Path]) -> None:
    """Refuse a ledger or key inside the target, which is handed on, or inside the state folder, which is deleted."""
    for file in files:
        if not is_remote(target) and _is_inside(file.resolve().parent, Path(target)):
            raise ReleaseError(f"{file} would lie in {target}, which is handed on: keep it elsewhere", Reason.OVERLAP)
        if _is_inside(file.resolve().parent, paths.state):
            raise ReleaseError(
                f"{file} lies in {paths.state}, the state folder of the run, which is deleted when no longer needed: "
                "keep it elsewhere",
                Reason.OVERLAP,
            )
        check_outside_sets(file)


def check_new(paths: ReleasePaths) -> None:
    """Refuse a state folder or target that exists, if no run has left its state there."""
    for place in (paths.state, *([paths.target.root] if isinstance(paths.target, LocalStorage) else [])):
        if (problem := dangling(place)) is not None:
            raise ReleaseError(f"{place} {problem}")
    _check_new_target(paths)
    if os.path.lexists(paths.state) and (not paths.state.is_dir() or any(paths.state.iterdir())):
        raise ReleaseError(
            f"{paths.state} is not an empty folder, and no run left it: choose a new state folder with --state"
        )


def check_writable(paths: ReleasePaths) -> None:
    """Refuse places in which nothing can be created, before a ledger is."""
    for place in (*([paths.target.root] if isinstance(paths.target, LocalStorage) else []), paths.state):
        existing = next(one for one in (place, *place.absolute().parents) if os.path.lexists(one))
        try:
            try_to_create_in(existing)
        except OSError as error:
            where = f"{place} cannot be written to" if existing == place else f"{place} cannot be created in {existing}"
            raise ReleaseError(f"{where}: {error.strerror}") from None


def _check_new_target(paths: ReleasePaths) -> None:
    """Refuse a target that is not empty: nothing is overwritten, and releases are not mixed with other files."""
    target = paths.target
    if not isinstance(target, LocalStorage):
        names = [name for name in (paths.output, paths.card_path) if name]
        if any(target.size(name) is not None for name in names) or (
            not paths.is_single and next(target.files(), None) is not None
        ):
            raise ReleaseError(f"{paths.output or 'the target'} exists and is not overwritten: choose another name")
    elif paths.output is not None:
        for path in (target.root / paths.output, target.root / paths.card_path):
            if os.path.lexists(path):
                raise ReleaseError(f"{path} exists and is not overwritten: choose another name")
    elif os.path.lexists(target.root) and (not target.root.is_dir() or any(target.root.iterdir())):
        raise ReleaseError(
            f"{target.root} is not an empty folder, and there is no {paths.state} of a run that left it: releases go "
            "to a new or empty folder, so that they are not mixed with other files. If a run left it and it was moved, "
            "name the state folder of that run with --state"
        )


def check_location(
    paths: ReleasePaths, recorded: str | None, releases: Callable[[], Iterable[tuple[str, int, bytes]]]
) -> None:
    """Refuse a target that is neither the recorded one nor holds the run's releases, which were then moved there.

    Anything else would mix releases with other files. ``releases`` gives their names, sizes and SHA-256.
    """
    if recorded == paths.location:
        return
    if recorded is None or next(iter(releases()), None) is None:
        _check_new_target(paths)
    elif not any(is_whole(paths.target, *release) for release in releases()):
        raise ReleaseError(
            f"{paths.state} is the state of a run to {recorded.rstrip('/')}, and none of its releases is in the "
            "target that you named: name the former target"
        )


def check_own_card(paths: ReleasePaths, written: Sequence[str]) -> None:
    """Refuse a target whose card this run did not write: the promise on it would be lost.

    ``written`` are the SHA-256 of the cards that the run wrote, in hexadecimal.
    """
    try:
        content = read_or_empty(paths.target, paths.card_path)
    except ImageError as error:
        raise ReleaseError(f"{paths.card_path} cannot be read: {error}") from None
    if content.strip(BLANK) and hashlib.sha256(content).hexdigest() not in written:
        is_card = has_card(paths.target, paths.card_path)
        what = "another run wrote it, or somebody changed it" if is_card else "it is not a card"
        raise ReleaseError(
            f"{paths.card_path} exists, and {what}: a target belongs to one run. "
            "Move the file away if you do not need it"
        )


def check_above(paths: ReleasePaths) -> None:
    """Refuse a target in a folder that has another run's card, or anywhere below one, and a state folder there."""
    target, places = paths.target, list[tuple[str, Storage]]()
    if isinstance(target, LocalStorage):
        folders = ((target.root,) if paths.is_single else ()) + tuple(target.root.resolve().parents)
        places += ((str(folder), LocalStorage(folder)) for folder in folders)
    elif isinstance(target, RemoteStorage):
        scheme, _, path = target.address.partition("://")
        parts = path.split("/")
        first = len(parts) if paths.is_single else len(parts) - 1
        for end in () if "::" in path else range(first, 0, -1):
            address = f"{scheme}://{'/'.join(parts[:end])}"
            with contextlib.suppress(Exception):  # above a share there may be nothing that can be asked
                above = RemoteStorage(address)
                above.size(CARD_NAME)
                places.append((address, above))
    for name, place in places:
        if has_card(place):
            raise ReleaseError(
                f"{name} is the target of another run, whose card would not count this release: choose another target"
            )
    check_outside_sets(paths.state)


def lock(paths: ReleasePaths) -> Callable[[], None] | None:
    """Lock the target folder and return what unlocks it. A run with another state folder would not know of this one.

    The system unlocks it when the process ends, however it ends. Returns None where it cannot be locked: remote places,
    single files, some network disks.
    """
    target = paths.target
    if paths.is_single or not isinstance(target, LocalStorage) or not target.root.is_dir():
        return None
    try:
        held = lock_folder(target.root)
    except BlockingIOError:
        raise ReleaseError(f"another run is working on {target.root}; wait for it, or stop it", Reason.BUSY) from None
    return None if held is None else lambda: os.close(held)


# Files in the target


def reserved_name(path: str, *, keeps_names: bool) -> str | None:
    """Return why no release can have this source's name, if so."""
    if ".." in path.split("/") or path.startswith("/"):  # a server may list any name
        return "has a name that leads out of its folder"
    folder, separator, _ = path.partition("/")
    if keeps_names and separator and folder.casefold() in (CARD_NAME, MANIFEST_NAME, PARTIAL):
        return f"is in a folder whose name is reserved here, {folder.casefold()}: rename the folder"
    return None


def is_whole(target: Storage, name: str, size: int, sha256: bytes) -> bool:
    """Return whether a file is there, as it was released."""
    return target.size(name) == size and digest_of(target.open(name)) == sha256


def uncounted_file(paths: ReleasePaths, is_released: Callable[[str], bool], outputs: Iterable[str]) -> str | None:
    """Return why no card would be true of what lies in the target, if so: a file that the run does not count.

    A worker that was killed, or a ledger that failed, may leave outputs that the run has not recorded. They are made
    again, the same, when the run is resumed. Of a single release, only ``outputs`` are looked at.
    """
    if paths.is_single:
        present = [output for output in outputs if paths.target.size(output) is not None]
        return next((_not_counted(output) for output in present if not is_released(output)), None)
    for found in paths.target.files():
        path = found.path
        if found.problem:  # anything may lie behind it
            return f"{path} {found.problem}"
        suffix = path[path.rfind(".") :].lower()
        if suffix not in WRITERS or path.startswith(f"{PARTIAL}/") or is_apple_double(paths.target, path):
            continue
        # Some file systems change how accents are composed.
        if not any(map(is_released, (path, unicodedata.normalize("NFC", path), unicodedata.normalize("NFD", path)))):
            return _not_counted(path)
    return None


def _not_counted(path: str) -> str:
    return (
        f"{path} is in the target but not counted: run the same command again, "
        "or move it away if it is not a release of this run"
    )
