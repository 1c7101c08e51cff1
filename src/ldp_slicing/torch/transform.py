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

from ldp_slicing.errors import ImageError, ReleaseError
from ldp_slicing.slicer import Slicer
from ldp_slicing.torch.distributed import SharedCounter
from ldp_slicing.torch.images import IMAGE_TYPES, check_label, release_tensor
from ldp_slicing.torch.labels import copy_label
from ldp_slicing.wording import number

_IMAGE_PLACEHOLDER = object()  # stands for an image while its sample is checked


class RepeatedReleaseWarning(UserWarning):
    """Sources are, or may be, released more than once, and the costs add up."""


class Privatize(v2.Transform):  # type: ignore[misc]
    """Replace each image of a sample with a release of it.

    >>> privatize = Privatize(Slicer(Plan.paper(20.0)), dataset_size=1)
    >>> to_float = v2.ToDtype(torch.float32, scale=True)
    >>> v2.Compose([v2.PILToTensor(), privatize, to_float])(PIL.Image.new("RGB", (4, 4))).shape
    torch.Size([3, 4, 4])

    Images are tv_tensors.Image, tv_tensors.Video (every frame is a release) and PIL images (RGB, L, I;16). If a sample
    has none of these, its first plain tensor is the image. Tensors are uint8 [..., C, H, W] with 3 channels or 1, 0 to
    255; uint16 for grey of 9 to 16 bits. Type, dtype and device stay the same. So does the shape, unless the slicer has
    a ``size``.

    Boxes, masks, key points and labels are returned as copies: a tensor view would carry its whole source along. They
    are NOT protected, and labels that may be images are refused: see ``ldp_slicing.torch.images.check_label``. The
    dicts, lists and tuples that hold an image belong to the sample and do not count as dimensions of a label. Boxes,
    masks and key points are not shrunk with their image.

    slicer
        makes the releases.
    dataset_size
        the number of sources. The transform warns once (RepeatedReleaseWarning) when it has made more releases than
        this or, if it is None, at the first release.

    A training loop releases the same sources again in every epoch, so t epochs cost t x eps. ``releases`` counts all
    releases, including those of DataLoader workers. A copy of the transform counts for itself. What earlier transforms
    do to an image is part of the source, and several crops of one source compose.
    """

    def __init__(self, slicer: Slicer, *, dataset_size: int | None = None) -> None:
        super().__init__()
        if not isinstance(slicer, Slicer):
            raise ReleaseError(f"Privatize needs a Slicer, such as Slicer(Plan.paper(20.0)); got {slicer!r}")
        is_count = isinstance(dataset_size, int) and not isinstance(dataset_size, bool) and dataset_size >= 1
        if dataset_size is not None and not is_count:
            raise ReleaseError(f"dataset_size must be the number of sources, at least 1; got {dataset_size!r}")
        self.slicer = slicer
        self.dataset_size = dataset_size
        self._made, self._warnings = SharedCounter(), SharedCounter()

    @property
    def releases(self) -> int:
        """The number of releases made so far."""
        return self._made.value

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401
        """Return the sample with its images released. The whole sample is checked before anything is released."""
        leaves, spec = tree_flatten(inputs[0] if len(inputs) == 1 else inputs)
        images = _image_positions(leaves)
        placeholders = [_IMAGE_PLACEHOLDER if i in images else leaf for i, leaf in enumerate(leaves)]
        self._check_labels(tree_unflatten(placeholders, spec))
        released = [self.transform(leaf, {}) if i in images else copy_label(leaf) for i, leaf in enumerate(leaves)]
        return tree_unflatten(released, spec)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:  # noqa: ANN401
        """Return a release of one image."""
        if isinstance(inpt, PIL.Image.Image):
            release: Any = self.slicer(inpt)
            self._count(1)
            return release
        pixels = release_tensor(inpt, self.slicer)
        self._count(int(np.prod(pixels.shape[:-3])))
        release = torch.from_numpy(pixels).to(inpt.device)
        return tv_tensors.wrap(release, like=inpt) if isinstance(inpt, tv_tensors.TVTensor) else release

    def extra_repr(self) -> str:
        plan = self.slicer.plan
        return (
            f"epsilon={number(plan.realised_epsilon)} per released pixel, word_bits={plan.word_bits}, "
            f"prune={self.slicer.prune!r}, size={self.slicer.size!r}, output={self.slicer.output!r}, "
            f"dataset_size={self.dataset_size}, releases={self.releases}"
        )

    def _check_labels(self, part: object) -> None:
        """Raise ImageError if a part of a sample, other than a placeholder, may be an image that is not released."""
        if not any(leaf is _IMAGE_PLACEHOLDER for leaf in tree_leaves(part)):
            check_label(part, self.slicer)
        elif isinstance(part, dict):
            for key, value in part.items():
                check_label(key, self.slicer)
                self._check_labels(value)
        elif isinstance(part, list | tuple):
            for one in part:
                self._check_labels(one)
        elif part is not _IMAGE_PLACEHOLDER:  # a container class that torch can take apart; it may hold more
            check_label(part, self.slicer)

    def _count(self, images: int) -> None:
        made, size = self._made.add(images), self.dataset_size
        if size is not None and made <= size:
            return
        if self._warnings.value or self._warnings.add(1) > 1:
            return
        epsilon = self.slicer.plan.realised_epsilon
        if size is None:
            message = (
                f"every call of Privatize is a release: a source that is transformed t times costs t x "
                f"{number(epsilon)} epsilon per released pixel (10 epochs: {number(10 * epsilon)})"
            )
        else:
            times = -(-made // size)
            message = (
                f"Privatize made {made} releases of {size} sources, so some source was released at least {times} "
                f"times: that costs {times} x {number(epsilon)} = {number(times * epsilon)} epsilon per released "
                "pixel, and grows with every epoch"
            )
        warnings.warn(
            f"{message}. ldp_slicing.torch.ReleasedDataset releases each source once",
            RepeatedReleaseWarning,
            stacklevel=2,
        )


def _image_positions(leaves: list[Any]) -> set[int]:
    """Return which leaves of a sample are images, by torchvision's rules."""
    images = {i for i, leaf in enumerate(leaves) if isinstance(leaf, IMAGE_TYPES)}
    if images:
        return images
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and not isinstance(leaf, tv_tensors.TVTensor):
            return {i}
    types = ", ".join(sorted({type(leaf).__name__ for leaf in leaves})) or "nothing"
    raise ImageError(f"this sample holds no image, only {types}: convert a NumPy array with v2.ToImage()")
