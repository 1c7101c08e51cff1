"""The errors of this package. Each message shows the offending value and says what to do."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a command was refused or a file was not released, for programs. Messages may change, these words do not."""

    SETTINGS = "settings"  # a plan, a view or an option is invalid
    SOURCE = "source"  # a source does not exist or cannot be listed
    NO_FILES = "no files"  # nothing that could be released
    PATTERN = "pattern"  # a pattern of --include or --exclude is malformed
    OVERLAP = "overlap"  # sources, target or state folder overlap, or the target holds the ledger, key or report
    TARGET = "target"  # the target is not empty, belongs to another run, or has a wrong name
    PARAMETERS = "parameters"  # the run was begun with other parameters
    BUSY = "busy"  # another process works on this run
    STATE = "state"  # the state folder cannot be used
    LEDGER = "ledger"  # the ledger cannot be used, or is another one
    KEY = "key"  # a key file cannot be used
    LIBRARY = "library"  # a library is not installed
    WORKERS = "workers"  # workers cannot be started, or die
    KEEP = "keep"  # there is no such data to keep
    TOO_SMALL = "too small"  # a source is smaller than the size of --fit
    UNREADABLE = "unreadable"  # damaged, or a format that is not read
    UNKNOWN = "unknown"  # neither its name nor its first bytes tell of an image
    NOT_A_FILE = "not a file"  # a link, a device, a folder that cannot be read, an encrypted member
    NAME = "name"  # its release cannot have its name
    RELEASED_BEFORE = "released before"  # the ledger knows the source
    CAP = "cap"  # the releases of the source would exceed --cap
    COPY = "copy"  # it equals an image that was released in this run
    NOTHING = "nothing"  # a file that holds nothing that can be released
    WRITE = "write"  # the release could not be written
    DISK_FULL = "disk full"
    CRASH = "crash"  # it ends the process that decodes it
    LOST = "lost"  # the file of an earlier release is gone
    DAMAGED = "damaged"  # another file has the name of an earlier release
    CHANGED = "changed"  # the source has changed since it was released
    CARD = "card"  # no true card can be written, or one cannot be read
    REPORT = "report"  # the file of --report cannot be written
    OTHER = "other"


class LdpSlicingError(ValueError):
    """Base class of all errors that this package raises on purpose. ``reason`` tells programs why."""

    reason = Reason.OTHER

    def __init__(self, message: str = "", reason: Reason | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class DivergedError(LdpSlicingError):
    """The loss of a network in training diverged."""


class PlanError(LdpSlicingError):
    """The plan is invalid."""

    reason = Reason.SETTINGS


class PresetError(LdpSlicingError):
    """There is no such preset, or neither a preset nor a budget was chosen."""

    reason = Reason.SETTINGS


class ImageError(LdpSlicingError):
    """The image has the wrong type, shape or range, or its file cannot be read."""

    reason = Reason.UNREADABLE


class ReleaseError(LdpSlicingError):
    """A set of releases cannot be made or read: wrong paths, or a target that is not empty."""

    reason = Reason.TARGET


class CardError(LdpSlicingError):
    """No true privacy statement can be made, or a card cannot be read."""

    reason = Reason.CARD


class KernelError(LdpSlicingError):
    """The compiled kernel was requested and is not available."""


class AuditError(LdpSlicingError):
    """The audit cannot be carried out."""


class ImageKeyError(LdpSlicingError):
    """An image key has the wrong type, was used before, or is not secret."""


class KeyFileError(LdpSlicingError):
    """A key file is missing, malformed or readable by others."""

    reason = Reason.KEY


class LedgerError(LdpSlicingError):
    """The ledger cannot be read or written, so nothing is released."""

    reason = Reason.LEDGER


class DataError(LdpSlicingError):
    """A data set is missing or malformed."""
