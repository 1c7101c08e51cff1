"""The page at 12 megapixels: Chromium and the native kernel take turns, so the ratios hold on a noisy machine."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from benchmarks.contenders import contenders

WEB = Path(__file__).parents[1] / "web"
SHAPE = (3000, 4000)
WORDS = {
    "releasing": "release: keystream, masks, view and rebuild",
    "drawing": "keystream alone (WebCrypto)",
    "settling": "ties alone (AES in WebAssembly)",
    "decoding": "decode the JPEG file and read it back",
    "encoding": "write the PNG file",
}


class _Handler(SimpleHTTPRequestHandler):
    extensions_map = {".js": "text/javascript", ".html": "text/html", ".wasm": "application/wasm"}  # noqa: RUF012

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def page(seconds: Callable[[Callable[[Any], Any], object, int], float], rounds: int = 9) -> list[str]:
    """Return a table of the steps of one release in Chromium, relative to the native portable kernel."""
    noise = np.random.default_rng(0).normal(127, 40, (SHAPE[0] // 8, SHAPE[1] // 8, 3))
    image = np.kron(np.clip(noise, 0, 255).astype(np.uint8), np.ones((8, 8, 1), np.uint8))
    native = contenders()["kernel, portable only"]
    times: dict[str, list[float]] = {name: [] for name in ("native", *WORDS)}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        shutil.copytree(WEB, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
        Image.fromarray(image).save(Path(folder, "source.jpg"), quality=90)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with _served(Path(folder)) as address:
            tab = browser.new_page()
            tab.goto(f"{address}/test/benchmark.html")
            tab.wait_for_function("document.title === 'ready'")
            for turn in range(rounds + 1):  # the first one compiles
                took = {"native": 1000 * seconds(native, image, 1), **tab.evaluate("() => measure('/source.jpg')")}
                for name, value in took.items():
                    times[name] += [value] if turn else []
        version = browser.version
        browser.close()
    return _table(times, f"Chromium {version}, in a worker, {SHAPE[1]} x {SHAPE[0]}", image.size // 3)


def _table(times: dict[str, list[float]], title: str, pixels: int) -> list[str]:
    def share(names: tuple[str, ...], of: str) -> float:
        columns = zip(*(times[name] for name in names), strict=True)
        return statistics.median(sum(parts) / one for parts, one in zip(columns, times[of], strict=True))

    lines = [f"| {title} | ns per pixel | relative to the native portable kernel |", "|---|---|---|"]
    for name, words in ({"native": "native portable kernel, one thread"} | WORDS).items():
        nanoseconds = statistics.median(times[name]) / pixels * 1e6
        lines.append(f"| {words} | {nanoseconds:.2f} | {share((name,), 'native'):.2f} |")
    whole, keystream = share(("releasing",), "native"), share(("drawing", "settling"), "releasing")
    lines += [
        "",
        f"A release in the page takes **{whole:.2f} times** as long as one by the native portable kernel; 4 are "
        "allowed.",
        f"Keystream and ties take **{keystream:.2f}** of the release; 0.5 are allowed.",
    ]
    print("\n".join(lines))
    return lines
