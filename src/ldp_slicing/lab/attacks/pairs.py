"""Pairs of a release and a public photo: do they show the same? The paper's identity distinguishing attack."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.data.sets import Split
from ldp_slicing.lab.learners.models.classify import wide_resnet28
from ldp_slicing.lab.learners.models.face_networks import ArcFaceHead
from ldp_slicing.lab.learners.run import TrainingRun


class PairRun(TrainingRun):
    """A Wide-ResNet-28 on (release, photo), six channels; half of the pairs go together, all others do not.

    Training pairs are drawn anew in every step from the training images, which are taken to be public; with release="every-epoch" the
    first of a pair gets fresh noise. A photo is never paired with its own release.
    """

    def _build(self) -> tuple[nn.Module, ArcFaceHead | None]:
        if self.task.recipe.model != "wrn28":
            raise LdpSlicingError(f"pairs are told apart by wrn28, not by {self.task.recipe.model!r}")
        return wide_resnet28(2, width=self.task.recipe.width, channels=6), None

    def _load(self, splits: tuple[Split, Split, Split]) -> None:
        super()._load(splits)
        order = torch.argsort(self.labels, stable=True)
        self.members, classes = order, self.task.data.classes
        self.count = torch.bincount(self.labels, minlength=classes)
        if int(self.count.min()) < 2 or classes < 2:
            raise LdpSlicingError(
                "each class of the training set needs two images at least, and there must be two classes"
            )
        self.begin = torch.cumsum(self.count, 0) - self.count
        self.place = torch.empty_like(order)  # of each image among the members of its class
        self.place[order] = torch.arange(len(order), device=self.device) - self.begin[self.labels[order]]

    def _draw(self, size: int) -> Tensor:
        return torch.randint(1 << 30, (size,), device=self.device, generator=self.generator)

    def partners(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """int64 [B] images to int64 [B] others and int64 [B], 1 where they are of the same class."""
        size, own, total = len(index), self.labels[index], len(self.members)
        same = self._draw(size) % 2
        beside = (self.place[index] + 1 + self._draw(size) % (self.count[own] - 1)) % self.count[own]
        # any image of another class, not an image of any other class: or who is on many photos would tell the answer without the release
        others = (self.begin[own] + self.count[own] + self._draw(size) % (total - self.count[own])) % total
        return self.members[torch.where(same == 1, self.begin[own] + beside, others)], same

    def _loss(self) -> Tensor:
        index = self._next()
        partner, same = self.partners(index)
        return self._against(self.compare(self.noise(self._cut(index)), self._cut(partner)), same)

    def compare(self, released: Tensor, photos: Tensor) -> Tensor:
        """Two uint8 [N, 3, H, W] to logits [N, 2]."""
        return self.forward(torch.cat((released, photos), 1))

    @torch.no_grad()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """Share of the task's test pairs that are told rightly; each released image is released once."""
        assert self.task.pairs is not None  # noqa: S101 - the task has checked it
        del labels
        self.model.eval()
        first, second, same = torch.from_numpy(self.task.pairs).to(self.device).unbind(1)
        wanted, where = torch.unique(first, return_inverse=True)
        released = torch.cat([self.noise(images[part]) for part in torch.split(wanted, 500)])
        parts = [
            (self.compare(released[a], images[b]).argmax(1) == s).sum()
            for a, b, s in zip(*(torch.split(x, 250) for x in (where, second, same)), strict=True)
        ]
        self.model.train()
        return int(torch.stack(parts).sum()) / len(same)


def draw_pairs(labels: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """int64 [count, 3]: image, another image, and 1 where both are of one class, as half of them are. Classes of one image go unpaired.

    No image comes first twice before all have: pairs that share a release share what is made of it, and tell less than they seem to.
    """
    rng = np.random.default_rng(seed)
    members = {int(kind): np.flatnonzero(labels == kind) for kind in np.unique(labels)}
    several = np.flatnonzero([len(members[int(kind)]) > 1 for kind in labels])
    rows, firsts = [], np.concatenate([rng.permutation(several) for _ in range(-(-count // len(several)))])
    for i, first in enumerate(firsts[:count].tolist()):
        mine = members[int(labels[first])]
        others = np.flatnonzero(labels != labels[first])
        same = i % 2
        rows.append((first, int(rng.choice(mine[mine != first] if same else others)), same))
    return np.array(rows, np.int64)
