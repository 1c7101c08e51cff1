"""Listening and serving."""

from __future__ import annotations

import socket

import uvicorn
from starlette.applications import Starlette

from ldp_slicing.errors import LdpSlicingError


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket, so that the address is known before anything is served."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)  # requests wait from now on, until they are served
    except OSError as error:
        listening.close()
        raise LdpSlicingError(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another --port"
        ) from None
    return listening


def serve(app: Starlette, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM."""
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, date_header=False)
    uvicorn.Server(config).run(sockets=[listening])
