"""The collector's HTTP endpoint: authorisation, limits, the upload itself, and its OpenAPI description."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ldp_slicing.studio.collector import Collector, UploadError
from ldp_slicing.studio.page import read_page, with_data
from ldp_slicing.studio.server import build_app
from ldp_slicing.version import __version__

CARD_BYTES = 1 << 20
MOST_CLIENTS = 10_000  # whose rates are remembered
RECEPTIONS, RECEPTION_SECONDS = 16, 300.0  # uploads that are received at a time, each into a temporary file
CHECKS = 2  # uploads that are in memory at a time: pixels take many times the bytes of their file
MANIFEST_SECONDS = 1.0  # how long manifest and card may lag behind


@dataclass
class UploadRate:
    """At most ``per_minute`` uploads of each address, in bursts of that many."""

    per_minute: int
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)  # allowance, and when

    def allows(self, client: str) -> bool:
        now = time.monotonic()
        left, before = self._left.pop(client, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - before) * self.per_minute / 60)
        allowed = left >= 1
        self._left[client] = (left - 1 if allowed else left, now)
        if len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)
        return allowed


def make_collector_app(
    collector: Collector, hosts: tuple[str, ...], *, token: str | None, per_minute: int, network: bytes | None = None
) -> Starlette:
    """Return the application that serves the page and takes uploads. token: None on loopback only."""
    rate, receptions, checks = UploadRate(per_minute), asyncio.Semaphore(RECEPTIONS), asyncio.Semaphore(CHECKS)

    async def upload(request: Request) -> Response:
        if not _is_same_origin(request):
            return _refusal("uploads from pages of other sites are refused", 403)
        if not rate.allows(request.client.host if request.client else ""):  # before the token: nobody tries many tokens
            return _refusal("too many uploads: try again in a minute", 429, {"Retry-After": "60"})
        if token is not None and not _is_authorised(request, token):
            return _refusal("the token is missing or wrong", 401, {"WWW-Authenticate": "Bearer"})
        try:
            async with receptions, _read_form(request, collector.wanted.most_bytes) as (release, card), checks:
                name = await run_in_threadpool(collector.accept, await release.read(), await card.read())
        except UploadError as error:
            return _refusal(str(error), error.status)
        return JSONResponse({"name": name}, 201)

    async def about(request: Request) -> Response:
        return JSONResponse({**collector.wanted.to_dict(), "releases": collector.count})

    async def give_network(request: Request) -> Response:
        return Response(network, media_type="application/octet-stream")

    async def openapi(request: Request) -> Response:
        return JSONResponse(describe(needs_token=token is not None))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async def keep_up() -> None:
            while True:
                await asyncio.sleep(MANIFEST_SECONDS)
                await run_in_threadpool(collector.keep_up)

        task = asyncio.create_task(keep_up())
        yield
        task.cancel()
        collector.keep_up()

    told = {"needs_token": token is not None, "has_network": network is not None}
    page = with_data(read_page(collects=True), None, told | {"settings": collector.wanted.for_page()})
    routes = [
        Route("/releases", upload, methods=["POST"]),
        Route("/collector", about, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
        *([] if network is None else [Route("/network", give_network, methods=["GET"])]),
    ]
    app = build_app(page, list(routes), hosts)
    app.router.lifespan_context = lifespan
    return app


def _refusal(reason: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"reason": reason}, status, headers)


def _is_authorised(request: Request, token: str) -> bool:
    given = request.headers.get("authorization", "")
    return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())


def _is_same_origin(request: Request) -> bool:
    """Whether the request comes from this server's page, or from no page at all."""
    origin = request.headers.get("origin")
    return origin is None or origin == f"{request.url.scheme}://{request.headers.get('host', '')}"


@asynccontextmanager
async def _read_form(request: Request, most_bytes: int) -> AsyncIterator[tuple[UploadFile, UploadFile]]:
    """Yield release and card of a multipart form, and receive no more than both may have."""
    limit, received = most_bytes + CARD_BYTES + 4096, 0
    receive = request.receive

    async def limited() -> Any:  # noqa: ANN401 - a message of the server
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise UploadError(f"the upload has more than {limit:,} bytes", 413)
        return message

    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise UploadError("send the release and its card as multipart/form-data", 415)
    try:
        async with asyncio.timeout(RECEPTION_SECONDS):
            form = await Request(request.scope, limited).form(max_files=2, max_fields=0)
    except TimeoutError:
        raise UploadError(f"the upload took longer than {RECEPTION_SECONDS:g} seconds: send it again", 408) from None
    except ClientDisconnect:
        raise UploadError("the upload was cut off", 400) from None
    except (HTTPException, MultiPartException, UnicodeDecodeError) as error:
        reason = getattr(error, "detail", None) or getattr(error, "message", None) or str(error)
        raise UploadError(f"the form cannot be read: {reason}", 400) from None
    except OSError as error:  # long uploads are received into temporary files
        raise UploadError(f"the upload could not be received ({error.strerror}): send it again later", 507) from None
    try:
        release, card = form.get("release"), form.get("card")
        if not (isinstance(release, UploadFile) and isinstance(card, UploadFile)):
            raise UploadError("the form needs two files, release and card", 400)
        yield release, card
    finally:
        await form.close()


def describe(*, needs_token: bool) -> dict[str, Any]:
    """Return the OpenAPI description of the endpoint."""

    def answer(what: str, name: str = "reason") -> dict[str, Any]:
        schema = {"type": "object", "required": [name], "properties": {name: {"type": "string"}}}
        return {"description": what, "content": {"application/json": {"schema": schema}}}

    file = {"type": "string", "format": "binary"}
    form = {"type": "object", "required": ["release", "card"], "properties": {"release": file, "card": file}}
    upload: dict[str, Any] = {
        "operationId": "upload",
        "summary": "Upload one release with its card",
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": form}}},
        "responses": {
            "201": answer("stored", "name"),
            "400": answer("the form cannot be read"),
            "401": answer("the token is missing or wrong"),
            "403": answer("sent by a page of another site"),
            "408": answer("the upload took too long: send it again"),
            "409": answer("uploaded before"),
            "413": answer("too large"),
            "415": answer("not a form"),
            "422": answer("not a release of the wanted kind"),
            "429": answer("too many uploads"),
            "507": answer("no room to store it: send it again later"),
        },
    }
    about = {
        "operationId": "about",
        "summary": "What this collector takes",
        "responses": {
            "200": {
                "description": "plan, pruning, size",
                "content": {"application/json": {"schema": {"type": "object"}}},
            }
        },
    }
    description: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "LDP-Slicing collector", "version": __version__},
        "paths": {"/releases": {"post": upload}, "/collector": {"get": about}},
    }
    if needs_token:
        description["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        upload["security"] = [{"token": []}]
    return description
