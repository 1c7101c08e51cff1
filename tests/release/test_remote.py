"""Remote storage: a real web server to read from, and file systems of fsspec to write to."""

from __future__ import annotations

import functools
import socket
import threading
import uuid
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from typer.testing import CliRunner

from ldp_slicing.cli import app
from ldp_slicing.errors import ReleaseError
from ldp_slicing.formats import tar as tar_format
from ldp_slicing.formats.base import Damaged, Entry, Options
from ldp_slicing.storage import local_path, remote
from ldp_slicing.verify import verify
from tests.formats.shards import shard
from tests.release.helpers import PNG, SETTINGS, outputs, plant, release, small_images, spent, tree, verified


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    plant(tmp_path / "web", {**small_images(5), "deep/er/a.png": PNG, "bad.png": b"hello"})
    handler = functools.partial(Quiet, directory=str(tmp_path / "web"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


@pytest.fixture
def bucket() -> Iterator[str]:
    name = f"memory://bucket-{uuid.uuid4().hex}"
    yield name
    system, root = fsspec.core.url_to_fs(name)
    if system.exists(root):
        system.rm(root, recursive=True)


def test_sources_on_a_web_server(server: str, tmp_path: Path) -> None:
    ran = release(server, tmp_path / "out")  # type: ignore[arg-type]
    assert set(ran.problems) == {"bad.png"}
    assert set(outputs(tmp_path / "out")) == {*small_images(5), "deep/er/a.png"}
    assert verified(tmp_path / "out") == []
    one = release(f"{server}/00001.png", tmp_path / "one.png", spend=True)  # type: ignore[arg-type]
    assert one.complete


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_releases_to_remote_storage(scheme: str, bucket: str, tmp_path: Path) -> None:
    target = f"{bucket}/releases" if scheme == "memory" else f"file://{tmp_path}/releases"
    source = plant(tmp_path / "in", {**small_images(150), "album/x.png": PNG})
    assert release(source, target, after=1).stopped  # type: ignore[arg-type]
    assert verify(remote(target)).problems == []
    ran = release(source, target, workers=2 if scheme == "file" else 1)  # type: ignore[arg-type]
    assert ran.complete
    assert ran.kept
    assert verify(remote(target)).releases == 151
    assert (spent().releases, spent().unfinished) == (151, 0)
    system, root = fsspec.core.url_to_fs(target)
    assert not system.exists(f"{root}/.ldp-slicing-partial")
    system.rm_file(f"{root}/album/x.png")
    assert "lost" in release(source, target).problems["album/x.png"]  # type: ignore[arg-type]
    if scheme == "file":
        assert "key" not in {name.rsplit("/")[-1] for name in tree(tmp_path)}


def test_one_file_to_one_remote_file(bucket: str, tmp_path: Path) -> None:
    plant(tmp_path, {"a.png": PNG})
    assert release(tmp_path / "a.png", f"{bucket}/x/b.png").complete  # type: ignore[arg-type]
    system, root = fsspec.core.url_to_fs(bucket)
    assert sorted(name.rsplit("/", 1)[-1] for name in system.find(root)) == ["b.png", "b.png.card.json"]
    with pytest.raises(ReleaseError, match="exists and is not overwritten"):
        release(tmp_path / "a.png", f"{bucket}/x/b.png")  # type: ignore[arg-type]
    assert release(f"{bucket}/x/b.png", tmp_path / "c.png").complete  # type: ignore[arg-type]


def test_remote_targets_that_overlap_exist_or_are_unknown_are_refused(bucket: str, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG})
    release(source, f"{bucket}/a")  # type: ignore[arg-type]
    for wrong, target, why in (
        (f"{bucket}/a", f"{bucket}/a/b", "overlap"),
        (f"{bucket}/a", bucket, "overlap"),
        (str(source), f"{bucket}", "exists and is not overwritten"),
        (str(source), "nosuchscheme://x", "cannot be reached"),
        ("nosuchscheme://x", str(tmp_path / "out"), "cannot be reached"),
    ):
        with pytest.raises(ReleaseError, match=why):
            release(wrong, target, SETTINGS)  # type: ignore[arg-type]
    assert CliRunner().invoke(app, ["verify", f"{bucket}/a"]).exit_code == 0
    assert CliRunner().invoke(app, ["verify", f"{bucket}/none"]).exit_code == 2


class Unreachable(MemoryFileSystem):
    """Fails as libraries do that have errors of their own: not with an OSError."""

    protocol = "unreachable"

    def info(self, path: str, **options: object) -> dict[str, object]:
        raise RuntimeError("Name or service\nnot known")


@pytest.mark.parametrize("kind", ["library", "web"])
def test_addresses_that_cannot_be_reached_are_refused(kind: str, tmp_path: Path) -> None:
    fsspec.register_implementation("unreachable", Unreachable, clobber=True)
    with socket.socket() as closed:  # bound but not listening: connections are refused at once
        closed.bind(("127.0.0.1", 0))
        web = f"http://127.0.0.1:{closed.getsockname()[1]}/a/b"
        address, reason = ("unreachable://a/b", "Name or service not known") if kind == "library" else (web, "Connect")
        plant(tmp_path / "in", {"a.png": PNG})
        for words in (
            ("verify", address),
            ("decode", address, tmp_path / "guesses"),
            ("privatize", address, tmp_path / "out", "--epsilon", 20),
            ("privatize", tmp_path / "in", address, "--epsilon", 20),
        ):
            result = CliRunner().invoke(app, [*map(str, words)])
            assert result.exit_code == 2, result.output
            said = " ".join(result.output.split())
            assert f"refused: {address} cannot be reached: " in said
            assert reason in said
    assert tree(tmp_path) == ["in/a.png"]


def test_an_uploaded_temporary_file_counts_as_released(bucket: str, tmp_path: Path) -> None:
    whole = shard(small_images(100))
    torn = whole[: whole.rindex(b"IDAT")]  # in its last member, after the first ones were written
    for target, entries in ((f"{bucket}/releases", 1), (str(tmp_path / "out"), 0)):
        source, ledger = plant(tmp_path / f"in{entries}", {"a.tar": torn}), tmp_path / f"{entries}.sqlite"
        assert set(release(source, target, ledger=ledger).problems) == {"a.tar"}  # type: ignore[arg-type]
        assert (spent(ledger).releases > 0) == bool(entries)
        assert spent(ledger).unfinished == spent(ledger).releases


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:///tmp/out#1", "/tmp/out#1"),
        ("file:///tmp/a%20b?c", "/tmp/a b?c"),
        ("FILE://localhost/tmp/x", "/tmp/x"),
        ("file:photos", "file:photos"),
        ("file://elsewhere/x", "file://elsewhere/x"),
        ("s3://bucket/x", "s3://bucket/x"),
        ("photos/a", "photos/a"),
    ],
)
def test_which_addresses_are_paths(address: str, path: str) -> None:
    assert local_path(address) == path


def test_a_read_that_fails_midway_costs_nothing_more(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the shard was uploaded: the run keeps its key, and releases the same bytes when resumed."""
    source = plant(tmp_path / "in", {"a.tar": shard(small_images(100))})
    read = tar_format.read

    def failing(file: BinaryIO, options: Options) -> Iterator[Entry | Damaged]:
        for number, entry in enumerate(read(file, options)):
            if number == 90:
                raise TimeoutError(110, "timed out")
            yield entry

    with monkeypatch.context() as patch:
        patch.setattr(tar_format, "read", failing)
        assert not release(source, f"{bucket}/out").complete  # type: ignore[arg-type]
    ran = release(source, f"{bucket}/out")  # type: ignore[arg-type]
    assert (ran.problems, ran.complete) == ({}, True)
    assert (spent().releases, spent().unfinished) == (100, 0)
