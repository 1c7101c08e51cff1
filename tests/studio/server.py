"""The studio's command in a process of its own."""

from __future__ import annotations

import re
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from ldp_slicing import Plan, Slicer
from ldp_slicing.png import encode_png

PLAN = Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7")
OPTIONS = ("--epsilon", "5.2", "--slices", "Y7+Y4+Cb7+Cr7", "--max-side", "64")


@dataclass
class Studio:
    process: subprocess.Popen[str]
    url: str

    def upload(self, release: bytes, card: str | bytes, **options: str) -> httpx.Response:
        files = {"release": ("r.png", release, "image/png"), "card": ("c.json", card, "application/json")}
        return httpx.post(f"{self.url}releases", files=files, headers=options, timeout=60)


@contextmanager
def studio(*arguments: str | Path) -> Iterator[Studio]:
    """Run `ldp-slicing studio`; it ends with SIGTERM, unless the test killed it."""
    command = [sys.executable, "-m", "ldp_slicing", "studio", "--port", "0", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = ""
    for line in process.stdout:
        if found := re.search(r"the studio is at (\S+)", line):
            url = found[1]
            break
    try:
        yield Studio(process, url)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(30)
        process.stdout.close()


def release_of(seed: int, side: int = 64, plan: Plan = PLAN) -> tuple[bytes, str]:
    """Return a release, as a PNG file, and its card."""
    rows, columns = np.mgrid[:side, :side]
    source = np.stack([rows + seed, columns, rows * columns // 7], -1).astype(np.uint8)
    slicer = Slicer(plan, size=64)
    return b"".join(encode_png(slicer(source), plan)), slicer.card(side, side).to_json()


@contextmanager
def recorder(url: str) -> Iterator[tuple[str, bytearray]]:
    """A proxy in front of a studio: its address, and every byte that clients send through it."""
    sent = bytearray()
    target = httpx.URL(url)

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((target.host, target.port or 80)) as server:
                back = threading.Thread(target=copy, args=(server, self.request, bytearray()))
                back.start()
                copy(self.request, server, sent)
                back.join()

    def copy(one: socket.socket, other: socket.socket, seen: bytearray) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                seen += data
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay) as proxy:
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{proxy.server_address[1]}/", sent
        finally:
            proxy.shutdown()
