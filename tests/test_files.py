from __future__ import annotations

import errno
import hashlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldp_slicing.errors import ImageError
from ldp_slicing.files import (
    CHUNK_BYTES,
    atomic_path,
    create_durably,
    digest_of,
    digest_of_open,
    lock_folder,
    open_regular,
    write_atomically,
)


def test_write_is_atomic(tmp_path: Path) -> None:
    target = tmp_path / "release.png"

    def pieces() -> Iterator[bytes]:
        yield b"half"
        assert not target.exists()
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        write_atomically(target, pieces())
    assert list(tmp_path.iterdir()) == []
    write_atomically(target, [b"one", b"two"])
    assert target.read_bytes() == b"onetwo"
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(tmp_path / "folder", [b"x"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "release.png"]


def test_interrupted_atomic_path_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    with atomic_path(path) as temporary:
        assert temporary.suffix == ".npz"  # NumPy appends it otherwise
        temporary.write_bytes(b"old")

    def interrupted() -> None:
        with atomic_path(path) as temporary:
            temporary.write_bytes(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("weights.npz", b"old")]


def test_create_durably_never_overwrites(tmp_path: Path) -> None:
    create_durably(tmp_path / "key", b"first")
    with pytest.raises(FileExistsError):
        create_durably(tmp_path / "key", b"second")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("key", b"first")]


@pytest.mark.skipif(sys.platform == "win32", reason="needs links and pipes")
def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("file", "link"):
        with open_regular(tmp_path / name) as file:
            assert file.read() == b"content"
    with pytest.raises(ImageError, match="symbolic link"):
        open_regular(tmp_path / "link", follow=False)
    for name, problem in (("pipe", "not a regular file"), ("none", "No such file"), (".", "directory|not a regular")):
        with pytest.raises(ImageError, match=problem):
            open_regular(tmp_path / name)


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_folder_lock_excludes_other_processes(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from ldp_slicing.files import lock_folder; lock_folder(Path({str(tmp_path)!r}))"
    held = lock_folder(tmp_path)
    assert held is not None
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in refused.stderr
    os.close(held)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_digests_read_in_chunks() -> None:
    data = os.urandom(2 * CHUNK_BYTES + 7)
    file = io.BytesIO(data)
    assert digest_of_open(file) == hashlib.sha256(data).digest()
    assert file.tell() == 0
    assert digest_of(file) == hashlib.sha256(data).digest()
    assert file.closed


def test_an_error_of_an_atomic_file_names_it(tmp_path: Path) -> None:
    """A write to a full disk names no file, and the name of the temporary file tells nobody anything."""
    with pytest.raises(OSError, match=r"No space .*weights\.pt'$"), atomic_path(tmp_path / "weights.pt"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(OSError, match=r"weights\.pt'$") as raised:
        write_atomically(tmp_path / "none" / "weights.pt", [b"weights"])
    assert "partial" not in str(raised.value)
