"""Privatize: the slicer as a torchvision transform. Every call is a release; ``ReleasedDataset`` releases once."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import PIL.Image
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from torchvision import tv_tensors  # type: ignore[import-untyped]
from torchvision.transforms import v2  # type: ignore[import-untyped]

from ldp_slicing.card import number
from ldp_slicing.errors import ImageError, ReleaseError
from ldp_slicing.slicer import Slicer
from ldp_slicing.torch.distributed import Count
from ldp_slicing.torch.images import EXPLICIT, refuse_picture, release_pixels
from ldp_slicing.torch.labels import own

PICTURE = object()  # holds the place of one


class RepeatedReleaseWarning(UserWarning):
    """Sources are, or may be, released more than once, and that adds up."""


def find_pictures(leaves: list[Any]) -> set[int]:
    """Which leaves of a sample are pictures, by torchvision's rules."""
    pictures = [i for i, leaf in enumerate(leaves) if isinstance(leaf, EXPLICIT)]
    if not pictures:
        plain = (
            i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and not isinstance(leaf, tv_tensors.TVTensor)
        )
        pictures = [*plain][:1]
    if not pictures:
        kinds = ", ".join(sorted({type(leaf).__name__ for leaf in leaves})) or "nothing"
        raise ImageError(
            f"there is no image in this sample, only {kinds}: turn a NumPy array into one with v2.ToImage()"
        )
    return {*pictures}


class Privatize(v2.Transform):  # type: ignore[misc]
    """Each picture of a sample becomes a release of it.

    >>> privatize = Privatize(Slicer(Plan.paper(20.0)), dataset_size=1)
    >>> v2.Compose([v2.PILToTensor(), privatize, v2.ToDtype(torch.float32, scale=True)])(PIL.Image.new("RGB", (4, 4))).shape
    torch.Size([3, 4, 4])

    Pictures: tv_tensors.Image, tv_tensors.Video (every frame is a release), PIL images (RGB, L, I;16) and, where there is none of these,
    the first plain tensor. Tensors: uint8 [..., C, H, W] with 3 channels or 1, 0 to 255 (uint16 for grey of 9 to 16 bits). Type, shape,
    dtype and device stay the same. Boxes, masks, key points and labels come back as equal copies: a view would take its whole source
    along. An image that cannot be released raises; so does a sample without a picture, or with a further array or nested list of three
    or more dimensions (two where the plan is grey) or an object that may hold a picture, which would pass unprotected. The dicts, lists and
    tuples that a picture lies in are the sample's own, and no dimension of the labels beside it.

    In a training loop the same sources are released again in every epoch: t epochs cost t x eps. ``releases`` counts, those of DataLoader
    workers, too, and a RepeatedReleaseWarning says so once: when there were more releases than ``dataset_size``, or, without that number,
    at the first. A copy counts on by itself. What is done to the picture before (a crop, a flip) is part of the source: crops of one
    source compose.
    """

    def __init__(self, slicer: Slicer, *, dataset_size: int | None = None) -> None:
        super().__init__()
        if not isinstance(slicer, Slicer):
            raise ReleaseError(f"Privatize needs a Slicer, such as Slicer(Plan.paper(20.0)); got {slicer!r}")
        if dataset_size is not None and (
            isinstance(dataset_size, bool) or not isinstance(dataset_size, int) or dataset_size < 1
        ):
            raise ReleaseError(f"dataset_size is the number of sources, at least 1; got {dataset_size!r}")
        self.slicer = slicer
        self.dataset_size = dataset_size
        self._made, self._said = Count(), Count()

    @property
    def releases(self) -> int:
        return self._made.value

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401
        """As in every transform; but labels are seen in their lists before anything is released, and are given memory of their own."""
        flat, spec = tree_flatten(inputs[0] if len(inputs) == 1 else inputs)
        pictures = find_pictures(flat)
        self._refuse_beside(tree_unflatten([PICTURE if i in pictures else leaf for i, leaf in enumerate(flat)], spec))
        return tree_unflatten(
            [self.transform(leaf, {}) if i in pictures else own(leaf) for i, leaf in enumerate(flat)], spec
        )

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:  # noqa: ANN401
        if isinstance(inpt, PIL.Image.Image):
            release: Any = self.slicer(inpt)
            self._count(1)
            return release
        pixels = release_pixels(inpt, self.slicer)
        self._count(int(np.prod(pixels.shape[:-3])))
        release = torch.from_numpy(pixels).to(inpt.device)
        return tv_tensors.wrap(release, like=inpt) if isinstance(inpt, tv_tensors.TVTensor) else release

    def extra_repr(self) -> str:
        plan = self.slicer.plan
        return (
            f"epsilon={number(plan.realised_epsilon)} per released pixel, word_bits={plan.word_bits}, prune={self.slicer.prune!r}, "
            f"output={self.slicer.output!r}, dataset_size={self.dataset_size}, releases={self.releases}"
        )

    def _refuse_beside(self, part: object) -> None:
        """Refuse what may be a picture in a sample, or a part of one, where PICTURE stands for those that will be released."""
        inside = tree_leaves(part)
        if not any(leaf is PICTURE for leaf in inside):
            refuse_picture(part, self.slicer)
        elif isinstance(part, dict):
            for key, value in part.items():
                refuse_picture(key, self.slicer)
                self._refuse_beside(value)
        elif isinstance(part, list | tuple):
            for one in part:
                self._refuse_beside(one)
        elif part is not PICTURE:  # a class that torch can take apart; it may hold more than its parts
            refuse_picture(part, self.slicer)

    def _count(self, images: int) -> None:
        made, size = self._made.add(images), self.dataset_size
        again = size is not None and made > size
        if not (size is None or again) or self._said.value or self._said.add(1) > 1:
            return
        epsilon = self.slicer.plan.realised_epsilon
        message = (
            f"every call of Privatize is a release: a source that comes t times costs t x {number(epsilon)} epsilon per released pixel "
            f"(10 epochs: {number(10 * epsilon)})"
        )
        if size is not None and again:
            times = -(-made // size)
            message = (
                f"Privatize made {made} releases of {size} sources, so some source at least {times} times: that costs "
                f"{times} x {number(epsilon)} = {number(times * epsilon)} epsilon per released pixel, and it grows with every epoch"
            )
        warnings.warn(
            f"{message}. ldp_slicing.torch.ReleasedDataset releases each source once",
            RepeatedReleaseWarning,
            stacklevel=2,
        )
