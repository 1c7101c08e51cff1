"""Every error this package raises on purpose. Each message carries the offending value and what to do about it."""

from __future__ import annotations


class LdpSlicingError(ValueError):
    """Base class: ``except LdpSlicingError`` catches every refusal of this package."""


class PlanError(LdpSlicingError):
    """The plan is not one that can be kept."""


class ImageError(LdpSlicingError):
    """The image cannot be released as it is: wrong type, shape, range, or an unreadable file."""


class ReleaseError(LdpSlicingError):
    """The release as a whole cannot be made: wrong paths, or a target that is not empty."""


class CardError(LdpSlicingError):
    """No true privacy statement can be made."""


class KernelError(LdpSlicingError):
    """The compiled kernel was asked for and is not there."""


class AuditError(LdpSlicingError):
    """What was to be audited cannot be."""


class ImageKeyError(LdpSlicingError):
    """An image key has the wrong type, was used before, or is not secret."""


class KeyFileError(LdpSlicingError):
    """A key file is missing, malformed or readable by others."""


class LedgerError(LdpSlicingError):
    """The ledger cannot be read or written, so nothing may be released."""


class DataError(LdpSlicingError):
    """A data set is missing or not what it should be."""
