"""DICOM files: reads grey and colour images, writes secondary captures that hold pixels and what the owner named.

| module | holds |
|---|---|
| reader | a source file to words |
| pixels | how a file says that it stores its pixels, and the checks before they are decoded |
| values | what stored numbers mean: signed, inverted, rescaled, mapped to a range |
| tags | the attributes that ``--keep`` can keep, each in one encoding |
| uids | pseudonyms for the UIDs of studies, series and frames of reference |
| writer | the one encoding of a release |
| checker | every byte of a release |
"""

from ldp_slicing.formats.dicom.checker import check, load, members
from ldp_slicing.formats.dicom.reader import keepable, read
from ldp_slicing.formats.dicom.writer import Writer

__all__ = ["Writer", "check", "keepable", "load", "members", "read"]
