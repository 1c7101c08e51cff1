"""The server of the studio: one page, and the collector's endpoint if there is one.

Every answer has the headers of ``page.headers``. Requests for other hosts are refused, so that no other site can reach
the server under a name of its own.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ldp_slicing.studio.page import headers, read_page, with_data

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class _Headers:
    """Adds headers to every answer, errors included."""

    def __init__(self, app: ASGIApp, added: dict[str, str]) -> None:
        self.app = app
        self.added = [(name.lower().encode(), value.encode()) for name, value in added.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self.added]
            await send(message)

        await self.app(scope, receive, send_with_headers)


def make_app(network: bytes | None = None, hosts: tuple[str, ...] = LOOPBACK) -> Starlette:
    """Return the application that serves the page, which cannot send anything."""
    page = with_data(read_page(collects=False), network)
    return build_app(page, [], hosts)


def build_app(page: str, routes: list[BaseRoute], hosts: tuple[str, ...]) -> Starlette:
    """Return the application with the page and these routes."""

    async def index(request: Request) -> Response:
        return HTMLResponse(page)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "OK"})

    return Starlette(
        routes=[Route("/", index), Route("/health", health), *routes],
        middleware=[
            Middleware(_Headers, added=headers(page)),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
        ],
    )
