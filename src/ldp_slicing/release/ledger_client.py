"""What a worker asks the ledger, and how it reaches it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ldp_slicing.digests import common_digests, source_digest
from ldp_slicing.fingerprint import marks_of
from ldp_slicing.formats.base import Entry
from ldp_slicing.ledger import Approval, Intent, Ledger, RunPolicy
from ldp_slicing.plan import channel_bits
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.slicer import Slicer


@dataclass(frozen=True)
class ReleaseRequest:
    """An intent as a worker sends it. Settings, which both sides have, give the plan for words of ``bits`` bits.

    ``notices`` are what the owner should know about how the source was read, before anything is spent on it, and
    ``file_notices`` what concerns its whole file; ``marks`` are the parts of its fingerprint.
    ``is_shrunk`` says whether the release has another size than its source, and ``released`` how many pixels it has.
    """

    item: bytes
    source: bytes
    file: bytes | None
    bits: int
    frame: int
    forms: tuple[bytes, ...] = ()
    notices: tuple[str, ...] = ()
    file_notices: tuple[str, ...] = ()
    marks: tuple[bytes, ...] = ()
    is_shrunk: bool = False
    released: int = 0
    mapping: str = ""

    @property
    def path(self) -> str:
        """The path of the file that the image is in."""
        return self.item.partition(b"\0")[0].decode("utf-8", "surrogateescape")

    @property
    def subject(self) -> str:
        """What its notices are about: the file, or the member of it that holds the image."""
        member = self.item.partition(b"\0")[2].decode("utf-8", "surrogateescape")
        return f"{self.path}: {member}" if member and not self.frame else self.path


class LedgerClient(Protocol):
    """The ledger, as a worker reaches it from wherever it runs."""

    def approve(self, requests: Sequence[ReleaseRequest]) -> list[Approval]: ...
    def finish(self, entries: Sequence[int]) -> None: ...
    def withdraw(self, entries: Sequence[int]) -> None: ...


class LocalLedgerClient:
    """The ledger in the run's own process.

    ``note`` is told which entry was made for a file of which path; ``advise`` is given each notice of a source, with
    what it is about, before the ledger is asked.
    """

    def __init__(
        self,
        ledger: Ledger,
        policy: RunPolicy,
        settings: ReleaseSettings,
        note: Callable[[Sequence[tuple[int, str]]], None] = lambda entries: None,
        advise: Callable[[str, str], None] = lambda path, notice: None,
    ) -> None:
        self.ledger, self.policy, self.settings = ledger, policy, settings
        self._note, self._advise = note, advise

    def approve(self, requests: Sequence[ReleaseRequest]) -> list[Approval]:
        slicers = {bits: self.settings.slicer(bits) for bits in {request.bits for request in requests}}
        intents = [intent_of(one, slicers[one.bits]) for one in requests]
        for request in requests:
            for notice in request.file_notices:
                self._advise(request.path, notice)
            for notice in request.notices:
                self._advise(request.subject, notice)
        approvals = self.ledger.approve(intents, self.policy)
        made = list(zip(approvals, requests, strict=True))
        for approval, request in made:
            if approval.notice:
                self._advise(request.subject, approval.notice)
        self._note([(approval.entry, request.path) for approval, request in made if approval.problem is None])
        return approvals

    def finish(self, entries: Sequence[int]) -> None:
        self.ledger.finish(entries)

    def withdraw(self, entries: Sequence[int]) -> None:
        self.ledger.withdraw(entries)


def intent_of(request: ReleaseRequest, slicer: Slicer) -> Intent:
    return Intent(
        request.item,
        request.source,
        request.file,
        slicer.plan,
        slicer.prune,
        request.released,
        frame=request.frame,
        forms=request.forms,
        marks=request.marks,
        size=slicer.size if request.is_shrunk else None,
        mapping=request.mapping,
    )


def request_for(path: str, entry: Entry) -> ReleaseRequest:
    """Return the request for an image of the file of this path."""
    digest, forms = digests_of(entry)
    how, (rows, columns) = entry.shrinking, entry.pixels.shape[:2]
    return ReleaseRequest(
        f"{path}\0{entry.name}".encode("utf-8", "surrogateescape"),
        digest,
        entry.file,
        entry.bits,
        entry.frame,
        forms=forms,
        notices=entry.notices if entry.frame < 2 else (),  # the frames of a file share their notices
        file_notices=entry.file_notices,
        marks=() if entry.frame else marks_of(entry.pixels, channel_bits(entry.bits)),
        is_shrunk=how is not None,
        released=rows * columns if how is None else how.released_height * how.released_width,
        mapping="" if entry.original is None else entry.original.mapping,
    )


def digests_of(entry: Entry) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the digests by which the ledger recognises a source: its own, and those of its common forms."""
    pixels, bits = entry.pixels, channel_bits(entry.bits)
    if entry.original is not None:  # a range that values are mapped to is part of the view, not of the source
        pixels, bits = entry.original.pixels, entry.original.bits
    if bits > 16:
        return source_digest(pixels, bits), ()
    signed, inverted = (entry.kept.get(name) is True for name in ("signed", "inverted"))  # of a DICOM file
    return source_digest(pixels, bits), common_digests(pixels, bits, signed=signed, inverted=inverted)
