"""The served page, with and without the collector, in Chromium."""

from __future__ import annotations

import tomllib
from pathlib import Path, PurePath
from typing import Any

import httpx
import pytest
from PIL import Image

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.storage import LocalStorage
from ldp_slicing.studio.page import headers, read_network, read_page, with_data
from ldp_slicing.verify import verify
from tests.studio.server import OPTIONS, recorder, studio
from tests.web.browser import chromium, why_not
from tests.web.networks import some_network

expect = pytest.importorskip("playwright.sync_api").expect
needs_chromium = pytest.mark.skipif(bool(why_not()), reason=why_not())
PORTRAIT = Path(__file__).parents[2] / "examples" / "astronaut.jpg"


def test_the_page_without_collector_talks_to_nobody() -> None:
    with studio() as server:
        answer = httpx.get(server.url)
        assert "connect-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert httpx.post(f"{server.url}releases").status_code == 404
        assert httpx.get(f"{server.url}network").status_code == 404
    assert "fetch(" not in read_page(collects=False)


@pytest.mark.parametrize("file", ["page/studio.html", "page/collector.html", "page-network.bin"])
def test_the_wheel_carries_the_page(file: str) -> None:
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["ldp_slicing"]
    assert any(PurePath("studio", file).match(pattern) for pattern in patterns)


def test_a_network_travels_inside_the_page(tmp_path: Path) -> None:
    (tmp_path / "network").write_bytes(b"LDPNET1\nrest")
    page = with_data(read_page(collects=False), read_network(tmp_path / "network"))
    assert 'id="network-file">TERQTkVUMQpyZXN0<' in page
    (tmp_path / "network").write_bytes(b"something else")
    with pytest.raises(LdpSlicingError, match="not a network"):
        read_network(tmp_path / "network")
    with pytest.raises(LdpSlicingError, match="cannot be read"):
        read_network(tmp_path / "nothing")
    with pytest.raises(LdpSlicingError, match="no content policy"):
        headers("<html>")


@needs_chromium
def test_the_page_sends_a_release_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    (tmp_path / "network").write_bytes(some_network())
    options = (*OPTIONS, "--network", tmp_path / "network")
    with studio("--collect", folder, *options) as server, recorder(server.url) as (url, sent), chromium() as browser:
        page = browser.new_page()
        requests: list[Any] = []
        page.on("request", lambda request: requests.append(request))
        page.goto(url)
        page.set_input_files("#files", str(PORTRAIT))
        expect(page.locator("#facts")).to_contain_text("released as 64 x 64", timeout=60_000)
        expect(page.locator("#fixed")).to_contain_text("settings: epsilon 5.2 per pixel, plan: Y7+Y4+Cb7+Cr7, pruning")
        expect(page.locator("section:has(#send) #risk")).to_contain_text("a network")
        assert not [request for request in requests if request.url.endswith("/network")]
        assert httpx.get(f"{server.url}network").headers["content-type"] == "application/octet-stream"
        width = page.locator("#download").bounding_box()["width"]
        page.click("#attack")  # the network is loaded when it is asked for
        expect(page.locator("#attack-reconstruction")).to_be_visible(timeout=60_000)
        page.route("**/releases", lambda route: route.abort(), times=1)
        page.click("#send")
        expect(page.locator("#taken.problem")).to_contain_text(
            "Not confirmed: the collector did not answer. If you send it again, it is the same release", timeout=60_000
        )
        page.click("#send")
        expect(page.locator("#taken")).to_contain_text("the collector stored it as", timeout=60_000)
        expect(page.locator("#taken")).to_contain_text("1 release made on this page")
        expect(page.locator("#promise-title")).to_have_text("What this promises")  # of the release that was sent
        expect(page.locator("#before")).to_have_text("This image was released on this page.")
        expect(page.locator("#card")).to_contain_text('"most_releases_of_one_source": 1,')
        assert page.locator("#download").bounding_box()["width"] == width, "a long name must not widen the page"
        hosts = {request.url.split("/")[2] for request in requests if request.url.startswith("http")}
        assert hosts == {url.split("/")[2]}
        stored = next(folder.glob("*/*.png")).read_bytes()
        assert stored in sent
        assert len(sent) < len(stored) + 16_384, "a release, its card and headers: no source"
        blocked = "fetch('https://example.org/').then(() => 'sent', () => 'blocked')"
        assert page.evaluate(f"() => {blocked}") == "blocked"
        planted = """(code) => new Promise((resolve) => {
            const worker = new Worker(URL.createObjectURL(new Blob([code], {type: "text/javascript"})));
            worker.onmessage = (event) => resolve(event.data);
        })"""
        assert page.evaluate(planted, f"{blocked}.then((answer) => postMessage(answer))") == "blocked"
        page.click("#send")
        expect(page.locator("#taken")).to_contain_text(
            "Nothing was released: this image was released on this page before"
        )
        with Image.open(PORTRAIT) as image:
            for i in range(2):
                image.rotate(90 * i + 90).save(tmp_path / f"{i}.png")

        def open_another(i: int) -> None:
            page.set_input_files("#files", str(tmp_path / f"{i}.png"))
            page.click(f"#images li[data-id]:nth-child({i + 2}) button:first-child")

        def lose_the_answer(route: Any) -> None:
            route.fetch()
            route.abort()

        open_another(0)
        page.route("**/releases", lose_the_answer, times=1)
        page.click("#send")
        expect(page.locator("#taken")).to_contain_text("If you send it again, it is the same release", timeout=60_000)
        page.click("#send")
        expect(page.locator("#taken")).to_contain_text("The collector has stored this release already", timeout=60_000)
        open_another(1)
        page.evaluate("() => Object.assign(FormData.prototype, {append() {}})")  # an upload that the collector refuses
        page.click("#send")
        expect(page.locator("#taken")).to_contain_text("Sent, but not stored: the form needs two files", timeout=60_000)
        expect(page.locator("#taken")).to_contain_text("3 releases made on this page")
        assert "send it again" not in page.locator("#taken").text_content()
    report = verify(LocalStorage(folder))
    assert (report.problems, report.releases) == ([], 2)
