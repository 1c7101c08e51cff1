"""The collector: takes releases with their cards, checks them, and stores them in a folder that ``verify`` accepts.

It never sees a source. An upload is accepted only if its card adds up, states the plan and view that this collector
takes, and fits the file; and if the file is a PNG with pixels and nothing else, whose pixels can be a release of that
plan: dropped bits are constant, and neighbours do not agree more often than the noise lets them.

A stored release is named after the SHA-256 of its file, so a duplicate has the name of the first. Each upload is
written to the disk before it is confirmed, and the card before the first release: it says by which plan and view the
stored releases were made, so a collector of another plan or view refuses the folder. Manifest and card are brought up
to date when a collector starts, should it have crashed. It cannot know whether two uploads show the same source: its
card states one release each.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ldp_slicing.audit.noise import agreement_p_values, clamped_p_value, count_noise, pair_tests
from ldp_slicing.card import Card, Statement
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.files import lock_folder, make_folder
from ldp_slicing.manifest import RELEASED, write_manifest
from ldp_slicing.plan import COLOUR_BITS, Plan
from ldp_slicing.png import HEADER_BYTES, read_header, read_release_png
from ldp_slicing.sets import CARD_NAME, MANIFEST_NAME
from ldp_slicing.storage import LocalStorage, write_file
from ldp_slicing.view import Padded, Prune, Size, sizing

ERROR_RATE = 1e-9  # probability that an honest release is refused for its noise
MOST_BYTES = 64 << 20  # of a release whose size is not prescribed
_log = logging.getLogger(__name__)


class UploadError(LdpSlicingError):
    """An upload that is refused. ``status`` is that of the HTTP answer."""

    def __init__(self, reason: str, status: int = 422) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Wanted:
    """What a collector takes: releases in colour of one plan and view."""

    plan: Plan
    prune: Prune
    size: Size = None

    def to_dict(self) -> dict[str, Any]:
        """Return what is wanted, for people and programs."""
        return {"plan": self.plan.to_dict(), "prune": self.prune or "none", "size": sizing(self.size)}

    def for_page(self) -> dict[str, Any]:
        """Return the settings as the page's worker takes them."""
        parts = [[part.bits, part.epsilon] for part in self.plan.slices]
        size: Any = {**vars(self.size), "pad": True} if isinstance(self.size, Padded) else self.size
        return {"epsilon": self.plan.epsilon, "parts": parts, "prune": self.prune, "size": size}

    @property
    def most_bytes(self) -> int:
        """The most bytes that the file of a release can have."""
        if self.size is None:
            return MOST_BYTES
        width, height = (self.size, self.size) if isinstance(self.size, int) else _sides(self.size)
        return min(MOST_BYTES, 2 * (3 * width + 1) * height + 4096)


def _sides(size: tuple[int, int] | Padded) -> tuple[int, int]:
    return (size.width, size.height) if isinstance(size, Padded) else size


@dataclass
class Collector:
    """A folder of releases that grows. One process at a time may own it."""

    folder: Path
    wanted: Wanted
    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)  # by name
    _digests: dict[str, str] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _is_stale: bool = False
    _is_behind: bool = False  # manifest and card could not be written

    def __post_init__(self) -> None:
        try:
            make_folder(self.folder)
        except OSError as error:
            raise LdpSlicingError(f"{self.folder} cannot be created: {error.strerror}; choose another folder") from None
        try:
            self._lock = lock_folder(self.folder)
        except BlockingIOError:
            raise LdpSlicingError(
                f"{self.folder} is used by another collector: stop it, or choose another folder"
            ) from None
        self._place = LocalStorage(self.folder)
        self._place.remove_temporary_files()
        self._recover()

    def _recover(self) -> None:
        """Read what is stored. A file that is not a release of the wanted kind stops the collector.

        Pixels alone do not show the plan and the view of a release: the card that was stored with it does.
        """
        for name in (CARD_NAME, MANIFEST_NAME):
            if self._place.exists(name) and self._place.size(name) is None:
                raise self._is_foreign(name)
        known = self._check_stored_card()
        for found in self._place.files():
            if found.path in (CARD_NAME, MANIFEST_NAME):
                continue
            if found.problem is not None:
                raise self._is_foreign(found.path)
            with self._place.open(found.path) as file:
                data = file.read(self.wanted.most_bytes + 1)
            if name_of(data) != found.path:
                raise self._is_foreign(found.path)
            width, height = check_release(data, self.wanted.plan)
            self._remember(data, width, height)
        if self._sizes and not known:
            raise LdpSlicingError(
                f"{self.folder} holds releases without their {CARD_NAME}, so their plan and view are unknown: move "
                "them away, or choose another folder"
            )
        if known and not self._sizes:
            if self._place.size(MANIFEST_NAME) is not None:
                raise LdpSlicingError(
                    f"the releases that {self.folder / CARD_NAME} is about are gone: choose another folder"
                )
            self._place.remove(CARD_NAME)  # crashed before the first release was stored
        self._is_stale = bool(self._sizes)
        try:
            self.write_manifest()
        except OSError as error:
            raise LdpSlicingError(
                f"{self.folder} cannot be written to: {error.strerror or error}. Make room, or choose another folder"
            ) from None

    def _is_foreign(self, path: str) -> LdpSlicingError:
        return LdpSlicingError(
            f"{self.folder / path} was not stored by a collector: move it away, or choose another folder"
        )

    def _check_stored_card(self) -> bool:
        """Return whether there is a card. If it is not one about releases of the wanted kind, the collector stops."""
        if self._place.size(CARD_NAME) is None:
            return False
        try:
            card = Card.load(self._place.open(CARD_NAME))
        except LdpSlicingError as error:
            raise LdpSlicingError(
                f"{self.folder / CARD_NAME} is damaged ({error}), so the plan and view of the stored releases are "
                "unknown: restore it from a copy, or choose another folder"
            ) from None
        try:
            check_statement(card, self.wanted)
        except LdpSlicingError as error:
            raise LdpSlicingError(
                f"{self.folder / CARD_NAME} is not about the releases that this collector takes: {error}. Start it "
                "with the former settings, or choose another folder"
            ) from None
        return True

    def _remember(self, data: bytes, width: int, height: int) -> None:
        name = name_of(data)
        self._sizes[name], self._digests[name] = (width, height), hashlib.sha256(data).hexdigest()
        self._is_stale = True

    @property
    def count(self) -> int:
        return len(self._sizes)

    def accept(self, data: bytes, card: bytes) -> str:
        """Store a release and return its name, or raise UploadError. The release is on the disk when this returns."""
        statement = check_card(card, self.wanted)
        width, height = check_release(data, self.wanted.plan)
        if (statement.width, statement.height) != ((width, width), (height, height)):
            raise UploadError(f"the release has {width} x {height} pixels, but its card states another size")
        name = name_of(data)
        with self._guard:
            if name in self._sizes:
                raise UploadError("this release was uploaded before", 409)
            try:
                self._store(name, data, (width, height))
            except OSError as error:
                reason = f"the release could not be stored ({error.strerror or error}): send it again later"
                raise UploadError(reason, 507) from None
            self._remember(data, width, height)
        return name

    def _store(self, name: str, data: bytes, size: tuple[int, int]) -> None:
        is_first = not self._sizes
        if is_first:
            self._write_card([size])
        try:
            write_file(self._place, name, [data])
        except BaseException:
            if is_first:
                self._place.remove(CARD_NAME)
            raise
        self._place.sync()

    def keep_up(self) -> None:
        """Write manifest and card as ``write_manifest`` does. If that fails, say so once; it is to be tried again."""
        try:
            self.write_manifest()
            self._is_behind = False
        except OSError as error:
            if not self._is_behind:
                _log.warning(
                    "%s and %s in %s cannot be written (%s), so they lack the latest releases: make room. They are "
                    "written as soon as that is possible, or when a collector is started on this folder again",
                    CARD_NAME,
                    MANIFEST_NAME,
                    self.folder,
                    error.strerror or error,
                )
            self._is_behind = True

    def write_manifest(self) -> None:
        """Write manifest and card, if there is anything new."""
        with self._guard:
            if not self._is_stale:
                return
            lines = [
                {"output": name, "sha256": self._digests[name], "status": RELEASED} for name in sorted(self._sizes)
            ]
            write_manifest(self._place, lines)
            self._write_card(list(self._sizes.values()))
            self._place.sync()
            self._is_stale = False

    def _write_card(self, sizes: list[tuple[int, int]]) -> None:
        wanted = self.wanted
        statement = Statement.of(wanted.plan, wanted.prune, "rgb", sizes, size=wanted.size)
        write_file(self._place, CARD_NAME, [Card((statement,), random_names=True).to_json().encode()])


def name_of(data: bytes) -> str:
    """Return the path of a stored release: it says nothing but what the file holds."""
    digest = hashlib.sha256(data).hexdigest()
    return f"{digest[:2]}/{digest[:32]}.png"


def check_card(text: bytes, wanted: Wanted) -> Statement:
    """Return the statement of a card about one release of the wanted kind, or raise UploadError."""
    try:
        card = Card.from_json(text)
    except LdpSlicingError as error:
        raise UploadError(f"the card is not valid: {error}") from None
    statement = check_statement(card, wanted)
    if statement.count != 1:
        raise UploadError("the card must state one release")
    return statement


def check_statement(card: Card, wanted: Wanted) -> Statement:
    """Return the statement of a card about releases of the wanted kind alone, or raise UploadError."""
    if len(card.statements) != 1 or card.kept:
        raise UploadError("the card must have one statement, and nothing kept beside the releases")
    if card.owners_key:
        raise UploadError("the release was made with an owner's key, which this collector does not take")
    (statement,) = card.statements
    if (statement.times, statement.spent) != (1, None):
        raise UploadError("the card must state that each source was released once")
    if statement.plan != wanted.plan or statement.plan.epsilon != wanted.plan.epsilon:
        raise UploadError("the card states another plan than this collector takes")
    if statement.prune != wanted.prune or statement.size != wanted.size or statement.output != "rgb":
        view = f"pruning {wanted.prune or 'none'}, size {sizing(wanted.size)}"
        raise UploadError(f"the card states another view than this collector takes ({view})")
    return statement


def check_release(data: bytes, plan: Plan) -> tuple[int, int]:
    """Return width and height of a PNG that can be a release of the plan, or raise UploadError."""
    try:
        header = read_header(data[:HEADER_BYTES])
        if header.word_bits != COLOUR_BITS:
            raise UploadError("the release is grey; this collector takes colour")
        if not header.fits(plan):  # the pixels of a wrong palette can take 24 times the bytes of their file
            raise UploadError("the release has another palette than its plan has")
        pixels, extras = read_release_png(data, plan)
    except UploadError:
        raise
    except LdpSlicingError as error:
        raise UploadError(f"the release {error}") from None
    if extras:
        raise UploadError(f"the release holds more than pixels: {', '.join(extras)}")
    counts = count_noise(pixels, plan)
    if counts.impossible:
        raise UploadError(f"{counts.impossible:,} pixels have values that no release of this plan has")
    limit = ERROR_RATE / (len(pair_tests(plan)) + counts.parts.tests + 1)
    agreement = agreement_p_values(counts.agreeing[None], counts.pairs[None], plan)
    clamped = clamped_p_value(counts.clamped, counts.pixels, plan)
    smallest = min(float(agreement.min(initial=1.0)), counts.parts.smallest, clamped)
    if smallest < limit:
        raise UploadError("the release does not have the noise of its plan: it may be an unprotected image")
    return header.width, header.height
