"""Utility: what a small learner learns from one decoded release of each image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ldp_slicing.lab.advise.grid import Setting
from ldp_slicing.lab.advise.intervals import balanced_accuracy, roc_auc, share_of
from ldp_slicing.lab.advise.networks import Batches, Effort, Stoppable, build, fit
from ldp_slicing.lab.advise.sources import SourceSet
from ldp_slicing.lab.advise.splits import Parts
from ldp_slicing.lab.learners.graph import half_precision
from ldp_slicing.torch.decode import Decoder
from ldp_slicing.torch.simulate import simulate

AT_ONCE = 500


@dataclass(frozen=True)
class Bench:
    """SourceSet on a device, and what every measurement needs.

    images: uint8 [N, C, H, W] on the device. priors: of decoders, by the name of a setting; they are fitted once.
    """

    sources: SourceSet
    images: Tensor
    effort: Effort
    stop: Callable[[], bool]
    priors: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def on(cls, sources: SourceSet, device: torch.device, stop: Callable[[], bool]) -> Bench:
        images = torch.from_numpy(np.ascontiguousarray(sources.images.transpose(0, 3, 1, 2))).to(device)
        return cls(sources, images, Effort.on(device), stop)

    @property
    def device(self) -> torch.device:
        return self.images.device


def in_parts(images: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.cat([change(part) for part in torch.split(images, AT_ONCE)])


def learn(bench: Bench, setting: Setting | None, parts: Parts, steps: int, seed: int) -> dict[str, Any]:
    """Train on decoded releases of ``parts.train`` and test on those of ``parts.test``; None: on the sources."""
    inputs = bench.images if setting is None else decoded(bench, setting, seed)
    effort, device = bench.effort, bench.device
    labels = torch.from_numpy(bench.sources.labels).to(device)
    train, test = (torch.from_numpy(which).to(device) for which in (parts.train, parts.test))
    mean, deviation = _statistics(inputs[train])
    height, width = inputs.shape[2:]
    network = build(inputs.shape[1], len(bench.sources.classes), max(height, width), effort, seed, device)
    batches = Batches(len(train), effort.batch_of(height * width, len(train)), seed, device)

    def outputs(images: Tensor) -> Tensor:
        ready = ((images.float() - mean) / deviation).contiguous(memory_format=torch.channels_last)
        with half_precision(device):
            out: Tensor = network(ready)
        return out.float()

    def loss() -> Tensor:
        where = train[batches.draw()]
        return functional.cross_entropy(outputs(batches.vary(inputs[where])), labels[where], label_smoothing=0.05)

    seconds = fit(loss, network, steps, batches, rate=2e-3, decay=0.05, stop=bench.stop)
    network.eval()
    with torch.inference_mode():
        scores = in_parts(inputs[test], outputs).softmax(1).double().cpu().numpy()
    truth = bench.sources.labels[parts.test]
    clusters = bench.sources.clusters
    groups = None if clusters is None else clusters[parts.test]
    hits = scores.argmax(1) == truth
    return {
        "accuracy": share_of(hits, groups).to_dict(),
        "balanced_accuracy": balanced_accuracy(hits, truth, groups).to_dict(),
        "roc_auc": roc_auc(scores, truth, groups).to_dict(),
        "steps": steps,
        "training_seconds": seconds,
    }


def decoded(bench: Bench, setting: Setting, seed: int) -> Tensor:
    """uint8 [N, C, h, w]: one release of each source, decoded with the plan and the releases alone."""
    generator = torch.Generator(bench.device).manual_seed(1000 + seed)
    with Stoppable(bench.stop):
        released = in_parts(
            bench.images,
            lambda part: simulate(part, setting.plan, generator, prune=setting.prune, size=setting.size),
        )
        if setting.name not in bench.priors:
            decoder = Decoder.fit(released, setting.plan, prune=setting.prune)
            bench.priors[setting.name] = decoder.prior
        else:
            decoder = Decoder(setting.plan, bench.priors[setting.name], prune=setting.prune)
        return in_parts(released, decoder)


def _statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, float32 [1, C, 1, 1], from some of the images."""
    some = images[:2000].float()
    return some.mean((0, 2, 3), keepdim=True), some.std((0, 2, 3), keepdim=True).clamp_min(1.0)
