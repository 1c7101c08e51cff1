from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.budget import Budget, PresetOption, choose_budget
from ldp_slicing.cli.common import PruneChoice, PruneOption, Slices, Weights, out, refusals_exit
from ldp_slicing.cli.shrinking import Fit, MaxSide, Pad, choose_size
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.plan import COLOUR_BITS

Host = Annotated[
    str, typer.Option("--host", help="Address to listen on. Any address other than this machine's own needs a token.")
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="LDP_SLICING_TOKEN", help="Token that uploads need.", show_default="a new one"),
]
Network = Annotated[
    Path | None,
    typer.Option(
        "--network",
        metavar="FILE",
        help="Network of the attack view, from `lab page-network`.",
        show_default="the one that is included, if any",
    ),
]


@refusals_exit
def studio(
    context: typer.Context,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8765,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    network: Network = None,
    collect: Annotated[
        Path | None,
        typer.Option(
            "--collect",
            metavar="DIR",
            help="Accept uploads of releases, and store them in this folder.",
            show_default=False,
        ),
    ] = None,
    host: Host = "127.0.0.1",
    token: Token = None,
    per_minute: Annotated[
        int, typer.Option("--per-minute", min=1, help="Maximum number of uploads per minute from one address.")
    ] = 600,
    epsilon: Budget = None,
    preset: PresetOption = None,
    weights: Weights = "4:1:1",
    slices: Slices = None,
    prune: PruneOption = PruneChoice.haar,
    max_side: MaxSide = None,
    fit: Fit = None,
    pad: Pad = False,
) -> None:
    """Example: `ldp-slicing studio --open`

    Serve the page on this machine. It privatises images in the browser, shows the release and what an attacker sees,
    and lets you download releases with their cards. Sources never reach this server: the page's content security
    policy forbids all connections, except to upload releases with `--collect`. Downloads are not recorded in the
    ledger.

    With `--collect DIR`, the page and other clients can upload releases to this server. It accepts only releases
    of one plan and view: state them with `--preset`, or with `--epsilon` and the other options for plan, pruning and
    size. DIR becomes a set of releases that `verify` accepts.
    """
    size = choose_size(max_side, fit, pad)
    chosen = None if collect is None else choose_budget(context, preset, epsilon, weights, slices, prune.prune, size)
    try:
        from ldp_slicing.studio.collector import Collector, Wanted
        from ldp_slicing.studio.endpoint import make_collector_app
        from ldp_slicing.studio.page import included_network, read_network
        from ldp_slicing.studio.run import bind, serve
        from ldp_slicing.studio.server import LOOPBACK, make_app
    except ModuleNotFoundError as error:
        raise LdpSlicingError(f"the studio needs {error.name}: pip install 'ldp-slicing[studio]'") from None
    content = included_network() if network is None else read_network(network)
    is_local = host in LOOPBACK
    if collect is None and not is_local:
        raise LdpSlicingError("the page needs no other host than 127.0.0.1: leave --host out, or add --collect")
    if token is not None and not token.strip():
        raise LdpSlicingError("the token is empty, so no upload could have it: choose one, or leave --token out")
    listening = bind(host, port)
    url = f"http://{host}:{listening.getsockname()[1]}/"
    if collect is None or chosen is None:
        app = make_app(content)
    else:
        wanted = Wanted(chosen.plan(COLOUR_BITS), chosen.prune, chosen.size)
        if token is None and not is_local:
            token = secrets.token_urlsafe()
            out.print(f"uploads need the token {token}")
        hosts = LOOPBACK if is_local else ("*",)
        app = make_collector_app(Collector(collect, wanted), hosts, token=token, per_minute=per_minute, network=content)
        out.print(f"releases are collected in {collect}")
    out.print(f"the studio is at {url} (Ctrl+C stops it)")
    if open_browser:
        typer.launch(url)
    serve(app, listening)
