"""Standard output and standard error that cannot be written: a full disk, or a reader that has gone.

A command that releases something must not end in the middle because its log is on a full disk. So the rest of the
output goes nowhere, the command goes on, and its exit status says that the output is incomplete, as that of coreutils
does. If the reader of standard output has closed it, the command ends at once: nobody waits for the rest.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ldp_slicing.cli.exit_status import ExitStatus


class _Stream(io.TextIOWrapper):
    """A standard stream. ``trouble``: the first error while it was written; what comes after it goes nowhere."""

    def __init__(self, stream: io.TextIOWrapper, called: str, *, ends_command: bool) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors="backslashreplace",  # no file name may stop the report that contains it
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self.called, self.ends_command = called, ends_command
        self.trouble: OSError | None = None

    def write(self, text: str, /) -> int:
        try:
            if text != "":  # not even nothing fits on a full disk
                super().write(text)
        except OSError as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if self.trouble is not None:
            raise error  # not even the null device can be written
        self.trouble = error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())  # what is still buffered would fail again, at the latest when Python ends
        os.close(nowhere)
        if self.ends_command and isinstance(error, BrokenPipeError):
            sys.exit(ExitStatus.BROKEN_PIPE)


@contextmanager
def watched_output() -> Iterator[None]:
    """Watch standard output and standard error. If one could not be written, say so and exit with a status for that."""
    _open_standard_files()
    before = sys.stdout, sys.stderr
    streams = list[_Stream]()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = out = _Stream(sys.stdout, "standard output", ends_command=True)
        streams.append(out)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = err = _Stream(sys.stderr, "standard error", ends_command=False)
        streams.append(err)
    ended: SystemExit | None = None
    try:
        yield
    except SystemExit as error:
        ended = error
    finally:
        for stream in streams:
            stream.ends_command = False
            stream.flush()
            if stream.trouble is not None and not isinstance(stream.trouble, BrokenPipeError):
                reason = stream.trouble.strerror
                print(f"write error: {stream.called}: {reason}; the output is incomplete", file=sys.stderr)
        for stream in streams:
            stream.flush()
            stream.detach()  # otherwise the stream would be closed with this object
        sys.stdout, sys.stderr = before
    troubles = [stream.trouble for stream in streams if stream.trouble is not None]
    if troubles:
        gone = all(isinstance(trouble, BrokenPipeError) for trouble in troubles)
        sys.exit(ExitStatus.BROKEN_PIPE if gone else ExitStatus.IO_ERROR)
    if ended is not None:
        raise ended


def _open_standard_files() -> None:
    """Open closed standard streams on the null device: the next file to be opened would get their output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
