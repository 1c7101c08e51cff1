"""The images that are attacked, and the public images that the adversary has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldp_slicing.lab.attacks.recognition import RecognitionMetric, load_recogniser, on_pairs
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.lfw import load_lfw, sides
from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.interfaces import Metric
from ldp_slicing.lab.metrics.images import image_quality

SETS = {"lfw": "LFW, 112 x 112", "cifar10": "CIFAR-10, 32 x 32"}
MOST_ATTACKED = 2000  # test images
BATCH = 250


@dataclass(frozen=True, eq=False)
class AttackTarget:
    """public: uint8 [N, H, W, C], images of the adversary. sources: uint8 [M, C, H, W] on the device, of their owners.

    No person is in both, as far as names tell. LFW has a few people and images under two names: docs/threat-model.md.
    faces: the recogniser that is another metric if the sources are faces.
    """

    name: str
    public: NDArray[np.uint8]
    sources: Tensor
    faces: RecognitionMetric | None = None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (image_quality, self.faces) if self.faces else (image_quality,)

    def score(self, images: Tensor) -> dict[str, Any]:
        """[M, C, H, W] of 0..255, image i made from a release of source i, to the numbers of all metrics."""
        return {name: value for metric in self.metrics for name, value in metric(images, self.sources).items()}

    @cached_property
    def originals(self) -> dict[str, Any] | None:
        """The recogniser's scores of the sources themselves, an upper limit; None if they are not faces."""
        return self.faces(self.sources, self.sources) if self.faces else None

    def score_mean_image(self) -> dict[str, Any]:
        """The scores of the mean public image as every reconstruction: the baseline that uses no release."""
        mean = torch.from_numpy(self.public.mean(0, dtype=np.float64)).permute(2, 0, 1).float().to(self.sources.device)
        return self.score(mean.expand(len(self.sources), -1, -1, -1))

    @cached_property
    def training_set(self) -> ImageSet:
        """The public images, to train an adversary on. It learns to return the images, so all labels are 0."""
        labels = np.zeros(len(self.public), np.int64)
        return ImageSet(self.name, 1, Split(self.public, labels), Split(self.public[:0], labels[:0]))


def open_target(name: str, folder: Path, device: torch.device) -> AttackTarget:
    """Open "lfw": people in pairs of the first five folds are attacked, and all others are public.

    Or open "cifar10": test images are attacked, and half of the training set is public.
    """
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
    """The training images are public, and test images are attacked. No person or scene should be in both."""
    tested = images.test.images
    chosen = np.linspace(0, len(tested) - 1, min(MOST_ATTACKED, len(tested))).astype(int)
    return AttackTarget(images.name, images.train.images, _on_device(tested[chosen], device))


def _on_device(images: NDArray[np.uint8], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).to(device)
