"""The errors of this package. Each message shows the offending value and says what to do."""

from __future__ import annotations


class LdpSlicingError(ValueError):
    """Base class of all errors that this package raises on purpose."""


class PlanError(LdpSlicingError):
    """The plan is invalid."""


class ImageError(LdpSlicingError):
    """The image has the wrong type, shape or range, or its file cannot be read."""


class ReleaseError(LdpSlicingError):
    """A set of releases cannot be made or read: wrong paths, or a target that is not empty."""


class CardError(LdpSlicingError):
    """No true privacy statement can be made, or a card cannot be read."""


class KernelError(LdpSlicingError):
    """The compiled kernel was requested and is not available."""


class AuditError(LdpSlicingError):
    """The audit cannot be carried out."""


class ImageKeyError(LdpSlicingError):
    """An image key has the wrong type, was used before, or is not secret."""


class KeyFileError(LdpSlicingError):
    """A key file is missing, malformed or readable by others."""


class LedgerError(LdpSlicingError):
    """The ledger cannot be read or written, so nothing is released."""


class DataError(LdpSlicingError):
    """A data set is missing or malformed."""
