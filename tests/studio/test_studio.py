"""The served page, with and without the collector, in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.storage import LocalStorage
from ldp_slicing.studio.page import headers, read_page, with_data
from ldp_slicing.verify import verify
from tests.studio.server import OPTIONS, recorder, studio
from tests.web.browser import chromium, why_not

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
    assert "fetch(" not in read_page(collects=False)


def test_a_network_travels_inside_the_page() -> None:
    page = with_data(read_page(collects=False), b"LDPNET1\nrest")
    assert 'id="network-file">TERQTkVUMQpyZXN0<' in page
    with pytest.raises(LdpSlicingError, match="not a network"):
        with_data(page, b"something else")
    with pytest.raises(LdpSlicingError, match="no content policy"):
        headers("<html>")


@needs_chromium
def test_the_page_sends_a_release_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    with studio("--collect", folder, *OPTIONS) as server, recorder(server.url) as (url, sent), chromium() as browser:
        page = browser.new_page()
        requests: list[Any] = []
        page.on("request", lambda request: requests.append(request))
        page.goto(url)
        page.set_input_files("#files", str(PORTRAIT))
        expect(page.locator("#facts")).to_contain_text("released as 64 x 64", timeout=60_000)
        expect(page.locator("#fixed")).to_contain_text("epsilon 5.2 per pixel only")
        page.click("#send")
        expect(page.locator("#taken")).to_contain_text("the collector stored it as", timeout=60_000)
        hosts = {request.url.split("/")[2] for request in requests if request.url.startswith("http")}
        assert hosts == {url.split("/")[2]}
        stored = next(folder.glob("*/*.png")).read_bytes()
        assert stored in sent
        assert len(sent) < len(stored) + 16_384, "a release, its card and headers: no source"
        blocked = "fetch('https://example.org/').then(() => 'sent', () => 'blocked')"
        assert page.evaluate(f"() => {blocked}") == "blocked"
    report = verify(LocalStorage(folder))
    assert (report.problems, report.releases) == ([], 1)
