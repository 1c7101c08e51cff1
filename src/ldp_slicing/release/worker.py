"""A worker: source files in, output files out, batch by batch. It is the same wherever it runs.

For each batch of images the worker reads and decodes, asks the ledger (which enters the intents durably), releases
under derived keys, and writes. A file gets its name once all of its images are in it; then the ledger is told. A
worker never holds more than a batch in memory.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Protocol, cast

from ldp_slicing.errors import LdpSlicingError, LedgerError, PlanError
from ldp_slicing.files import CHUNK_BYTES, digest_of_open
from ldp_slicing.formats import KINDS, WRITERS, load_format
from ldp_slicing.formats.base import Damaged, Entry, Options, Reader, Writer
from ldp_slicing.keys import Secret, frame, tables_digest
from ldp_slicing.ledger import Approval, Intent, Ledger, RunPolicy
from ldp_slicing.plan import Plan
from ldp_slicing.release.digests import digests_of
from ldp_slicing.release.report import FileReport, FileState, FileTask, MemberRelease, SkippedMember
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.storage import LocalStorage, Storage, TemporaryFile, WatchedFile

NAME_IMPOSSIBLE = (errno.EINVAL, errno.ENAMETOOLONG)  # the file system cannot have such a name
NAME_REFUSED = (*NAME_IMPOSSIBLE, errno.EACCES, errno.EROFS)  # after these errors a file certainly has no name
MACHINE_TROUBLE = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)  # not a fault of the file being read
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
BATCH_SOURCES = 64  # images that share one intent, since each intent is flushed to disk
BATCH_BYTES = 32 << 20  # of decoded pixels that wait for their intent


@dataclass(frozen=True)
class ReleaseRequest:
    """An intent as a worker sends it. Settings, which both sides have, give the plan for words of ``bits`` bits.

    ``notices`` are what the owner should know about how the source was read, before anything is spent on it.
    """

    item: bytes
    source: bytes
    file: bytes | None
    bits: int
    frame: int
    forms: tuple[bytes, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path of the file that the image is in."""
        return self.item.partition(b"\0")[0].decode("utf-8", "surrogateescape")


class LedgerClient(Protocol):
    """The ledger, as a worker reaches it from wherever it runs."""

    def approve(self, requests: Sequence[ReleaseRequest]) -> list[Approval]: ...
    def finish(self, entries: Sequence[int]) -> None: ...
    def withdraw(self, entries: Sequence[int]) -> None: ...


class LocalLedgerClient:
    """The ledger in the run's own process.

    ``note`` is told which entry was made for a file of which path; ``advise`` is given the path and each notice of a
    source, before the ledger is asked.
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
        intents = [
            Intent(
                one.item, one.source, one.file, slicers[one.bits].plan, slicers[one.bits].prune, one.frame, one.forms
            )
            for one in requests
        ]
        for request in requests:
            for notice in request.notices:
                self._advise(request.path, notice)
        approvals = self.ledger.approve(intents, self.policy)
        made = zip(approvals, requests, strict=True)
        self._note([(approval.entry, request.path) for approval, request in made if approval.problem is None])
        return approvals

    def finish(self, entries: Sequence[int]) -> None:
        self.ledger.finish(entries)

    def withdraw(self, entries: Sequence[int]) -> None:
        self.ledger.withdraw(entries)


@dataclass(frozen=True)
class WorkerContext:
    """What a worker needs to know. It is sent to other processes and machines, secret included."""

    source: Storage
    target: Storage
    settings: ReleaseSettings
    secret: Secret

    @property
    def options(self) -> Options:
        return Options(self.settings.keep)


@dataclass
class _Output:
    """An output in progress: its report so far, its temporary file and writer, and its entries in the ledger.

    ``rename_started`` is set while it is unknown whether the file has its name.
    """

    report: FileReport
    file: TemporaryFile | None = None
    writer: Writer | None = None
    entries: list[int] = field(default_factory=list)
    releases: list[MemberRelease] = field(default_factory=list)
    frames: int = 0
    rename_started: bool = False
    has_name: bool = False

    @property
    def failed(self) -> bool:
        return self.report.problem is not None

    @property
    def may_be_seen(self) -> bool:
        """Whether somebody else may have read some of it."""
        return self.rename_started or (self.file is not None and self.file.is_visible)

    def stop(self) -> None:
        """Leave the file to be released when the run is resumed."""
        self.report.problem = self.report.problem or "stopped"

    def fail(self, problem: str, state: FileState = FileState.FAILED) -> None:
        """Give the file up. The first problem is the one that is reported; RETRY outweighs FAILED."""
        if self.report.problem is None:
            self.report.problem, self.report.state = problem, state
        elif self.report.state is FileState.FAILED:
            self.report.state = state

    def fail_writing(self, error: Exception) -> None:
        """Give the file up because it could not be written. Trying again helps unless the name is impossible."""
        number = getattr(error, "errno", None)
        may_help = self.may_be_seen or number not in NAME_IMPOSSIBLE
        self.report.disk_full = self.report.disk_full or number in DISK_FULL
        self.fail(_describe(error, "could not be released"), FileState.RETRY if may_help else FileState.FAILED)

    def complete(self) -> FileReport:
        """Return the report of an output that is finished, one way or another."""
        report = self.report
        if not self.failed:
            assert self.file is not None  # noqa: S101
            report.state, report.releases = FileState.RELEASED, tuple(self.releases)
            report.sha256, report.size = self.file.sha256, self.file.size
        elif report.state is FileState.FAILED and self.may_be_seen and self.entries:
            report.state = FileState.RETRY  # what is in the ledger can only be made again under this run's key
        return report


class Worker:
    """Releases files in one thread, one list of tasks after the other. It reuses memory for releases only."""

    def __init__(self, context: WorkerContext, ledger: LedgerClient, stop: Callable[[], bool] = lambda: False) -> None:
        self.context, self.ledger, self._stop = context, ledger, stop
        self._is_disk_full = False
        self._canvases: dict[tuple[Any, ...], Any] = {}

    def run(self, tasks: Sequence[FileTask]) -> Iterator[FileReport]:
        """Yield the report on each task, in order. After a stop, the remaining tasks come back as waiting."""
        waiting: list[tuple[_Output, Entry]] = []
        outputs: list[_Output] = []
        held = 0
        for task in tasks:
            output = _Output(FileReport(task))
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

    def _must_stop(self) -> bool:
        return self._is_disk_full or self._stop()

    def _read(self, output: _Output) -> Iterator[Entry]:
        """Yield the entries of a file, as long as anything of it may be released."""
        if self._must_stop():
            output.stop()
            return
        watched = None
        try:
            watched = WatchedFile(self.context.source.open(output.report.task.path))
            with io.BufferedReader(watched, CHUNK_BYTES) as file:
                yield from self._read_entries(output, cast("BinaryIO", file))
        except LdpSlicingError as error:
            output.fail(str(error))
        except Exception as error:  # concerns this source only: it is reported, and the others go on
            is_machines = isinstance(error, OSError) and error.errno in MACHINE_TROUBLE
            output.fail(_describe(error, "could not be read"), FileState.RETRY if is_machines else FileState.FAILED)
        finally:
            if watched is not None and watched.trouble is not None:  # it may be readable the next time
                output.fail(_describe(watched.trouble, "could not be read"), FileState.RETRY)

    def _read_entries(self, output: _Output, file: BinaryIO) -> Iterator[Entry]:
        report = output.report
        kind = KINDS[report.task.kind]
        read: Reader = load_format(kind.reader, kind.extra).read
        if kind.is_container and isinstance(self.context.source, LocalStorage):  # a remote file would be fetched twice
            report.source_sha256 = digest_of_open(file)
        for entry in read(file, self.context.options):
            if self._must_stop():
                output.stop()
            if output.failed:
                return
            if isinstance(entry, Damaged):
                report.skipped.append(SkippedMember(entry.name, entry.problem))
            elif self._has_plan(output, entry):
                if entry.frame or not entry.name:
                    report.source_sha256 = entry.file  # it was decoded from the whole file
                yield entry

    def _has_plan(self, output: _Output, entry: Entry) -> bool:
        """Return whether the settings have a plan for such pixels, before anything is spent.

        A member that has none is left out; a file of its own is refused.
        """
        try:
            self.context.settings.slicer(entry.bits)
        except PlanError as error:
            if not entry.name:
                raise
            output.report.skipped.append(SkippedMember(entry.name, str(error)))
            return False
        return True

    def _release(self, waiting: list[tuple[_Output, Entry]]) -> None:
        """Ask the ledger about a batch, then write what was approved."""
        wanted = [(output, entry, _request(output, entry)) for output, entry in waiting if not output.failed]
        if not wanted:
            return
        try:
            approvals = self.ledger.approve([request for _, _, request in wanted])
        except LedgerError as error:
            for output, _, _ in wanted:
                output.fail(str(error), FileState.RETRY)
            return
        for (output, entry, request), approval in zip(wanted, approvals, strict=True):
            if approval.problem is not None:
                _refuse(output, entry, approval)
                continue
            output.entries.append(approval.entry)
            if self._must_stop():
                output.stop()
            if not output.failed:
                self._write_approved(output, entry, request, approval)

    def _write_approved(self, output: _Output, entry: Entry, request: ReleaseRequest, approval: Approval) -> None:
        try:
            self._write(output, entry, request, approval)
            if not KINDS[output.report.task.kind].is_container:
                self._finish(output)  # nothing more will come
        except LdpSlicingError as error:
            output.fail(str(error))
        except Exception as error:
            output.fail_writing(error)
            self._is_disk_full = self._is_disk_full or output.report.disk_full

    def _write(self, output: _Output, entry: Entry, request: ReleaseRequest, approval: Approval) -> None:
        name, settings, secret = output.report.task.output, self.context.settings, self.context.secret
        if output.writer is None:
            kind: type[Writer] = load_format(WRITERS[name[name.rindex(".") :].lower()]).Writer
            output.file = self.context.target.create(name)
            output.writer = kind(output.file, self.context.options)
        slicer = settings.slicer(entry.bits)
        canvas = self._canvas(output.writer.canvas, entry, slicer.plan)
        shrinking = slicer.shrinking(*entry.pixels.shape[:2])
        key = secret.image_key(request.item, request.source, slicer.plan, slicer.prune, shrinking)
        slicer.release_into(entry.pixels, canvas.pixels, key=key)
        # Under one key, releases that differ in anything have different identities.
        made_from = (request.item, request.file or b"", request.source, tables_digest(slicer.plan.tables))
        identity = secret.output_name(frame(*made_from, (slicer.prune or "none").encode()))
        member = output.writer.add(entry, entry.name if settings.names == "keep" else identity, identity, canvas)
        output.report.notices.update(entry.notices)
        height, width = entry.pixels.shape[:2]
        output.frames = entry.frame
        if entry.frame < 2:
            output.releases.append(MemberRelease(member, width, height, entry.bits, (approval.entry,), entry.name))

    def _canvas(self, kind: type[Any], entry: Entry, plan: Plan) -> Any:  # noqa: ANN401
        """Return memory for a release: the last one if it fits, since fresh memory costs more than the kernel."""
        wanted = (kind, entry.pixels.shape, entry.pixels.dtype, entry.bits)
        if wanted not in self._canvases:
            self._canvases = {wanted: kind(entry.pixels.shape, entry.pixels.dtype.newbyteorder("="), plan)}
        return self._canvases[wanted]

    def _close(self, outputs: list[_Output]) -> Iterator[FileReport]:
        """Give each whole file its name, then tell the ledger about all of them at once."""
        for output in outputs:
            try:
                self._finish(output)
            except Exception as error:
                output.fail_writing(error)
                self._is_disk_full = self._is_disk_full or output.report.disk_full
        self._tell_ledger(outputs)
        for output in outputs:
            yield output.complete()

    def _finish(self, output: _Output) -> None:
        """Give a whole output its name, and remove the temporary file of any other."""
        report = output.report
        if not output.failed and output.writer is None:
            reason = f": {report.skipped[0].problem}" if report.skipped else ""
            only_copies = bool(report.skipped) and all(one.is_copy for one in report.skipped)
            state = FileState.COPY if only_copies else FileState.FAILED
            output.fail(f"holds nothing that can be released{reason}", state)
        if output.file is None or output.has_name:
            return
        try:
            if output.writer is not None and not output.failed:
                output.writer.close()
                self._rename(output, output.file)
            elif output.writer is not None:
                output.writer.abort()
        finally:
            if not output.has_name:
                output.file.abort()

    def _rename(self, output: _Output, file: TemporaryFile) -> None:
        output.rename_started = True
        try:
            file.commit()
        except FileExistsError:
            output.rename_started = False  # another file has the name
            raise
        except OSError as error:
            # Where renaming is copying, the file may be there after all.
            is_there = self.context.target.size(output.report.task.output) is not None
            output.rename_started = is_there or error.errno not in NAME_REFUSED
            raise
        output.has_name = True

    def _tell_ledger(self, outputs: list[_Output]) -> None:
        """Finish the entries of named files, and withdraw those that were never seen. The others stay intents."""
        try:
            if done := [entry for output in outputs if not output.failed for entry in output.entries]:
                self.ledger.finish(done)
            if undone := [entry for output in outputs if not output.may_be_seen for entry in output.entries]:
                self.ledger.withdraw(undone)
            for output in outputs:
                if not output.failed and output.frames:
                    (first,) = output.releases
                    output.releases = [replace(first, frames=output.frames, numbers=tuple(output.entries))]
        except LedgerError as error:  # named files keep their names, and are made again, the same, by a resumed run
            for output in outputs:
                output.fail(str(error), FileState.RETRY)


def _request(output: _Output, entry: Entry) -> ReleaseRequest:
    name = f"{output.report.task.path}\0{entry.name}".encode("utf-8", "surrogateescape")
    digest, forms = digests_of(entry)
    notices = entry.notices if entry.frame < 2 else ()  # the frames of a file share their notices
    return ReleaseRequest(name, digest, entry.file, entry.bits, entry.frame, forms, notices)


def _refuse(output: _Output, entry: Entry, approval: Approval) -> None:
    """Leave a copy out of a file of many. Any other refusal fails the file, which could not be completed."""
    if approval.is_copy and entry.name:
        output.report.skipped.append(SkippedMember(entry.name, approval.problem or "", is_copy=True))
        return
    named = f"its frame {entry.frame}" if entry.frame else entry.name
    state = FileState.COPY if approval.is_copy else FileState.FAILED
    output.fail(f"{named} {approval.problem}".strip(), state)


def _describe(error: Exception, what: str) -> str:
    return f"{what}: {getattr(error, 'strerror', None) or repr(error)}"
