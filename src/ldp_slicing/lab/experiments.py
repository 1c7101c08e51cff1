"""The experiments by name: which networks are trained, on what, and the numbers of the paper beside which ours are put."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.data import load
from ldp_slicing.lab.recipes import recipe
from ldp_slicing.lab.training import Task
from ldp_slicing.plan import Plan


@dataclass(frozen=True)
class Experiment:
    """``paper``: for each task by name, the accuracy in % that the authors report (best epoch on the test set)."""

    about: str
    tasks: Callable[[Path], list[Task]]
    paper: dict[str, float]


def _fidelity(data: Path) -> list[Task]:
    authors = recipe("cifar-authors")
    tasks = []
    for name in ("cifar10", "cifar100"):
        images = load(name, data)
        tasks.append(Task(f"{name}-eps20-every-epoch", images, authors, Plan.paper(20.0), release="every-epoch"))
        tasks.append(Task(f"{name}-clean", images, authors, release="none"))
    return tasks


EXPERIMENTS = {
    "fidelity": Experiment(
        "ResNet-56 in the authors' way: new noise for every batch (250 releases of each image), and without privacy",
        _fidelity,
        {"cifar10-eps20-every-epoch": 80.4, "cifar10-clean": 92.3, "cifar100-eps20-every-epoch": 53.6, "cifar100-clean": 70.9},
    ),
}


def experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise LdpSlicingError(f"no experiment {name!r}; there are {', '.join(sorted(EXPERIMENTS))}")
    return EXPERIMENTS[name]
