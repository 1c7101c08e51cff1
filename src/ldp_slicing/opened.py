"""The releases in a folder or file that ``privatize`` wrote, one by one. Needs their card, and no manifest or source.

A card states how many releases there are. A folder with more or fewer is refused, because something else is in it or
something is missing. Whether every byte is right is a different question: see ``ldp_slicing.verify``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

from ldp_slicing.card import Card, Statement
from ldp_slicing.errors import CardError, LdpSlicingError, ReleaseError
from ldp_slicing.formats import WRITERS, load_format, suffix_of
from ldp_slicing.formats.base import Finder, Loader, Member, Released
from ldp_slicing.manifest import is_lost, read_manifest
from ldp_slicing.sets import CARD_NAME, MANIFEST_NAME, card_beside
from ldp_slicing.storage import PARTIAL, LocalStorage, Storage, is_apple_double, is_remote, local_path, remote
from ldp_slicing.wording import counted

_PIECES_HELD = 4  # of files: row groups of Parquet, for example


@dataclass(frozen=True)
class Item:
    """A release: the path of its file, and where in the file it lies."""

    path: str
    member: Member

    @property
    def name(self) -> str:
        return f"{self.path}/{self.member.name}" if self.member.name else self.path


@dataclass(frozen=True)
class OpenedReleases:
    """The releases below a folder, or in a file, in the order of their names.

    name: what was opened, for messages. place: the folder of the card. below: the part of it that was opened.
    """

    name: str
    place: Storage
    below: str
    card: Card
    items: tuple[Item, ...]

    def __len__(self) -> int:
        return len(self.items)

    def load(self, number: int) -> Released:
        """Return a release with the data that was kept beside it; raise ReleaseError if it is not one of this card."""
        item = self.items[number]
        try:
            released = _load_piece(cast("Hashable", self.place), item.path, item.member.piece)[item.member.position]
            _check_size(released, self.card.statement(released.bits))
        except Exception as error:  # a library may raise anything on a damaged file
            raise ReleaseError(
                f"{self.name}: {item.name} cannot be read: {error}. `ldp-slicing verify` tells more"
            ) from error
        return released


def open_set(path: str | Path) -> OpenedReleases:
    """Open a folder of releases, a folder or file inside one, or one file with its own card.

    path: may be an address that fsspec reaches, such as hf://datasets/NAME/REPOSITORY or s3://bucket/folder.
    """
    place, below, card_name = _locate(local_path(str(path)))
    try:
        card = Card.load(place.open(card_name))
    except LdpSlicingError as error:
        raise CardError(f"{path}: {card_name} is not a valid card: {error}") from None
    items = list[Item]()
    for output in _outputs(place, below):
        try:
            with place.open(output) as file:
                find: Finder = load_format(WRITERS[suffix_of(output)]).members
                items += [Item(output, member) for member in find(file)]
        except Exception as error:  # as above
            raise ReleaseError(f"{path}: {output} cannot be read: {error}. `ldp-slicing verify` tells more") from error
    if not items:
        raise ReleaseError(f"{path} holds no releases")
    stated = sum(one.count for one in card.statements) - _count_lost(place)
    if (not below or card_name != CARD_NAME) and len(items) != stated:
        raise ReleaseError(
            f"{path} holds {counted(len(items), 'release')}, and its card states {stated:,}: some are missing, or "
            "something else is there. `ldp-slicing verify` tells what"
        )
    return OpenedReleases(str(path), place, below, card, tuple(items))


def _locate(path: str) -> tuple[Storage, str, str]:
    """Return the folder that has the card, the part of it that is meant, and the name of the card."""
    folder, _, name = path.rstrip("/").rpartition("/")
    if is_remote(path):
        place: Storage = remote(path)
        if place.size(CARD_NAME) is not None:
            return place, "", CARD_NAME
        with contextlib.suppress(ReleaseError):  # above a repository there may be nothing that can be asked
            place = remote(folder)
            if place.size(card_beside(name)) is not None:
                return place, name, card_beside(name)
        raise _no_card(path)
    here = Path(path).absolute()
    if not here.exists():
        raise ReleaseError(f"{path} does not exist")
    if here.with_name(card_beside(here.name)).is_file():
        return LocalStorage(here.parent), here.name, card_beside(here.name)
    for root in (here, *here.parents):
        if (root / CARD_NAME).is_file():
            below = here.relative_to(root).as_posix()
            return LocalStorage(root), "" if below == "." else below, CARD_NAME
    raise _no_card(path)


def _no_card(path: str) -> ReleaseError:
    return ReleaseError(
        f"{path} has no {CARD_NAME}: these are not releases, or they were separated from their card. Without it nobody "
        "knows how they were made"
    )


def _outputs(place: Storage, below: str) -> Iterator[str]:
    """Yield the files of releases at ``below`` or inside it, by name."""
    for file in sorted(place.files(), key=lambda one: one.path):
        is_meant = not below or file.path == below or file.path.startswith(f"{below}/")
        if not is_meant or suffix_of(file.path) not in WRITERS or file.path.startswith(f"{PARTIAL}/"):
            continue
        if file.problem:
            raise ReleaseError(f"{file.path} {file.problem}")
        if is_apple_double(place, file.path):  # by its content: a source may be called "._a.png", and so its release
            continue
        yield file.path


def _count_lost(place: Storage) -> int:
    """Return how many releases are lost, as the manifest records where there is one. The card counts them."""
    if place.size(MANIFEST_NAME) is None:
        return 0
    return sum(line.get("frames", 1) for line in read_manifest(place) if is_lost(place, line))


def _check_size(released: Released, stated: Statement) -> None:
    height, width = released.pixels.shape[:2]
    if width > stated.width[1] or height > stated.height[1]:
        most = f"{stated.width[1]} x {stated.height[1]}"
        raise ReleaseError(f"it has {width} x {height} pixels, and the card states at most {most}")


@lru_cache(maxsize=_PIECES_HELD)
def _load_piece(place: Hashable, path: str, piece: Hashable) -> Sequence[Released]:
    load: Loader = load_format(WRITERS[suffix_of(path)]).load
    with cast("Storage", place).open(path) as file:
        return load(file, piece)
