"""A network that rebuilds sources from the releases of any peer: the black box, with public images to learn from."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.learners.models.adversaries import UNet
from ldp_slicing.lab.peers.interface import Peer, derive_keys, to_bytes
from ldp_slicing.lab.peers.training import TrainingSchedule, half_precision, minimise, seeded


class PeerNetwork(nn.Module):
    """float32 [N, C', H, W], a peer's standardised input, to float32 [N, 3, H, W], about 0..255: a U-Net."""

    def __init__(self, channels: int, width: int = 48) -> None:
        super().__init__()
        self.network = UNet(channels, 3, 1, width=width)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.network(inputs, inputs.new_zeros(len(inputs), 1))
        return 127.5 * (out.float() + 1)


def train_network(
    peer: Peer, public: Tensor, people: Tensor, schedule: TrainingSchedule, *, width: int = 48
) -> PeerNetwork:
    """Train on public images, each released anew in every epoch. The adversary may release its own images at will.

    public: uint8 [N, 3, H, W]. people: int64 [N]. The loss is the mean absolute error.
    """
    channels = peer.protect(public[:1], derive_keys("one", 1), people[:1]).as_input().shape[1]
    with seeded(schedule.seed):
        network = PeerNetwork(channels, width).to(public.device).train()
    used = torch.zeros(len(public), dtype=torch.int64)
    known = [derive_keys(f"adversary's release {epoch}", len(public)) for epoch in range(schedule.epochs)]

    def loss(indices: Tensor) -> Tensor:
        chosen = indices.cpu()
        keys = [known[int(used[i])][i] for i in chosen.tolist()]
        used[chosen] += 1
        inputs = peer.protect(public[indices], keys).as_input()  # as a query: not as the system's own training images
        with half_precision(public.device):
            return functional.l1_loss(network(inputs), public[indices].float()) / 127.5

    minimise(loss, network.parameters(), len(public), schedule, public.device)
    return network.eval()


@torch.no_grad()
def rebuild(network: PeerNetwork, inputs: Tensor) -> Tensor:
    """uint8 [N, 3, H, W]: what the network makes of the inputs."""
    with half_precision(inputs.device):
        return to_bytes(network(inputs))
