"""The exit statuses of all commands. The guide and the help show this table."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    OK = 0
    FAILED = 1
    REFUSED = 2
    UNDECIDED = 3
    SKIPPED = 4
    INCOMPLETE = 5
    IO_ERROR = 74  # EX_IOERR of sysexits.h
    BROKEN_PIPE = 141  # 128 + SIGPIPE, as shells report it


MEANINGS = {
    str(ExitStatus.OK.value): "success; skipped files, and files that file managers left behind, are listed",
    str(ExitStatus.FAILED.value): "`privatize`: some files failed and are named; `verify`, `audit`: something is wrong",
    str(ExitStatus.REFUSED.value): "the command refused to start, and nothing was done",
    str(ExitStatus.UNDECIDED.value): "`audit`: every check passes, but an unprotected image might pass, too",
    str(ExitStatus.SKIPPED.value): "`privatize`: a name of `--keep` is in no file, or (`--strict`) files were skipped",
    str(ExitStatus.INCOMPLETE.value): "`privatize`: not complete, run it again; `verify`: intact, not complete",
    str(ExitStatus.IO_ERROR.value): "a file, or the output itself, could not be written: a full disk, for example",
    "130, 143": "interrupted by SIGINT or SIGTERM; run the same command again to continue",
    str(ExitStatus.BROKEN_PIPE.value): "the program that reads the output has closed it",
}
TABLE = "| exit status | meaning |\n|---|---|\n" + "".join(f"| {key} | {text} |\n" for key, text in MEANINGS.items())
