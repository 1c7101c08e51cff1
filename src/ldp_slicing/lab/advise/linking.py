"""Linkage: does a release show the same person, patient or place as an unprotected image?

The judge embeds unprotected images: a recogniser that the owner supplies, or a network that is trained on the groups to
train on. Two attacks use it: the judge on reconstructed images, and a student that reads the bits of releases and is
taught the judge's embeddings of their sources. The stronger one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.advise.grid import ViewKey
from ldp_slicing.lab.advise.intervals import Estimate
from ldp_slicing.lab.advise.learning import Bench, in_parts
from ldp_slicing.lab.advise.networks import EMBEDDING, Batches, Stoppable, build, fit, odds_of
from ldp_slicing.lab.advise.reconstruction import Attacked
from ldp_slicing.lab.advise.splits import LinkageTest, Parts
from ldp_slicing.lab.bits import evidence
from ldp_slicing.lab.learners.graph import half_precision
from ldp_slicing.lab.learners.models import build_embedder, load_weights
from ldp_slicing.lab.learners.objectives import distillation_loss
from ldp_slicing.lab.metrics.shares import Share
from ldp_slicing.lab.metrics.verification import fold_accuracy
from ldp_slicing.plan import Plan
from ldp_slicing.torch.simulate import simulate

TEMPERATURE = 0.1
FOLDS = 10
FEWEST_PAIRS = 4 * FOLDS  # for a verification test
RECOGNISED_SIDE = 112  # of the images that recognisers take
Embed = Callable[[Tensor], Tensor]  # [N, C, H, W] of 0..255 to float32 [N, D]


@dataclass(frozen=True)
class Judge:
    """Embeds unprotected images. seconds: of training; 0 for a recogniser. known: embeddings of all sources."""

    embed: Embed
    seconds: float = 0.0
    known: list[Tensor] = field(default_factory=list)

    @torch.inference_mode()
    def of(self, images: Tensor) -> Tensor:
        """float32 [N, D]: the embeddings of all sources, computed once."""
        if not self.known:
            self.known.append(in_parts(images, self.embed))
        return self.known[0]


def load_judge(path: Path, device: torch.device) -> Judge:
    """A recogniser with its weights: dlib's file (.dat), or a state dict of the lab's IR-50."""
    network = build_embedder("dlib" if path.suffix == ".dat" else "ir50")[0]
    load_weights(network, path)
    network = network.to(device).eval()

    def embed(images: Tensor) -> Tensor:
        x = images.float().expand(-1, 3, -1, -1)
        if x.shape[2:] != (RECOGNISED_SIDE, RECOGNISED_SIDE):
            x = functional.interpolate(x, (RECOGNISED_SIDE, RECOGNISED_SIDE), mode="bilinear", align_corners=False)
        out: Tensor = network(x) + network(x.flip(-1))
        return out.float()

    return Judge(embed)


def train_judge(bench: Bench, parts: Parts, steps: int, seed: int) -> Judge | None:
    """Train to embed two images of one group alike and those of other groups of the same class apart.

    None if fewer than 4 groups to train on have two images.
    """
    assert bench.sources.groups is not None  # noqa: S101 - linkage needs groups
    drawn = _PairsOfGroups(bench.sources.groups, bench.sources.labels, parts.train, seed, bench)
    if drawn.groups < 4:
        return None
    channels, height, width = bench.images.shape[1:]
    network = build(channels, EMBEDDING, max(height, width), bench.effort, seed, bench.device)
    mean, deviation = 127.5, 64.0

    def embed(images: Tensor) -> Tensor:
        ready = ((images.float() - mean) / deviation).contiguous(memory_format=torch.channels_last)
        with half_precision(bench.device):
            out: Tensor = network(ready)
        return out.float()

    def loss() -> Tensor:
        first, second, groups = drawn.draw()
        both = functional.normalize(embed(drawn.batches.vary(bench.images[torch.cat((first, second))])))
        alike = both[: len(first)] @ both[len(first) :].T / TEMPERATURE
        answers = torch.arange(len(first), device=bench.device)
        repeated = (groups[:, None] == groups[None, :]) & (answers[:, None] != answers[None, :])
        alike = alike.masked_fill(repeated, -1e4)  # a group that was drawn twice is no impostor
        return functional.cross_entropy(alike, answers) + functional.cross_entropy(alike.T, answers)

    seconds = fit(loss, network, steps, drawn.batches, rate=1e-3, decay=0.05, stop=bench.stop, graph=False)
    network.eval()
    return Judge(embed, seconds)


class _PairsOfGroups:
    """Draws two images each of some groups of one class, on the device."""

    def __init__(
        self, groups: NDArray[np.int64], labels: NDArray[np.int64], train: NDArray[np.int64], seed: int, bench: Bench
    ) -> None:
        counts = np.bincount(groups[train], minlength=int(groups.max()) + 1)
        several = train[counts[groups[train]] > 1]
        order = several[np.argsort(groups[several], kind="stable")]
        names, begin, count = np.unique(groups[order], return_index=True, return_counts=True)
        device, self.groups = bench.device, len(names)
        self.begin, self.count, self.images = (torch.from_numpy(one).to(device) for one in (begin, count, order))
        kinds = labels[order[begin]] if self.groups else np.zeros(0, np.int64)
        if len(np.unique(kinds)) == self.groups:
            kinds = np.zeros_like(kinds)  # every group has a class of its own
        self.by_class = [torch.from_numpy(np.flatnonzero(kinds == kind)).to(device) for kind in np.unique(kinds)]
        self.chances = np.array([len(one) for one in self.by_class], np.float64)
        self.rng = np.random.default_rng([seed, 3])
        pixels = bench.images.shape[2] * bench.images.shape[3]
        self.batches = Batches(1, bench.effort.batch_of(2 * pixels, max(2, self.groups)), seed, device)

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """int64 [B] each: two different images of a group, and the group."""
        mine = self.by_class[self.rng.choice(len(self.by_class), p=self.chances / self.chances.sum())]
        group = mine[self.batches.number(len(mine), self.batches.size)]
        one, other = (self.batches.number(1 << 30, self.batches.size) for _ in range(2))
        count = self.count[group]
        first = one % count
        second = (first + 1 + other % (count - 1)) % count
        return self.images[self.begin[group] + first], self.images[self.begin[group] + second], group


@dataclass(frozen=True)
class Student:
    """Reads the released words of one view, under any of its plans, and gives the judge's embedding of the source."""

    network: nn.Module
    view: ViewKey
    seconds: float

    def embed(self, words: Tensor, odds: Tensor) -> Tensor:
        """uint8 [N, C, h, w] and float32 [N, 8 C] to float32 [N, D]."""
        ready = evidence(words, odds).contiguous(memory_format=torch.channels_last)
        with half_precision(words.device):
            out: Tensor = self.network(ready)
        return out.float()


def train_student(
    bench: Bench, judge: Judge, view: ViewKey, plans: Sequence[Plan], parts: Parts, steps: int, seed: int
) -> Student:
    """Teach the judge's embeddings of the images to train on, from releases of theirs that are drawn in every step."""
    size, prune = view
    device, train = bench.device, torch.from_numpy(parts.train).to(bench.device)
    with Stoppable(bench.stop):
        wanted = functional.normalize(judge.of(bench.images)[train].clone())
    wanted = wanted - wanted.mean(0)
    channels = 16 * bench.images.shape[1]
    network = build(channels, wanted.shape[1], max(size), bench.effort, seed, device)
    batches = Batches(len(train), bench.effort.batch_of(size[0] * size[1], len(train)), seed, device)
    shares = [plans[i % len(plans)] for i in range(batches.size)]
    odds = torch.stack([odds_of(plan, device) for plan in shares])
    student = Student(network, view, 0.0)

    def loss() -> Tensor:
        where = batches.draw()
        words = simulate(bench.images[train[where]], shares, batches.generator, prune=prune, size=size, output="ycbcr")
        return distillation_loss(student.embed(batches.vary(words), odds), wanted[where], TEMPERATURE)

    seconds = fit(loss, network, steps, batches, rate=2e-3, decay=0.05, stop=bench.stop)
    return Student(network.eval(), view, seconds)


@torch.inference_mode()
def embed_attacked(bench: Bench, judge: Judge, student: Student, plan: Plan, attacked: Attacked) -> dict[str, Tensor]:
    """float32 [M, D] for each of the two attacks: embeddings from one release of each attacked image."""
    odds = odds_of(plan, bench.device)
    return {
        "student": in_parts(attacked.words, lambda part: student.embed(part, odds.expand(len(part), -1))),
        "judge on reconstructed images": in_parts(attacked.reconstructed, judge.embed),
    }


def link(bench: Bench, judge: Judge, seen: Mapping[str, Tensor], parts: Parts, test: LinkageTest) -> dict[str, Any]:
    """Rank-1 identification and verification accuracy. seen: embeddings of attacked images, see ``embed_attacked``."""
    gallery = _ready(judge.of(bench.images)[torch.from_numpy(parts.test).to(bench.device)])
    found = [{"attack": name, **_scores(_ready(one), gallery, test)} for name, one in seen.items()]
    best = {  # an attacker would choose the better one
        metric: max((one[metric] for one in found if metric in one), key=lambda one: float(one["high"]), default=None)
        for metric in ("rank_1", "verification")
    }
    return {"all": found, **{metric: one for metric, one in best.items() if one is not None}}


def link_unprotected(bench: Bench, judge: Judge, parts: Parts, test: LinkageTest) -> dict[str, Any]:
    """The same for unprotected images: what the judge can do at best."""
    gallery = _ready(judge.of(bench.images)[torch.from_numpy(parts.test).to(bench.device)])
    return _scores(gallery[test.released], gallery, test)


def _ready(embeddings: Tensor) -> Tensor:
    """Centred and of length 1, on the CPU."""
    return functional.normalize(embeddings - embeddings.mean(0)).double().cpu()


def _scores(seen: Tensor, gallery: Tensor, test: LinkageTest) -> dict[str, Any]:
    """seen: [M, D] of released images, those of ``test.released`` first. gallery: [N, D] of all held-out ones."""
    row = {position: i for i, position in enumerate(test.released.tolist())}
    probes, own = seen[[row[i] for i in test.probes.tolist()]], gallery[test.gallery]
    alike = (probes @ own.T).numpy()
    right = alike.diagonal().copy()
    others = np.where(test.candidates & ~np.eye(len(right), dtype=bool), alike, -np.inf)
    hits = right > others.max(1)  # a tie is a miss, so that a constant embedding scores 0
    firsts = seen[[row[i] for i in test.first.tolist()]]
    distances = (firsts - gallery[test.second]).square().sum(1).numpy()
    found = {"rank_1": Estimate.from_share(Share(int(hits.sum()), len(hits))).to_dict(), "chance": test.chance}
    if len(distances) >= FEWEST_PAIRS:
        accuracy = fold_accuracy(distances, test.same, np.arange(len(distances)) // 2 % FOLDS).accuracy
        found["verification"] = Estimate.of_groups(accuracy, test.groups, len(distances)).to_dict()
    return found
