"""Whose pictures are attacked: the adversary's own public images, the sources it wants, and how well it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldp_slicing.lab.attacks.recognition import RecognitionMetric, load_recogniser, on_pairs
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.lfw import load_lfw, sides
from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.metrics.images import CRITERIA, psnr, ssim
from ldp_slicing.lab.metrics.shares import share_within

SETS = {"lfw": "LFW, 112 x 112", "cifar10": "CIFAR-10, 32 x 32"}
COUNT = 2000  # test images that are attacked, at most
BATCH = 250


@dataclass(frozen=True, eq=False)
class AttackTarget:
    """public: uint8 [N, H, W, 3], the adversary's. sources: uint8 [M, 3, H, W] on the device, which only their owners have.

    Nobody is in both by name. LFW has a few people and pictures under two names: docs/threat-model.md.
    """

    name: str
    public: NDArray[np.uint8]
    sources: Tensor
    faces: RecognitionMetric | None = None

    @cached_property
    def originals(self) -> dict[str, object] | None:
        """What is recognised on the sources themselves: the ceiling, where they are faces."""
        return self.faces.score(self.sources) if self.faces else None

    @cached_property
    def training_set(self) -> ImageSet:
        """What the adversary trains on. It is asked to give back the images themselves, so that labels say nothing."""
        labels = np.zeros(len(self.public), np.int64)
        return ImageSet(self.name, 1, Split(self.public, labels), Split(self.public[:0], labels[:0]))

    @torch.no_grad()
    def score(self, images: Tensor) -> dict[str, object]:
        """[M, 3, H, W] of 0..255, row i made from a release of source i, to how near it comes, as JSON has it."""
        pairs = list(zip(torch.split(images, BATCH), torch.split(self.sources, BATCH), strict=True))

        def over(measure: Callable[[Tensor, Tensor], Tensor]) -> NDArray[np.float64]:
            values: NDArray[np.float64] = torch.cat([measure(a, b) for a, b in pairs]).double().cpu().numpy()
            return values

        row: dict[str, object] = {
            "psnr_db": float(over(psnr).mean()),
            "ssim": float(over(ssim).mean()),
            "success": {
                criterion.name: share_within(over(criterion.distance), criterion.radius).row() for criterion in CRITERIA
            },
        }
        return row | (self.faces.score(images) if self.faces else {})

    def score_mean_image(self) -> dict[str, object]:
        """The baseline that uses no release: the mean of the public images as the reconstruction of every source."""
        mean = torch.from_numpy(self.public.mean(0, dtype=np.float64)).permute(2, 0, 1).float().to(self.sources.device)
        return self.score(mean.expand(len(self.sources), -1, -1, -1))


def open_target(name: str, folder: Path, device: torch.device) -> AttackTarget:
    """ "lfw": people in pairs of the first five folds are attacked, all others are public. "cifar10": half the training set is public."""
    if name == "lfw":
        faces = load_lfw(folder)
        side, _ = sides(faces)
        recogniser = on_pairs(load_recogniser(folder, device), faces, side)
        return AttackTarget(
            name, faces.images[side.images], _on_device(faces.images[recogniser.attacked], device), recogniser
        )
    images = load_cifar(name, folder)
    half = len(images.train.labels) // 2
    public = Split(images.train.images[:half], images.train.labels[:half])
    return target_from_set(ImageSet(name, images.classes, public, images.test), device)


def target_from_set(images: ImageSet, device: torch.device) -> AttackTarget:
    """The training set is public, and test images are attacked: a person, or a scene, must not be in both."""
    tested = images.test.images
    chosen = np.linspace(0, len(tested) - 1, min(COUNT, len(tested))).astype(int)
    return AttackTarget(images.name, images.train.images, _on_device(tested[chosen], device))


def _on_device(images: NDArray[np.uint8], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).to(device)
