"""Recipes: how networks are trained. One TOML file each, which names its deviations from the literature."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Literal, Self

from ldp_slicing.errors import LdpSlicingError


@dataclass(frozen=True)
class Recipe:
    """How a network is trained."""

    name: str
    source: str  # where it comes from
    deviations: tuple[str, ...]
    model: str
    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float
    mean: tuple[float, ...]  # of images of 0..1, one number per channel
    std: tuple[float, ...]
    momentum: float = 0.9
    optimiser: Literal["sgd", "adamw"] = "sgd"
    schedule: Literal["steps", "one-cycle"] = "steps"
    milestones: tuple[int, ...] = ()  # of "steps": epochs at which the learning rate is multiplied
    factor: float = 1.0  # of "steps": by this factor
    warm_up: float = 0.0  # the share of the epochs in which the rate rises; in "one-cycle" it then falls along a cosine
    look_every: int = 2  # epochs between measurements of accuracy before the last fifth; 0: only the first one
    clip: float = 0.0  # the largest gradient norm; 0 means no clipping
    clip_private: float = 0.0  # the same, for runs with noise only
    pad: int = 0  # pixels of padding before a random crop
    flip: bool = False
    erase: int = 0  # the side of a square, in pixels, that is blanked at a random place of each training image
    mix: float = 0.0  # the largest share of another training image, and of its label, in an image; for "classes"
    size: int = 0  # the longest side to which sources are shrunk before the noise; 0 keeps their size
    average: float = 0.0  # the decay, per step, of the moving average of the weights that is measured; 0 means none.
    # It is smaller in runs of a few hundred steps, see ``share_of_newest``
    smoothing: float = 0.0  # of the labels, for "classes"
    class_weights: bool = False  # whether every class has the same weight in the loss, however rare; for "classes"
    loss: Literal["classes", "arcface", "teacher", "pairs", "source"] = "classes"  # see ``objectives``
    margin: float = 0.4  # of "arcface"
    width: int = 10  # of a Wide ResNet for "pairs"
    reconstructor_steps: int = 6000  # training steps of ``Reconstructor``, in the modes that use it
    beside_decoded: bool = False  # in these modes, whether the network takes the decoded channels too
    pretrain_epochs: int = 0  # in "reconstructed-public": epochs that the network is first trained on the public images
    temperature: float = 0.1  # of "teacher": small values separate similar images more sharply

    def lasting(self, epochs: int) -> Self:
        """The same recipe with another number of epochs, and milestones at the same share of them; 0 epochs stay 0.

        Pretraining does not last longer than training.
        """
        if not self.epochs:
            return self
        milestones = tuple(round(one * epochs / self.epochs) for one in self.milestones)
        return replace(self, epochs=epochs, milestones=milestones, pretrain_epochs=min(epochs, self.pretrain_epochs))

    def looks_at(self, epoch: int) -> bool:
        """Whether accuracy is measured after this epoch, from 0. It always is after the last one."""
        often = epoch % self.look_every == 0 if self.look_every else epoch == 0
        return often or epoch + 1 == self.epochs or epoch >= 0.8 * self.epochs

    def learning_rate_at(self, epoch: int) -> float:
        """The learning rate of an epoch, from 0."""
        rising = self.warm_up * self.epochs
        if epoch < rising:
            return self.learning_rate * (epoch + 1) / (rising + 1)
        if self.schedule == "steps":
            return self.learning_rate * self.factor ** sum(epoch >= milestone for milestone in self.milestones)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (epoch - rising) / (self.epochs - rising)))


def recipe(name: str) -> Recipe:
    """The recipe in the file of that name."""
    file = resources.files(__package__) / f"{name}.toml"
    if not file.is_file():
        raise LdpSlicingError(f"no recipe {name!r}; available: {', '.join(recipes())}")
    content = {"name": name} | tomllib.loads(file.read_text())
    plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    return Recipe(**plain)


def recipes_for(loss: str) -> list[str]:
    """The names of the recipes with this loss."""
    return [name for name in recipes() if recipe(name).loss == loss]


def recipes() -> list[str]:
    """The names of all recipes."""
    return sorted(
        path.name.removesuffix(".toml")
        for path in resources.files(__package__).iterdir()
        if path.name.endswith(".toml")
    )
