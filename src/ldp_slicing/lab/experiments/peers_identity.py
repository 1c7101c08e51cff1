"""The paper's table of the identity distinguishing attack, with the systems that it names."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ldp_slicing.lab.attacks.pairs import pairs_of_test_set
from ldp_slicing.lab.attacks.peer_pairs import attack_pairs, train_on_pairs
from ldp_slicing.lab.attacks.recognition import load_recogniser
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.lfw import images_in_pairs, load_lfw, sides
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment
from ldp_slicing.lab.experiments.lfw_sides import pairs_of, people_with_several
from ldp_slicing.lab.experiments.peer_faces import revised
from ldp_slicing.lab.peers import MODULES, load_peer, systems_first
from ldp_slicing.lab.peers.fusing import fused_kernels
from ldp_slicing.lab.peers.training import TrainingSchedule, shortened
from ldp_slicing.lab.rows import Metrics, Row, select
from ldp_slicing.lab.tables import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"cifar10": "CIFAR-10, class", "cifar100": "CIFAR-100, class", "lfw": "LFW, person"}
# Advantage in %, by system and data set: the paper's table.
PAPER = {
    "ldp-slicing:eps20": {"cifar10": 0.25, "cifar100": 0.1, "lfw": 4.5},
    "duetface": {"cifar10": 5.07, "cifar100": 7.14, "lfw": 19.75},
    "partialface": {"cifar10": 3.55, "cifar100": 4.34, "lfw": 16.28},
    "dctdp": {"cifar10": 4.97, "cifar100": 5.98, "lfw": 12.58},
}
PEERS = ("none", "ldp-slicing:eps20", "duetface", "partialface", "dctdp:code-eps0.5", "dctdp:range-eps0.5")
FURTHER_ON_FACES = (  # settings, beside the first one of every system
    "ldp-slicing:eps12",
    "ldp-slicing:eps5.2",
    "ldp-slicing:thick-eps5.2",
    "ldp-slicing:small-eps20",
    "instahide:k4",
    "dp-pix:b4-m1-eps20.8",
)
OBJECTS = TrainingSchedule(epochs=8, rate=2e-3, batch=256, warm_up=0.2, decay=0.05, clip=1.0)
FACES = TrainingSchedule(epochs=20, rate=2e-3, batch=128, warm_up=0.2, decay=0.05, clip=1.0)
WIDTHS = {"cifar10": 4, "cifar100": 4, "lfw": 2}


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Public images and their classes to train on; tested images and their pairs."""

    public: Tensor
    labels: Tensor
    tested: Tensor
    pairs: NDArray[np.int64]

    @classmethod
    def load(cls, name: str, context: ExperimentContext) -> _Pairs:
        def placed(images: NDArray[np.uint8]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).to(context.device)

        if name == "lfw":
            faces = load_lfw(context.data)
            side, _ = sides(faces)
            several, people = people_with_several(side)
            public, tested = faces.images[side.images[several]], faces.images[images_in_pairs(faces, side)]
            return cls(
                placed(public), torch.from_numpy(people).to(context.device), placed(tested), pairs_of(faces, side)
            )
        images = load_cifar(name, context.data)
        labels = torch.from_numpy(images.train.labels).to(context.device)
        return cls(placed(images.train.images), labels, placed(images.test.images), pairs_of_test_set(images))


def measure(context: ExperimentContext) -> Iterator[Row]:
    for name in NAMES:
        schedule = FACES if name == "lfw" else OBJECTS
        if context.epochs is not None:
            schedule = replace(schedule, epochs=min(schedule.epochs, context.epochs))
        recipe = {"name": "peer-pairs", "model": "wrn28", "width": WIDTHS[name], **schedule.recorded()}
        folds = (0, 1, 2, 3, 4) if name == "lfw" else ()
        base = Row("peers-identity", name, "wide-resnet", release="every-epoch", folds=folds, recipe=recipe)
        rows = [
            replace(base, options={"peer": peer}, recipe=recipe | revised(load_peer(peer))) for peer in _peers_on(name)
        ]
        pending = [row for row in rows if context.pending(row)]
        data = _Pairs.load(name, context) if pending else None
        for row in pending:
            if context.limits.reached:
                context.postponed.append(row)
                continue
            assert data is not None  # noqa: S101 - loaded if anything is pending
            began = time.monotonic()
            with fused_kernels(context.limits.compile):
                metrics = _attack(str(row.options["peer"]), data, schedule, WIDTHS[name], context)
            context.log(f"{row.label}: advantage {100 * metrics['advantage']:.2f} %, {time.monotonic() - began:.1f} s")
            yield replace(row, metrics=metrics)


def _peers_on(dataset: str) -> list[str]:
    """The systems of the paper's table; on faces then every system, some of which need a recogniser of faces."""
    first = (load_peer(system).name for system in MODULES)
    return list(dict.fromkeys((*PEERS, *first, *FURTHER_ON_FACES))) if dataset == "lfw" else [*PEERS]


def _attack(name: str, data: _Pairs, schedule: TrainingSchedule, width: int, context: ExperimentContext) -> Metrics:
    teacher = nn.Identity() if name in PEERS else load_recogniser(context.data, context.device)  # those need none
    peer = shortened(load_peer(name), context.epochs)
    began = time.monotonic()
    fitted = peer.fit(data.public, data.labels, teacher)
    trained = time.monotonic()
    network = train_on_pairs(fitted, data.public, data.labels, schedule, width=width)
    seconds = {"fit": round(trained - began, 1), "network": round(time.monotonic() - trained, 1)}
    return {**attack_pairs(network, fitted, data.tested, data.pairs), "seconds": seconds}


def table(rows: Sequence[Row]) -> str:
    lines = []
    for name in systems_first({str(row.options["peer"]) for row in select(rows)}, str):
        line, published = [name], _published(name)
        for dataset in NAMES:
            found = select(rows, peer=name, dataset=dataset)
            line += [_cell(found[0].metrics) if found else "-", f"{published[dataset]:g}" if published else "-"]
        lines.append(line)
    heads = ["system", *(head for title in NAMES.values() for head in (title, "paper"))]
    return "Advantage |P(correct) - 1/2| in %, at most 50, with a 95 % interval.\n\n" + markdown(heads, lines)


def _published(name: str) -> dict[str, float]:
    """Advantage in % by data set, of this setting or of its system."""
    return PAPER.get(name) or PAPER.get(name.partition(":")[0], {})


def _cell(found: Metrics) -> str:
    low, high = found["advantage_low_95"], found["advantage_high_95"]
    return f"{100 * found['advantage']:.2f} ({100 * low:.2f} to {100 * high:.2f})"


def figure(rows: RowsByExperiment) -> Figure:
    """The data sets with few systems above each other, and faces beside them: a line for each system."""
    from ldp_slicing.lab.figures import COLOURS, common_legend, mosaic

    found = {
        name: systems_first(select(rows["peers-identity"], dataset=name), lambda row: str(row.options["peer"]))
        for name in NAMES
    }
    drawn, axes = mosaic([["cifar10", "lfw"], ["cifar100", "lfw"]], height=2 + 0.22 * max(map(len, found.values())))
    for dataset, title in NAMES.items():
        axis, names = axes[dataset], [str(row.options["peer"]) for row in found[dataset]]
        for place, (name, row) in enumerate(zip(names, found[dataset], strict=True)):
            mean, low, high = (100 * row.metrics[key] for key in ("advantage", "advantage_low_95", "advantage_high_95"))
            colour = COLOURS[0] if name.startswith("ldp-slicing") else "0.4"
            axis.errorbar([mean], [place], xerr=([mean - low], [high - mean]), color=colour, marker="o", capsize=2)
        papers = {place: paper[dataset] for place, name in enumerate(names) if (paper := _published(name))}
        axis.plot([*papers.values()], [*papers], "x", color="black", label="paper")
        axis.set_yticks(range(len(names)), names)
        axis.set(title=title, xlabel="advantage, % (at most 50)", xlim=(-1, 51), ylim=(max(1, len(names)) - 0.5, -0.5))
    common_legend(drawn, axes["lfw"], 1)
    return drawn


EXPERIMENT = Experiment(
    "peers-identity",
    """
Identity distinguishing as in the paper's table: given a release and a public image, decide whether they show the same
person (CIFAR: the same class). Half of the pairs do. A Wide-ResNet-28 sees both, is trained on public images with new
releases in every epoch, and each tested image is released once. On LFW, people in no pair of folds 1 to 5 are public.

- The network has width 4 on CIFAR and 2 on LFW; the paper trained on BUPT for faces and gives no details.
- `none` is no protection. On LFW the adversary has a few thousand faces to learn from.
- A small advantage shows only that this adversary failed: from releases of `ldp-slicing:eps5.2` and `partialface`, on
  which it learned little or nothing, a U-Net links 38 % and 83 % of the people (`peers`).
- The paper has numbers for DuetFace, PartialFace and DCTDP. On LFW all other systems are attacked, too.
- `dctdp` has its noise from the public code (`code`) and from its paper (`range`); which one the paper used is unknown.
- Every network trained here, the systems' own included, has seed 0. Schedules are in the rows and, for the systems, in
  `lab/peers`. The time of a row (`seconds`) is that of training both and of the attack; the first row of a data set
  also loads it. New rows have the times of both trainings, too (`metrics.seconds`). Several processes shared the GPU.
- The page of `peers` lists how each system deviates from what was published.
""",
    measure,
    table,
    figure,
)
