"""The paper's identity distinguishing attack on any peer: a Wide-ResNet-28 on a release and a public image."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.attacks.pairs import advantage
from ldp_slicing.lab.learners.models.classify import wide_resnet28
from ldp_slicing.lab.learners.objectives import Partners
from ldp_slicing.lab.peers.interface import BATCH, Peer, derive_keys
from ldp_slicing.lab.peers.training import TrainingSchedule, channels_last, half_precision, minimise, seeded
from ldp_slicing.lab.rows import Metrics


def train_on_pairs(peer: Peer, public: Tensor, labels: Tensor, schedule: TrainingSchedule, *, width: int) -> nn.Module:
    """Train on pairs of public images, drawn anew in every step, the first of which is released anew in every epoch.

    public: uint8 [N, 3, H, W]. labels: int64 [N], from 0, each at least twice. Images are mirrored at random.
    """
    device, classes = public.device, int(labels.max()) + 1
    partners = Partners(labels, classes, torch.Generator(device).manual_seed(schedule.seed))
    coins = torch.Generator().manual_seed(schedule.seed)
    channels = peer.protect(public[:1], derive_keys("one", 1)).as_input().shape[1]
    with seeded(schedule.seed):
        network = channels_last(wide_resnet28(2, width=width, channels=channels + 3).to(device)).train()
    keys: dict[int, list[bytes]] = {}

    def loss(indices: Tensor, epoch: int) -> Tensor:
        if epoch not in keys:
            keys.clear()
            keys[epoch] = derive_keys(f"pairs, epoch {epoch}", len(public))
        where = indices.to(device)
        partner, same = partners.draw(where)
        mirrored = (torch.rand(2, len(indices), generator=coins) < 0.5).to(device)
        sources, others = (_mirror(public[which], flip) for which, flip in zip((where, partner), mirrored, strict=True))
        released = peer.protect(sources, [keys[epoch][i] for i in indices.tolist()]).as_input()
        return functional.cross_entropy(_compare(network, released, others), same)

    minimise(loss, network.parameters(), len(public), schedule, device)
    return network.eval()


@torch.no_grad()
def attack_pairs(network: nn.Module, peer: Peer, tested: Tensor, pairs: NDArray[np.int64]) -> Metrics:
    """The advantage on int64 [M, 3] pairs of uint8 [K, 3, H, W] images; the first of a pair is released, once."""
    keys, correct = derive_keys("tested", len(tested)), 0
    for first, second, same in (part.unbind(1) for part in torch.split(torch.from_numpy(pairs), BATCH)):
        released = peer.protect(tested[first.to(tested.device)], [keys[i] for i in first.tolist()]).as_input()
        says = _compare(network, released, tested[second.to(tested.device)]).argmax(1)
        correct += int((says.cpu() == same).sum())
    return advantage(correct, len(pairs))


def _compare(network: nn.Module, released: Tensor, public: Tensor) -> Tensor:
    """Inputs of the first images and uint8 [N, 3, H, W] second images to logits [N, 2]: different, the same."""
    with half_precision(released.device):
        out: Tensor = network(torch.cat((released, public.float() / 64 - 2), 1))
    return out.float()


def _mirror(images: Tensor, chosen: Tensor) -> Tensor:
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)
