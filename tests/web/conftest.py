from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.web.node import WEB


class Quiet(SimpleHTTPRequestHandler):
    extensions_map = {".js": "text/javascript", ".html": "text/html", ".wasm": "application/wasm"}  # noqa: RUF012

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def served() -> Iterator[str]:
    """The folder web/ at an address of this machine, for modules that a browser loads."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(WEB)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
