"""Where sources lie and releases go: a folder of this machine, or a remote one through fsspec."""

from ldp_slicing.storage.base import (
    PARTIAL,
    Storage,
    StoredFile,
    TemporaryFile,
    WatchedFile,
    is_apple_double,
    is_remote,
    local_path,
    printable,
    write_file,
)
from ldp_slicing.storage.local import LocalStorage
from ldp_slicing.storage.remote import RemoteStorage, remote

__all__ = [
    "PARTIAL",
    "LocalStorage",
    "RemoteStorage",
    "Storage",
    "StoredFile",
    "TemporaryFile",
    "WatchedFile",
    "is_apple_double",
    "is_remote",
    "local_path",
    "printable",
    "remote",
    "write_file",
]
