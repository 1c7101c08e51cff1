"""The page as package data: one HTML file per build, and the headers with which it is served.

`web/build.mjs` builds both files. They contain everything and load nothing. The build with the collector can talk to
the server that it came from; the other one cannot talk to anybody.
"""

from __future__ import annotations

import base64
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from ldp_slicing.errors import LdpSlicingError

_POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]+)"')
_DATA = "<!--data-->"
_MAGIC = b"LDPNET1\n"


def read_page(*, collects: bool) -> str:
    """Return the text of a build."""
    name = "collector.html" if collects else "studio.html"
    return files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def included_network() -> bytes | None:
    """Return the network of the attack view that this installation carries, or None."""
    file = files(__package__).joinpath("page-network.bin")
    return file.read_bytes() if file.is_file() else None


def read_network(path: Path) -> bytes:
    """Return the content of a network's file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LdpSlicingError(f"{path} cannot be read: {error.strerror}") from None
    if not content.startswith(_MAGIC):
        raise LdpSlicingError(f"{path} is not a network of the attack view: make one with `lab page-network`")
    return content


def with_data(page: str, network: bytes | None, collector: dict[str, Any] | None = None) -> str:
    """Return the page with a network and the collector's settings inside: it fetches nothing."""
    parts = []
    if network is not None:
        encoded = base64.b64encode(network).decode()
        parts.append(f'<script type="text/plain" id="network-file">{encoded}</script>')
    if collector is not None:
        text = json.dumps(collector).replace("<", "\\u003c")
        parts.append(f'<script type="application/json" id="collector">{text}</script>')
    return page.replace(_DATA, "".join(parts), 1)


def headers(page: str) -> dict[str, str]:
    """Return the headers of every answer. The policy is that of the page, which also binds its worker."""
    found = _POLICY.search(page)
    if found is None:
        raise LdpSlicingError("the page has no content policy: build it again with web/build.mjs")
    return {
        "Content-Security-Policy": f"{found[1]}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
        "Cache-Control": "no-store",
    }
