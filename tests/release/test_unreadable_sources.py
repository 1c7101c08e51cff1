"""Errors while a source is read: those of the source end with the run, those of its storage keep it open."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from ldp_slicing.formats import image, load_format
from ldp_slicing.formats.base import Entry, Options
from ldp_slicing.storage import LocalStorage
from tests.formats.shards import shard
from tests.markers import encoded, gradient
from tests.release.helpers import PNG, Ran, outputs, plant, release, spent


def damaged_tar() -> bytes:
    """A shard whose second member states a negative size: ``tarfile`` seeks to a place before the beginning."""
    data = bytearray(shard({"a.png": PNG, "b.png": encoded(gradient(5, 5), "PNG")}))
    at = data.index(b"b.png")
    data[at + 124 : at + 136] = b"\xff" * 4 + (-(1 << 40)).to_bytes(8, "big", signed=True)
    data[at + 148 : at + 156] = b" " * 8
    data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    return bytes(data)


def raising(number: int | None) -> Any:
    def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
        file.read(4)
        raise OSError(number, os.strerror(number)) if number else OSError("broken data stream")
        yield

    return read


def state_of_key(tmp_path: Path, files: dict[str, bytes]) -> tuple[Ran, bool]:
    ran = release(plant(tmp_path / "in", files | {"good.png": PNG}), tmp_path / "out")
    return ran, (tmp_path / "out.owner" / "key").exists()


def test_a_run_completes_beside_a_damaged_tar(tmp_path: Path) -> None:
    ran, has_key = state_of_key(tmp_path, {"bad.tar": damaged_tar()})
    assert set(ran.problems) == {"bad.tar"}
    assert (ran.complete, has_key) == (True, False)
    assert list(outputs(tmp_path / "out")) == ["good.png"]


@pytest.mark.parametrize("number", [None, errno.EINVAL, errno.EIO])
@pytest.mark.parametrize("kind", ["tar", "video"])
def test_a_run_completes_beside_a_source_whose_reader_raises_oserror(
    kind: str, number: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_format(kind, None), "read", raising(number))
    ran, has_key = state_of_key(tmp_path, {f"bad.{'tar' if kind == 'tar' else 'mkv'}": bytes(4096)})
    assert "could not be read" in next(iter(ran.problems.values()))
    assert (len(ran.problems), ran.complete, has_key) == (1, True, False)


class Failing(io.BytesIO):
    """A file whose storage fails, and a reader that calls it damage."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() or size != 4096:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(size)


@pytest.mark.parametrize("name", ["a.png", "b.tar", "c.mkv", "d.parquet"])
def test_a_run_stays_open_while_the_storage_fails(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = LocalStorage.open
    data = shard({f"{i}.png": encoded(gradient(40 + i, 40), "PNG") for i in range(40)})

    def open_failing(self: LocalStorage, path: str) -> BinaryIO:
        return Failing(data) if path == name and self.scratch is None else opened(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "open", open_failing)
        ran, has_key = state_of_key(tmp_path, {name: data})
    assert set(ran.problems) == {name}
    assert (ran.complete, has_key) == (False, True)
    assert spent().releases == 1


def test_a_machine_with_too_many_open_files_keeps_the_run_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(image, "read", raising(errno.EMFILE))
        ran, has_key = state_of_key(tmp_path, {})
    assert (ran.complete, has_key) == (False, True)
    assert release(tmp_path / "in", tmp_path / "out").complete
