"""A black-box attack on any peer: a network, trained on public images, that reconstructs sources from releases."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ldp_slicing.lab.learners.models.adversaries import UNet
from ldp_slicing.lab.learners.objectives import SSIM_WEIGHT
from ldp_slicing.lab.metrics.images import ssim
from ldp_slicing.lab.peers.fusing import fused
from ldp_slicing.lab.peers.interface import to_bytes
from ldp_slicing.lab.peers.training import (
    PublicReleases,
    TrainingSchedule,
    channels_last,
    half_precision,
    minimise,
    seeded,
)


class PeerNetwork(nn.Module):
    """float32 [N, C', H, W], a peer's standardised input, to float32 [N, 3, H, W], about 0..255: a U-Net."""

    def __init__(self, channels: int, width: int = 48) -> None:
        super().__init__()
        self.network = UNet(channels, 3, 1, width=width)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.network(inputs, inputs.new_zeros(len(inputs), 1))
        return 127.5 * (out.float() + 1)


def train_network(releases: PublicReleases, schedule: TrainingSchedule, *, width: int = 48) -> PeerNetwork:
    """Train on public images and their releases. The adversary may release its own images at will.

    The loss is the mean absolute error and 1 - SSIM, as that of the lab's other adversaries.
    """
    public = releases.public
    with seeded(schedule.seed):
        network = channels_last(PeerNetwork(releases.channels, width).to(public.device)).train()

    def error(inputs: Tensor, images: Tensor) -> Tensor:
        with half_precision(images.device):
            guessed: Tensor = network(inputs)
        sources = images.float()
        return (guessed - sources).abs().mean() / 255 + SSIM_WEIGHT * (1 - ssim(guessed, sources).mean())

    fast = fused(error, any_size=False)

    def loss(indices: Tensor, epoch: int) -> Tensor:
        return fast(releases.inputs(indices, epoch), public[indices.to(public.device)])

    minimise(loss, network.parameters(), len(public), schedule, public.device)
    return network.eval()


@torch.no_grad()
def reconstruct(network: PeerNetwork, inputs: Tensor) -> Tensor:
    """uint8 [N, 3, H, W]: what the network makes of the inputs."""
    with half_precision(inputs.device):
        return to_bytes(network(inputs))
