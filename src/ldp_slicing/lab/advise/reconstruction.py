"""Reconstruction: one network for all plans of a view, told the flip probability of every bit (the white box)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldp_slicing.lab.advise.grid import ViewKey
from ldp_slicing.lab.advise.intervals import Estimate, mean_of, share_of
from ldp_slicing.lab.advise.learning import Bench, in_parts
from ldp_slicing.lab.advise.networks import Batches, fit
from ldp_slicing.lab.advise.splits import LinkageTest, Parts
from ldp_slicing.lab.bits import repeat_pixels
from ldp_slicing.lab.learners.graph import half_precision
from ldp_slicing.lab.learners.models.adversaries import BitUNet
from ldp_slicing.lab.learners.objectives import reconstruction_loss
from ldp_slicing.lab.metrics.images import CRITERIA, psnr, ssim
from ldp_slicing.lab.peers.training import channels_last, seeded
from ldp_slicing.plan import Plan
from ldp_slicing.torch.simulate import simulate


@dataclass(frozen=True)
class ViewReconstructor:
    """A trained network, and the view whose releases it reads."""

    network: BitUNet
    view: ViewKey
    seconds: float  # of training

    def release(self, sources: Tensor, plans: Plan | Sequence[Plan], generator: torch.Generator) -> Tensor:
        """uint8 [N, C, h, w] words: one release of each source."""
        size, prune = self.view
        return simulate(sources, plans, generator, prune=prune, size=size, output="ycbcr")

    @torch.inference_mode()
    def reconstruct(self, words: Tensor, plan: Plan, shape: Sequence[int]) -> Tensor:
        """Released words to float32 [N, C, H, W], 0..255, in the size ``shape`` of the sources."""
        known = torch.tensor([self.network.plan_features(plan)], device=words.device)

        def guess(part: Tensor) -> Tensor:
            large = repeat_pixels(part, shape).contiguous(memory_format=torch.channels_last)
            with half_precision(words.device):
                guessed: Tensor = self.network(large, known.expand(len(part), -1))[0]
            return guessed.float().clamp(0, 255)

        return torch.cat([guess(part) for part in torch.split(words, 100)])


def train_reconstructor(
    bench: Bench, view: ViewKey, plans: Sequence[Plan], parts: Parts, steps: int, seed: int
) -> ViewReconstructor:
    """Train on the images of ``parts.train``, which the adversary may release as often as it likes."""
    device, train = bench.device, torch.from_numpy(parts.train).to(bench.device)
    channels, height, width = bench.images.shape[1:]
    with seeded(seed):
        network = channels_last(BitUNet(channels, width=bench.effort.width).to(device)).train()
    count = bench.effort.batch_of(4 * height * width, len(train))  # the network has more to keep than a learner
    batches = Batches(len(train), count, seed, device)
    shares = [plans[i % len(plans)] for i in range(count)]
    known = torch.tensor([network.plan_features(plan) for plan in shares], device=device)
    reconstructor = ViewReconstructor(network, view, 0.0)

    def loss() -> Tensor:
        images = batches.vary(bench.images[train[batches.draw()]])
        words = reconstructor.release(images, shares, batches.generator)
        with half_precision(device):
            large = repeat_pixels(words, (height, width)).contiguous(memory_format=torch.channels_last)
            guessed, _ = network(large, known)
        return reconstruction_loss(images, guessed)

    seconds = fit(loss, network, steps, batches, rate=bench.effort.rate, decay=0.01, stop=bench.stop)
    return ViewReconstructor(network.eval(), view, seconds)


@dataclass(frozen=True)
class Attacked:
    """One release of each attacked image, and what the network makes of it.

    which: int64 [M], their positions among all sources. words: uint8 [M, C, h, w]. reconstructed: float32 [M, C, H, W].
    """

    which: NDArray[np.int64]
    words: Tensor
    reconstructed: Tensor


def attack_images(
    bench: Bench, reconstructor: ViewReconstructor, plan: Plan, which: NDArray[np.int64], seed: int
) -> Attacked:
    sources = bench.images[torch.from_numpy(which).to(bench.device)]
    generator = torch.Generator(bench.device).manual_seed(2000 + seed)
    words = in_parts(sources, lambda part: reconstructor.release(part, plan, generator))
    return Attacked(which, words, reconstructor.reconstruct(words, plan, sources.shape[2:]))


def attacked_of(parts: Parts, test: LinkageTest | None, most: int) -> NDArray[np.int64]:
    """The images that the linkage test releases, and then other held-out ones, evenly spread, if those are too few.

    If most groups have one image, as those of patients often do, the linkage test alone would leave too few images to
    measure reconstruction. most: their number, unless the linkage test releases more.
    """
    linked = parts.test[:0] if test is None else parts.test[test.released]
    others = np.setdiff1d(parts.test, linked)
    places = np.linspace(0, len(others) - 1, min(max(0, most - len(linked)), len(others)))
    return np.concatenate((linked, others[places.astype(np.int64)]))


def score(bench: Bench, attacked: Attacked) -> dict[str, Any]:
    """SSIM, PSNR and the share that is reconstructed within r."""
    sources = bench.images[torch.from_numpy(attacked.which).to(bench.device)]
    clusters = bench.sources.clusters
    groups = None if clusters is None else clusters[attacked.which]
    pairs = list(zip(torch.split(attacked.reconstructed, 250), torch.split(sources, 250), strict=True))

    def over(measure: Callable[[Tensor, Tensor], Tensor]) -> NDArray[np.float64]:
        return np.asarray(torch.cat([measure(a, b) for a, b in pairs]).double().cpu().numpy())

    within: dict[str, Estimate] = {one.name: share_of(over(one.distance) <= one.radius, groups) for one in CRITERIA}
    return {
        "ssim": mean_of(over(ssim), groups, least=-1.0).to_dict(),
        "psnr_db": mean_of(over(psnr), groups, most=100.0).to_dict(),
        **{name: share.to_dict() for name, share in within.items()},
    }
