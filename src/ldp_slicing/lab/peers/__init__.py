"""Other systems that protect images, behind one interface, so that they are measured like LDP-Slicing itself.

Each module holds one system and a tuple ``PEERS`` with its settings. docs/guide/other-systems.md says how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TypeVar

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.peers.interface import Peer

Item = TypeVar("Item")

MODULES = {
    "none": "unprotected",
    "random": "random_image",
    "ldp-slicing": "slicing",
    "duetface": "duetface",
    "partialface": "partialface",
    "dctdp": "dctdp",
    "minusface": "minusface",
    "instahide": "instahide",
    "dp-pix": "dppix",
    "peep": "peep",
    "pro-face": "proface",
    "cloak": "cloak",
    "ppfr-fd-like": "ppfrfd",
    "advface-like": "advface",
}


def load_peers(system: str) -> tuple[Peer, ...]:
    """Every setting of a system, not fitted. The system's module is imported when it is asked for."""
    if system not in MODULES:
        raise LdpSlicingError(f"there is no peer {system!r}; there are {', '.join(MODULES)}")
    found: tuple[Peer, ...] = import_module(f"{__package__}.{MODULES[system]}").PEERS
    return found


def load_peer(name: str) -> Peer:
    """The setting of that name, such as "duetface" or "instahide:k4". A system without a colon is its first setting."""
    system, colon, _ = name.partition(":")
    found = load_peers(system)
    if not colon:
        return found[0]
    for peer in found:
        if peer.name == name:
            return peer
    raise LdpSlicingError(f"there is no peer {name!r}; there are {', '.join(peer.name for peer in found)}")


def systems_first(items: Iterable[Item], name: Callable[[Item], str]) -> list[Item]:
    """The items in the order of ``MODULES``, by the name of the peer that each belongs to: no protection first.

    Settings of a system are in the order of its module.
    """
    order = {peer.name: place for place, peer in enumerate(peer for system in MODULES for peer in load_peers(system))}
    return sorted(items, key=lambda item: order.get(name(item), len(order)))
