"""The page's attack view computes what PyTorch computes."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
import torch

from ldp_slicing import Plan, Slicer
from ldp_slicing.lab.page_network import PageNetwork, export_network, rebuild
from ldp_slicing.view import Prune
from tests.web.node import ask, needs_node, spec

pytestmark = needs_node


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
    torch.manual_seed(3)
    network = PageNetwork()
    for _ in range(3):
        network(torch.randn(2, 29, 16, 16))  # statistics that are not those of a new network
    with torch.no_grad():
        network.head.weight *= 4  # outputs over the whole range
        network.head.bias += 0.5
    network.eval()
    export_network(network, tmp_path / "network", name="test", about="", licence="", side=112)
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    source = np.stack([3 * rows, 2 * columns, rows + columns], -1).astype(np.uint8)
    release = Slicer(plan, prune=prune)(source if plan.is_colour else source[:, :, 0])
    (tmp_path / "release").write_bytes(release.tobytes())
    question = {"ask": "rebuild", "plan": spec(plan), "prune": prune, "width": shape[1], "height": shape[0]}
    (found,) = ask({**question, "network": str(tmp_path / "network"), "file": str(tmp_path / "release")})
    if not plan.is_colour:  # for the network it is a release in colour without Cb and Cr
        release, plan = np.repeat(release[:, :, None], 3, 2), Plan.paper(12.0, (1, 0, 0))
    expected = rebuild(network, torch.from_numpy(release).movedim(2, 0)[None], plan, prune)[0].movedim(0, 2).numpy()
    assert expected.std() > 20
    rebuilt = np.frombuffer(base64.b64decode(found), np.uint8).reshape(expected.shape)
    assert np.abs(rebuilt.astype(int) - expected).max() <= 1
