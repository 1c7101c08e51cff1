"""The network of the page's attack view: a U-Net of about 1 million parameters, its training and its file.

It reconstructs a source from one release of any plan in ``PLANS`` and any pruning in ``PRUNES``. The page runs it in
WebAssembly (web/src/network.js), so it consists of 3 x 3 convolutions, ReLU, 2 x 2 pooling and nearest-neighbour
enlargement, and its batch normalisation is folded into the convolutions when it is exported. Tests:
tests/lab/test_page_network.py and tests/web/test_network.py.
"""

from __future__ import annotations

import hashlib
import json
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import cos, inf, log2, pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_weights

from ldp_slicing.errors import DataError
from ldp_slicing.files import write_atomically
from ldp_slicing.lab.bits import flip_probabilities, to_bits
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.folders import list_images, read_images
from ldp_slicing.lab.data.sets import require_folder
from ldp_slicing.lab.learners.objectives import reconstruction_loss
from ldp_slicing.lab.metrics.images import ssim
from ldp_slicing.lab.peers.training import channels_last
from ldp_slicing.plan import BUDGETS, Plan
from ldp_slicing.torch.simulate import apply_view, simulate
from ldp_slicing.view import Prune, block_of, gain_of

MAGIC = b"LDPNET1\n"
WIDTHS = (24, 48, 96, 160)  # channels at each scale: 0.97 million parameters
INPUTS = 24 + 3 + 2  # bits, channels, view
GREY_PLANS = tuple(Plan.paper(epsilon, (1, 0, 0)) for epsilon in (2.4, 5.2, 12.0, 20.0))  # Y as grey plans release it
PLANS = (
    *(Plan.paper(epsilon) for epsilon in BUDGETS),
    *(Plan.sliced(epsilon, "Y7+Y4+Cb7+Cr7") for epsilon in (1.0, 2.4, 5.2, 8.0, 12.0)),
    *(Plan.sliced(epsilon, "Y7+Y6") for epsilon in (1.0, 2.4, 5.2)),
    Plan.sliced(8.0, "Y7+Y6+Y5+Cb7+Cb6+Cr7+Cr6"),
    *GREY_PLANS,
)
IS_GREY = torch.tensor([one in GREY_PLANS for one in PLANS])
PRUNES: tuple[Prune, ...] = (None, "haar", "haar2", "haar4", "dct")
SIDES = (32, 64, 112)  # of training images, in pixels; smaller sources are enlarged
CROP = 64  # the side of the parts that are trained on, at most
LEARNING_RATE = 2e-3
WARM_UP = 0.1  # share of the training in which the learning rate rises
AVERAGED = 50  # batches whose statistics are averaged
FROZEN_FROM = 0.6  # share of the training after which the statistics of the batch normalisation stay as they are


class _Two(nn.Sequential):
    """Two convolutions, each with batch normalisation and ReLU."""

    def __init__(self, inside: int, outside: int) -> None:
        layers: list[nn.Module] = []
        for before in (inside, outside):
            layers += [nn.Conv2d(before, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
        super().__init__(*layers)


class PageNetwork(nn.Module):
    """float32 [N, 29, H, W], see ``inputs``, to float32 [N, 3, H, W], RGB of about 0 to 1. H, W: multiples of 8."""

    def __init__(self, widths: tuple[int, ...] = WIDTHS) -> None:
        super().__init__()
        self.widths = widths
        self.down = nn.ModuleList(_Two(a, b) for a, b in zip((INPUTS, *widths), widths, strict=False))
        self.up = nn.ModuleList(_Two(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.head = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        kept = list[Tensor]()
        for i, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for block, skipped in zip(self.up, kept[-2::-1], strict=True):
            x = block(torch.cat((functional.interpolate(x, scale_factor=2.0, mode="nearest"), skipped), 1))
        out: Tensor = self.head(x)
        return out

    def track_statistics(self, step: int, *, frozen: bool) -> None:
        """Train with the running statistics of the batch normalisation if ``frozen``, else with those of each batch.

        The page has the running statistics only. Sizes take turns and have different ones, so the running statistics
        are means of many batches, and a network that is trained with those of each batch to the end does not fit them.
        """
        for block in (*self.down, *self.up):
            for norm in (block[1], block[4]):
                norm.train(not frozen)
                norm.momentum = max(1 / (step + 1), 1 / AVERAGED)

    def folded(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield weights [O, I, 3, 3] and biases [O] of each convolution, with the normalisation after it."""
        for block in (*self.down, *self.up):
            for conv, norm in ((block[0], block[1]), (block[3], block[4])):
                yield fuse_conv_bn_weights(
                    conv.weight, None, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
                )
        bias = self.head.bias if self.head.bias is not None else torch.zeros(3)
        yield (  # a fourth channel of zeros: the page computes four at a time
            torch.cat((self.head.weight, torch.zeros_like(self.head.weight[:1]))),
            torch.cat((bias, torch.zeros_like(bias[:1]))),
        )


def inputs(releases: Tensor, plans: tuple[Plan, ...], prune: Prune) -> Tensor:
    """What the network sees of uint8 [N, 3, H, W] releases in RGB, one plan each: float32 [N, 29, H, W].

    Planes 0 to 23: bit b of the word as -1 or 1, times 1 - 2 P(flip), which is 0 for dropped bits. Planes 24 to 26: Y,
    Cb and Cr, -1 to 1. Plane 27: 1 if the view is pruned. Plane 28: the binary logarithm of its gain, over 3.
    """
    words = apply_view(releases, None, colour=True).to(torch.uint8)
    bits = to_bits(words.flip(1)).float()  # Cr first: bit 0 of the word is its lowest bit
    evidence = (2 * bits - 1) * torch.stack([_trust(one) for one in plans]).to(bits.device)[:, :, None, None]
    channels = (words.float() - 128) / 128
    view = torch.tensor([float(block_of(prune) > 1), log2(gain_of(prune)) / 3], device=bits.device)
    return torch.cat((evidence, channels, view[:, None, None].expand(len(words), -1, *words.shape[2:])), 1)


@cache  # the probabilities are exact fractions, and a step has hundreds of images
def _trust(plan: Plan) -> Tensor:
    """float32 [24]: 1 - 2 P(flip) of each bit of the word, the lowest first."""
    return torch.from_numpy(1 - 2 * flip_probabilities(plan)[::-1].reshape(-1)).float()


@dataclass(frozen=True)
class NetworkTraining:
    """steps: of the optimiser. seconds: after which it ends in any case; the learning rate falls to 0 until then.

    batch: the pixels of a step, at most, as a number of 112 x 112 images. The network is trained on crops of 64 x 64.
    report: called after each step with its number and loss.
    """

    steps: int
    device: torch.device
    batch: int = 64
    seconds: float = inf
    seed: int = 0
    sides: tuple[int, ...] = SIDES
    report: Callable[[int, float], None] = lambda step, loss: None


def train_network(sources: Tensor, how: NetworkTraining, widths: tuple[int, ...] = WIDTHS) -> PageNetwork:
    """Train on uint8 [N, 3, H, W] sources that an adversary has, with fresh noise in every step."""
    if len(sources) < 2 or sources.shape[1] != 3:
        raise DataError(f"the network needs at least two colour images; got {tuple(sources.shape)}")
    torch.manual_seed(how.seed)
    network = channels_last(PageNetwork(widths).to(how.device))
    sources = sources.to(how.device)
    optimiser = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=1e-4)
    started, step, done = time.monotonic(), 0, 0.0
    while done < 1:
        side, turn = how.sides[step % len(how.sides)], step // len(how.sides)
        # Every batch has all plans and all prunings, and its plans are always in the same order: their tables are then
        # moved to the device only once.
        crop = min(side, CROP)
        count = max(1, how.batch * SIDES[-1] ** 2 // crop**2 // len(PLANS)) * len(PLANS)
        batch = _resized(sources[torch.randint(len(sources), (count,), device=how.device)], side, crop)
        batch = _greyed(batch.flip(3) if step % 2 else batch)
        parts = zip(batch.chunk(len(PRUNES)), _chunks(PLANS * (count // len(PLANS)), len(PRUNES)), strict=True)
        seen = torch.cat(
            [_released(part, plans, PRUNES[(turn + i) % len(PRUNES)]) for i, (part, plans) in enumerate(parts)]
        )
        network.track_statistics(step, frozen=done > FROZEN_FROM)
        with torch.autocast(how.device.type, torch.bfloat16, enabled=how.device.type == "cuda"):
            guess = network(seen.contiguous(memory_format=torch.channels_last))
        loss = reconstruction_loss(batch, 255 * guess.float())
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * (min(done / WARM_UP, 1.0) + 0.01) * (1 + cos(pi * done)) / 2
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        step += 1
        how.report(step, float(loss.detach()))
        done = max(step / how.steps, (time.monotonic() - started) / how.seconds)
    return network.eval()


def _released(batch: Tensor, plans: tuple[Plan, ...], prune: Prune) -> Tensor:
    """What the network sees of one release of each image."""
    return inputs(simulate(batch, plans, prune=prune), plans, prune)


def _chunks(plans: tuple[Plan, ...], count: int) -> list[tuple[Plan, ...]]:
    """``count`` parts of the same length."""
    return [plans[i : i + len(plans) // count] for i in range(0, len(plans), len(plans) // count)]


def _resized(images: Tensor, side: int, crop: int) -> Tensor:
    """uint8 [N, 3, H, W] to uint8 [N, 3, crop, crop]: resized to side x side, then the same random part of each."""
    if images.shape[2:] != (side, side):
        resized = functional.interpolate(images.float(), (side, side), mode="bilinear", antialias=True)
        images = resized.round_().clamp_(0, 255).to(torch.uint8)
    top, left = torch.randint(side - crop + 1, (2,)).tolist()
    return images[:, :, top : top + crop, left : left + crop]


def _greyed(batch: Tensor) -> Tensor:
    """uint8 [N, 3, H, W], one image for each of ``PLANS`` and so on: those of grey plans without colour."""
    grey = apply_view(batch, None, colour=True)[:, :1].to(torch.uint8)
    return torch.where(IS_GREY.repeat(len(batch) // len(PLANS)).to(batch.device)[:, None, None, None], grey, batch)


def load_sources(name: str, data: Path) -> tuple[Tensor, Tensor]:
    """uint8 [N, 3, H, W]: the images to train on and those to test on.

    name: "cifar10" or "cifar100", or a folder of images in ``data``. Its images are resized to 112 x 112, and every
    twentieth is tested on.
    """
    if name in ("cifar10", "cifar100"):
        images = load_cifar(name, data)
        return _channels_first(images.train.images), _channels_first(images.test.images)
    found = read_images(list_images(require_folder(data / name, "images")), size=(SIDES[-1], SIDES[-1]))
    tested = np.arange(len(found)) % 20 == 0
    return _channels_first(found[~tested]), _channels_first(found[tested])


def _channels_first(images: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(images, -1, 1)))


@torch.no_grad()
def reconstruct(network: PageNetwork, releases: Tensor, plan: Plan, prune: Prune) -> Tensor:
    """uint8 [N, 3, H, W] releases in RGB to uint8 [N, 3, H, W]: what the network makes of them."""
    guess: Tensor = network(inputs(releases, (plan,) * len(releases), prune))
    return (255 * guess + 0.5).floor_().clamp_(0, 255).to(torch.uint8)


@torch.no_grad()
def scores(network: PageNetwork, sources: Tensor, prune: Prune) -> list[tuple[Plan, float]]:
    """Return the mean SSIM of reconstructions of uint8 [N, 3, H, W] from one release each, by colour plan."""
    found = []
    for plan in PLANS[: -len(GREY_PLANS)]:
        guess = reconstruct(network, simulate(sources, plan, prune=prune), plan, prune)
        found.append((plan, float(ssim(guess, sources).mean())))
    return found


def export_network(network: PageNetwork, path: Path, *, name: str, about: str, licence: str, side: int) -> str:
    """Write the network's file for the page and return the SHA-256 of the file.

    The file: ``MAGIC``, the length of a JSON header (uint32, little-endian), the header, and for each convolution its
    weights and biases in float16.
    """
    header: dict[str, Any] = {"name": name, "about": about, "licence": licence, "side": side}
    header |= {"inputs": INPUTS, "widths": list(network.widths)}
    text = json.dumps(header).encode()
    parts = [MAGIC, struct.pack("<I", len(text)), text]
    for weights, biases in network.folded():
        parts += [tensor.detach().cpu().numpy().astype("<f2").tobytes() for tensor in (weights, biases)]
    write_atomically(path, parts)
    return hashlib.sha256(b"".join(parts)).hexdigest()
