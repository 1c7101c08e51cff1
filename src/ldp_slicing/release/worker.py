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
from typing import Any, BinaryIO, cast

from ldp_slicing.digests import frame, tables_digest
from ldp_slicing.errors import ImageError, LdpSlicingError, LedgerError, PlanError, Reason
from ldp_slicing.files import CHUNK_BYTES, digest_of_open
from ldp_slicing.formats import KINDS, WRITERS, load_format, suffix_of
from ldp_slicing.formats.base import Damaged, Entry, Options, Reader, Writer
from ldp_slicing.keys import Secret
from ldp_slicing.ledger import Approval
from ldp_slicing.release.ledger_client import LedgerClient, ReleaseRequest, request_for
from ldp_slicing.release.report import FileReport, FileState, FileTask, MemberRelease, SkippedMember
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.slicer import Slicer
from ldp_slicing.storage import Readable, Storage, TemporaryFile, WatchedFile

NAME_IMPOSSIBLE = (errno.EINVAL, errno.ENAMETOOLONG)  # the file system cannot have such a name
NAME_REFUSED = (*NAME_IMPOSSIBLE, errno.EACCES, errno.EROFS)  # after these errors a file certainly has no name
MACHINE_TROUBLE = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)  # not a fault of the file being read
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
BATCH_SOURCES = 64  # images that share one intent, since each intent is flushed to disk
BATCH_BYTES = 32 << 20  # of decoded pixels that wait for their intent


@dataclass(frozen=True)
class WorkerContext:
    """What a worker needs to know. It is sent to other processes and machines, secret included."""

    source: Readable
    target: Storage
    settings: ReleaseSettings
    secret: Secret

    @property
    def options(self) -> Options:
        return self.settings.options(self.secret.pseudonym)


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

    def fail(self, problem: str, reason: Reason, state: FileState = FileState.FAILED) -> None:
        """Give the file up. The first problem is the one that is reported; RETRY outweighs FAILED."""
        if self.report.problem is None:
            self.report.problem, self.report.reason, self.report.state = problem, reason, state
        elif self.report.state is FileState.FAILED:
            self.report.state = state

    def fail_writing(self, error: Exception) -> None:
        """Give the file up because it could not be written. Trying again helps unless the name is impossible."""
        number = getattr(error, "errno", None)
        may_help = self.may_be_seen or number not in NAME_IMPOSSIBLE
        self.report.disk_full = self.report.disk_full or number in DISK_FULL
        reason = Reason.DISK_FULL if number in DISK_FULL else Reason.WRITE if may_help else Reason.NAME
        self.fail(_describe(error, "could not be released"), reason, FileState.RETRY if may_help else FileState.FAILED)

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
            output.fail(str(error), error.reason)
        except Exception as error:  # concerns this source only: it is reported, and the others go on
            is_machines = isinstance(error, OSError) and error.errno in MACHINE_TROUBLE
            state = FileState.RETRY if is_machines else FileState.FAILED
            output.fail(_describe(error, "could not be read"), Reason.UNREADABLE, state)
        finally:
            if watched is not None and watched.trouble is not None:  # it may be readable the next time
                output.fail(_describe(watched.trouble, "could not be read"), Reason.UNREADABLE, FileState.RETRY)

    def _read_entries(self, output: _Output, file: BinaryIO) -> Iterator[Entry]:
        report = output.report
        kind = KINDS[report.task.kind]
        if self.context.settings.values is not None and not kind.has_units:
            raise ImageError("has no units, which --range needs: release it in a run of its own, without --range")
        read: Reader = load_format(kind.reader, kind.extra).read
        if kind.is_container and self.context.source.is_local:  # a remote file would be fetched twice
            report.source_sha256 = digest_of_open(file)
        for entry in read(file, self.context.options):
            if self._must_stop():
                output.stop()
            if output.failed:
                return
            if isinstance(entry, Damaged):
                report.skipped.append(SkippedMember(entry.name, entry.problem, Reason.UNREADABLE))
            elif (planned := self._planned(output, entry)) is not None:
                if entry.frame or not entry.name:
                    report.source_sha256 = entry.file  # it was decoded from the whole file
                yield planned

    def _planned(self, output: _Output, entry: Entry) -> Entry | None:
        """Return the entry with how it will be shrunk and what its owner should know about the settings.

        Return None if the settings have no plan or size for such pixels. Nothing has been spent yet. A member that has
        none is left out; a file of its own, or of frames, is refused.
        """
        try:
            settings = self.context.settings
            shrinking = settings.slicer(entry.bits).shrinking(*entry.pixels.shape[:2])
            return replace(entry, shrinking=shrinking, notices=(*entry.notices, *settings.notices(entry.bits)))
        except (PlanError, ImageError) as error:
            if entry.frame or not entry.name:
                raise
            output.report.skipped.append(SkippedMember(entry.name, str(error), error.reason))
            return None

    def _release(self, waiting: list[tuple[_Output, Entry]]) -> None:
        """Ask the ledger about a batch, then write what was approved."""
        wanted = [
            (output, entry, request_for(output.report.task.path, entry))
            for output, entry in waiting
            if not output.failed
        ]
        if not wanted:
            return
        try:
            approvals = self.ledger.approve([request for _, _, request in wanted])
        except LedgerError as error:
            for output, _, _ in wanted:
                output.fail(str(error), error.reason, FileState.RETRY)
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
            output.fail(str(error), error.reason)
        except Exception as error:
            output.fail_writing(error)
            self._is_disk_full = self._is_disk_full or output.report.disk_full

    def _write(self, output: _Output, entry: Entry, request: ReleaseRequest, approval: Approval) -> None:
        name, settings, secret = output.report.task.output, self.context.settings, self.context.secret
        if output.writer is None:
            kind: type[Writer] = load_format(WRITERS[suffix_of(name)]).Writer
            output.file = self.context.target.create(name)
            output.writer = kind(output.file, self.context.options)
        slicer = settings.slicer(entry.bits)
        canvas = self._canvas(output.writer.canvas, entry, slicer)
        key = secret.image_key(
            request.item, request.source, slicer.plan, slicer.prune, entry.shrinking, request.mapping
        )
        slicer.release_into(entry.pixels, canvas.pixels, key=key)
        # Under one key, releases that differ in anything have different identities.
        made_from = (request.item, request.file or b"", request.source, tables_digest(slicer.plan.tables))
        shrunk = () if entry.shrinking is None else (entry.shrinking.encode(),)
        mapped = (request.mapping.encode(),) if request.mapping else ()
        identity = secret.output_name(frame(*made_from, (slicer.prune or "none").encode(), *shrunk, *mapped))
        member = output.writer.add(entry, entry.name if settings.names == "keep" else identity, identity, canvas)
        output.report.note(entry.file_notices, is_image=False)
        output.report.note(entry.notices, is_image=not entry.frame)
        output.report.kept.update(entry.kept_names)
        if approval.notice:
            output.report.note([approval.notice], is_image=not entry.frame)
        (height, width), rows, columns = canvas.pixels.shape[:2], *entry.pixels.shape[:2]
        output.frames = entry.frame
        if entry.frame < 2:
            output.releases.append(
                MemberRelease(member, width, height, entry.bits, (approval.entry,), entry.name, rows * columns)
            )

    def _canvas(self, kind: type[Any], entry: Entry, slicer: Slicer) -> Any:  # noqa: ANN401
        """Return memory for a release: the last one if it fits, since fresh memory costs more than the kernel."""
        shape = slicer.released_shape(entry.pixels.shape)
        wanted = (kind, shape, entry.pixels.dtype, entry.bits)
        if wanted not in self._canvases:
            self._canvases = {wanted: kind(shape, entry.pixels.dtype.newbyteorder("="), slicer.plan)}
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
            output.fail(f"holds nothing that can be released{reason}", Reason.NOTHING, state)
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
                output.fail(str(error), error.reason, FileState.RETRY)


def _refuse(output: _Output, entry: Entry, approval: Approval) -> None:
    """Leave a copy out of a file of many. Any other refusal fails the file, which could not be completed."""
    if approval.is_copy and entry.name:
        output.report.skipped.append(SkippedMember(entry.name, approval.problem or "", Reason.COPY, is_copy=True))
        return
    named = f"its frame {entry.frame}" if entry.frame else entry.name
    state = FileState.COPY if approval.is_copy else FileState.FAILED
    output.fail(f"{named} {approval.problem}".strip(), approval.reason, state)


def _describe(error: Exception, what: str) -> str:
    if isinstance(error, MemoryError):
        return f"{what}: there is not enough memory; use fewer --workers, or smaller releases (--max-side)"
    return f"{what}: {getattr(error, 'strerror', None) or repr(error)}"
