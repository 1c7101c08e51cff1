"""The work itself, the same wherever it is done: files in, files out, batch by batch.

For each batch of sources: read and decode, ask the gate (which enters intents into the ledger, durably), release under derived keys,
write. A file gets its name when all of its entries are in it; then the gate is told. Nothing here keeps more than a batch in memory.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ldp_slicing.errors import LdpSlicingError, LedgerError, PlanError
from ldp_slicing.files import digest_of_open
from ldp_slicing.formats import KINDS, WRITERS, load_format
from ldp_slicing.formats.base import Damaged, Entry, Options, Reader, Writer
from ldp_slicing.keys import Secret, frame, source_digest, tables_digest
from ldp_slicing.ledger import Intent, Ledger, Stream, Verdict
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.storage import Draft, LocalStorage, Storage

NEVER_NAMED = (errno.EINVAL, errno.ENAMETOOLONG)  # what a name is refused with that the disk cannot have
NOT_NAMED = (*NEVER_NAMED, errno.EACCES, errno.EROFS)  # a file that is refused its name with these does not get it
BATCH_SOURCES = 64  # an intent costs a flush of the disk; so many share one
BATCH_BYTES = 32 << 20  # of decoded pixels that wait for it


@dataclass(frozen=True)
class Task:
    """One file to release: its path, kind, and the path of what is made from it."""

    path: str
    kind: str
    output: str
    size: int = 0


@dataclass(frozen=True)
class Made:
    """A release within an output: its member's name, size, word and frames, and its numbers in the ledger: of a film all frames'."""

    member: str | None
    width: int
    height: int
    bits: int
    numbers: tuple[int, ...]
    entry: str = ""  # what its source is called within its file
    frames: int = 1


@dataclass(frozen=True)
class Skipped:
    """A member of a shard that was left out."""

    member: str
    problem: str
    is_copy: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of one file. ``problem``: why nothing was written; ``passing``: trying again may help; ``skipped``: members left out."""

    task: Task
    problem: str | None = None
    passing: bool = False
    is_copy: bool = False
    stopped: bool = False
    notices: tuple[str, ...] = ()
    made: tuple[Made, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    sha256: bytes = b""
    size: int = 0
    file: bytes | None = None
    no_room: bool = False  # the disk was full


@dataclass(frozen=True)
class Ask:
    """An intent as it travels: the settings, which both sides have, gives the plan for a word of ``bits``."""

    item: bytes
    source: bytes
    file: bytes | None
    bits: int
    frame: int

    @property
    def path(self) -> str:
        """Of the file that it is in."""
        return self.item.partition(b"\0")[0].decode("utf-8", "surrogateescape")


class Gate(Protocol):
    """The way to the ledger, from wherever the work is done."""

    def approve(self, asked: Sequence[Ask]) -> list[Verdict]: ...
    def finish(self, entries: Sequence[int]) -> None: ...
    def withdraw(self, entries: Sequence[int]) -> None: ...


class LedgerGate:
    """The ledger is here."""

    def __init__(
        self, ledger: Ledger, stream: Stream, settings: ReleaseSettings, before: Callable[[], None] = lambda: None
    ) -> None:
        self.ledger, self.stream, self.settings, self._before = ledger, stream, settings, before

    def approve(self, asked: Sequence[Ask]) -> list[Verdict]:
        self._before()
        plans = {bits: self.settings.slicer(bits) for bits in {ask.bits for ask in asked}}
        intents = [Intent(a.item, a.source, a.file, plans[a.bits].plan, plans[a.bits].prune, a.frame) for a in asked]
        return self.ledger.approve(intents, self.stream)

    def finish(self, entries: Sequence[int]) -> None:
        self.ledger.finish(entries)

    def withdraw(self, entries: Sequence[int]) -> None:
        self.ledger.withdraw(entries)


@dataclass(frozen=True)
class Setting:
    """What a worker needs to know. It travels to other processes and machines, the secret with it."""

    source: Storage
    target: Storage
    settings: ReleaseSettings
    secret: Secret

    @property
    def options(self) -> Options:
        return Options(self.settings.keep, self.settings.compression)


@dataclass
class _Output:
    """A file on its way: its draft is opened with its first release."""

    task: Task
    draft: Draft | None = None
    writer: Writer | None = None
    problem: str | None = None
    passing: bool = False
    is_copy: bool = False
    stopped: bool = False
    file: bytes | None = None
    entries: list[int] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    notices: set[str] = field(default_factory=set)
    frames: int = 0
    attempted: bool = False
    named: bool = False
    no_room: bool = False

    @property
    def is_out(self) -> bool:
        """Whether somebody may have got some of it."""
        return self.attempted or (self.draft is not None and self.draft.is_seen)

    def fail(self, problem: str, *, passing: bool = False, no_room: bool = False) -> None:
        self.problem, self.passing, self.no_room = (
            self.problem or problem,
            self.passing or passing,
            self.no_room or no_room,
        )


class Worker:
    """Releases files, one task list after the other, in one thread. Keeps memory for releases between them, never a source."""

    def __init__(self, setting: Setting, gate: Gate, stop: Callable[[], bool] = lambda: False) -> None:
        self.setting, self.gate, self._stop = setting, gate, stop
        self._canvases: dict[tuple[Any, ...], Any] = {}

    def run(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """The outcome of each task, in order; after a stop the rest come back as stopped."""
        waiting: list[tuple[_Output, Entry]] = []
        outputs: list[_Output] = []
        held = 0
        for task in tasks:
            output = _Output(task)
            outputs.append(output)
            for entry in self._read(output):
                waiting.append((output, entry))
                held += entry.pixels.nbytes
                if len(waiting) >= BATCH_SOURCES or held >= BATCH_BYTES:
                    self._release(waiting)
                    waiting, held = [], 0
            if not waiting:
                yield from self._close(outputs)
                outputs = []
        self._release(waiting)
        yield from self._close(outputs)

    def _read(self, output: _Output) -> Iterator[Entry]:
        """The entries of a file, until it is known that nothing of it will be released."""
        kind = KINDS[output.task.kind]
        try:
            if self._stop():
                raise _StopError
            read: Reader = load_format(kind.reader, kind.extra).read
            with self.setting.source.open(output.task.path) as file:
                if kind.is_container and isinstance(self.setting.source, LocalStorage):  # from afar it would come twice
                    output.file = digest_of_open(file)
                for entry in read(file, self.setting.options):
                    if self._stop():
                        raise _StopError
                    if output.problem is not None:
                        return
                    if isinstance(entry, Damaged):
                        output.skipped.append(Skipped(entry.name, entry.problem))
                    else:
                        if not self._fits(output, entry):
                            continue
                        if entry.frame or not entry.name:
                            output.file = entry.file  # it was decoded from the whole file
                        yield entry
        except _StopError:
            output.stopped = True
            output.fail("stopped")
        except LdpSlicingError as error:
            output.fail(str(error))
        except Exception as error:  # whatever it is, it concerns this source: it is named, and the others go on
            output.fail(_words(error, "could not be read"), passing=isinstance(error, OSError))

    def _fits(self, output: _Output, entry: Entry) -> bool:
        """Whether there is a plan for such pixels. Asked before anything is spent; of a shard, what does not fit is left out and named."""
        try:
            self.setting.settings.slicer(entry.bits)
        except PlanError as error:
            if not entry.name:
                raise
            output.skipped.append(Skipped(entry.name, str(error)))
            return False
        return True

    def _release(self, waiting: list[tuple[_Output, Entry]]) -> None:
        """Ask for a batch, then write what was allowed."""
        if not waiting:
            return
        wanted = [(output, entry, self._ask(output, entry)) for output, entry in waiting if output.problem is None]
        try:
            verdicts = self.gate.approve([ask for _, _, ask in wanted])
        except LedgerError as error:
            for output, _, _ in wanted:
                output.fail(str(error), passing=True)
            return
        for (output, entry, ask), verdict in zip(wanted, verdicts, strict=True):
            if verdict.problem is not None:
                self._refuse(output, entry, verdict)
                continue
            output.entries.append(verdict.entry)
            if self._stop():
                output.stopped = True
                output.fail("stopped")
            if output.problem is None:
                try:
                    self._write(output, entry, ask, verdict)
                    if not KINDS[output.task.kind].is_container:
                        self._commit(output)  # there is no more to come
                except LdpSlicingError as error:
                    output.fail(str(error))
                except Exception as error:  # a full disk, most often: to be tried again
                    output.fail(
                        _words(error, "could not be released"), passing=_passes(error, output), no_room=_is_full(error)
                    )

    def _refuse(self, output: _Output, entry: Entry, verdict: Verdict) -> None:
        """A copy is left out of a shard; a source that was released before stops its file, or that file could never be completed."""
        if verdict.is_copy and entry.name:
            output.skipped.append(Skipped(entry.name, verdict.problem or "", is_copy=True))
        else:
            output.is_copy = verdict.is_copy
            named = f"its frame {entry.frame}" if entry.frame else entry.name
            output.fail(f"{named} {verdict.problem}".strip())

    def _ask(self, output: _Output, entry: Entry) -> Ask:
        name = f"{output.task.path}\0{entry.name}".encode("utf-8", "surrogateescape")
        digest = source_digest(entry.pixels, 8 if entry.bits == COLOUR_BITS else entry.bits)
        return Ask(name, digest, entry.file, entry.bits, entry.frame)

    def _write(self, output: _Output, entry: Entry, ask: Ask, verdict: Verdict) -> None:
        if output.writer is None:
            suffix = output.task.output[output.task.output.rindex(".") :].lower()
            kind: type[Writer] = load_format(WRITERS[suffix]).Writer
            output.draft = self.setting.target.draft(output.task.output)
            output.writer = kind(output.draft, self.setting.options)
        slicer, secret = self.setting.settings.slicer(entry.bits), self.setting.secret
        canvas = self._canvas(output.writer.canvas, entry)
        key = secret.image_key(ask.item, ask.source, slicer.plan, slicer.prune)
        slicer.release_into(entry.pixels, canvas.pixels, key=key)
        made_of = (
            ask.item,
            ask.file or b"",
            ask.source,
            tables_digest(slicer.plan.tables),
            (slicer.prune or "none").encode(),
        )
        identity = secret.output_name(
            frame(*made_of)
        )  # under one key, what differs in anything is called by another name
        member = output.writer.add(
            entry, entry.name if self.setting.settings.names == "keep" else identity, identity, canvas
        )
        output.notices.update(entry.notices)
        height, width = entry.pixels.shape[:2]
        output.frames = entry.frame
        if entry.frame < 2:
            output.made.append(Made(member, width, height, entry.bits, (verdict.entry,), entry.name))

    def _canvas(self, kind: type[Any], entry: Entry) -> Any:  # noqa: ANN401
        """Memory for a release: the last one where it fits, since fresh memory costs more than the kernel."""
        wanted = (kind, entry.pixels.shape, entry.pixels.dtype)
        if wanted not in self._canvases:
            self._canvases = {wanted: kind(entry.pixels.shape, entry.pixels.dtype.newbyteorder("="))}
        return self._canvases[wanted]

    def _close(self, outputs: list[_Output]) -> Iterator[Outcome]:
        """Give each file that is whole its name; then tell the gate, once for all of them."""
        for output in outputs:
            try:
                self._commit(output)
            except Exception as error:
                output.fail(
                    _words(error, "could not be released"), passing=_passes(error, output), no_room=_is_full(error)
                )
        self._tell(outputs)
        for output in outputs:
            yield Outcome(
                output.task,
                output.problem,
                output.passing
                or (
                    output.is_out and bool(output.entries)
                ),  # what was entered can only be made again under this run's key
                output.is_copy,
                output.stopped,
                tuple(sorted(output.notices)),
                tuple(output.made) if output.problem is None else (),
                tuple(output.skipped),
                output.draft.sha256 if output.draft and output.problem is None else b"",
                output.draft.size if output.draft else 0,
                output.file,
                output.no_room,
            )

    def _commit(self, output: _Output) -> None:
        if output.problem is None and output.writer is None:
            output.is_copy = bool(output.skipped) and all(one.is_copy for one in output.skipped)
            output.fail(
                f"holds nothing that can be released{f': {output.skipped[0].problem}' if output.skipped else ''}"
            )
        if output.draft is None or output.named:
            return
        try:
            if output.writer is not None and output.problem is None:
                output.writer.close()
                output.attempted = True
                try:
                    output.draft.commit()
                except FileExistsError:
                    output.attempted = False  # another file has it
                    raise
                except OSError as error:
                    there = (
                        self.setting.target.size(output.task.output) is not None
                    )  # where renaming is copying, all the same
                    output.attempted = there or error.errno not in NOT_NAMED
                    raise
                output.named = True
            elif output.writer is not None:
                output.writer.abort()
        finally:
            if not output.named:
                output.draft.abort()

    def _tell(self, outputs: list[_Output]) -> None:
        """What was named is done; what was never on its way to a name is withdrawn; whatever is in doubt, or was seen, stays an intent."""
        try:
            if done := [entry for output in outputs if output.problem is None for entry in output.entries]:
                self.gate.finish(done)
            if undone := [entry for output in outputs if not output.is_out for entry in output.entries]:
                self.gate.withdraw(undone)
            for output in outputs:
                if output.problem is None and output.frames:
                    (first,) = output.made
                    output.made = [replace(first, frames=output.frames, numbers=tuple(output.entries))]
        except LedgerError as error:  # what has its name keeps it, and is made again, the same, when the run is resumed
            for output in outputs:
                output.fail(str(error), passing=True)


class _StopError(Exception):
    """Between two entries somebody asked to stop."""


def _passes(error: Exception, output: _Output) -> bool:
    """Whether trying again may help: a full disk, most often; not with a name that the disk cannot have, if nothing of it got out."""
    return output.is_out or getattr(error, "errno", None) not in NEVER_NAMED


def _is_full(error: Exception) -> bool:
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


def _words(error: Exception, what: str) -> str:
    return f"{what}: {getattr(error, 'strerror', None) or repr(error)}"
