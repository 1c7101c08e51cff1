"""From where to where, and whether nothing is in the way: sources, target and the run's own folder lie apart, and a target is one run's."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ldp_slicing.errors import ImageError, ReleaseError
from ldp_slicing.formats import KINDS, detect_kind, read_head
from ldp_slicing.ledger import default_ledger
from ldp_slicing.manifest import CARD_NAME, has_card
from ldp_slicing.storage import LocalStorage, RemoteStorage, Storage, is_remote, remote

if sys.platform != "win32":
    import fcntl

STATE_SUFFIX = ".owner"


@dataclass(frozen=True)
class Route:
    """From where to where. ``output``: the name of a single release, or none for a set."""

    source: Storage
    target: Storage
    source_name: str
    state: Path
    card_path: str
    output: str | None = None

    @property
    def single(self) -> bool:
        return self.output is not None


def route_of(source: str, target: str, state: Path | None, *, shared: bool) -> Route:
    from_place, only, source_name = _source(source)
    if is_remote(target):
        name = target.rstrip("/")
        if is_remote(source) and (
            f"{name}/".startswith(f"{source.rstrip('/')}/") or f"{source.rstrip('/')}/".startswith(f"{name}/")
        ):
            raise ReleaseError(
                f"{target} and {source} overlap: releases go to a place of their own, outside the sources"
            )
        folder, output = (name, None) if only is None else name.rsplit("/", 1)
        state = state or default_state(name)
        to_place: Storage = remote(folder)
    else:
        path = Path(target)
        output = None if only is None else path.name
        state = state or default_state(target)
        if not is_remote(source):
            for place in (path, state):
                if _overlap(Path(source), place):
                    raise ReleaseError(
                        f"{place} and {source} overlap: releases go to a place of their own, outside the sources"
                    )
        if _overlap(path, state):
            raise ReleaseError(
                f"{state} and {target} overlap: the run's own folder holds its key, and a target is handed on"
            )
        root = path if only is None else path.parent
        to_place = LocalStorage(root, None if shared or not _one_file_system(state, root) else state / "drafts")
    if only is not None and output is not None:
        suffix, kind = os.path.splitext(output)[1].lower(), detect_kind(only, lambda: peek(from_place, only))  # noqa: PTH122
        if suffix not in KINDS[kind].writers:
            raise ReleaseError(
                f"{target} must end in {' or '.join(KINDS[kind].writers)}: a release is written without loss"
            )
        return Route(from_place, to_place, source_name, state, f"{output}.card.json", output)
    return Route(from_place, to_place, source_name, state, CARD_NAME)


def default_state(target: str) -> Path:
    """Where the state of a run lies: beside its target, or in the owner's data folder where that is remote."""
    if is_remote(target):
        return default_ledger().parent / "runs" / hashlib.sha256(os.fsencode(target.rstrip("/"))).hexdigest()[:32]
    return Path(f"{os.path.realpath(target)}{STATE_SUFFIX}")  # one target has one state, by whatever name


def _source(source: str) -> tuple[Storage, str | None, str]:
    """The place of the sources; the one file of it that is meant, if one is; and how it is called."""
    if is_remote(source):
        place = remote(source)
        if not place.is_folder():
            folder, only = source.rstrip("/").rsplit("/", 1)
            if not remote(folder).has(only):
                raise ReleaseError(f"{source} does not exist")
            return remote(folder, only), only, source
        return place, None, source
    path = Path(source)
    if not path.exists():
        raise ReleaseError(f"{source} does not exist")
    name = str(path.resolve())
    return (
        (LocalStorage(path), None, name)
        if path.is_dir()
        else (LocalStorage(path.parent, only=path.name), path.name, name)
    )


def _one_file_system(one: Path, two: Path) -> bool:
    """Whether a file can be renamed from one to the other, by the nearest folders that exist."""
    devices = [
        next(place for place in (path, *path.absolute().parents) if place.exists()).stat().st_dev for path in (one, two)
    ]
    return devices[0] == devices[1]


def _overlap(source: Path, target: Path) -> bool:
    """Whether one is, or is inside, the other: by name, or because the file system says that two names are one place."""
    inside, outside = source.resolve(), target.resolve()
    return any(
        same_place(place, whole)
        for whole, part in ((inside, outside), (outside, inside))
        for place in (part, *part.parents)
    )


def same_place(one: Path, two: Path) -> bool:
    return one == two or (one.exists() and two.exists() and one.samefile(two))


def check_new(route: Route) -> None:
    """A target without a state must be new, and the state, too."""
    if os.path.lexists(route.state) and (not route.state.is_dir() or any(route.state.iterdir())):
        raise ReleaseError(
            f"{route.state} is not an empty folder, and no run left it: a run's own folder is new (--state names another)"
        )
    check_new_target(route)


def check_new_target(route: Route) -> None:
    """So that nothing is overwritten and no release is mixed with other files."""
    target = route.target
    if isinstance(target, LocalStorage):
        if route.output is not None:
            for path in (target.root / route.output, target.root / route.card_path):
                if os.path.lexists(path):
                    raise ReleaseError(f"{path} exists already: nothing is overwritten")
        elif os.path.lexists(target.root) and (not target.root.is_dir() or any(target.root.iterdir())):
            raise ReleaseError(
                f"{target.root} is not an empty folder, and there is no {route.state} to say that a run left it: releases go to a new or "
                "empty one, so that none is mixed with other files"
            )
    elif any(target.size(name) is not None for name in (route.output, route.card_path) if name) or (
        not route.single and next(target.files(), None) is not None
    ):
        raise ReleaseError(f"{route.output or 'the target'} exists already: nothing is overwritten")


def check_above(route: Route) -> None:
    """No release goes into a folder that has a card of another run, nor into one below it."""
    target, places = route.target, list[Storage]()
    if isinstance(target, LocalStorage):
        places += map(LocalStorage, ((target.root,) if route.single else ()) + tuple(target.root.resolve().parents))
    elif isinstance(target, RemoteStorage):
        scheme, _, path = target.address.partition("://")
        parts = path.split("/")
        for end in () if "::" in path else range(len(parts) - (not route.single), 0, -1):
            with contextlib.suppress(Exception):  # above a share there may be nothing that can be asked
                above = remote(f"{scheme}://{'/'.join(parts[:end])}")
                above.size(CARD_NAME)
                places.append(above)
    for place in places:
        if has_card(place):
            where = (
                place.root
                if isinstance(place, LocalStorage)
                else place.address
                if isinstance(place, RemoteStorage)
                else place
            )
            raise ReleaseError(
                f"{where} is the target of another run, whose card would not count this: release to another place"
            )


def hold(route: Route) -> Callable[[], None] | None:
    """Nobody else works on this folder until the result is called: one with another state folder would not know of this run.

    The system lets go of it when the process ends, however it ends. None where it cannot be held: remote places, some network disks.
    """
    if (
        sys.platform == "win32"
        or route.single
        or not isinstance(route.target, LocalStorage)
        or not route.target.root.is_dir()
    ):
        return None
    held = os.open(route.target.root, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise ReleaseError(f"another run is at work on {route.target.root}; wait for it, or stop it") from None
    except OSError:
        os.close(held)
        return None
    return lambda: os.close(held)


def peek(source: Storage, path: str) -> bytes:
    try:
        return read_head(source.open(path))
    except (ImageError, OSError):
        return b""
