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


class KeyFileError(LdpSlicingError):
    """A key is missing, is no key, can be read by others, or was used before."""


class LedgerError(LdpSlicingError):
    """The ledger cannot be read or written, so nothing may be released."""


class DataError(LdpSlicingError):
    """A data set is missing or not what it should be."""
