"""Where sources lie and releases go: a folder of this machine, or a remote one through fsspec.

Sources may also lie in a zip file, and in several places.
"""

from ldp_slicing.storage.base import (
    PARTIAL,
    SYSTEM_FILES,
    Readable,
    Storage,
    StoredFile,
    TemporaryFile,
    WatchedFile,
    is_apple_double,
    is_litter,
    is_remote,
    local_path,
    printable,
    write_file,
)
from ldp_slicing.storage.local import LocalStorage
from ldp_slicing.storage.remote import RemoteStorage, remote
from ldp_slicing.storage.selection import EVERYTHING, Selection
from ldp_slicing.storage.several import SourceFiles
from ldp_slicing.storage.zipped import ZipStorage

__all__ = [
    "EVERYTHING",
    "PARTIAL",
    "SYSTEM_FILES",
    "LocalStorage",
    "Readable",
    "RemoteStorage",
    "Selection",
    "SourceFiles",
    "Storage",
    "StoredFile",
    "TemporaryFile",
    "WatchedFile",
    "ZipStorage",
    "is_apple_double",
    "is_litter",
    "is_remote",
    "local_path",
    "printable",
    "remote",
    "write_file",
]
