"""The page's attack view computes what PyTorch computes."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ldp_slicing import Plan, Slicer
from ldp_slicing.lab.page_network import PageNetwork, export_network, reconstruct
from ldp_slicing.studio.page import included_network
from ldp_slicing.view import Prune
from tests.web.node import ask, needs_node, spec

pytestmark = needs_node


def untrained() -> PageNetwork:
    """A network with statistics that are not those of a new one, and outputs over the whole range."""
    torch.manual_seed(3)
    network = PageNetwork()
    for _ in range(3):
        network(torch.randn(2, 29, 16, 16))
    with torch.no_grad():
        network.head.weight *= 4
        network.head.bias += 0.5
    return network.eval()


def parsed(content: bytes) -> PageNetwork:
    """The network in a file, whose normalisation is part of its convolutions."""
    end = 12 + int.from_bytes(content[8:12], "little")
    network = PageNetwork(tuple(json.loads(content[12:end])["widths"])).eval()
    values = torch.from_numpy(np.frombuffer(content[end:], "<f2").astype(np.float32))
    with torch.no_grad():
        for block in (*network.down, *network.up):
            for conv, norm in ((block[0], block[1]), (block[3], block[4])):
                count = conv.weight.numel()
                conv.weight.copy_(values[:count].view_as(conv.weight))
                norm.bias.copy_(values[count : count + len(norm.bias)])
                norm.running_var.fill_(1 - norm.eps)
                values = values[count + len(norm.bias) :]
        network.head.weight.copy_(values[: 9 * 4 * network.widths[0]].view(4, -1, 3, 3)[:3])
        network.head.bias.copy_(values[-4:-1])
    return network


@pytest.mark.parametrize(
    ("plan", "prune", "shape"),
    [
        (Plan.paper(20.0), "haar", (112, 112)),
        (Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7"), "haar4", (40, 72)),
        (Plan.sliced(12.0, "Y7+Y6+Y5+Y4+Cb7+Cb6+Cb5+Cr7+Cr6"), None, (16, 24)),  # a wide slice
        (Plan.grey(12.0), "haar", (32, 24)),
    ],
)
def test_output_is_within_one_level(plan: Plan, prune: Prune, shape: tuple[int, int], tmp_path: Path) -> None:
    """With the network that the package carries, or else with an untrained one."""
    content = included_network()
    if content is None:
        export_network(untrained(), tmp_path / "network", name="test", about="", licence="", side=112)
        content = (tmp_path / "network").read_bytes()
    (tmp_path / "network").write_bytes(content)
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    source = np.stack([3 * rows, 2 * columns, rows + columns], -1).astype(np.uint8)
    release = Slicer(plan, prune=prune)(source if plan.is_colour else source[:, :, 0])
    (tmp_path / "release").write_bytes(release.tobytes())
    question = {"ask": "reconstruct", "plan": spec(plan), "prune": prune, "width": shape[1], "height": shape[0]}
    (found,) = ask({**question, "network": str(tmp_path / "network"), "file": str(tmp_path / "release")})
    if not plan.is_colour:  # for the network it is a release in colour without Cb and Cr
        release, plan = np.repeat(release[:, :, None], 3, 2), Plan.paper(12.0, (1, 0, 0))
    expected = reconstruct(parsed(content), torch.from_numpy(release).movedim(2, 0)[None], plan, prune)[0]
    reconstructed = np.frombuffer(base64.b64decode(found), np.uint8).reshape(*shape, 3)
    assert expected.float().std() > 5
    assert np.abs(reconstructed.astype(int) - expected.movedim(0, 2).numpy()).max() <= 1


def test_a_file_holds_what_the_network_computes(tmp_path: Path) -> None:
    network = untrained()
    export_network(network, tmp_path / "network", name="test", about="", licence="", side=112)
    release = torch.randint(0, 256, (1, 3, 16, 16), dtype=torch.uint8)
    networks = (network, parsed((tmp_path / "network").read_bytes()))
    one, two = (reconstruct(each, release, Plan.paper(20.0), "haar") for each in networks)
    assert (one.int() - two.int()).abs().max() <= 2  # its weights have 16 bits
