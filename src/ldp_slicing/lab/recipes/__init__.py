"""How networks are trained: one TOML file per recipe, each deviation named in it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ldp_slicing.errors import LdpSlicingError


@dataclass(frozen=True)
class Recipe:
    """SGD with step decay on augmented images."""

    name: str
    source: str  # where it comes from
    deviations: tuple[str, ...]
    model: str
    epochs: int
    batch: int
    learning_rate: float
    momentum: float
    weight_decay: float
    milestones: tuple[int, ...]  # epochs
    factor: float  # the learning rate is multiplied by it at each milestone
    clip_private: float  # gradient norm for runs with noise; 0 is none
    pad: int  # random crop after padding by this
    flip: bool
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def learning_rate_at(self, epoch: int) -> float:
        """Of epoch 0, 1, 2, ..."""
        return self.learning_rate * self.factor ** sum(epoch >= milestone for milestone in self.milestones)


def recipe(name: str) -> Recipe:
    """A recipe by the name of its file."""
    file = resources.files(__package__) / f"{name}.toml"
    if not file.is_file():
        names = sorted(path.name.removesuffix(".toml") for path in resources.files(__package__).iterdir() if path.name.endswith(".toml"))
        raise LdpSlicingError(f"no recipe {name!r}; there are {', '.join(names)}")
    content: dict[str, Any] = {"name": name}
    for key, value in tomllib.loads(file.read_text()).items():
        content[key] = tuple(value) if isinstance(value, list) else value
    return Recipe(**content)
