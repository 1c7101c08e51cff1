"""How networks are trained: one TOML file per recipe, each deviation named in it."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Literal, Self

from ldp_slicing.errors import LdpSlicingError


@dataclass(frozen=True)
class Recipe:
    """How one network is trained, on augmented images."""

    name: str
    source: str  # where it comes from
    deviations: tuple[str, ...]
    model: str
    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float
    mean: tuple[float, ...]  # of 0..1, one number per channel
    std: tuple[float, ...]
    momentum: float = 0.9
    optimiser: Literal["sgd", "adamw"] = "sgd"
    schedule: Literal["steps", "one-cycle"] = "steps"
    milestones: tuple[int, ...] = ()  # of "steps": the epochs at which ...
    factor: float = 1.0  # ... the learning rate is multiplied by this
    warm_up: float = 0.0  # the share of the epochs in which it rises; in "one-cycle" it then falls along a cosine
    look_every: int = (
        2  # epochs between looks at accuracies, until the last fifth, where each is looked at; 0: the first, then none
    )
    clip: float = 0.0  # gradient norm in every run; 0 is none
    clip_private: float = 0.0  # the same for runs with noise only
    pad: int = 0  # random crop after padding by this
    flip: bool = False
    loss: Literal["classes", "arcface", "teacher", "pairs", "source"] = (
        "classes"  # "source": an adversary gives the source back
    )
    margin: float = 0.4  # of "arcface"
    width: int = 10  # of a Wide ResNet for "pairs"
    temperature: float = 0.1  # of "teacher": how sharply resemblances are told apart

    def lasting(self, epochs: int) -> Self:
        """The same in fewer or more epochs, its steps at the same share of them; what trains not at all does not begin to."""
        if not self.epochs:
            return self
        return replace(
            self, epochs=epochs, milestones=tuple(round(one * epochs / self.epochs) for one in self.milestones)
        )

    def looks_at(self, epoch: int) -> bool:
        """Whether accuracies are looked at after epoch 0, 1, 2, ...: the last is always, and it or an earlier one is chosen."""
        often = epoch % self.look_every == 0 if self.look_every else epoch == 0
        return often or epoch + 1 == self.epochs or epoch >= 0.8 * self.epochs

    def learning_rate_at(self, epoch: int) -> float:
        """Of epoch 0, 1, 2, ..."""
        rising = self.warm_up * self.epochs
        if epoch < rising:
            return self.learning_rate * (epoch + 1) / (rising + 1)
        if self.schedule == "steps":
            return self.learning_rate * self.factor ** sum(epoch >= milestone for milestone in self.milestones)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (epoch - rising) / (self.epochs - rising)))


def recipe(name: str) -> Recipe:
    """A recipe by the name of its file."""
    file = resources.files(__package__) / f"{name}.toml"
    if not file.is_file():
        raise LdpSlicingError(f"no recipe {name!r}; there are {', '.join(recipes())}")
    return read_recipe({"name": name} | tomllib.loads(file.read_text()))


def read_recipe(content: dict[str, Any], kind: type[Recipe] = Recipe) -> Recipe:
    """A recipe from TOML's or JSON's content."""
    plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    return kind(**plain)


def recipes() -> list[str]:
    return sorted(
        path.name.removesuffix(".toml")
        for path in resources.files(__package__).iterdir()
        if path.name.endswith(".toml")
    )
