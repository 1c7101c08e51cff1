"""The collector: what it stores, what it refuses, and that it loses nothing."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from ldp_slicing import Card, Plan, Slicer
from ldp_slicing import manifest as manifest_module
from ldp_slicing.cli import app
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.png import SIGNATURE, encode_chunk, encode_png
from ldp_slicing.storage import LocalStorage
from ldp_slicing.studio import collector as collector_module
from ldp_slicing.studio.collector import Collector, UploadError, Wanted, check_release
from ldp_slicing.verify import verify
from tests.docs.documents import ROOT, blocks
from tests.studio.server import OPTIONS, PLAN, Studio, release_of, studio

endpoint_module = pytest.importorskip("ldp_slicing.studio.endpoint")
client_module = pytest.importorskip("starlette.testclient")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("collector") / "set"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Studio]:
    with studio("--collect", folder, *OPTIONS) as running:
        yield running


def test_a_release_is_stored_once(server: Studio, folder: Path) -> None:
    release, card = release_of(1)
    answer = server.upload(release, card)
    assert answer.status_code == 201, answer.text
    assert (folder / answer.json()["name"]).read_bytes() == release
    again = server.upload(release, card)
    assert (again.status_code, again.json()["reason"]) == (409, "this release was uploaded before")


def with_comment(release: bytes) -> bytes:
    return release[:33] + b"".join(encode_chunk(b"tEXt", b"a\0source")) + release[33:]


def unprotected() -> bytes:
    """An image in the colours of the plan, but without noise."""
    flat = np.full((64, 64, 3), 90, np.uint8)
    quiet = Slicer(Plan.sliced(60.0, "Y7+Y4+Cb7+Cr7"), prune=None)(flat)
    return b"".join(encode_png(quiet, PLAN))


def test_an_unprotected_part_is_refused() -> None:
    plan, source = Plan.paper(20.0), np.full((512, 512, 3), 90, np.uint8)
    source[100:164, 200:264] += np.arange(64, dtype=np.uint8)[:, None, None]
    release = Slicer(plan, prune=None)(source)
    assert check_release(b"".join(encode_png(release, plan)), plan) == (512, 512)
    release[100:164, 200:264] = source[100:164, 200:264]
    with pytest.raises(UploadError, match="does not have the noise of its plan"):
        check_release(b"".join(encode_png(release, plan)), plan)


@pytest.mark.parametrize("plan", [Plan.paper(20.0), PLAN])
def test_a_wrong_palette_is_refused_before_its_pixels_take_memory(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    two = Plan.sliced(3.5, "Y7")
    release = b"".join(encode_png(Slicer(two)(np.zeros((8, 8, 3), np.uint8)), two))
    monkeypatch.setattr(collector_module, "read_release_png", lambda *_: pytest.fail("was decoded"))
    with pytest.raises(UploadError, match="another palette"):
        check_release(release, plan)


def test_a_plan_that_no_test_has_power_for_is_collected() -> None:
    plan = Plan.sliced(30.0, "Y7+Y4+Cb7+Cr7")
    release = Slicer(plan)(np.full((40, 40, 3), 90, np.uint8))
    assert check_release(b"".join(encode_png(release, plan)), plan) == (40, 40)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("comment", "holds more than pixels"),
        ("unprotected", "does not have the noise of its plan"),
        ("other plan", "another plan"),
        ("other view", "another view"),
        ("other size", "states another size"),
        ("wrong card", "the card is not valid"),
        ("owner's key", "an owner's key"),
        ("two releases", "was released once"),
        ("no png", "is not a PNG"),
        ("foreign colours", "another palette|not one of those|no release"),
    ],
)
def test_what_is_refused(server: Studio, what: str, reason: str) -> None:
    release, card = release_of(2)
    if what == "comment":
        release = with_comment(release)
    elif what == "unprotected":
        release = unprotected()
    elif what == "other plan":
        release, card = release_of(2, plan=Plan.sliced(5.3, "Y7+Y4+Cb7+Cr7"))
    elif what == "other view":
        card = Slicer(PLAN, size=64, prune=None).card(64, 64).to_json()
    elif what == "other size":
        _, card = release_of(2, side=32)
    elif what == "wrong card":
        card = card.replace('"epsilon": 5.2', '"epsilon": 0.2')
    elif what == "owner's key":
        card = replace(Card.from_json(card), owners_key=True).to_json()
    elif what == "two releases":
        (statement,) = Card.from_json(card).statements
        card = Card((replace(statement, times=2),)).to_json()
    elif what == "no png":
        release = b"GIF89a" + release
    else:
        release = b"".join(encode_png(np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)))
    answer = server.upload(release, card)
    assert answer.status_code == 422, answer.text
    assert any(part in answer.json()["reason"] for part in reason.split("|")), answer.text


def test_requests_that_are_refused(server: Studio) -> None:
    release, card = release_of(3)
    assert server.upload(release, card, Origin="https://example.org").status_code == 403
    assert server.upload(release, card, Host="example.org").status_code == 400
    assert httpx.post(f"{server.url}releases", content=b"x").status_code == 415
    assert httpx.post(f"{server.url}releases", files={"release": release}).status_code == 400
    assert server.upload(SIGNATURE + bytes(3_000_000), card).status_code == 413
    assert httpx.get(f"{server.url}releases").status_code == 405


def test_every_answer_has_the_policy(server: Studio) -> None:
    for path in ("", "collector", "openapi.json", "nothing", "health"):
        headers = httpx.get(server.url + path).headers
        assert "connect-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_a_token_is_needed_if_there_is_one(tmp_path: Path) -> None:
    with studio("--collect", tmp_path / "set", "--token", "secret", *OPTIONS) as server:
        release, card = release_of(4)
        assert server.upload(release, card).status_code == 401
        assert server.upload(release, card, Authorization="Bearer wrong").status_code == 401
        assert server.upload(release, card, Authorization="Bearer secret").status_code == 201


def test_an_empty_token_is_refused(tmp_path: Path) -> None:
    command = ["studio", "--port", "0", "--collect", str(tmp_path / "set"), "--token", "", *OPTIONS]
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 2
    assert "the token is empty" in answer.stderr


def test_a_collector_needs_a_budget(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["studio", "--collect", str(tmp_path / "set"), "--port", "0"])
    assert done.exit_code == 2
    assert "give --epsilon NUMBER or --preset NAME" in done.output
    assert not (tmp_path / "set").exists()


def test_a_token_is_needed_off_loopback(tmp_path: Path) -> None:
    with studio("--collect", tmp_path / "set", "--host", "0.0.0.0", *OPTIONS) as server:
        local = Studio(server.process, server.url.replace("0.0.0.0", "127.0.0.1"))
        assert local.upload(*release_of(4)).status_code == 401


def test_the_client_of_the_guide(tmp_path: Path) -> None:
    (code,) = blocks((ROOT / "docs" / "guide" / "studio.md").read_text(), "python")
    assert len(code.splitlines()) <= 10
    with studio("--collect", tmp_path / "set", *OPTIONS[:-1], "112") as server:
        told = code.replace("http://127.0.0.1:8765/", server.url)
        told = told.replace("portrait.jpg", str(ROOT / "examples" / "astronaut.jpg"))
        done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
        assert len(list((tmp_path / "set").glob("*/*.png"))) == 1, done.stdout


def test_the_rate_is_limited(tmp_path: Path) -> None:
    with studio("--collect", tmp_path / "set", "--per-minute", "2", *OPTIONS) as server:
        assert [server.upload(*release_of(i)).status_code for i in range(3)] == [201, 201, 429]


LARGE = 512  # pixels: 80 uploads of this side are 63 MB
LARGE_OPTIONS = ("--epsilon", "20", "--max-side", str(LARGE), "--per-minute", "100000")


def send_many(url: str, done: str) -> None:
    """Upload until the server is gone. A line for each answer: the name of the stored release, or the status."""
    server, slicer = Studio(None, url), Slicer(Plan.paper(20.0), size=LARGE)  # type: ignore[arg-type]
    source = np.arange(LARGE * LARGE * 3).reshape(LARGE, LARGE, 3).astype(np.uint8)
    card = slicer.card(LARGE, LARGE).to_json()
    with Path(done).open("a") as file:
        while True:
            try:
                answer = server.upload(b"".join(encode_png(slicer(source), slicer.plan)), card)
            except httpx.HTTPError:
                return
            file.write(answer.json()["name"] + "\n" if answer.status_code == 201 else f"{answer.status_code}\n")
            file.flush()


def megabytes_of(process: int) -> float:
    """The memory that a process uses."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is measured as Linux reports it")
def test_under_load_and_kills_nothing_is_lost_and_memory_is_steady(tmp_path: Path) -> None:
    folder, done = tmp_path / "set", tmp_path / "done"
    done.touch()
    for last in (90, 10):
        with studio("--collect", folder, *LARGE_OPTIONS) as server:
            client = multiprocessing.get_context("spawn").Process(target=send_many, args=(server.url, str(done)))
            client.start()
            before, used = len(done.read_text().splitlines()), list[float]()
            for count in (10, last):
                samples = list[float]()  # a check of an upload takes memory for a moment: the least is what is kept
                while (stored := len(done.read_text().splitlines()) - before) < count:
                    assert client.is_alive(), "the client stopped before the server was killed"
                    if stored >= count - 6:
                        samples.append(megabytes_of(server.process.pid))
                    time.sleep(0.01)
                used.append(min([*samples, megabytes_of(server.process.pid)]))
            server.process.send_signal(signal.SIGKILL)
            client.join(60)
            assert used[1] - used[0] < 40, "80 uploads are 63 MB; each of a few threads costs 15 MB once"
    with studio("--collect", folder, *LARGE_OPTIONS) as server:
        assert httpx.get(f"{server.url}collector").json()["releases"] >= 50
    report = verify(LocalStorage(folder))
    assert report.problems == []
    confirmed = done.read_text().splitlines()
    assert all((folder / name).is_file() for name in confirmed)
    assert Card.read(folder / "card.json").statements[0].count == report.releases >= len(confirmed) >= 50


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.png").write_bytes(b"source")
    with studio("--collect", tmp_path, *OPTIONS) as server:
        assert server.process.wait(30) == 2


@pytest.mark.parametrize(
    "other",
    [
        Wanted(Plan.sliced(2.4, "Y7+Y4+Cb7+Cr7"), "haar", 64),
        Wanted(Plan.sliced(5.2, "Y7+Y4+Cb7+Cr6"), "haar", 64),
        Wanted(PLAN, None, 64),
        Wanted(PLAN, "haar", 512),
        None,
    ],
    ids=["epsilon", "slices", "pruning", "size", "no card"],
)
def test_the_card_of_stored_releases_never_changes_its_plan_or_view(other: Wanted | None, tmp_path: Path) -> None:
    release, card = release_of(1)
    first = Collector(tmp_path / "set", Wanted(PLAN, "haar", 64))
    first.accept(release, card.encode())
    assert Card.read(tmp_path / "set" / "card.json").statements[0].plan == PLAN  # before any manifest is written
    shutil.copytree(tmp_path / "set", tmp_path / "moved")
    if other is None:
        (tmp_path / "moved" / "card.json").unlink()
    before = tree(tmp_path / "moved")
    with pytest.raises(LdpSlicingError, match="choose another folder"):
        Collector(tmp_path / "moved", other or first.wanted)
    assert tree(tmp_path / "moved") == before
    shutil.copytree(tmp_path / "set", tmp_path / "again")
    assert Collector(tmp_path / "again", first.wanted).count == 1
    assert verify(LocalStorage(tmp_path / "again")).problems == []


@pytest.mark.parametrize("content", [b"", bytes(100), b"{}"], ids=["empty", "blank", "another file"])
def test_a_damaged_card_stops_the_collector(content: bytes, tmp_path: Path) -> None:
    release, card = release_of(1)
    first = Collector(tmp_path / "set", Wanted(PLAN, "haar", 64))
    first.accept(release, card.encode())
    shutil.copytree(tmp_path / "set", tmp_path / "damaged")
    (tmp_path / "damaged" / "card.json").write_bytes(content)
    with pytest.raises(LdpSlicingError, match="is damaged"):
        Collector(tmp_path / "damaged", first.wanted)
    assert (tmp_path / "damaged" / "card.json").read_bytes() == content


def test_a_set_without_its_releases_stops_the_collector(tmp_path: Path) -> None:
    release, card = release_of(1)
    first = Collector(tmp_path / "set", Wanted(PLAN, "haar", 64))
    first.accept(release, card.encode())
    first.write_manifest()
    shutil.copytree(tmp_path / "set", tmp_path / "emptied", ignore=shutil.ignore_patterns("*.png"))
    before = tree(tmp_path / "emptied")
    with pytest.raises(LdpSlicingError, match="are gone"):
        Collector(tmp_path / "emptied", first.wanted)
    assert tree(tmp_path / "emptied") == before


def test_a_release_that_cannot_be_written_leaves_no_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, card = release_of(1)
    collector = Collector(tmp_path / "set", Wanted(PLAN, "haar", 64))
    whole = collector_module.write_file

    def fail(place: LocalStorage, name: str, pieces: list[bytes]) -> None:
        if name.endswith(".png"):
            raise OSError("no space left")
        whole(place, name, pieces)

    monkeypatch.setattr(collector_module, "write_file", fail)
    with pytest.raises(UploadError, match=r"could not be stored \(no space left\): send it again") as refused:
        collector.accept(release, card.encode())
    assert refused.value.status == 507
    assert tree(tmp_path / "set") == {}


def form_of(number: int) -> dict[str, tuple[str, bytes | str]]:
    release, card = release_of(number)
    return {"release": ("r.png", release), "card": ("c.json", card)}


@contextmanager
def client_of(collector: Collector) -> Iterator[Any]:
    app = endpoint_module.make_collector_app(collector, ("testserver",), token=None, per_minute=600)
    with client_module.TestClient(app) as client:
        yield client


def test_card_and_manifest_count_all_releases_once_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One full disk must not end the count for good, while releases are still accepted."""
    whole, failures = manifest_module.write_manifest, list[str]()

    def fail(place: LocalStorage, lines: object) -> None:
        failures.append("")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(endpoint_module, "MANIFEST_SECONDS", 0.02)
    collector = Collector(tmp_path / "set", Wanted(PLAN, "haar", 64))
    with client_of(collector) as client:
        monkeypatch.setattr(collector_module, "write_manifest", fail)
        assert client.post("/releases", files=form_of(1)).status_code == 201
        wait_until(lambda: len(failures) > 2)
        monkeypatch.setattr(collector_module, "write_manifest", whole)
        wait_until(lambda: (tmp_path / "set" / "manifest.jsonl").exists())
        assert client.post("/releases", files=form_of(2)).status_code == 201
    report = verify(LocalStorage(tmp_path / "set"))
    assert (report.problems, report.releases) == ([], 2)
    said = [record.getMessage() for record in caplog.records if record.name == collector_module.__name__]
    assert len(said) == 1
    assert "No space left on device" in said[0]


def test_a_disk_that_is_full_at_the_end_ends_without_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Wanted(PLAN, "haar", 64)

    def fail(place: LocalStorage, lines: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(endpoint_module, "MANIFEST_SECONDS", 60.0)
    with client_of(Collector(tmp_path / "set", wanted)) as client:
        assert client.post("/releases", files=form_of(1)).status_code == 201
        monkeypatch.setattr(collector_module, "write_manifest", fail)
    shutil.copytree(tmp_path / "set", tmp_path / "again")
    with pytest.raises(LdpSlicingError, match="cannot be written to: No space left"):
        Collector(tmp_path / "again", wanted)
    monkeypatch.undo()
    shutil.copytree(tmp_path / "set", tmp_path / "later")
    assert Collector(tmp_path / "later", wanted).count == 1
    assert verify(LocalStorage(tmp_path / "later")).problems == []


def test_few_uploads_are_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, guard = 0, 0, threading.Lock()

    def accept(self: Collector, data: bytes, card: bytes) -> str:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with guard:
            running -= 1
        return "stored"

    monkeypatch.setattr(Collector, "accept", accept)
    with client_of(Collector(tmp_path / "set", Wanted(PLAN, "haar", 64))) as client, ThreadPoolExecutor(8) as pool:
        form = form_of(1)
        answers = list(pool.map(lambda _: client.post("/releases", files=form).status_code, range(8)))
    assert answers == [201] * 8
    assert most == endpoint_module.CHECKS


def upload_in_parts(app: Any, receive: Callable[[int], Awaitable[dict[str, Any]]]) -> Coroutine[Any, Any, int]:
    """The status of an upload whose parts ``receive`` returns by number."""
    headers = [(b"host", b"x"), (b"content-type", b"multipart/form-data; boundary=b")]
    scope = {"type": "http", "method": "POST", "path": "/releases", "headers": headers, "query_string": b""}
    sent, numbers = list[dict[str, Any]](), count()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def run() -> int:
        await app(scope, lambda: receive(next(numbers)), send)
        return int(sent[0]["status"])

    return run()


def app_of(folder: Path) -> Any:
    return endpoint_module.make_collector_app(
        Collector(folder, Wanted(PLAN, "haar", 64)), ("x",), token=None, per_minute=99
    )


def test_an_upload_that_is_cut_off_is_no_error_of_the_server(tmp_path: Path) -> None:
    async def receive(number: int) -> dict[str, Any]:
        first = {"type": "http.request", "body": b"--b\r\n", "more_body": True}
        return {"type": "http.disconnect"} if number else first

    assert asyncio.run(upload_in_parts(app_of(tmp_path / "set"), receive)) == 400


def test_few_uploads_are_received_at_a_time_and_none_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may fill a temporary file of the largest size."""
    monkeypatch.setattr(endpoint_module, "RECEPTION_SECONDS", 0.05)
    app, begun, most = app_of(tmp_path / "set"), 0, 0

    async def receive(number: int) -> dict[str, Any]:
        nonlocal begun, most
        begun += 1
        most = max(most, begun)
        try:
            return await asyncio.sleep(3600, {})
        finally:
            begun -= 1

    async def run() -> list[int]:
        several = (upload_in_parts(app, receive) for _ in range(endpoint_module.RECEPTIONS + 4))
        return await asyncio.gather(*several)

    assert set(asyncio.run(run())) == {408}
    assert most == endpoint_module.RECEPTIONS


def test_wrong_tokens_count_as_uploads(tmp_path: Path) -> None:
    app = endpoint_module.make_collector_app(
        Collector(tmp_path / "set", Wanted(PLAN, "haar", 64)), ("testserver",), token="secret", per_minute=2
    )
    with client_module.TestClient(app) as client:
        answers = [client.post("/releases", headers={"Authorization": f"Bearer {i}"}).status_code for i in range(3)]
    assert answers == [401, 401, 429]


@pytest.mark.parametrize("name", ["ab", "card.json", "manifest.jsonl"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_no_file_stops_the_collector_by_name(name: str, kind: str, tmp_path: Path) -> None:
    """A card or a manifest of that name could never be written."""
    if kind == "link":
        (tmp_path / name).symlink_to(tmp_path / "nothing")
    else:
        os.mkfifo(tmp_path / name)
    with pytest.raises(LdpSlicingError, match=f"{name} was not stored by a collector"):
        Collector(tmp_path, Wanted(PLAN, "haar", 64))


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing" / "here")
    (tmp_path / "file").write_text("")
    for name in ("link", "file/set"):
        with pytest.raises(LdpSlicingError, match="cannot be created"):
            Collector(tmp_path / name, Wanted(PLAN, "haar", 64))


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_crash_before_the_first_release_leaves_an_empty_folder(tmp_path: Path) -> None:
    wanted = Wanted(PLAN, "haar", 64)
    Collector(tmp_path / "set", wanted).accept(
        *[part if isinstance(part, bytes) else part.encode() for part in release_of(1)]
    )
    (stored,) = (tmp_path / "set").rglob("*.png")
    stored.unlink()
    shutil.copytree(tmp_path / "set", tmp_path / "again")
    assert Collector(tmp_path / "again", wanted).count == 0
    assert not (tmp_path / "again" / "card.json").exists()


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_description_is_fuzzed_without_a_server_error(tmp_path: Path) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    hypothesis = pytest.importorskip("hypothesis")
    with studio("--collect", tmp_path / "set", "--per-minute", "100000", *OPTIONS) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}openapi.json")

        statuses = []
        for operation in schema.get_all_operations():

            @hypothesis.settings(
                max_examples=60, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
            )
            @hypothesis.given(operation.ok().as_strategy())
            def fuzz(case: object) -> None:
                statuses.append(case.call().status_code)  # type: ignore[attr-defined]

            fuzz()
        assert statuses
        assert max(statuses) < 500
        assert server.process.poll() is None
